"""Backups of a site: its database with every change, its bucket, its files; and the way back."""
