"""Rules on local readings, the siren and the edge's own mail."""
