"""cloud-barn-service: events of the bus into barn_events."""
