"""The calendar of the cameras' sites: each day opened and locked at its own midnight."""
