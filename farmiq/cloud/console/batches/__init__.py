"""Batches: the list of them, and a page of each with its growth, feed and calendar."""
