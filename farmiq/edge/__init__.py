"""The services of a farm: from devices (ingress) to the cloud (sync)."""
