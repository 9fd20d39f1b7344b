"""edge-telemetry-timeseries: readings stored at the edge, and their rollups.

In the order of a reading's life:

- `handlers` stores it and marks its buckets dirty, in the gateway's transaction;
- `rollups` recomputes dirty buckets (`farm/rollups.py`) and sends the cloud those it waits for;
- `api` and `queries` answer questions about it;
- `jobs` creates partitions ahead of time and purges what has expired;
- `rules` has the pure decisions, `store` the rest of the SQL, and `service` runs all of it.
"""
