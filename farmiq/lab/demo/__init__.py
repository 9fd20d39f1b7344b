"""The whole system on one machine with a simulated farm: `make demo` and `make smoke`."""
