"""How delivery to the cloud goes, and what was rejected."""
