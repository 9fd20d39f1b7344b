"""Pure code of the edge's console."""
