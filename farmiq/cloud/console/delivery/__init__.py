"""Delivery: whether everything arrives, from the edges to the tables."""
