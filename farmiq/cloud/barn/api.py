"""Barn records for people and programs: entered with a key, listed page by page or as CSV."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query, Request
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, Id, JsonBody
from farmiq.cloud import posting
from farmiq.cloud.barn import store
from farmiq.cloud.identity import people, sign_in
from farmiq.cloud.identity.people import People, with_retries
from farmiq.farm import postings
from farmiq.farm.postings import RecordPosted
from farmiq.messages.barn import RecordType
from farmiq.plumbing import db

RECORDS = "/api/v1/barn/records"
MAX_BYTES = 16 * 1024
MAX_ROWS = 1000


class RecordFilter(api.SpanFilter):
    """Which records, newest first."""

    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None
    barn: Annotated[Id | None, Field(description="Only this barn's.")] = None
    batch: Annotated[
        Id | None, Field(description="Only this batch's: named, or in the barn on that day.")
    ] = None
    type: Annotated[RecordType | None, Field(description="Only of this type.")] = None
    counted: Annotated[bool, Field(description="Only those that no other record replaces.")] = False
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    format: Annotated[api.Format, Field(description="json or csv.")] = "json"
    company: people.Company = None


class BarnRecord(api.Model):
    """`replaced_by` is the record that corrects this one; then this one counts for nothing.

    `batch_id` is the one that the record names, or that was in the barn on that day.
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
    Depends(BodyOf(RecordPosted, what="a record", max_bytes=MAX_BYTES)),
]


@dataclass
class Api(api.Routes):
    pool: db.Pool
    sign_ins: sign_in.SignIns

    def __post_init__(self) -> None:
        self.people = People(self.sign_ins)

    def endpoint(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return with_retries(handler)

    @api.route(
        "POST",
        RECORDS,
        BarnRecord,
        operation_id="postBarnRecord",
        status_code=201,
        dependencies=[sign_in.SIGN_IN],
        responses=posting.ERRORS,
    )
    async def post_record(
        self, visit: people.AVisit, body: RecordBody, idempotency_key: api.IdempotencyKey
    ) -> Any:
        """Write down something about a barn (operators).

        The response is the record: stored, and on its way to the tables that figures are made of.
        The same Idempotency-Key with the same body has the same answer and no second effect. A
        correction is a new record that names the old one in `replaces`.
        """
        event = await posting.post(self.people, visit, body, idempotency_key)
        return postings.shown(event, store.COLUMNS)

    @api.route(
        "GET",
        RECORDS,
        BarnRecords,
        operation_id="getBarnRecords",
        dependencies=[sign_in.SIGN_IN],
        responses={200: api.CSV, **people.NO_COMPANY},
    )
    async def records(self, request: Request, query: Annotated[RecordFilter, Query()]) -> Any:
        """Barn records, newest first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await store.page(caller.connection, caller.tenant_id, query.page())
        page, following = api.cut(rows, query.limit, at="occurred_at", key="event_id")
        if query.format == "csv":
            return api.csv_response(request, store.COLUMNS, page, following)
        return {"records": page, "next_cursor": following}
