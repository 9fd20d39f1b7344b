"""cloud-deadletter-service: what died on the bus, and how it comes back."""
