"""Pure: what a rule says, whom it is about, and what is wrong with it.

A rule compares a measure of the signal with its threshold. The measure is the value itself; with a
baseline it is how many per cent the value is off it; with rises and falls it is the change over the
window. `evaluation.py` says when a rule opens and resolves.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple, get_args

import msgspec

from farmiq.messages.alerts import AlertRule
from farmiq.messages.kpi import KpiType
from farmiq.messages.wording import phrase, worded

CHANGES = ("rises", "falls")
# What a person calls a signal, and its unit. Other metrics go by their own name.
WORDS: Mapping[str, tuple[str, str]] = {
    "telemetry.temperature": (phrase("signal", "temperature"), "°C"),
    "telemetry.humidity": (phrase("signal", "humidity"), "%"),
    "telemetry.co2": (phrase("signal", "CO2"), "ppm"),
    "telemetry.ammonia": (phrase("signal", "ammonia"), "ppm"),
    "telemetry.ventilation": (phrase("signal", "ventilation"), "%"),
    "telemetry.mains": (phrase("signal", "mains power"), ""),
    "telemetry.water.flow": (phrase("signal", "water flow"), "l/min"),
    "telemetry.silo.weight": (phrase("signal", "silo weight"), "kg"),
    "kpi.head_count": (phrase("signal", "head count"), ""),
    "kpi.weight_mean": (phrase("signal", "mean weight"), "kg"),
    "kpi.weight_median": (phrase("signal", "median weight"), "kg"),
    "kpi.weight_p10": (phrase("signal", "10th percentile of weights"), "kg"),
    "kpi.weight_p90": (phrase("signal", "90th percentile of weights"), "kg"),
    "kpi.weight_cv": (phrase("signal", "variation of weights"), "%"),
    "kpi.weight_uniformity": (phrase("signal", "uniformity"), "%"),
    "kpi.adg": (phrase("signal", "daily gain"), "g"),
    "kpi.adg_7d": (phrase("signal", "daily gain of 7 days"), "g"),
    "kpi.adg_30d": (phrase("signal", "daily gain of 30 days"), "g"),
    "kpi.fcr": (phrase("signal", "feed conversion"), ""),
    "kpi.intake_kg": (phrase("signal", "feed intake of the day"), "kg"),
    "kpi.intake_per_head": (phrase("signal", "feed per head and day"), "g"),
    "kpi.water_per_head": (phrase("signal", "water per head and day"), "l"),
    "kpi.water_to_feed": (phrase("signal", "water per kg of feed"), "l"),
    "kpi.mortality_day_pct": (phrase("signal", "mortality of the day"), "%"),
    "kpi.mortality_pct": (phrase("signal", "mortality since placing"), "%"),
    "kpi.epef": (phrase("signal", "efficiency factor"), ""),
    "kpi.thi_hours": (phrase("signal", "hours of heat stress"), "h"),
    "kpi.data_coverage": (phrase("signal", "data coverage"), "%"),
    "kpi.vision_residual": (phrase("signal", "difference of estimates from the scale"), "%"),
    "feed.days_left": (phrase("signal", "feed left"), "days"),
    "weighing.incomplete": (phrase("signal", "number of incomplete weigh sessions"), ""),
    "edge.heard": (phrase("signal", "heartbeat of the edge"), ""),
    "edge.open_alerts": (phrase("signal", "open alerts of the edge"), ""),
    "edge.quarantine": (phrase("signal", "messages in the edge's quarantine"), ""),
    "edge.dead_letters": (phrase("signal", "dead letters of the edge"), ""),
    "edge.losses": (phrase("signal", "number of messages lost at the edge"), ""),
    "edge.waiting": (phrase("signal", "events waiting at the edge"), ""),
    "edge.oldest_s": (phrase("signal", "age of the oldest waiting event"), "s"),
    "edge.disk_percent": (phrase("signal", "disk use of the edge"), "%"),
    "edge.clock_offset_s": (phrase("signal", "clock offset of the edge"), "s"),
    "edge.alerts_missing": (phrase("signal", "alerts of the edge that have not arrived"), ""),
    "camera.completeness": (phrase("signal", "completeness of the day's images"), "%"),
    "camera.battery_v": (phrase("signal", "battery of the camera"), "V"),
    "bus.dead_letters": (phrase("signal", "dead letters of the cloud"), ""),
}
_FAMILY_IS_LISTED = ("kpi", "feed", "weighing", "edge", "camera", "bus")
_HAS_BATCH = ("telemetry", "kpi", "feed", "weighing")
# From here on people say minutes.
_LONG_S = 120
# What values of time and of feed are counted in, one and more.
_SECONDS_OF = (
    (86400, phrase("unit", "day"), phrase("unit", "days")),
    (3600, phrase("unit", "hour"), phrase("unit", "hours")),
    (60, phrase("unit", "minute"), phrase("unit", "minutes")),
    (1, phrase("unit", "second"), phrase("unit", "seconds")),
)
_VALUE = re.compile(
    r": (the last was )?-?[0-9][0-9.]*(e[+-]?[0-9]+)?( [^\s:]+)?( at [0-9-]{10} [0-9:]{5}Z)?$",
    re.ASCII,
)
_AGAINST_BASELINE = ("above", "below", "differs")
_CELSIUS_OF: Mapping[str, Callable[[float], float]] = {
    "F": lambda value: (value - 32) / 1.8,
    "°F": lambda value: (value - 32) / 1.8,
    "K": lambda value: value - 273.15,
}


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose series it is. `text` names it in causes and alerts; a scope matches the rest."""

    text: str
    farm_id: str | None = None
    barn_id: str | None = None
    device_id: str | None = None


