"""Today at the barn: what works, what is late, what waits."""
