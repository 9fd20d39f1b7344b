"""Pure: a rule as the fields of a form, and back, with what is wrong by field."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from farmiq.farm.alerts import rules as farm_rules
from farmiq.messages.alerts import MAX_DURATION_S, AlertRule
from farmiq.ui import words
from farmiq.ui.entry.fields import plain_reason
from farmiq.ui.i18n import gettext as _

MINUTE_S = 60
# Of what is larger the check of the rule rejects this.
MAX_NUMBER = 1e12
FIELDS = (
    "name", "signal", "condition", "threshold", "clear", "for_min", "clear_for_min", "window_min",
    "baseline", "severity", "farm", "barn", "device_id", "species", "min_age_days",
    "max_age_days",
)  # fmt: skip
# The field of the form that shows what is wrong with a field of the rule.
_SHOWN_AT = {
    "for_s": "for_min", "clear_for_s": "clear_for_min", "window_s": "window_min",
    "farm_id": "farm", "barn_id": "barn", "rule_id": "name",
}  # fmt: skip
_MINUTES = ("for_s", "clear_for_s", "window_s")
_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?(e[+-]?[0-9]{1,2})?", re.ASCII)
_PATH = re.compile(r"at `\$\.([a-z_]+)")
_FIRST_ID = "own"


@dataclass(frozen=True, slots=True)
class Parsed:
    """The rule, or what is wrong by field."""

    rule: AlertRule | None
    problems: Mapping[str, str]


def parse(form: Mapping[str, str], *, rule_id: str, enabled: bool = True) -> Parsed:
    """The rule of a form."""
    problems: dict[str, str] = {}
    given: dict[str, Any] = {
        "rule_id": rule_id,
        "enabled": enabled,
        "signal": form.get("signal", ""),
        "condition": form.get("condition", ""),
        "severity": form.get("severity") or "warning",
    }
    for field in ("name", "baseline", "device_id"):
        given[field] = form.get(field) or None
    farm_id, _slash, barn_id = (form.get("barn") or "").partition("/")
    given["farm_id"] = farm_id or form.get("farm") or None
    given["barn_id"] = barn_id or None
    species = [word.strip() for word in form.get("species", "").split(",")]
    given["species"] = [word for word in species if word] or None
    for field, name, factor in (
        ("threshold", "threshold", 1.0),
        ("clear", "clear", 1.0),
        ("for_min", "for_s", MINUTE_S),
        ("clear_for_min", "clear_for_s", MINUTE_S),
        ("window_min", "window_s", MINUTE_S),
        ("min_age_days", "min_age_days", 1),
        ("max_age_days", "max_age_days", 1),
    ):
        text = form.get(field, "").strip()
        if not text:
            continue
        if (number := number_of(text)) is None:
            problems[field] = _("This is no number")
            continue
        is_whole = name not in ("threshold", "clear")
        bounded = max(-MAX_NUMBER, min(number * factor, MAX_NUMBER))
        given[name] = round(bounded) if is_whole else number
    if problems:
        return Parsed(None, problems)
    try:
        rule = msgspec.convert(given, AlertRule)
    except msgspec.ValidationError as error:
        path = _PATH.search(str(error))
        field = path[1] if path else "signal"
        return Parsed(None, {_SHOWN_AT.get(field, field): _reason(str(error), field)})
    for field, reason in farm_rules.problems(rule):
        problems.setdefault(_SHOWN_AT.get(field, field), plain_reason(reason))
    return Parsed(None if problems else rule, problems)


def number_of(text: str) -> float | None:
    """What somebody typed, with a point or a comma; None if it is no number."""
    plain = text.strip().replace(",", ".")
    return float(plain) if _NUMBER.fullmatch(plain) else None


def _reason(error: str, field: str) -> str:
    """What the library says, in plain words, and of a duration in the minutes of the form."""
    if field not in _MINUTES:
        return plain_reason(error.partition(" - at")[0])
    limit = words.number(MAX_DURATION_S / MINUTE_S)
    return _("This is from 0 to %(limit)s minutes") % {"limit": limit}


def fields(rule: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a rule as its row has it."""
    barn = f"{rule['farm_id']}/{rule['barn_id']}" if rule["barn_id"] else ""
    return {
        "name": rule["name"] or "",
        "signal": rule["signal"],
        "condition": rule["condition"],
        "severity": rule["severity"],
        "threshold": _number(rule["threshold"]),
        "clear": _number(rule["clear"]),
        "for_min": _number(rule["for_s"] / MINUTE_S),
        "clear_for_min": _number(rule["clear_for_s"] / MINUTE_S),
        "window_min": "" if rule["window_s"] is None else _number(rule["window_s"] / MINUTE_S),
        "baseline": rule["baseline"] or "",
        "farm": rule["farm_id"] or "" if not barn else "",
        "barn": barn,
        "device_id": rule["device_id"] or "",
        "species": ", ".join(rule["species"] or ()),
        "min_age_days": _number(rule["min_age_days"]),
        "max_age_days": _number(rule["max_age_days"]),
    }


EMPTY: Mapping[str, str] = {
    **dict.fromkeys(FIELDS, ""),
    "signal": "telemetry.temperature",
    "condition": "above",
    "severity": "warning",
    "for_min": "10",
    "clear_for_min": "5",
}


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def new_id(name: str | None, taken: set[str]) -> str:
    """An id that no rule has, made of the rule's name."""
    base = re.sub(r"[^a-z0-9]+", "-", (name or "").lower()).strip("-")[:60] or _FIRST_ID
    number, rule_id = 1, base
    while rule_id in taken:
        number += 1
        rule_id = f"{base}-{number}"
    return rule_id
