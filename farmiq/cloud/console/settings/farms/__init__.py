"""Farms, barns and feed products: listed, added and changed."""
