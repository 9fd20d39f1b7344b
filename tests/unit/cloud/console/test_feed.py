"""Feed as people read it: what runs out first, what came, what was taken in."""

from dataclasses import replace
from datetime import UTC, date, datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.feed import view as feed
from farmiq.cloud.console.feed.view import DayIntake, Stock

NOW = datetime(2026, 4, 1, 6, tzinfo=UTC)
TODAY = date(2026, 4, 1)
COMPANY = Company(company_id=UUID(int=1), name="F", tenant_id="t", timezone="UTC", email="a@b")
FULL = Stock(
    farm_id="f", barn_id="1", farm_name="Farm", barn_name="Barn 1", silo_id="full",
    feed_lot_id=None, feed_product_id=None, received_kg=900, taken_kg=100, stock_kg=800,
    daily_kg=100, days_left=8.0, received_at=NOW, taken_at=NOW,
)  # fmt: skip
LOW = replace(FULL, silo_id="low", stock_kg=150, days_left=1.5)
EMPTY = replace(FULL, silo_id="empty", stock_kg=10, days_left=0.1)
MISSING = replace(FULL, silo_id="missing", stock_kg=-5, days_left=None)
IDLE = replace(FULL, silo_id="idle", days_left=None)


def test_what_runs_out_first_is_shown_first() -> None:
    assert [silo.state for silo in (FULL, LOW, EMPTY, MISSING, IDLE)] == [
        "", "low", "empty", "missing", "",
    ]  # fmt: skip
    shown = feed.view(
        COMPANY, silos=[IDLE, FULL, LOW, MISSING, EMPTY], lots=[], of_lots=[], intakes=[],
        today=TODAY, timezone="UTC", entered=None, now=NOW, days=14,
    )  # fmt: skip
    assert [silo.silo_id for silo in shown.silos] == ["empty", "missing", "low", "full", "idle"]
    assert (shown.problems, shown.title) == (3, "(3) Feed")


def test_delivery_shows_what_is_left_of_its_lot() -> None:
    lot = {
        "event_id": UUID(int=7), "feed_lot_id": "L", "farm_id": "f", "barn_id": "1",
        "feed_product_id": None, "quantity_kg": 900.0, "occurred_at": NOW,
    }  # fmt: skip
    shown = feed.view(
        COMPANY, silos=[], lots=[lot, {**lot, "feed_lot_id": "new"}, {**lot, "barn_id": "2"}],
        of_lots=[replace(FULL, feed_lot_id="L")], intakes=[], today=TODAY, timezone="UTC",
        entered=None, now=NOW, days=14,
    )  # fmt: skip
    assert [one.stock.stock_kg if one.stock else None for one in shown.lots] == [800, None, None]


def test_lot_that_was_taken_up_says_so_though_its_silo_lacks_nothing() -> None:
    lot = {
        "event_id": UUID(int=7), "feed_lot_id": "L", "farm_id": "f", "barn_id": "1",
        "feed_product_id": None, "quantity_kg": 900.0, "occurred_at": NOW,
    }  # fmt: skip
    shown = feed.view(
        COMPANY, silos=[FULL], lots=[lot, {**lot, "feed_lot_id": "new"}],
        of_lots=[replace(FULL, feed_lot_id="L", stock_kg=-30)], intakes=[], today=TODAY,
        timezone="UTC", entered=None, now=NOW, days=14,
    )  # fmt: skip
    assert [(lot.stock, lot.is_used_up) for lot in shown.lots] == [(None, True), (None, False)]


def test_day_without_feed_is_a_gap() -> None:
    zone = ZoneInfo("Asia/Bangkok")
    intakes = [
        DayIntake(
            farm_id="f",
            barn_id="1",
            barn_name="One",
            on=date(2026, 3, 31),
            quantity_kg=50.0,
            entries=1,
        ),
        DayIntake(farm_id="f", barn_id="2", barn_name="Two", on=TODAY, quantity_kg=70.0, entries=2),
    ]
    # Today is not over: its part of a day would look like a fall.
    columns, rows = feed.table(
        [*intakes, replace(intakes[0], on=date(2026, 4, 2))], today=date(2026, 4, 2), days=4,
        zone=zone,
    )  # fmt: skip
    assert [column.label for column in columns] == ["One", "Two"]
    assert [row[1:] for row in rows] == [(None, None), (50.0, None), (None, 70.0)]
    assert rows[0][0] == datetime(2026, 3, 30, tzinfo=zone)
