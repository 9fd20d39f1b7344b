"""In the data centre: from the door in (ingestion) to the screen (console)."""
