"""Today: what needs attention now, and how everything fares."""
