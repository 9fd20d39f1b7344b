"""cloud-feed-service: events of the bus into feed_events."""