def device_subject(farm_id: str, barn_id: str, device_id: str) -> Subject:
    """The subject of a device's telemetry."""
    return Subject(f"{farm_id}/{barn_id}/{device_id}", farm_id, barn_id, device_id)


class Animals(NamedTuple):
    """The batch in a barn on a day; nobody may know how old it is."""

    species: str
    age_days: int | None


def applies(rule: AlertRule, subject: Subject, batch: Animals | None) -> bool:
    """Whether all fields of the rule's scope match.

    A rule for animals needs a batch, one with ages a batch whose age is known.
    """
    for wanted, actual in (
        (rule.farm_id, subject.farm_id),
        (rule.barn_id, subject.barn_id),
        (rule.device_id, subject.device_id),
    ):
        if wanted is not None and wanted != actual:
            return False
    if rule.species is None and rule.min_age_days is None and rule.max_age_days is None:
        return True
    if batch is None:
        return False
    if rule.species is not None:
        species = batch.species.casefold()
        if all(name.casefold() != species for name in rule.species):
            return False
    return _is_of_age(rule, batch.age_days)


def _is_of_age(rule: AlertRule, age_days: int | None) -> bool:
    first, last = rule.min_age_days, rule.max_age_days
    if first is None and last is None:
        return True
    if age_days is None or (first is not None and age_days < first):
        return False
    return last is None or age_days <= last


def is_for_edges(rule: AlertRule) -> bool:
    """Whether an edge can evaluate it alone: it looks at readings, and at nothing before them."""
    return rule.enabled and rule.signal.startswith("telemetry.") and rule.baseline is None


def rule_hash(rule: AlertRule) -> str:
    """Tells whether a rule still means the same; its name and severity do not matter."""
    meaning = msgspec.structs.replace(rule, name=None, severity="warning", enabled=True)
    return hashlib.sha256(msgspec.json.encode(meaning)).hexdigest()[:16]


def in_rule_unit(metric_type: str, value: float, unit: str) -> float:
    """A reading in the unit of the rules: temperatures are compared in °C."""
    if metric_type == "temperature" and (convert := _CELSIUS_OF.get(unit)):
        return convert(value)
    return value


def measure(rule: AlertRule, value: float, baseline: float | None) -> float | None:
    """What is compared with the threshold; None if there is nothing to compare the value with.

    A change over the window is not of one value: see evaluation.py.
    """
    if rule.baseline is None:
        return value
    if not baseline:
        return None
    percent = (value - baseline) / abs(baseline) * 100
    match rule.condition:
        case "below":
            return -percent
        case "differs":
            return abs(percent)
        case _:
            return percent


