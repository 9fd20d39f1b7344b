"""Settings: people, edges, retention, the audit log, and what this installation is."""
