"""Pages about alerts: episodes, rules, maintenance windows."""
