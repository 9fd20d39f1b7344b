"""cloud-feed-service: lots received, feed taken in, and what is left."""
