"""cloud-analytics-service: events of the bus into kpi_events."""
