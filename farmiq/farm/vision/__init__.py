"""What images tell: pure functions of bytes and numbers, for the edge and for the cloud."""
