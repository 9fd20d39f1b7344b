"""cloud-edges-registry: the edges, their keys and their state."""
