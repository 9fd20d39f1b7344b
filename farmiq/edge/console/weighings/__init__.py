"""The weighings of a day at the edge, and one in full."""
