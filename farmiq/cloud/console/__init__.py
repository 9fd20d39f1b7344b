"""What people see: pages, their live updates and their JSON twins."""
