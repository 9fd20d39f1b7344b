"""Weigh sessions at the edge: what a station told, bound into one session each."""
