"""Barn records for people and programs: entered with a key, listed page by page or as CSV."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query, Request
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, JsonBody
from farmiq.cloud import entries
from farmiq.cloud.barn import store
from farmiq.cloud.identity import people
from farmiq.farm import postings
from farmiq.farm.postings import RecordPosted
from farmiq.messages.barn import RecordType

RECORDS = "/api/v1/barn/records"


class RecordFilter(entries.EntryFilter):
    """Which records, newest first."""

    batch: entries.OfBatch = None
    type: Annotated[RecordType | None, Field(description="Only of this type.")] = None


class BarnRecord(api.Model):
    """`replaced_by` is the record that corrects this one; then this one counts for nothing.

    `batch_id` is the one that the record names, or that was in the barn when it was entered.
    """

    record_id: str
    event_id: UUID
    farm_id: str
    barn_id: str
    batch_id: str | None
    record_type: str
    value: float | str
    unit: str | None
    product: str | None
    dose: float | None
    dose_unit: str | None
    withdrawal_days: int | None
    occurred_at: At
    recorded_by_ref: str
    recorded_at: At
    replaces: str | None
    replaced_by: str | None
    device_id: str | None
    clock_suspect: bool


class BarnRecords(api.Model):
    records: list[BarnRecord]
    next_cursor: str | None


RecordBody = Annotated[
    JsonBody[RecordPosted],
    Depends(BodyOf(RecordPosted, what="a record", max_bytes=entries.MAX_BYTES)),
]


class Api(entries.EntryApi):
    @entries.post_route(RECORDS, BarnRecord, "postBarnRecord")
    async def post_record(
        self, visit: people.AVisit, body: RecordBody, idempotency_key: api.IdempotencyKey
    ) -> Any:
        """Write down something about a barn (operators).

        The response is the record: stored, and on its way to the tables that figures are made of.
        The same Idempotency-Key with the same body has the same answer and no second effect. A
        correction is a new record that names the old one in `replaces`.
        """
        event = await self.post(visit, body, idempotency_key)
        return postings.shown(event, store.COLUMNS)

    @entries.list_route(RECORDS, BarnRecords, "getBarnRecords")
    async def records(self, request: Request, query: Annotated[RecordFilter, Query()]) -> Any:
        """Barn records, newest first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await store.page(caller.connection, caller.tenant_id, query.page())
        return api.table(request, query, "records", store.COLUMNS, rows)
