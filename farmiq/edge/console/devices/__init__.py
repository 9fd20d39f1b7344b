"""How the devices are, as the edge sees them."""
