"""edge-devices-registry: which devices there are, what they may, how they are, what they do."""
