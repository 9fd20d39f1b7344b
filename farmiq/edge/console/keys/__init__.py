"""The page of keys: who may use this edge, and for what."""
