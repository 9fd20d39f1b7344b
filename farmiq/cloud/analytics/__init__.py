"""cloud-analytics-service: daily figures of batches from what the other services store."""
