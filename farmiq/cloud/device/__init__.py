"""cloud-device-service: events of the bus into device_events."""
