"""The station's buffer: what was captured is on the disk until the edge has it."""