def is_held(rule: AlertRule) -> bool:
    """Whether a value of the signal holds until the next one, as totals and figures do."""
    return not rule.signal.startswith("telemetry.")


def is_downward(rule: AlertRule) -> bool:
    """Whether a smaller measure is the worse one."""
    return rule.condition == "below" and rule.baseline is None


def is_met(rule: AlertRule, measured: float) -> bool:
    """Whether the measure is beyond the threshold."""
    assert rule.threshold is not None  # noqa: S101 - problems() says so
    return measured < rule.threshold if is_downward(rule) else measured > rule.threshold


def is_clear(rule: AlertRule, measured: float) -> bool:
    """Whether the measure is on the side of `clear`, which is the threshold if not set."""
    clear = rule.threshold if rule.clear is None else rule.clear
    assert clear is not None  # noqa: S101 - problems() says so
    return measured >= clear if is_downward(rule) else measured <= clear


def read(stored: Any) -> AlertRule | None:
    """The rule in a JSON object; None if this version cannot use it, as with one of a later."""
    try:
        rule = msgspec.convert(stored, AlertRule)
    except msgspec.ValidationError:
        return None
    return None if problems(rule) else rule


def problems(rule: AlertRule) -> list[tuple[str, str]]:
    """Fields that do not fit together, each with the reason; empty if the rule can be used."""
    return [*_signal_problems(rule), *_number_problems(rule), *_scope_problems(rule)]


def _signal_problems(rule: AlertRule) -> list[tuple[str, str]]:
    reasons = []
    family, _, name = rule.signal.partition(".")
    if family in _FAMILY_IS_LISTED and rule.signal not in WORDS:
        known = ", ".join(sorted(word for word in WORDS if word.startswith(f"{family}.")))
        reasons.append(
            (
                "signal",
                worded(
                    "there is no %(family)s signal %(name)s; there are: %(known)s",
                    family=family,
                    name=repr(name),
                    known=known,
                ),
            )
        )
    if (rule.signal == "edge.heard") > (rule.condition == "absent"):
        reasons.append(("condition", worded("edge.heard has no value: it can only be absent")))
    if rule.condition == "absent" and family != "telemetry" and rule.signal != "edge.heard":
        reasons.append(("condition", worded("absent is for telemetry and edge.heard only")))
    if rule.condition in CHANGES and not rule.window_s:
        reasons.append(
            (
                "window_s",
                worded(
                    "%(condition)s needs the window of the change, in seconds",
                    condition=rule.condition,
                ),
            )
        )
    if rule.condition not in CHANGES and rule.window_s is not None:
        reasons.append(("window_s", worded("a window is for rises and falls only")))
    if rule.condition == "differs" and rule.baseline is None:
        reasons.append(("baseline", worded("differs needs a baseline: standard or same_hour")))
    if rule.baseline is not None and rule.condition not in _AGAINST_BASELINE:
        reasons.append(("baseline", worded("a baseline is for above, below and differs only")))
    if rule.baseline == "standard" and rule.signal.removeprefix("kpi.") not in get_args(KpiType):
        reasons.append(("baseline", worded("standard is for figures of a batch (kpi.…) only")))
    if rule.baseline == "same_hour" and family != "telemetry":
        reasons.append(("baseline", worded("same_hour is for telemetry only")))
    return reasons


def _number_problems(rule: AlertRule) -> list[tuple[str, str]]:
    if rule.condition == "absent":
        unwanted = [
            (field, worded("absent compares no value"))
            for field in ("threshold", "clear")
            if getattr(rule, field) is not None
        ]
        return [*unwanted, *([] if rule.for_s else [("for_s", worded("absent needs a duration"))])]
    if rule.threshold is None or not isfinite(rule.threshold):
        return [
            (
                "threshold",
                worded("%(condition)s needs a threshold, a number", condition=rule.condition),
            )
        ]
    reasons = []
    if (rule.baseline or rule.condition in CHANGES) and rule.threshold < 0:
        reasons.append(("threshold", worded("a change or difference is not below 0")))
    if rule.clear is not None and not isfinite(rule.clear):
        reasons.append(("clear", worded("not a number")))
    elif rule.clear is not None and is_met(rule, rule.clear):
        reason = (
            worded("below the threshold: it would be over while it is still true")
            if is_downward(rule)
            else worded("above the threshold: it would be over while it is still true")
        )
        reasons.append(("clear", reason))
    return reasons


