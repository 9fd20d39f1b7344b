"""The bridge: cameras' wakes among the readings and images of the other sensors, if wanted."""
