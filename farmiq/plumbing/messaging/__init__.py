"""Messages of devices: MQTT, and a NATS stream that is read as a log."""
