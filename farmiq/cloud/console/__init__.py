"""cloud-console: pages, their live updates and the same data as JSON."""
