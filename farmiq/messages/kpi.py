"""Key figures of a barn and day, computed in the cloud (C-46)."""

from datetime import date
from typing import Literal

import msgspec

from farmiq.messages.kinds import Count, Unit

DAILY_UPDATED = "kpi.daily.updated"

KpiType = Literal["fcr", "adg", "intake_kg", "mortality_pct"]


class KpiDailyUpdated(msgspec.Struct, frozen=True, kw_only=True):
    kpi_date: date
    kpi_type: KpiType
    value: float
    unit: Unit
    source_event_count: Count
