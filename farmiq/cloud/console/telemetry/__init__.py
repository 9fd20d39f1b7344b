"""Telemetry: all sensors, the history of one, several beside each other; the newest as JSON."""
