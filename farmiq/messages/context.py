"""What the cloud registers for an edge: GET /api/v1/edges/context (C-114)."""

from datetime import date, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from farmiq.messages.alerts import MAX_RULES
from farmiq.messages.ids import Id
from farmiq.messages.kinds import Name

MAX_FARMS = 1000
MAX_BARNS = 10_000
MAX_BATCHES = 4000
MAX_STANDARDS = 4000
MAX_WINDOWS = 1000
MAX_SILENCES = 1000

Sex = Literal["female", "male", "mixed"]
_Word = Annotated[str, Meta(max_length=64)]


class ContextFarm(msgspec.Struct, frozen=True, kw_only=True):
    farm_id: Id
    name: Name
    timezone: _Word


class ContextBarn(msgspec.Struct, frozen=True, kw_only=True):
    farm_id: Id
    barn_id: Id
    name: Name
    capacity: int | None = None
    area_m2: float | None = None


class ContextBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """In its barn from placed_on to closed_on, both days included; of unknown age without one.

    What is not set is left out: edges of earlier versions know no batch without an age.
    """

    batch_id: Id
    farm_id: Id
    barn_id: Id
    species: _Word
    breed: _Word | None = None
    sex: Sex = "mixed"
    placed_count: int
    placed_on: date
    age_at_placing_days: int | None = None
    target_weight_kg: float | None = None
    target_on: date | None = None
    closed_on: date | None = None


class ContextStandard(msgspec.Struct, frozen=True, kw_only=True):
    """What a breed is expected to be at an age."""

    species: _Word
    breed: _Word
    sex: Sex
    age_days: int
    weight_kg: float | None = None
    daily_gain_g: float | None = None
    feed_conversion: float | None = None
    mortality_pct: float | None = None


class ContextWindow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Maintenance: nobody is called of what is in its scope; all that is set must match."""

    begin_at: datetime
    end_at: datetime
    farm_id: str | None = None
    barn_id: str | None = None
    device_id: str | None = None
    rule_id: str | None = None


class ContextSilence(msgspec.Struct, frozen=True, kw_only=True):
    """At `at` somebody looked after what a rule has open for a device, or said that it is over."""

    rule_id: str
    farm_id: str
    barn_id: str
    device_id: str
    at: datetime


class TenantContext(msgspec.Struct, frozen=True, kw_only=True):
    """Farms that the edge asked for, their barns and batches, and the standards of these.

    `alert_rules` are those that the edge can evaluate itself (AlertRule), each read alone: one that
    is newer than the edge leaves the others usable. A cloud that sends none leaves the defaults.
    `alert_windows` and `alert_silences` are what people did in the cloud that the siren heeds.
    """

    tenant_id: Id
    farms: Annotated[list[ContextFarm], Meta(max_length=MAX_FARMS)]
    barns: Annotated[list[ContextBarn], Meta(max_length=MAX_BARNS)]
    batches: Annotated[list[ContextBatch], Meta(max_length=MAX_BATCHES)]
    breed_standards: Annotated[list[ContextStandard], Meta(max_length=MAX_STANDARDS)]
    alert_rules: Annotated[list[dict[str, Any]], Meta(max_length=MAX_RULES)] | msgspec.UnsetType = (
        msgspec.UNSET
    )
    alert_windows: Annotated[list[ContextWindow], Meta(max_length=MAX_WINDOWS)] = []
    alert_silences: Annotated[list[ContextSilence], Meta(max_length=MAX_SILENCES)] = []


class EdgeContext(msgspec.Struct, frozen=True, kw_only=True):
    """The master data of the token's tenants. An edge that reads it ignores fields it lacks."""

    tenants: list[TenantContext]
