"""What people write down at the edge: barn records, feed taken in, feed delivered."""
