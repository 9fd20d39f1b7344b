"""cloud-ingestion: the edges' batches in, the bus out."""
