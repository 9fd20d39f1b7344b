"""What runs and when: services, jobs, the leader lease, and the clock's steadiness."""
