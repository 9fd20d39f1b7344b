"""cloud-sync-service: events of the bus into sync_events."""
