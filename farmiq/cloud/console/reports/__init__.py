"""Reports: choose one, download it, and who gets which by mail."""
