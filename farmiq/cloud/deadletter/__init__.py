"""cloud-deadletter-service: dead letters of the bus, and how they are redriven."""
