"""Pure: feed as people read it: how long it lasts, what came, what was taken in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from farmiq.cloud.console.batches.detail import Entered
from farmiq.cloud.console.company.view import Company
from farmiq.ui import words
from farmiq.ui.charts import Column
from farmiq.ui.i18n import gettext as _

# As the alert rules that ship.
LOW_DAYS, EMPTY_DAYS = 2.0, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What is left of a lot or in a silo."""

    farm_id: str
    barn_id: str
    farm_name: str
    barn_name: str
    silo_id: str | None
    feed_lot_id: str | None
    feed_product_id: str | None
    received_kg: float
    taken_kg: float
    stock_kg: float
    daily_kg: float | None
    days_left: float | None
    received_at: datetime | None
    taken_at: datetime | None

    @property
    def key(self) -> str:
        return self.feed_lot_id or self.silo_id or f"{self.farm_id}/{self.barn_id}"

    @property
    def state(self) -> str:
        """Missing (a delivery was not entered), empty, low, or nothing."""
        if self.stock_kg < 0:
            return "missing"
        if self.days_left is None:
            return ""
        return (
            "empty" if self.days_left < EMPTY_DAYS else "low" if self.days_left < LOW_DAYS else ""
        )

    @property
    def days_text(self) -> str:
        return "" if self.days_left is None else words.number(self.days_left, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayIntake:
    farm_id: str
    barn_id: str
    barn_name: str
    on: date
    quantity_kg: float
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """A delivery, with what is left of the lot."""

    event_id: str
    feed_lot_id: str
    barn_id: str
    product: str
    quantity_kg: float
    occurred_at: datetime
    stock: Stock | None
    is_used_up: bool

    @property
    def correct(self) -> str:
        return f"/feed/lots/new?{urlencode({'replaces': self.event_id})}"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    now: datetime
    zone: str
    zone_key: str
    silos: Sequence[Stock]
    lots: Sequence[Lot]
    columns: Sequence[Column]
    rows: Sequence[tuple[Any, ...]]
    entered: Entered | None
    page: str = "batches"

    @property
    def fragment(self) -> str:
        return f"/feed/parts?entered={self.entered.event_id}" if self.entered else "/feed/parts"

    @property
    def problems(self) -> int:
        return sum(bool(silo.state) for silo in self.silos)

    @property
    def title(self) -> str:
        return words.title(_("Feed"), problems=self.problems)

    @property
    def is_empty(self) -> bool:
        return not (self.silos or self.lots or self.rows)


def view(
    company: Company,
    *,
    silos: Sequence[Stock],
    lots: Sequence[Mapping[str, Any]],
    of_lots: Sequence[Stock],
    intakes: Sequence[DayIntake],
    today: date,
    timezone: str,
    entered: Entered | None,
    now: datetime,
    days: int,
) -> View:
    lacking = {(silo.farm_id, silo.barn_id) for silo in silos if silo.state == "missing"}
    # Animals eat what is in the silo, whatever lot an intake names: a lot alone lacks nothing.
    left = {
        (stock.farm_id, stock.barn_id, stock.feed_lot_id): stock
        for stock in of_lots
        if stock.stock_kg >= 0 or not silos or (stock.farm_id, stock.barn_id) in lacking
    }
    known_lots = {(stock.farm_id, stock.barn_id, stock.feed_lot_id) for stock in of_lots}
    columns, rows = table(intakes, today=today, days=days, zone=words.zone(timezone))
    return View(
        company=company,
        now=now,
        zone=words.zone_name(words.zone(timezone), now),
        zone_key=timezone,
        silos=sorted(silos, key=_urgency),
        lots=[
            Lot(
                event_id=str(lot["event_id"]),
                feed_lot_id=lot["feed_lot_id"],
                barn_id=lot["barn_id"],
                product=lot["feed_product_id"] or "",
                quantity_kg=lot["quantity_kg"],
                occurred_at=lot["occurred_at"],
                stock=left.get(_key(lot)),
                is_used_up=_key(lot) in known_lots - left.keys(),
            )
            for lot in lots
        ],
        columns=columns,
        rows=rows,
        entered=entered,
    )


def _key(lot: Mapping[str, Any]) -> tuple[str, str, str | None]:
    return lot["farm_id"], lot["barn_id"], lot["feed_lot_id"]


def _urgency(stock: Stock) -> tuple[object, ...]:
    order = ("empty", "missing", "low", "")
    days = float("inf") if stock.days_left is None else stock.days_left
    return order.index(stock.state), days, stock.barn_name, stock.key


def table(
    intakes: Sequence[DayIntake], *, today: date, days: int, zone: ZoneInfo
) -> tuple[list[Column], list[tuple[Any, ...]]]:
    """A column for each barn and a row for each of the last days; a day without feed is a gap.

    Without today: a part of a day would look as if the animals ate less.
    """
    intakes = [intake for intake in intakes if intake.on < today]
    barns = sorted({(intake.farm_id, intake.barn_id) for intake in intakes})
    names = {(intake.farm_id, intake.barn_id): intake.barn_name for intake in intakes}
    farms = {farm_id for farm_id, _barn in barns}
    columns = [
        Column(
            f"{farm_id}, {names[farm_id, barn_id]}" if len(farms) > 1 else names[farm_id, barn_id],
            "line",
        )
        for farm_id, barn_id in barns
    ]
    known = {(intake.farm_id, intake.barn_id, intake.on): intake for intake in intakes}
    if not known:
        return columns, []
    rows = []
    for ago in range(days - 1, 0, -1):
        on = today - timedelta(days=ago)
        cells = [known.get((*barn, on)) for barn in barns]
        rows.append(
            (
                datetime.combine(on, time(), zone),
                *(cell.quantity_kg if cell else None for cell in cells),
            )
        )
    return columns, rows
