"""cloud-camera-gateway: images in chunks from battery cameras whose firmware nobody can change."""
