"""Capture: the scale and the camera of a weigh station, and what they make of an animal."""
