"""Signing in at the edge, and the tenant that is looked at."""
