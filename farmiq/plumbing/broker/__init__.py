"""The broker of devices: who may connect, what it may store, who sends too much."""
