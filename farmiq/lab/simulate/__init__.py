"""A simulated farm: sensors with daily curves, a flaky link, and the account of what was sent."""
