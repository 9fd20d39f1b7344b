"""Barn records over HTTP at the edge: entered with a key, listed page by page or as CSV."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query, Request
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, Id, JsonBody, route
from farmiq.edge import access, posting
from farmiq.edge.barn import store
from farmiq.farm import postings
from farmiq.farm.postings import RecordPosted
from farmiq.messages.barn import RecordType
from farmiq.plumbing import db

RECORDS = "/api/v1/barn/records"
MAX_BYTES = 16 * 1024
MAX_ROWS = 1000

KIND = posting.Kind("barn.record.add", store.find_replaced, store.add_posted)


class EdgeRecordPosted(RecordPosted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record, and whose it is: an edge may work for several tenants."""

    tenant_id: Id


class EdgeRecordFilter(api.PlaceFilter):
    """Which records, newest first."""

    batch: Annotated[Id | None, Field(description="Only those that name this batch.")] = None
    type: Annotated[RecordType | None, Field(description="Only of this type.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    format: Annotated[api.Format, Field(description="json or csv.")] = "json"


class EdgeBarnRecord(api.Model):
    """`replaced_by` is the record that corrects this one; then this one counts for nothing."""

    record_id: str
    event_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str | None
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
    clock_suspect: bool


class EdgeBarnRecords(api.Model):
    records: list[EdgeBarnRecord]
    next_cursor: str | None


RecordBody = Annotated[
    JsonBody[EdgeRecordPosted],
    Depends(BodyOf(EdgeRecordPosted, what="a record", max_bytes=MAX_BYTES)),
]


class Api(api.Routes):
    def __init__(self, pool: db.Pool) -> None:
        self.pool = pool

    @route(
        "POST",
        RECORDS,
        EdgeBarnRecord,
        operation_id="postBarnRecord",
        status_code=201,
        responses=posting.ERRORS,
    )
    async def post_record(
        self,
        request: Request,
        caller: access.Operator,
        body: RecordBody,
        idempotency_key: api.IdempotencyKey,
    ) -> Any:
        """Write down something about a barn.

        For operators. The response is the record: stored, and waiting to be sent to the cloud. The
        same Idempotency-Key with the same body has the same answer and no second effect. A
        correction is a new record that names the old one in `replaces`.
        """
        event = await posting.post(
            self.pool, KIND, body, request=request, caller=caller, key=idempotency_key
        )
        return postings.shown(event, store.COLUMNS)

    @route(
        "GET",
        RECORDS,
        EdgeBarnRecords,
        operation_id="getBarnRecords",
        responses={200: api.CSV},
    )
    async def get_records(
        self, request: Request, caller: access.Viewer, query: Annotated[EdgeRecordFilter, Query()]
    ) -> Any:
        """Barn records, newest first."""
        wanted = {**query.page(), "tenant": caller.tenant(query.tenant)}
        async with self.pool.connection(timeout=5.0) as connection:
            rows = await store.page(connection, wanted)
        return api.table(request, query, "records", store.COLUMNS, rows)
