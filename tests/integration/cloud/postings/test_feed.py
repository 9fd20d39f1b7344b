"""Lots and intakes that people enter, corrections, and the stock that follows from them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.cloud.postings.conftest import INTAKES, LOTS, PLACE, STOCK, Cloud
from tests.support.until import until


def days_ago(days: int) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat()


async def stored(api: Cloud, count: int) -> None:
    await until(lambda: api.count("feed_events") == count)


@pytest.mark.req("FB-11", "FB-12")
async def test_lot_and_intake_posted_at_the_cloud_are_stored_as_any_other(api: Cloud) -> None:
    lot = await api.entered(LOTS, feed_lot_id="lot-1", quantity_kg=5000, feed_product_id="grower")
    # The lot is known at once, before its service has stored it.
    taken = await api.entered(INTAKES, feed_lot_id="lot-1", quantity_kg=12.5, source="SILO_AUTO")

    await stored(api, 2)
    rows = api.site.rows(
        "select event_id::text, event_type, source, quantity_kg, feed_lot_id from feed_events "
        "order by event_type"
    )
    assert rows == [
        (taken["event_id"], "feed.intake.recorded", "SILO_AUTO", 12.5, "lot-1"),
        (lot["event_id"], "feed.lot.received", None, 5000.0, "lot-1"),
    ]
    (listed,) = (await api.get(INTAKES))["intakes"]
    assert listed == taken
    assert (await api.get(LOTS, lot="lot-1"))["lots"] == [lot]
    assert (await api.get(LOTS, who="bob"))["lots"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        (LOTS, {"quantity_kg": -1}, 400, ("quantity_kg", ">= 0")),
        (LOTS, {"quantity_kg": 1e12}, 400, ("quantity_kg", "<=")),
        (LOTS, {"occurred_at": "2999-01-01T00:00:00Z"}, 400, ("occurred_at", "in the future")),
        (LOTS, {"farm_id": "dale"}, 404, ("barn_id", "there is no barn")),
        (LOTS, {"replaces": "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0601"}, 404, ("replaces", "no feed")),
        (LOTS, {"feed_product_id": "cake"}, 404, ("feed_product_id", "there is no feed product")),
        (INTAKES, {}, 404, ("feed_lot_id", "no lot 'lot-1' was received")),
        (INTAKES, {"source": "SPOON"}, 400, ("source", "Invalid enum value")),
        (INTAKES, {"batch_id": "flock-9"}, 404, ("batch_id", "there is no batch")),
    ],
)
async def test_bad_feed_is_refused_with_the_reason(
    api: Cloud, path: str, body: dict[str, Any], status: int, reason: tuple[str, str]
) -> None:
    sent = {**PLACE, "feed_lot_id": "lot-1", "quantity_kg": 5, **body}

    answer = await api.post(path, sent)

    assert answer.status_code == status, answer.text
    (detail,) = answer.json()["error"]["details"]
    assert (detail["field"], reason[1] in detail["reason"]) == (reason[0], True), detail
    assert api.count("posted_events") == 0


async def test_stock_is_what_was_received_less_what_was_taken_in(api: Cloud) -> None:
    silo = {"device_id": "silo-1"}
    await api.entered(LOTS, feed_lot_id="lot-1", quantity_kg=1000, **silo)
    wrong = await api.entered(LOTS, feed_lot_id="lot-2", quantity_kg=9000)
    await api.entered(LOTS, feed_lot_id="lot-2", quantity_kg=900, replaces=wrong["event_id"])
    for days, kg in ((3, 100), (2, 60), (2, 40), (1, 130)):
        await api.entered(INTAKES, feed_lot_id="lot-1", quantity_kg=kg, occurred_at=days_ago(days))
    typo = await api.entered(INTAKES, quantity_kg=700, occurred_at=days_ago(1), **silo)
    await api.entered(
        INTAKES, quantity_kg=70, occurred_at=days_ago(1), replaces=typo["event_id"], **silo
    )
    await stored(api, 9)

    lots = {row["feed_lot_id"]: row for row in (await api.get(STOCK))["stock"]}
    (of_silo,) = (await api.get(STOCK, by="silo"))["stock"]
    (of_barn,) = (await api.get(STOCK, by="barn"))["stock"]

    assert (lots["lot-1"]["stock_kg"], lots["lot-1"]["daily_kg"]) == (670, 110)
    assert lots["lot-1"]["days_left"] == pytest.approx(670 / 110)
    assert (lots["lot-2"]["stock_kg"], lots["lot-2"]["days_left"]) == (900, None)
    # What names the lot came from the lot's silo; what names no lot, from its own device.
    assert (of_silo["silo_id"], of_silo["stock_kg"], of_silo["daily_kg"]) == (
        "silo-1",
        600,
        400 / 3,
    )
    assert (of_barn["received_kg"], of_barn["taken_kg"], of_barn["stock_kg"]) == (1900, 400, 1500)
    assert (await api.get(STOCK, who="bob"))["stock"] == []


async def test_lot_that_two_barns_received_is_in_the_stock_of_each(api: Cloud) -> None:
    other = {"barn_id": "b-2"}
    for kg, place in ((1000, {}), (500, {"device_id": "silo-2", **other})):
        await api.entered(LOTS, feed_lot_id="lot-1", quantity_kg=kg, **place)
    await api.entered(LOTS, feed_lot_id="lot-2", quantity_kg=50)
    for lot, kg, place in (("lot-1", 100, {}), ("lot-1", 20, other), ("lot-2", 5, other)):
        await api.entered(INTAKES, feed_lot_id=lot, quantity_kg=kg, **place)
    await stored(api, 6)

    async def left(**wanted: str) -> dict[tuple[str, str], float]:
        rows = (await api.get(STOCK, **wanted))["stock"]
        return {(row["feed_lot_id"], row["barn_id"]): row["stock_kg"] for row in rows}

    # Of a lot that one barn received, what another barn took in is missing there.
    first = {("lot-1", "b-1"): 900, ("lot-2", "b-1"): 45}
    assert await left() == {**first, ("lot-1", "b-2"): 480}
    assert await left(barn="b-1") == first
    (silo,) = (await api.get(STOCK, by="silo"))["stock"]
    assert (silo["silo_id"], silo["stock_kg"]) == ("silo-2", 480)


async def test_days_left_count_the_last_seven_local_days_with_intake(api: Cloud) -> None:
    await api.entered(LOTS, feed_lot_id="lot-1", quantity_kg=10_000)
    for days in (0, 1, 2, 3, 4, 5, 6, 9, 20):
        kg = 10 if days in (0, 20) else 70
        await api.entered(INTAKES, quantity_kg=kg, occurred_at=days_ago(days))
    await stored(api, 10)

    (barn,) = (await api.get(STOCK, by="barn", farm="hill", barn="b-1"))["stock"]

    assert barn["daily_kg"] == 70
    assert barn["days_left"] == pytest.approx((10_000 - 510) / 70)


async def test_day_whose_only_intake_was_taken_back_is_none_with_intake(api: Cloud) -> None:
    await api.entered(LOTS, feed_lot_id="lot-1", quantity_kg=1000)
    await api.entered(INTAKES, quantity_kg=70, occurred_at=days_ago(2))
    wrong = await api.entered(INTAKES, quantity_kg=30, occurred_at=days_ago(4))
    await api.entered(INTAKES, quantity_kg=0, occurred_at=days_ago(4), replaces=wrong["event_id"])
    await stored(api, 4)

    (barn,) = (await api.get(STOCK, by="barn"))["stock"]

    assert barn["daily_kg"] == 70
    assert barn["days_left"] == pytest.approx(930 / 70)


async def test_stock_below_zero_says_that_a_delivery_is_missing(api: Cloud) -> None:
    await api.entered(INTAKES, quantity_kg=10, occurred_at=days_ago(2))
    await stored(api, 1)

    (barn,) = (await api.get(STOCK, by="barn"))["stock"]

    assert (barn["stock_kg"], barn["daily_kg"], barn["days_left"]) == (-10, 10, None)
