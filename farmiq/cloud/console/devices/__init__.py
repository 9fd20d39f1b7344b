"""Devices: all of the company in one list, and the page of each."""
