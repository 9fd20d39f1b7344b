"""Alerts on their way to people: who is told what, when and over which channel."""
