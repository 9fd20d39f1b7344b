"""Images at the edge: presigned, stored, announced, and taken to the cloud."""
