"""cloud-inference-service: events of the bus into inference_events."""
