"""Petri dishes under battery cameras: where the dish is, how much of it changed, how that grows."""
