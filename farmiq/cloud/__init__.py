"""In the data centre: from the batches of the edges (ingestion) to the pages (console)."""
