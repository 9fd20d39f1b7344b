"""cloud-ingestion: batches of the edges onto the bus."""
