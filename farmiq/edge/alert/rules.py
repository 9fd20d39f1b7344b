"""Pure: which rules look at a series, what new readings make of them, and what opens.

An alert is raised only while it is fresh: its newest reading is at most 15 minutes old and not on
the clear side. What an outage brings late is history, which the cloud writes. An absence that began
while the edge was off is raised too, if it lasts: its last reading is of the last 24 hours, and
nothing came since.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from farmiq.farm.alerts.defaults import DEFAULTS
from farmiq.farm.alerts.evaluation import Sample, State, step
from farmiq.farm.alerts.rules import (
    Animals,
    Subject,
    applies,
    device_subject,
    in_rule_unit,
    is_for_edges,
    quantity,
    read,
    rule_hash,
    sentence,
    words,
)
from farmiq.messages.alerts import AlertRule
from farmiq.messages.context import ContextBatch, ContextWindow, TenantContext
from farmiq.messages.edge import Severity
from farmiq.messages.wording import worded

FRESH = timedelta(minutes=15)
# A device that was silent longer was taken away, as far as an edge can tell.
MAX_SILENCE = timedelta(hours=24)
# After a power cut devices need this long to speak; one that sends what it stored is not silent.
SETTLING = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Reading:
    """A row of telemetry_raw, or of telemetry_latest."""

    farm_id: str
    barn_id: str
    occurred_at: datetime
    ingested_at: datetime
    metric_value: float
    unit: str

    @property
    def at(self) -> datetime:
        """A device whose clock is ahead was heard when its reading came."""
        return min(self.occurred_at, self.ingested_at)


class RuleState(msgspec.Struct, frozen=True):
    """The state of a rule, of which revision, and whether its alert is raised."""

    revision: str
    state: State
    is_raised: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """What was seen of a series so far."""

    tenant_id: str
    device_id: str
    metric_type: str
    farm_id: str
    barn_id: str
    last: Sample | None = None
    states: Mapping[str, RuleState] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        return device_subject(self.farm_id, self.barn_id, self.device_id)


@dataclass(frozen=True, slots=True)
class OpenedAlert:
    """A rule that opened for a series and is fresh."""

    rule: AlertRule
    series: Series
    message: str
    opened_at: datetime


@dataclass(frozen=True, slots=True)
class LocalAlert:
    """What is open here, and what keeps it from the siren and from mails."""

    kind: str
    subject: str
    tenant_id: str
    farm_id: str
    barn_id: str
    severity: Severity
    message: str
    opened_at: datetime
    in_maintenance: bool
    is_silenced: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    series: Series
    opened: Sequence[OpenedAlert]
    # rule_id and the series under whose subject it was raised.
    resolved: Sequence[tuple[str, Series]]


@dataclass(frozen=True, slots=True)
class TenantRules:
    """A tenant's rules by metric, what they have to know of its farms, and what people did."""

    by_metric: Mapping[str, Sequence[tuple[AlertRule, str]]]
    batches: Mapping[tuple[str, str], Sequence[ContextBatch]]
    zones: Mapping[str, ZoneInfo]
    # By farm: what people call the farm and its barns.
    names: Mapping[str, Mapping[str, str]]
    unreadable: int = 0
    severities: Mapping[str, Severity] = field(default_factory=dict)
    windows: Sequence[ContextWindow] = ()
    # By the kind and subject of the alert: until when what opened is looked after.
    silences: Mapping[tuple[str, str], datetime] = field(default_factory=dict)

    def animals(self, series: Series, now: datetime, zone: ZoneInfo) -> Animals | None:
        """The batch in the series' barn on the farm's local day."""
        day = now.astimezone(self.zones.get(series.farm_id, zone)).date()
        for batch in self.batches.get((series.farm_id, series.barn_id), ()):
            if batch.placed_on <= day and (batch.closed_on is None or day <= batch.closed_on):
                days = (day - batch.placed_on).days
                at_placing = batch.age_at_placing_days
                return Animals(batch.species, None if at_placing is None else at_placing + days)
        return None


def of_context(content: Any) -> TenantRules:
    """The rules of a tenant's context as the cloud sent it; None or unreadable: the defaults."""
    try:
        context = None if content is None else msgspec.convert(content, TenantContext)
    except msgspec.ValidationError:
        context = None
    if context is None:
        return TenantRules(_by_metric(DEFAULTS), {}, {}, {})
    sent = context.alert_rules
    rules = list(DEFAULTS) if sent is msgspec.UNSET else [read(rule) for rule in sent]
    usable = [rule for rule in rules if rule is not None]
    batches = defaultdict(list)
    for batch in context.batches:
        batches[batch.farm_id, batch.barn_id].append(batch)
    names: dict[str, dict[str, str]] = defaultdict(dict)
    for farm in context.farms:
        names[farm.farm_id][farm.farm_id] = farm.name
    for barn in context.barns:
        names[barn.farm_id][barn.barn_id] = barn.name
    zones = {farm.farm_id: zone for farm in context.farms if (zone := _zone(farm.timezone))}
    return TenantRules(
        _by_metric(usable), batches, zones, names, len(rules) - len(usable),
        {kind(rule.rule_id): rule.severity for rule in usable},
        context.alert_windows, _silences(context),
    )  # fmt: skip


