"""What never ships to a farm: local engines, a simulated farm, and the demo of both."""
