"""The contracts as documents: what others may rely on, made from the types and the catalogue."""
