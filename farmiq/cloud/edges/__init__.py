"""cloud-edges-registry: which edges there are, by which keys we know them, how they are."""
