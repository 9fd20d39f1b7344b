"""cloud-telemetry-service: readings from the bus into tables."""
