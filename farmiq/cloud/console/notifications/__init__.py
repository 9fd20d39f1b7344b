"""Pages about who is told of alerts: channels, contacts, quiet hours, escalation, tests."""
