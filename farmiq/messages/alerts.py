"""An alert rule, as people set it in the cloud and as edges fetch it (C-114)."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from farmiq.messages.ids import Id
from farmiq.messages.kinds import Name

MAX_DURATION_S = 7 * 86400
MAX_RULES = 10_000

Severity = Literal["info", "warning", "critical"]
# above, below: the value against `threshold`. rises, falls: its change over `window_s`. differs: by
# how many per cent it is off `baseline`, either way. absent: no value at all.
Condition = Literal["above", "below", "rises", "falls", "differs", "absent"]
Baseline = Literal["standard", "same_hour"]
# Why an episode is over if not because the values say so: a person ended it; its rule was changed,
# switched off or no longer applies; its edge is gone; its device was moved or revoked; its batch
# was closed; its camera was switched off; or nothing came for so long that the device is gone.
EndReason = Literal["person", "rule", "edge", "moved", "revoked", "batch", "camera", "long"]
_Seconds = Annotated[int, Meta(ge=0, le=MAX_DURATION_S)]
_Days = Annotated[int, Meta(ge=0, le=10_000)]
_Signal = Annotated[
    str, Meta(pattern=r"^(telemetry|kpi|feed|weighing|edge|camera|bus)\.[\w.:-]{1,120}$")
]


class AlertRuleValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`condition` on `signal`, for `for_s`; it is over after `clear_for_s` on the side of `clear`.

    A signal is a series of values: `telemetry.<metric>` of a device, `kpi.<figure>` of a batch,
    `feed.days_left` of a barn, `weighing.incomplete` of a station, `edge.<total>` of an edge,
    `camera.<figure>` of a camera or site, `bus.dead_letters` of a queue of the cloud.
    The other fields say whose: all that are set must match. A rule with ages looks at no batch
    whose age is not known.
    """

    signal: _Signal
    condition: Condition
    severity: Severity = "warning"
    threshold: float | None = None
    clear: float | None = None
    for_s: _Seconds = 0
    clear_for_s: _Seconds = 300
    window_s: _Seconds | None = None
    baseline: Baseline | None = None
    name: Name | None = None
    farm_id: Id | None = None
    barn_id: Id | None = None
    device_id: Id | None = None
    species: Annotated[list[Name], Meta(max_length=20)] | None = None
    min_age_days: _Days | None = None
    max_age_days: _Days | None = None
    enabled: bool = True


class AlertRule(AlertRuleValues, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule under the id that it has in its company."""

    rule_id: Id