def evaluate(
    series: Series,
    readings: Sequence[Reading],
    tenant: TenantRules,
    *,
    now: datetime,
    zone: ZoneInfo,
    heard_at: datetime,
    listening_since: datetime,
) -> Outcome:
    """The series after these readings, in the order of their time, and what opened and resolved.

    Before these readings something of the series came last at `heard_at`.
    """
    before = series
    heard_at = max([heard_at, *(reading.ingested_at for reading in readings)])
    if readings:
        newest = readings[-1]
        series = replace(series, farm_id=newest.farm_id, barn_id=newest.barn_id)
    samples = list(_samples(series, readings))
    batch = tenant.animals(series, now, zone)
    names = tenant.names.get(series.farm_id, {})
    # A rule that was changed starts anew, and so do all of a device that was moved.
    known = before.states if before.subject == series.subject else {}
    states: dict[str, RuleState] = {}
    opened, resolved = [], []
    continued = set()
    for rule, revision in tenant.by_metric.get(series.metric_type, ()):
        if not applies(rule, series.subject, batch):
            continue
        old = known.get(rule.rule_id)
        if old is not None and old.revision != revision:
            old = None
        if old is not None:
            continued.add(rule.rule_id)
        state = _advance(rule, old, series, samples, now)
        is_raised = old is not None and old.is_raised
        if state.opened_at is None and is_raised:
            resolved.append((rule.rule_id, series))
            is_raised = False
        elif (
            state.opened_at is not None
            and not is_raised
            and _is_fresh(rule, state, now, heard_at, listening_since)
        ):
            is_raised = True
            message = _message(rule, state, series, names)
            opened.append(OpenedAlert(rule, series, message, state.opened_at))
        if not state.is_idle:
            states[rule.rule_id] = RuleState(revision, state, is_raised)
    resolved += [
        (rule_id, before)
        for rule_id, old in before.states.items()
        if old.is_raised and rule_id not in continued
    ]
    last = samples[-1] if samples else series.last
    return Outcome(replace(series, last=last, states=states), opened, resolved)


def heeded(alert: LocalAlert, tenant: TenantRules, now: datetime) -> LocalAlert:
    """An open alert by what people want now: its severity, maintenance, and who looks after it."""
    silent_until = tenant.silences.get((alert.kind, alert.subject))
    return replace(
        alert,
        severity=tenant.severities.get(alert.kind, alert.severity),
        in_maintenance=any(
            window.begin_at <= now < window.end_at and _is_in(window, alert)
            for window in tenant.windows
        ),
        is_silenced=alert.is_silenced
        or (silent_until is not None and alert.opened_at <= silent_until),
    )


def _is_in(window: ContextWindow, alert: LocalAlert) -> bool:
    return all(
        wanted is None or wanted == actual
        for wanted, actual in (
            (window.farm_id, alert.farm_id),
            (window.barn_id, alert.barn_id),
            (window.device_id, alert.subject.rpartition("/")[2]),
            (window.rule_id, alert.kind.removeprefix("rule.")),
        )
    )


def _silences(context: TenantContext) -> dict[tuple[str, str], datetime]:
    silences: dict[tuple[str, str], datetime] = {}
    for silence in context.alert_silences:
        place = device_subject(silence.farm_id, silence.barn_id, silence.device_id)
        key = kind(silence.rule_id), f"{context.tenant_id}/{place.text}"
        silences[key] = max(silence.at, silences.get(key, silence.at))
    return silences


def kind(rule_id: str) -> str:
    """The kind of the alert that a rule raises at the edge."""
    return f"rule.{rule_id}"


def alert_subject(series: Series) -> str:
    """As the edge's alerts name what belongs to a tenant."""
    return f"{series.tenant_id}/{series.subject.text}"


def _advance(
    rule: AlertRule,
    known: RuleState | None,
    series: Series,
    samples: Sequence[Sample],
    now: datetime,
) -> State:
    if known is not None:
        state = known.state
    elif series.last is not None:
        state = State(last_at=series.last.at, last_value=series.last.value)
    else:
        state = State()
    for sample in samples:
        if state.last_at is None or sample.at >= state.last_at:
            state, _ = step(rule, state, sample)
    state, _ = step(rule, state, Sample(now))
    return state


def _is_fresh(
    rule: AlertRule, state: State, now: datetime, heard_at: datetime, listening_since: datetime
) -> bool:
    if state.last_at is None or state.opened_at is None or state.clear_since is not None:
        return False
    if rule.condition != "absent":
        return now - state.last_at <= FRESH
    # A device that sends what it stored, or whose clock is behind, is not silent.
    if now - heard_at < min(SETTLING, timedelta(seconds=rule.for_s)):
        return False
    if now - state.opened_at <= FRESH:
        return True
    return now - state.last_at <= MAX_SILENCE and now - listening_since >= SETTLING


def _samples(series: Series, readings: Iterable[Reading]) -> Iterable[Sample]:
    for reading in readings:
        value = in_rule_unit(series.metric_type, reading.metric_value, reading.unit)
        yield Sample(reading.at, value)


def _message(rule: AlertRule, state: State, series: Series, names: Mapping[str, str]) -> str:
    text = sentence(rule, subject=series.subject, names=names)
    unit = words(rule.signal)[1]
    if state.last_at is None or state.last_value is None:
        return text
    at = f"{state.last_at:%Y-%m-%d %H:%M}Z"
    shown = quantity(state.last_value, unit)
    if rule.condition == "absent":
        return worded(
            "%(sentence)s: the last was %(quantity)s at %(instant)s",
            sentence=text, quantity=shown, instant=at,
        )  # fmt: skip
    return worded(
        "%(sentence)s: %(quantity)s at %(instant)s", sentence=text, quantity=shown, instant=at
    )


def _by_metric(rules: Iterable[AlertRule]) -> dict[str, list[tuple[AlertRule, str]]]:
    by_metric = defaultdict(list)
    for rule in rules:
        if is_for_edges(rule):
            by_metric[rule.signal.removeprefix("telemetry.")].append((rule, rule_hash(rule)))
    return by_metric


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError):
        return None