def _scope_problems(rule: AlertRule) -> list[tuple[str, str]]:
    family = rule.signal.partition(".")[0]
    reasons = []
    matched = {
        "telemetry": ("farm_id", "barn_id", "device_id"),
        "kpi": ("farm_id", "barn_id"),
        "feed": ("farm_id", "barn_id"),
        "weighing": ("farm_id", "barn_id", "device_id"),
        "camera": ("device_id",) if rule.signal == "camera.battery_v" else (),
    }.get(family, ())
    reasons += [
        (
            field,
            worded(
                "%(name)s has no %(field)s: the rule would never apply",
                name=rule.signal,
                field=field,
            ),
        )
        for field in ("farm_id", "barn_id", "device_id")
        if getattr(rule, field) is not None and field not in matched
    ]
    if family not in _HAS_BATCH:
        reasons += [
            (field, worded("%(name)s has no batch: the rule would never apply", name=rule.signal))
            for field in ("species", "min_age_days", "max_age_days")
            if getattr(rule, field) is not None
        ]
    if rule.species == []:
        reasons.append(("species", worded("an empty list fits no animals; leave it out for all")))
    if (
        rule.min_age_days is not None
        and rule.max_age_days is not None
        and rule.min_age_days > rule.max_age_days
    ):
        reasons.append(("max_age_days", worded("below min_age_days")))
    return reasons


def sentence(
    rule: AlertRule, *, subject: Subject | None = None, names: Mapping[str, str] | None = None
) -> str:
    """The rule as a person says it: temperature in barn 3 above 30 °C for 10 minutes.

    With a subject it is about that one. `names` are what people call farms, barns and devices.
    """
    label, unit = words(rule.signal)
    scope = subject or rule
    where = _where(scope.farm_id, scope.barn_id, scope.device_id, names or {})
    if rule.condition == "absent":
        text = _absence(rule, label, where)
    else:
        compared = comparison(rule, unit)
        if where:
            text = worded(
                "%(signal)s %(where)s %(comparison)s",
                signal=label, where=where, comparison=compared,
            )  # fmt: skip
        else:
            text = worded("%(signal)s %(comparison)s", signal=label, comparison=compared)
        if rule.for_s:
            text = worded(
                "%(sentence)s for %(quantity)s", sentence=text, quantity=duration(rule.for_s)
            )
    return text if subject else _with_animals(rule, text)


def _absence(rule: AlertRule, label: str, where: str) -> str:
    how_long = duration(rule.for_s)
    match rule.signal.startswith("telemetry."), bool(where):
        case True, True:
            return worded(
                "no %(signal)s reading %(where)s for %(quantity)s",
                signal=label, where=where, quantity=how_long,
            )  # fmt: skip
        case True, False:
            return worded("no %(signal)s reading for %(quantity)s", signal=label, quantity=how_long)
        case False, True:
            return worded(
                "no %(signal)s %(where)s for %(quantity)s",
                signal=label, where=where, quantity=how_long,
            )  # fmt: skip
    return worded("no %(signal)s for %(quantity)s", signal=label, quantity=how_long)


def words(signal: str) -> tuple[str, str]:
    """What a person calls the signal, and its unit."""
    name = signal.partition(".")[2]
    return WORDS.get(signal) or (name.replace(".", " ").replace("_", " "), "")


def quantity(value: float, unit: str) -> str:
    """A number as people write it: 30 °C, 2.5 days, 10 minutes."""
    if unit == "s" and value >= _LONG_S:
        return duration(round(value))
    return f"{round(value, 2):.10g} {unit}".rstrip()


