"""Values of signals against rules: states of series, and what comes late."""
