"""Alert rules over the signals of the cloud: episodes, and whom to call when."""
