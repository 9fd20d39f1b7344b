"""Alert rules: what they say, when they open and resolve, and the ones that ship."""
