"""cloud-media-store: events of the bus into media_events."""
