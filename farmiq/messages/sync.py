"""Sync: a batch of an edge was received, and all its events are confirmed (C-09, C-94).

Told by cloud-ingestion alone. `batch_id` here is the batch of the sync, not a batch of animals.
"""

from typing import Literal

import msgspec

from farmiq.messages.ids import Id
from farmiq.messages.kinds import Count

BATCH_SENT = "sync.batch.sent"
BATCH_ACKED = "sync.batch.acked"


class SyncBatchSent(msgspec.Struct, frozen=True, kw_only=True):
    batch_id: Id
    event_count: Count
    edge_cluster_id: Id


class SyncBatchAcked(msgspec.Struct, frozen=True, kw_only=True):
    batch_id: Id
    event_count: Count
    status: Literal["acked"]
