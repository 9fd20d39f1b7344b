"""From when the animals of a batch may be sold, by what devices and edges sent."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.cloud.analytics.conftest import PLACED_ON, Analytics, at, on


async def test_correction_at_one_farm_leaves_the_device_records_of_another(
    analytics: Analytics,
) -> None:
    farm = analytics
    farm.farm()
    farm.farm("g")
    farm.batch()
    farm.batch("c", farm_id="g")
    medicine = {"record_id": "1", "product": "amoxicillin", "withdrawal_days": 30}
    await farm.send(farm.record(at(1), "treatment", 10, payload=medicine))
    # Devices of two farms count their records from 1.
    await farm.send(
        farm.record(at(2), "mortality", 7, farm_id="g", payload={"record_id": "1"}),
        farm.record(
            at(2), "mortality", 5, farm_id="g", payload={"record_id": "2", "replaces": "1"}
        ),
    )
    await farm.settle()

    assert farm.safe_from() == PLACED_ON + timedelta(days=31)
    assert farm.figures("c")[on(2), "head_count"] == 995
    # Ids of what people enter are unique: a record at the wrong farm can be corrected.
    wrong = farm.record(at(3), "treatment", 10, device_id=None, payload={
        **medicine, "record_id": "0190b6a0", "withdrawal_days": 90,
    })  # fmt: skip
    await farm.send(wrong)
    assert farm.safe_from() == PLACED_ON + timedelta(days=93)
    await farm.send(
        farm.record(at(3), "treatment", 10, device_id=None, farm_id="g", payload={
            **medicine, "record_id": "0190b6a1", "replaces": "0190b6a0",
        })
    )  # fmt: skip
    assert farm.safe_from() == PLACED_ON + timedelta(days=31)
    assert farm.safe_from("c") == PLACED_ON + timedelta(days=33)


@pytest.mark.parametrize("days", [-40, 400], ids=["behind", "ahead"])
@pytest.mark.parametrize("named", ["b", None])
async def test_medicine_of_a_suspect_clock_was_given_when_it_was_stored_at_the_latest(
    analytics: Analytics, days: int, named: str | None
) -> None:
    farm = analytics
    farm.farm()
    farm.batch()
    moment = datetime.now(UTC) + timedelta(days=days)
    said = {"product": "amoxicillin", "withdrawal_days": 30, "batch_id": named}
    await farm.send(farm.record(moment, "treatment", 10, payload=said, clock_suspect=True))

    ((stored_at,),) = farm.owner("select stored_at from barn_events")
    assert farm.safe_from() == stored_at.astimezone(UTC).date() + timedelta(days=30)
