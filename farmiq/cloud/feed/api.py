"""Feed for people and programs: lots and intakes, entered with a key and listed, and the stock."""

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Depends, Query, Request
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, Id, JsonBody
from farmiq.cloud import entries
from farmiq.cloud.feed import store
from farmiq.cloud.identity import people
from farmiq.farm import postings
from farmiq.farm.postings import IntakePosted, LotPosted
from farmiq.messages.feed import Source

LOTS = "/api/v1/feed/lots"
INTAKES = "/api/v1/feed/intakes"
STOCK = "/api/v1/feed/stock"


class LotFilter(entries.EntryFilter):
    """Which lots, newest first."""

    device: Annotated[Id | None, Field(description="Only this silo's.")] = None
    lot: Annotated[Id | None, Field(description="Only this feed_lot_id.")] = None


class IntakeFilter(LotFilter):
    """Which intakes, newest first."""

    batch: entries.OfBatch = None


class StockFilter(api.Filter):
    """The stock of each lot, silo or barn."""

    by: Annotated[Literal["lot", "silo", "barn"], Field(description="A row for each of these.")] = (
        "lot"
    )
    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None
    barn: Annotated[Id | None, Field(description="Only this barn's.")] = None
    company: people.Company = None


class CloudFeedLot(api.Model):
    """`device_id` is the silo that the lot went into.

    `replaced_by` is the event that corrects this one; then this one counts for nothing.
    """

    event_id: UUID
    farm_id: str
    barn_id: str
    device_id: str | None
    feed_lot_id: str
    feed_product_id: str | None
    quantity_kg: float
    occurred_at: At
    replaces: UUID | None
    replaced_by: UUID | None
    clock_suspect: bool


class CloudFeedLots(api.Model):
    lots: list[CloudFeedLot]
    next_cursor: str | None


class CloudFeedIntake(api.Model):
    """`batch_id` is the one that the intake names, or that was in the barn when it was entered.

    `replaced_by` is the event that corrects this one; then this one counts for nothing.
    """

    event_id: UUID
    farm_id: str
    barn_id: str
    device_id: str | None
    batch_id: str | None
    source: Source
    feed_lot_id: str | None
    quantity_kg: float
    occurred_at: At
    replaces: UUID | None
    replaced_by: UUID | None
    clock_suspect: bool


class CloudFeedIntakes(api.Model):
    intakes: list[CloudFeedIntake]
    next_cursor: str | None


class FeedStock(api.Model):
    """`stock_kg` is what was received less what was taken in; below 0 a delivery is missing.

    `daily_kg` is the mean of the last seven local days with an intake, `days_left` how long the
    stock lasts at that; both are null if that is not known.
    """

    farm_id: str
    barn_id: str
    silo_id: str | None
    feed_lot_id: str | None
    feed_product_id: str | None
    received_kg: float
    taken_kg: float
    stock_kg: float
    daily_kg: float | None
    days_left: float | None
    received_at: At | None
    taken_at: At | None


class FeedStocks(api.Model):
    stock: list[FeedStock]


LotBody = Annotated[
    JsonBody[LotPosted], Depends(BodyOf(LotPosted, what="a lot", max_bytes=entries.MAX_BYTES))
]
IntakeBody = Annotated[
    JsonBody[IntakePosted],
    Depends(BodyOf(IntakePosted, what="an intake", max_bytes=entries.MAX_BYTES)),
]


class Api(entries.EntryApi):
    @entries.post_route(LOTS, CloudFeedLot, "postFeedLot")
    async def post_lot(
        self, visit: people.AVisit, body: LotBody, idempotency_key: api.IdempotencyKey
    ) -> Any:
        """A lot of feed was delivered (operators).

        The response is the lot: stored, and on its way to the stock. The same Idempotency-Key with
        the same body has the same answer and no second effect. A correction is a new lot that
        names the event of the old one in `replaces`.
        """
        event = await self.post(visit, body, idempotency_key)
        return postings.shown(event, store.LOT)

    @entries.post_route(INTAKES, CloudFeedIntake, "postFeedIntake")
    async def post_intake(
        self, visit: people.AVisit, body: IntakeBody, idempotency_key: api.IdempotencyKey
    ) -> Any:
        """Feed was taken in (operators).

        As with lots; a lot that it names must have been received.
        """
        event = await self.post(visit, body, idempotency_key)
        return postings.shown(event, store.INTAKE)

    @entries.list_route(LOTS, CloudFeedLots, "getFeedLots")
    async def get_lots(self, request: Request, query: Annotated[LotFilter, Query()]) -> Any:
        """Lots of feed, newest first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await store.lots(caller.connection, caller.tenant_id, query.page())
        return api.table(request, query, "lots", store.LOT, rows)

    @entries.list_route(INTAKES, CloudFeedIntakes, "getFeedIntakes")
    async def get_intakes(self, request: Request, query: Annotated[IntakeFilter, Query()]) -> Any:
        """Feed taken in, newest first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await store.intakes(caller.connection, caller.tenant_id, query.page())
        return api.table(request, query, "intakes", store.INTAKE, rows)

    @people.route(
        "GET", STOCK, FeedStocks, operation_id="getFeedStock", responses=people.NO_COMPANY
    )
    async def get_stock(self, request: Request, query: Annotated[StockFilter, Query()]) -> Any:
        """Feed that is left of each lot, silo or barn, by recount."""
        async with self.people.caller(request, query.company) as caller:
            rows = await store.stock(
                caller.connection, caller.tenant_id, by=query.by, farm=query.farm, barn=query.barn
            )
        return {"stock": rows}
