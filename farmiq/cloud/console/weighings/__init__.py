"""Weighings: pages of a day and of one, and the same as JSON or CSV."""
