"""Barn records: what people write down about a barn, kept at the edge."""
