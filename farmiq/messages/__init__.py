"""The words all sites share: envelopes, topics, ids, payloads. No I/O, nothing of ours below it."""
