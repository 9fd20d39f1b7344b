"""Feed: what is left in silos and lots, and what the animals took in."""
