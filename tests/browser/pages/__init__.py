"""Every page of both consoles, visited once on real data: figures counted again, look, speed."""
