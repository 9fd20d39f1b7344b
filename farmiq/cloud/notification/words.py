"""Pure: what a message about an episode says, in plain words."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.farm.alerts import rules
from farmiq.farm.alerts.advice import advice as what_to_do
from farmiq.messages.alerts import AlertRule

MAX_SUBJECT = 160
MAX_MESSAGE = 1000
# What ntfy and others call priority, from 1 to 5.
PRIORITIES = {"info": 2, "warning": 3, "critical": 5, "security": 5}
# What happened if not the values have ended it: the trouble may be there still.
_ENDED = {
    "person": "Ended by hand",
    "edge": "No longer watched, its edge is no longer connected",
    "moved": "No longer watched, the device was moved",
    "revoked": "No longer watched, the device was taken out of service",
    "batch": "No longer watched, the batch was closed",
    "camera": "No longer watched, the camera was switched off",
    "long": "No longer watched, nothing came from the device for a month",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """An episode and one step of it, with names and units as people know them."""

    tenant_id: str
    episode_id: UUID
    step: str
    source: str
    severity: str
    message: str
    state: str
    signal: str | None
    rule: AlertRule | None
    farm_id: str | None
    farm: str | None
    barn_id: str | None
    barn: str | None
    device_id: str | None
    edge_cluster_id: str | None
    batch_id: str | None
    timezone: str
    opened_at: datetime
    resolved_at: datetime | None
    first_value: float | None
    worst_value: float | None
    last_value: float | None
    acknowledged_by: str | None
    note: str | None
    minutes_unanswered: int | None
    ended_reason: str | None


@dataclass(frozen=True, slots=True)
class Words:
    """`content` is for programs: a webhook's receiver, and the values of a template."""

    subject: str
    text: str
    content: dict[str, Any]


def render(facts: Facts) -> Words:
    """The message about this step, without the link that acknowledges."""
    what = _one_line(facts.message)
    where = _where(facts)
    head = f"{_opening(facts)}: {what}"
    subject = f"{head} ({where})" if where and where not in what else head
    lines = [f"{_opening(facts)}: {what}", ""]
    lines += [f"{label + ':':<10}{text}" for label, text in _lines(facts, where) if text]
    advice = what_to_do(
        source=facts.source,
        signal=facts.signal,
        condition=facts.rule.condition if facts.rule else None,
    )
    if facts.step in {"opened", "worsened", "escalated"}:
        lines += ["", f"What to do: {advice}"]
    return Words(_cut(subject, MAX_SUBJECT), "\n".join(lines), _content(facts, what, advice))


def trial(channel_id: str, *, by: str) -> Words:
    """A message that shows whether a channel works."""
    subject = "Test message of FarmIQ alerts"
    text = (
        f"{by} sent this over the channel {channel_id} to see whether it works. "
        "There is nothing to do."
    )
    return Words(subject, text, {"step": "test", "severity": "info", "message": subject})


def _opening(facts: Facts) -> str:
    match facts.step:
        case "worsened":
            return f"{facts.severity.capitalize()}, it became worse"
        case "escalated":
            minutes = facts.minutes_unanswered
            waited = f" for {minutes} minutes" if minutes else ""
            return f"{facts.severity.capitalize()}, nobody has acknowledged{waited}"
        case "acknowledged":
            return f"Acknowledged by {_one_line(facts.acknowledged_by or 'somebody')}"
        case "resolved":
            return _ending(facts)
    return facts.severity.capitalize()


def _ending(facts: Facts) -> str:
    if facts.state == "withdrawn":
        return "Withdrawn, later data show that it never was"
    if facts.ended_reason is None:
        return "Resolved"
    if facts.ended_reason != "rule":
        return _ENDED[facts.ended_reason]
    if facts.rule is None:
        return "No longer watched, its rule was removed"
    if not facts.rule.enabled:
        return "No longer watched, its rule was switched off"
    return "No longer watched, its rule was changed or applies no more"


def _lines(facts: Facts, where: str) -> list[tuple[str, str]]:
    zone = ZoneInfo(facts.timezone)
    resolved = facts.resolved_at if facts.step == "resolved" else None
    return [
        ("Where", where),
        ("Since", local(facts.opened_at, zone)),
        ("Until", local(resolved, zone) if resolved else ""),
        ("Value", _value(facts)),
        ("Limit", _limit(facts)),
        ("Note", _one_line(facts.note or "")),
    ]


def local(at: datetime, zone: ZoneInfo) -> str:
    """A moment by the clocks of a zone, with the zone: Tue 18 November 2026, 11:02 (…)."""
    here = at.astimezone(zone)
    offset = here.strftime("%z")
    return f"{here:%a} {here.day} {here:%B %Y, %H:%M} ({zone.key}, UTC{offset[:3]}:{offset[3:5]})"


def _where(facts: Facts) -> str:
    barn = facts.barn or (f"barn {facts.barn_id}" if facts.barn_id else None)
    farm = facts.farm or (f"farm {facts.farm_id}" if facts.farm_id else None)
    device = f"device {facts.device_id}" if facts.device_id else None
    edge = f"edge {facts.edge_cluster_id}" if facts.edge_cluster_id and not farm else None
    batch = f"batch {facts.batch_id}" if facts.batch_id and not barn else None
    return _one_line(", ".join(filter(None, (barn, farm, device, batch, edge))))


def _value(facts: Facts) -> str:
    # Against a standard that changes by the day the worst is not the highest or lowest value.
    is_last = facts.step == "resolved" or (facts.rule is not None and facts.rule.baseline)
    shown = facts.last_value if is_last else facts.worst_value
    if shown is None:
        shown = facts.last_value
    return "" if shown is None else rules.quantity(shown, _unit(facts))


def _unit(facts: Facts) -> str:
    return rules.words(facts.signal)[1] if facts.signal else ""


def _limit(facts: Facts) -> str:
    rule = facts.rule
    if rule is None or rule.threshold is None:
        return ""
    unit = "%" if rule.baseline is not None else _unit(facts)
    by = "" if rule.condition in {"above", "below"} and rule.baseline is None else "by more than "
    return f"{rule.condition} {by}{rules.quantity(rule.threshold, unit)}"


def _content(facts: Facts, what: str, advice: str) -> dict[str, Any]:
    return {
        "tenant_id": facts.tenant_id,
        "episode_id": str(facts.episode_id),
        "step": facts.step,
        "severity": facts.severity,
        "state": facts.state,
        "message": what,
        "advice": advice,
        "signal": facts.signal,
        "farm_id": facts.farm_id,
        "farm": facts.farm,
        "barn_id": facts.barn_id,
        "barn": facts.barn,
        "device_id": facts.device_id,
        "edge_cluster_id": facts.edge_cluster_id,
        "batch_id": facts.batch_id,
        "opened_at": _iso(facts.opened_at),
        "resolved_at": _iso(facts.resolved_at),
        "value": facts.last_value,
        "worst_value": facts.worst_value,
        "limit": facts.rule.threshold if facts.rule else None,
        "unit": _unit(facts) or None,
        "ended_reason": facts.ended_reason,
        "acknowledged_by": facts.acknowledged_by,
        "note": facts.note,
    }


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def _one_line(text: str) -> str:
    """Without line breaks and other control characters: it may come from a device."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return _cut(" ".join(shown.split()), MAX_MESSAGE)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
