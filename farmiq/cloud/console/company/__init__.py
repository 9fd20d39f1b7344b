"""Signing in, and the company that is looked at."""
