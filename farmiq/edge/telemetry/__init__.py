"""edge-telemetry-timeseries: readings kept at the edge, and what is made of them.

In the order of a reading's life:

- `recording` keeps it and marks its buckets, in the gateway's transaction;
- `remake` makes what is marked: `marking` says what, `making` how, `zoning` whose days, `owing`
  what the cloud hears of it; `buckets` has the pure decisions;
- `ask`, `look` and `api` answer about it;
- `upkeep` makes months ahead (`partitions`) and drops what is over its time (`dropping`);
- `service` runs all of it.
"""
