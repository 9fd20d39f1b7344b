"""In the barn: from the door in (ingress) to the door out (sync)."""
