"""Images at the edge: where they may be put, whether they are whole, what the cloud has of them."""
