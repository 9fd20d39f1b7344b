"""Dishes of a site: growth curves, forecasts, time-lapses, and a map of where they stand."""
