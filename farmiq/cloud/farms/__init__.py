"""Master data: farms, barns, batches, feed products, metrics and breed standards."""
