"""Pictures: what they are, decoded in a process of its own, shown over HTTP."""
