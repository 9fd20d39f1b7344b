"""Latest readings: a page and its JSON."""
