"""Pure: what a message about an episode says, in plain words and in the language of who gets it."""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from babel import dates

from farmiq.farm.alerts import rules
from farmiq.farm.alerts.advice import advice as what_to_do
from farmiq.messages.alerts import AlertRule
from farmiq.ui import i18n, sentences
from farmiq.ui import words as ui_words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

MAX_SUBJECT = 160
MAX_MESSAGE = 1000
# What ntfy and others call priority, from 1 to 5.
PRIORITIES = {"info": 2, "warning": 3, "critical": 5, "security": 5}
# How a day is written out, by language.
_DAYS = {"en": "EEE d MMMM y", "de": "EEE d. MMMM y"}
# What happened if not the values have ended it: the trouble may be there still.
_ENDED = {
    "person": marked("Ended by hand"),
    "edge": marked("No longer watched, its edge is no longer connected"),
    "moved": marked("No longer watched, the device was moved"),
    "revoked": marked("No longer watched, the device was taken out of service"),
    "batch": marked("No longer watched, the batch was closed"),
    "camera": marked("No longer watched, the camera was switched off"),
    "long": marked("No longer watched, nothing came from the device for a month"),
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


def render(facts: Facts, language: str = "en") -> Words:
    """The message about this step, without the link that acknowledges.

    `content` is English, whatever the language is: programs compare texts.
    """
    advice = what_to_do(
        source=facts.source,
        signal=facts.signal,
        condition=facts.rule.condition if facts.rule else None,
    )
    content = _content(facts, _one_line(facts.message), advice, language)
    with i18n.use(language):
        what = _one_line(sentences.translated(facts.message, facts.timezone))
        head = f"{_opening(facts)}: {what}"
        places = _places(facts)
        unnamed = ", ".join(shown for name, shown in places if not _names(what, name))
        subject = f"{head} ({unnamed})" if unnamed else head
        where = ", ".join(shown for _name, shown in places)
        named = [(label, text) for label, text in _lines(facts, where) if text]
        width = max(len(label) for label, _text in named) + 2
        lines = [head, "", *(f"{label + ':':<{max(width, 10)}}{text}" for label, text in named)]
        if facts.step in {"opened", "worsened", "escalated"}:
            lines += ["", _("What to do") + ": " + sentences.translated(advice)]
    return Words(cut(subject, MAX_SUBJECT), "\n".join(lines), content)


def trial(channel_id: str, *, by: str, language: str = "en") -> Words:
    """A message that shows whether a channel works."""
    with i18n.use(language):
        subject = _("Test message of FarmIQ alerts")
        text = _(
            "%(who)s sent this over the channel %(channel)s to see whether it works. "
            "There is nothing to do."
        ) % {"who": by, "channel": channel_id}
    return Words(subject, text, {"step": "test", "severity": "info", "message": subject})


def with_link(text: str, link: str, language: str) -> str:
    """A message with the way to acknowledge below it."""
    with i18n.use(language):
        label = _("I look after it (opens a page with one button)")
    return f"{text}\n\n{label}:\n{link}\n"


def _opening(facts: Facts) -> str:
    named = {"severity": ui_words.severity(facts.severity)}
    match facts.step:
        case "worsened":
            return _("%(severity)s, it became worse") % named
        case "escalated" if facts.minutes_unanswered:
            named["minutes"] = str(facts.minutes_unanswered)
            counted = ngettext(
                "%(severity)s, nobody has acknowledged for %(minutes)s minute",
                "%(severity)s, nobody has acknowledged for %(minutes)s minutes",
                facts.minutes_unanswered,
            )
            return counted % named
        case "escalated":
            return _("%(severity)s, nobody has acknowledged") % named
        case "acknowledged":
            return acknowledged_by(facts.acknowledged_by)
        case "resolved":
            return _ending(facts)
    return named["severity"]


def acknowledged_by(person: str | None) -> str:
    """In the language of the message or page."""
    return _("Acknowledged by %(who)s") % {"who": _one_line(person or _("somebody"))}


def _ending(facts: Facts) -> str:
    if facts.state == "withdrawn":
        return _("Withdrawn, later data show that it never was")
    if facts.ended_reason is None:
        return _("Resolved")
    if facts.ended_reason != "rule":
        return _(_ENDED[facts.ended_reason])
    if facts.rule is None:
        return _("No longer watched, its rule was removed")
    if not facts.rule.enabled:
        return _("No longer watched, its rule was switched off")
    return _("No longer watched, its rule was changed or applies no more")


def _lines(facts: Facts, where: str) -> list[tuple[str, str]]:
    zone = ZoneInfo(facts.timezone)
    resolved = facts.resolved_at if facts.step == "resolved" else None
    return [
        (_("Where"), where),
        (_("Since"), local(facts.opened_at, zone)),
        (_("Until"), local(resolved, zone) if resolved else ""),
        (_("Value"), _value(facts)),
        (_("Limit"), _limit(facts)),
        (_("Note"), _one_line(facts.note or "")),
    ]


def local(at: datetime, zone: ZoneInfo) -> str:
    """A moment by the clocks of a zone, with the zone: Tue 18 November 2026, 11:02 (…)."""
    here = at.astimezone(zone)
    offset = here.strftime("%z")
    day = dates.format_date(here.date(), _DAYS.get(i18n.language(), _DAYS["en"]), i18n.locale())
    return f"{day}, {here:%H:%M} ({zone.key}, UTC{offset[:3]}:{offset[3:5]})"


def _places(facts: Facts) -> list[tuple[str, str]]:
    """(name, how it is shown) of where it is, the smallest first."""
    barn = facts.barn or _named(_("barn %(name)s"), facts.barn_id)
    farm = facts.farm or _named(_("farm %(name)s"), facts.farm_id)
    device = _named(_("device %(name)s"), facts.device_id)
    edge = _named(_("edge %(name)s"), facts.edge_cluster_id) if not farm else None
    batch = _named(_("batch %(name)s"), facts.batch_id) if not barn else None
    places = (
        (facts.barn or facts.barn_id, barn),
        (facts.farm or facts.farm_id, farm),
        (facts.device_id, device),
        (facts.batch_id, batch),
        (facts.edge_cluster_id, edge),
    )
    return [(_one_line(name), _one_line(shown)) for name, shown in places if name and shown]


def _names(text: str, name: str) -> bool:
    """Whether the text names this place; a barn that is called 30 is not what is above 30 °C."""
    return not name.isdigit() and bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text))


def _named(pattern: str, name: str | None) -> str | None:
    return pattern % {"name": name} if name else None


def _value(facts: Facts) -> str:
    # Against a standard that changes by the day the worst is not the highest or lowest value.
    is_last = facts.step == "resolved" or (facts.rule is not None and facts.rule.baseline)
    shown = facts.last_value if is_last else facts.worst_value
    if shown is None:
        shown = facts.last_value
    return "" if shown is None else sentences.quantity(rules.quantity(shown, _unit(facts)))


def _unit(facts: Facts) -> str:
    return rules.words(facts.signal)[1] if facts.signal else ""


def _limit(facts: Facts) -> str:
    rule = facts.rule
    if rule is None or rule.threshold is None or rule.condition == "absent":
        return ""
    return sentences.translated_phrase("comparison", rules.comparison(rule, _unit(facts)))


def _content(facts: Facts, what: str, advice: str, language: str) -> dict[str, Any]:
    return {
        "tenant_id": facts.tenant_id,
        "language": language,
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
    return cut(" ".join(shown.split()), MAX_MESSAGE)


def cut(text: str, length: int) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= length else text[: length - 1] + "…"
