"""edge-feed-intake: feed lots and intakes, and intakes derived from the weight of a silo."""