def duration(seconds: float) -> str:
    """A duration in the largest unit that fits: 10 minutes, 36 hours."""
    for length, singular, plural in _SECONDS_OF:
        if seconds >= length and seconds % length == 0:
            count = int(seconds // length)
            return f"{count} {singular if count == 1 else plural}"
    return f"{seconds:g} seconds"


def with_value(text: str, value: float, unit: str) -> str:
    """The sentence of an alert with the value that opened it."""
    return worded("%(sentence)s: %(quantity)s", sentence=text, quantity=quantity(value, unit))


def without_value(text: str) -> str:
    """The sentence of an alert, of the cloud or of an edge, without the value that opened it."""
    return _VALUE.sub("", text)


_COMPARISONS: Mapping[tuple[str | None, str], str] = {
    ("standard", "above"): phrase("comparison", "more than %(quantity)s above the breed standard"),
    ("standard", "below"): phrase("comparison", "more than %(quantity)s below the breed standard"),
    ("standard", "differs"): phrase("comparison", "more than %(quantity)s off the breed standard"),
    ("same_hour", "above"): phrase(
        "comparison", "more than %(quantity)s above the same hour of other days"
    ),
    ("same_hour", "below"): phrase(
        "comparison", "more than %(quantity)s below the same hour of other days"
    ),
    ("same_hour", "differs"): phrase(
        "comparison", "more than %(quantity)s off the same hour of other days"
    ),
    (None, "rises"): phrase("comparison", "rises by more than %(quantity)s within %(window)s"),
    (None, "falls"): phrase("comparison", "falls by more than %(quantity)s within %(window)s"),
    (None, "above"): phrase("comparison", "above %(quantity)s"),
    (None, "below"): phrase("comparison", "below %(quantity)s"),
}


def comparison(rule: AlertRule, unit: str) -> str:
    """What a rule with a threshold compares with: above 30 °C."""
    assert rule.threshold is not None  # noqa: S101 - problems() says so
    return _COMPARISONS[rule.baseline, rule.condition] % {
        "quantity": quantity(rule.threshold, unit if rule.baseline is None else "%"),
        "window": duration(rule.window_s or 0),
    }


# By what is known: a device, a barn, a farm.
_WHERE = {
    (True, True, True): phrase("where", "of %(device)s in %(barn)s on %(farm)s"),
    (True, True, False): phrase("where", "of %(device)s in %(barn)s"),
    (True, False, True): phrase("where", "of %(device)s on %(farm)s"),
    (True, False, False): phrase("where", "of %(device)s"),
    (False, True, True): phrase("where", "in %(barn)s on %(farm)s"),
    (False, True, False): phrase("where", "in %(barn)s"),
    (False, False, True): phrase("where", "on %(farm)s"),
    (False, False, False): "",
}


def _where(
    farm_id: str | None, barn_id: str | None, device_id: str | None, names: Mapping[str, str]
) -> str:
    device = None if device_id is None else names.get(device_id, device_id)
    barn = farm = None
    if barn_id is not None:
        barn = names.get(barn_id) or (
            barn_id if _has_letters(barn_id) else phrase("barn", "barn %(name)s", name=barn_id)
        )
    if farm_id is not None and (barn_id is None or farm_id in names):
        farm = names.get(farm_id) or (
            farm_id if _has_letters(farm_id) else phrase("farm", "farm %(name)s", name=farm_id)
        )
    pattern = _WHERE[device is not None, barn is not None, farm is not None]
    return pattern % {"device": device, "barn": barn, "farm": farm}


def _has_letters(name: str) -> bool:
    return any(letter.isalpha() for letter in name)


def _with_animals(rule: AlertRule, text: str) -> str:
    species, ages = ", ".join(rule.species or ()), _ages(rule)
    if species and ages:
        return worded(
            "%(sentence)s (%(species)s; %(ages)s)", sentence=text, species=species, ages=ages
        )
    if ages:
        return worded("%(sentence)s (%(ages)s)", sentence=text, ages=ages)
    if species:
        return worded("%(sentence)s (%(species)s)", sentence=text, species=species)
    return text


def _ages(rule: AlertRule) -> str:
    first, last = rule.min_age_days, rule.max_age_days
    if first is None and last is None:
        return ""
    if last is None:
        return phrase("ages", "from %(number)s days of age", number=first)
    if first is None:
        return phrase("ages", "to %(number)s days of age", number=last)
    return phrase("ages", "%(number)s to %(last)s days of age", number=first, last=last)
