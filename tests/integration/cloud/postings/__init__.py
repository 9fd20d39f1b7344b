"""Barn records and feed that people enter in the cloud."""
