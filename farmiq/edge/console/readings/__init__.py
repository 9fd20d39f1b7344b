"""The latest readings at the edge, and a sensor with its chart."""
