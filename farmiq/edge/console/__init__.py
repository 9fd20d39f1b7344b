"""The edge's own pages, for days without internet."""
