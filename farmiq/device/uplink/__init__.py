"""The uplink: events over MQTT, pictures over HTTP, commands from the edge."""
