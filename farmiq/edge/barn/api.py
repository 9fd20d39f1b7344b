"""Barn records over HTTP at the edge: entered with a key, listed page by page or as CSV."""

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Depends, Query, Request
from prometheus_client import Counter
from pydantic import Field

from farmiq import api, crash
from farmiq.api import At, BodyOf, Id, JsonBody, route
from farmiq.edge import access, audit, outbox, registry
from farmiq.edge.barn import store
from farmiq.farm import idempotency, postings
from farmiq.farm.postings import Posted, RecordPosted
from farmiq.messages.barn import BarnRecordCreated, RecordType
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.http import HttpError

RECORDS = "/api/v1/barn/records"
MAX_BYTES = 16 * 1024
MAX_ROWS = 1000

POSTED = Counter("farmiq_barn_records_posted_total", "Records posted to the edge", ["outcome"])


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
ERRORS = {
    404: "NOT_FOUND: the edge knows no such tenant, batch or record.",
    409: "CONFLICT: the Idempotency-Key was used for something else, or the record is replaced "
    "already.",
}


class Api(api.Routes):
    def __init__(self, pool: db.Pool) -> None:
        self.pool = pool

    @route(
        "POST",
        RECORDS,
        EdgeBarnRecord,
        operation_id="postBarnRecord",
        status_code=201,
        responses=ERRORS,
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
        raw = await body.raw()
        content = body.decode(raw)
        caller.tenant(content.tenant_id)
        async with db.transaction(self.pool) as tx:
            event = await accept(
                tx,
                content,
                raw,
                by=caller.name,
                key=idempotency_key,
                trace_id=http.trace_id(request),
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
        page, following = api.cut(rows, query.limit, at="occurred_at", key="event_id")
        if query.format == "csv":
            return api.csv_response(request, store.COLUMNS, page, following)
        return {"records": page, "next_cursor": following}


async def accept(
    tx: db.Connection, body: EdgeRecordPosted, raw: bytes, *, by: str, key: str, trace_id: str
) -> BusEvent:
    """Store a record, its event for the cloud and who entered it; also answers a repeat.

    Raises HttpError 400, 404 or 409; then the transaction must be rolled back.
    """
    now = datetime.now(UTC)
    if reason := postings.future(body, now):
        raise api.invalid(("occurred_at", reason))
    posted = postings.posted(
        body,
        raw,
        tenant_id=body.tenant_id,
        by=by,
        key=key,
        event_id=ids.new(),
        trace_id=trace_id,
        now=now,
    )
    try:
        event, is_new = await idempotency.claim(tx, posted)
    except (idempotency.KeyUsedError, idempotency.ReplacedError) as error:
        POSTED.labels(outcome="conflict").inc()
        raise HttpError(409, str(error)) from None
    if is_new:
        await _check(tx, posted, body)
        payload = msgspec.json.decode(event.payload, type=BarnRecordCreated)
        await store.add(tx, [(event, payload)])
        await outbox.append(tx, [event])
        subject = f"{event.tenant_id}/{payload.record_id}"
        await audit.note(
            tx, actor=by, action="barn.record.add", subject=subject, event_id=event.event_id
        )
        crash.here("barn.before_commit")
    POSTED.labels(outcome="new" if is_new else "repeated").inc()
    return event


async def _check(tx: db.Connection, posted: Posted, body: EdgeRecordPosted) -> None:
    """Raises HttpError 404 for what the edge does not know, 409 for what is replaced.

    A batch is only checked if the edge has the cloud's: it works before it ever heard of them.
    """
    tenant_id = body.tenant_id
    if not await registry.is_known_tenant(tx, tenant_id):
        raise _missing("tenant_id", f"no device or farm of tenant {tenant_id!r} is known here")
    if body.batch_id and not await store.is_known_batch(tx, tenant_id, body.batch_id):
        raise _missing("batch_id", f"there is no batch {body.batch_id!r}")
    if posted.replaces:
        known, replaced_by = await store.replaced(tx, tenant_id, posted.replaces)
        if not known:
            raise _missing("replaces", f"there is no record {posted.replaces!r} at this edge")
        if replaced_by:
            raise HttpError(409, f"{posted.replaces} is replaced already, by {replaced_by}")


def _missing(field: str, reason: str) -> HttpError:
    return HttpError(404, reason, details=[{"field": field, "reason": reason}])
