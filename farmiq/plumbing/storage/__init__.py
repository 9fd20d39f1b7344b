"""Object storage, and uploads to it over a link that breaks."""
