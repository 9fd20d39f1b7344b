"""cloud-barn-service: barn records, from edges and from people."""
