"""Key figures of a batch by day, computed in the cloud (C-46, C-113)."""

from datetime import date
from typing import Literal

import msgspec

from farmiq.messages.ids import Id
from farmiq.messages.kinds import Count, Unit

DAILY_UPDATED = "kpi.daily.updated"

KpiType = Literal[
    "head_count", "weight_mean", "weight_median", "weight_p10", "weight_p90", "weight_cv",
    "weight_uniformity", "adg", "adg_7d", "adg_30d", "fcr", "intake_kg", "intake_per_head",
    "water_per_head", "water_to_feed", "mortality_day_pct", "mortality_pct", "epef", "thi_hours",
    "data_coverage", "vision_residual",
]  # fmt: skip


class KpiDailyUpdated(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that changed. Without a value it was withdrawn: what it was made of is gone.

    `expected_value` is that of the breed standard at the batch's age, `difference` how far the
    value is above it.
    """

    kpi_date: date
    kpi_type: KpiType
    value: float | None
    unit: Unit
    source_event_count: Count
    batch_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    expected_value: float | msgspec.UnsetType | None = msgspec.UNSET
    difference: float | msgspec.UnsetType | None = msgspec.UNSET
