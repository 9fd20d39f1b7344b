"""cloud-weighvision-service: events of the bus into weighvision_events, and sessions of them."""
