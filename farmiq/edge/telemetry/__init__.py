"""edge-telemetry-timeseries: readings kept at the edge."""
