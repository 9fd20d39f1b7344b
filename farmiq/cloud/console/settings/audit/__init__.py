"""Who did what: the audit logs of all services in one list."""
