"""A batch of broilers with weights, feed and deaths of five weeks, as the database has them."""

import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from farmiq.cloud.reports import model, periods
from farmiq.cloud.reports.queries import (
    Alert,
    Batch,
    BatchFacts,
    Day,
    Farm,
    FarmFacts,
    Figure,
    Listed,
    Note,
)

PLACED_ON = date(2026, 10, 14)
WEEK = periods.parse("2026-W46")
MADE = model.Made(company="Hill", made_at=datetime(2026, 11, 15, 23, tzinfo=UTC))
STANDARD = [(age, 0.042 * math.exp(4.4 * (1 - math.exp(-0.05 * age)))) for age in range(50)]
BATCH = Batch(
    batch_id="b-7",
    farm_id="f",
    farm="Hillside",
    barn_id="1",
    barn="Barn 1",
    timezone="Asia/Bangkok",
    species="broiler",
    breed="fast",
    sex="mixed",
    placed_count=1000,
    placed_on=PLACED_ON,
    age_at_placing_days=0,
    closed_on=None,
    target_weight_kg=2.0,
    target_on=None,
    safe_to_sell_from=None,
)


def figures(until: date) -> list[Figure]:
    listed = []
    for age in range((until - PLACED_ON).days + 1):
        on = PLACED_ON + timedelta(days=age)
        mean = STANDARD[age][1] * 0.9
        values: dict[str, tuple[float, float | None]] = {
            "head_count": (1000 - age, None),
            "intake_kg": (10.0 + age, None),
            "intake_per_head": (10.0 + age, None),
            "mortality_pct": (age / 10, age / 8),
        }
        if age % 2 == 0:
            values |= {
                "weight_mean": (mean, STANDARD[age][1]),
                "weight_p10": (mean * 0.8, None),
                "weight_p90": (mean * 1.2, None),
                "weight_cv": (10.0, None),
            }
        # Of one day of the week nothing was measured.
        if on != date(2026, 11, 12):
            values["data_coverage"] = (100.0, None)
        listed += [
            Figure(
                on, kind, value, "", 30, expected, None if expected is None else value - expected
            )
            for kind, (value, expected) in values.items()
        ]
    return listed


def facts(batch: Batch = BATCH, period: periods.Period = WEEK, **changes: Any) -> BatchFacts:
    listed = figures(period.last)
    since = period.before().first
    days = [
        Day(PLACED_ON + timedelta(days=age), float(age % 3), 1.0, 30 if age % 2 == 0 else 0, 1)
        for age in range((period.last - PLACED_ON).days + 1)
    ]
    made = BatchFacts(
        batch=batch,
        weights=[figure for figure in listed if figure.kpi_type.startswith("weight_")],
        figures=[figure for figure in listed if figure.kpi_date >= since],
        latest=list({figure.kpi_type: figure for figure in listed}.values()),
        days=[day for day in days if day.kpi_date >= since],
        standard=STANDARD,
        alerts=Listed([alert("critical"), alert("warning", resolved_at=None)], 2),
        notes=Listed(
            [Note(datetime(2026, 11, 10, 2, tzinfo=UTC), "note", "Litter turned", None, None)], 1
        ),
    )
    return replace(made, **changes)


def alert(severity: str, **changes: Any) -> Alert:
    opened_at = datetime(2026, 11, 12, 7, 3, tzinfo=UTC)
    given = {
        "severity": severity, "state": "resolved", "message": "Temperature above 33 °C",
        "barn": "Barn 1", "opened_at": opened_at, "resolved_at": opened_at + timedelta(hours=2),
        **changes,
    }  # fmt: skip
    return Alert(**given)


def farm_facts(*batches: BatchFacts) -> FarmFacts:
    return FarmFacts(
        company="Hill",
        farm=Farm("f", "Hillside", "Asia/Bangkok"),
        batches=batches,
        alerts=Listed([alert("warning")], 1),
    )
