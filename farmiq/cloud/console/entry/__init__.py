"""Forms by which people enter barn records, feed and batches, and what was entered lately."""
