"""The edge's own console over HTTP, on a real database."""
