"""Barn records that people enter at an edge."""
