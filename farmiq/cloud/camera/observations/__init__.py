"""Observations of cameras' images: how good each image is, and its small copy."""
