"""The life of a simulated farm: flocks that grow, eat, fall ill and die, and what is sent of it."""
