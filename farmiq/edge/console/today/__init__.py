"""Today at the barn: what is right, what is late, what waits."""
