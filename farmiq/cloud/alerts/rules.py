"""Pure: which rules look at a value, and what values do to the states of their series."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import product
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from farmiq.farm.alerts import evaluation
from farmiq.farm.alerts import rules as farm_rules
from farmiq.farm.alerts.evaluation import Opened, Resolved, Sample, State
from farmiq.farm.alerts.rules import Animals, Subject
from farmiq.messages.alerts import AlertRule, EndReason

TELEMETRY, KPI = "telemetry.", "kpi."
# In place of the id of an event: a reading that is stored, and one that came long after its time.
# Of a series one of each waits to be evaluated again, whatever their number.
READING, OLD_READING = UUID(int=1), UUID(int=2)
# What is older than this when it comes changes history and calls nobody.
OLD = timedelta(minutes=15)
# Known places of a tenant; more than this are looked up anew.
MAX_MEMO = 100_000
# Two heartbeats of an edge, and a little for the way.
MAX_QUIET = timedelta(seconds=150)


@dataclass(frozen=True, slots=True, order=True)
class Series:
    """A signal of one subject."""

    tenant_id: str
    signal: str
    subject: str

    @property
    def name(self) -> str:
        """What of the signal's family: the metric, the figure, the total."""
        return self.signal.partition(".")[2]

    @property
    def place(self) -> tuple[str, str, str]:
        """Farm, barn and device of a series of telemetry."""
        farm_id, barn_id, device_id = self.subject.split("/")
        return farm_id, barn_id, device_id

    @property
    def scope(self) -> tuple[str, str, str | None] | None:
        """Farm, barn and device of what stands in a barn, else None."""
        if self.signal.startswith(TELEMETRY):
            return self.place
        if self.subject.startswith("barn:"):
            farm_id, _, barn_id = self.subject.removeprefix("barn:").partition("/")
            return farm_id, barn_id, None
        return None

    @property
    def batch_id(self) -> str:
        """Of a series of figures."""
        return self.subject.removeprefix("batch:")

    @property
    def is_timed(self) -> bool:
        """A job looks at its value now and then: it has no past and is never late."""
        return not self.signal.startswith((TELEMETRY, KPI))

    def cause(self, rule_id: str) -> str:
        return f"rule:{rule_id}|{self.subject}"


@dataclass(frozen=True, slots=True)
class Farm:
    """A farm's name and zone, and the names of its barns."""

    farm_id: str
    name: str
    timezone: str
    barns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Batch:
    batch_id: str
    farm_id: str
    barn_id: str
    species: str
    placed_on: date
    closed_on: date | None
    age_at_placing_days: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of a series; None is a look at the clock, at which nothing had come."""

    series: Series
    at: datetime
    value: float | None
    farm_id: str | None = None
    barn_id: str | None = None
    device_id: str | None = None
    edge_cluster_id: str | None = None
    batch_id: str | None = None
    event_id: UUID | None = None
    baseline: float | None = None

    @property
    def order(self) -> tuple[datetime, bool, float]:
        return self.at, self.value is None, self.value or 0.0


class Entry(msgspec.Struct, frozen=True):
    """The state of one rule for a series, good as long as the rule is the same."""

    hash: str
    state: State


@dataclass(frozen=True, slots=True)
class SeriesState:
    last_at: datetime | None
    last_value: float | None
    heard_at: datetime
    entries: Mapping[str, Entry] = field(default_factory=dict)


@dataclass(slots=True)
class Span:
    """One time that a rule was broken; `resolved_at` is None as long as it is."""

    rule: AlertRule
    value: Value
    opened_at: datetime
    opened_value: float | None
    first_value: float | None
    worst_value: float | None
    last_value: float | None
    last_at: datetime
    resolved_at: datetime | None = None

    @property
    def is_absence(self) -> bool:
        return self.rule.condition == "absent"

    @property
    def is_nothing(self) -> bool:
        """Whether it is an absence that ended before it began: data came late."""
        return (
            self.is_absence and self.resolved_at is not None and self.resolved_at <= self.opened_at
        )


@dataclass(slots=True)
class Seen:
    """Values that found a rule still broken that was so before, or the end of it."""

    cause: str
    at: datetime
    value: float | None
    worst_value: float | None = None
    count: int = 0
    reason: EndReason | None = None


@dataclass(slots=True)
class Changes:
    """What values of one series did: `seen` and `ended` were open before, `spans` began now."""

    ended: list[Seen] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    seen: dict[str, Seen] = field(default_factory=dict)
    late: list[Value] = field(default_factory=list)


class RuleSet:
    """The enabled rules of a tenant, found by signal and place in a few lookups."""

    def __init__(
        self,
        rules: Iterable[AlertRule],
        batches: Iterable[Batch] = (),
        farms: Iterable[Farm] = (),
        changed_at: Mapping[str, datetime] | None = None,
    ) -> None:
        self.changed_at = changed_at or {}
        self.rules = {rule.rule_id: rule for rule in rules if rule.enabled}
        self.hashes = {rule_id: farm_rules.rule_hash(rule) for rule_id, rule in self.rules.items()}
        self._farms = {farm.farm_id: farm for farm in farms}
        self._zones = {farm.farm_id: ZoneInfo(farm.timezone) for farm in self._farms.values()}
        self._batches: dict[tuple[str, str], list[Batch]] = {}
        self._batch_of: dict[str, Batch] = {}
        for batch in batches:
            self._batch_of[batch.batch_id] = batch
            self._batches.setdefault((batch.farm_id, batch.barn_id), []).append(batch)
        self._by_signal: dict[str, dict[tuple[str | None, ...], list[AlertRule]]] = {}
        for rule in self.rules.values():
            scope = (rule.farm_id, rule.barn_id, rule.device_id)
            self._by_signal.setdefault(rule.signal, {}).setdefault(scope, []).append(rule)
        self.absences = [
            rule
            for rule in self.rules.values()
            if rule.condition == "absent" and rule.signal.startswith(TELEMETRY)
        ]
        self._memo: dict[tuple[str | None, ...], tuple[AlertRule, ...]] = {}
        self._animals_then: dict[tuple[str | None, str | None, int], Animals | None] = {}
        self._applying: dict[
            tuple[str, str | None, str | None, str | None, Animals | None], tuple[AlertRule, ...]
        ] = {}

    @property
    def signals(self) -> frozenset[str]:
        return frozenset(self._by_signal)

    def of_signal(self, signal: str) -> Iterable[AlertRule]:
        """All rules on a signal, whatever their scope."""
        for rules in self._by_signal.get(signal, {}).values():
            yield from rules

    def in_scope(
        self, signal: str, farm_id: str | None, barn_id: str | None, device_id: str | None
    ) -> tuple[AlertRule, ...]:
        """Rules on a signal whose farm, barn and device match; the animals are not looked at."""
        key = (signal, farm_id, barn_id, device_id)
        rules = self._memo.get(key)
        if rules is None:
            scopes = self._by_signal.get(signal, {})
            places = product({farm_id, None}, {barn_id, None}, {device_id, None})
            rules = tuple(rule for place in places for rule in scopes.get(place, ()))
            if len(self._memo) >= MAX_MEMO:
                self._memo.clear()
            self._memo[key] = rules
        return rules

    def compares_hours(self, value: Value) -> bool:
        """Whether a rule compares a value with the same hour of other days."""
        rules = self.in_scope(value.series.signal, value.farm_id, value.barn_id, value.device_id)
        return any(rule.baseline == "same_hour" for rule in rules)

    def looking_at(self, value: Value) -> tuple[AlertRule, ...]:
        """The rules that apply to a value, with the animals that are in its barn at that time."""
        animals = self._animals(value)
        key = (value.series.signal, value.farm_id, value.barn_id, value.device_id, animals)
        rules = self._applying.get(key)
        if rules is None:
            subject = _subject(value)
            scoped = self.in_scope(*key[:4])
            rules = tuple(rule for rule in scoped if farm_rules.applies(rule, subject, animals))
            if len(self._applying) >= MAX_MEMO:
                self._applying.clear()
            self._applying[key] = rules
        return rules

    def batch_at(self, farm_id: str | None, barn_id: str | None, at: datetime) -> Batch | None:
        """The batch that is in a barn at a moment, by the farm's own date."""
        if farm_id is None or barn_id is None:
            return None
        batches = self._batches.get((farm_id, barn_id))
        if not batches:
            return None
        on = self.local_date(farm_id, at)
        for batch in batches:
            if batch.placed_on <= on and (batch.closed_on is None or on <= batch.closed_on):
                return batch
        return None

    def is_closed(self, batch_id: str, now: datetime) -> bool:
        """Whether a batch has left its barn, by the farm's own date."""
        batch = self._batch_of.get(batch_id)
        if batch is None:
            return True
        today = self.local_date(batch.farm_id, now)
        return batch.closed_on is not None and batch.closed_on < today

    def placed_at(self, value: Value) -> datetime | None:
        """The begin of the day on which the animals came that are in a value's barn."""
        batch = self.batch_at(value.farm_id, value.barn_id, value.at)
        if batch is None:
            return None
        return self.end_of_day(value.farm_id, batch.placed_on - timedelta(days=1))

    def local_date(self, farm_id: str | None, at: datetime) -> date:
        return at.astimezone(self._zone(farm_id)).date()

    def end_of_day(self, farm_id: str | None, on: date) -> datetime:
        """The midnight that ends a date of a farm."""
        following = on + timedelta(days=1)
        midnight = datetime(
            following.year, following.month, following.day, tzinfo=self._zone(farm_id)
        )
        return midnight.astimezone(UTC)

    def _zone(self, farm_id: str | None) -> ZoneInfo:
        return self._zones.get(farm_id or "", ZoneInfo("UTC"))

    def _animals(self, value: Value) -> Animals | None:
        # A figure is of the day that ends at its moment.
        at = value.at - timedelta(seconds=1) if value.series.signal.startswith(KPI) else value.at
        # No zone's midnight lies within a quarter of an hour: a date is looked for once in each.
        key = (value.farm_id, value.barn_id, int(at.timestamp()) // 900)
        try:
            return self._animals_then[key]
        except KeyError:
            pass
        if len(self._animals_then) >= MAX_MEMO:
            self._animals_then.clear()
        batch = self.batch_at(value.farm_id, value.barn_id, at)
        animals = None
        if batch is not None:
            days = (self.local_date(value.farm_id, at) - batch.placed_on).days
            animals = Animals(batch.species, batch.age_at_placing_days + days)
        self._animals_then[key] = animals
        return animals

    def message(self, rule: AlertRule, value: Value, measured: float | None) -> str:
        """What people read: the rule about this subject, and the value that broke it."""
        farm = self._farms.get(value.farm_id or "")
        names = {}
        if farm is not None:
            names = {farm.farm_id: farm.name}
            if barn := farm.barns.get(value.barn_id or ""):
                names[value.barn_id or ""] = barn
        sentence = farm_rules.sentence(rule, subject=_subject(value), names=names)
        if measured is None:
            return sentence
        return farm_rules.with_value(sentence, measured, farm_rules.words(rule.signal)[1])


def _subject(value: Value) -> Subject:
    return Subject(value.series.subject, value.farm_id, value.barn_id, value.device_id)


def tick(value: Value, now: datetime) -> Value:
    """A look at the clock behind the newest value of a series."""
    return replace(value, at=max(now, value.at), value=None, event_id=None)


@dataclass(frozen=True, slots=True)
class Watch:
    """Since when heartbeats could come without a break, as far as a look at `at` can say."""

    since: datetime
    at: datetime
    newest_at: datetime | None

    @property
    def is_long_enough(self) -> bool:
        """Whether every edge has had the time for a heartbeat since."""
        return self.at - self.since >= MAX_QUIET


def watched(before: Watch | None, newest_at: datetime | None, now: datetime) -> Watch:
    """The watch after a look that found the newest heartbeat of all edges at `newest_at`.

    It begins anew when we start, after looks that did not happen, and when heartbeats come again
    after none came from any edge: then it was rather the cloud that was away.
    """
    is_unbroken = (
        before is not None
        and now - before.at < MAX_QUIET
        and (
            newest_at is None
            or before.newest_at is None
            or newest_at - before.newest_at < MAX_QUIET
        )
    )
    since = before.since if before is not None and is_unbroken else now
    return Watch(since, now, newest_at)


def advance(
    state: SeriesState,
    values: Sequence[Value],
    ruleset: RuleSet,
    *,
    heard_at: datetime,
    is_whole: bool = False,
) -> tuple[SeriesState, Changes]:
    """Take values of a series, in their order, into the state of its rules.

    A value from before the newest one, another one of the same moment, or one that was withdrawn is
    late: the series is evaluated again later. The same one again changes nothing. `is_whole`: these
    are all values, so nothing is late.
    """
    last_at, last_value = state.last_at, state.last_value
    is_heard = False
    work = _Work(ruleset, dict(state.entries))
    for value in values:
        if not is_whole and is_late(value, last_at, last_value):
            work.changes.late.append(value)
        elif value.value is None:
            work.take(value, last_at, last_value)
        elif (value.at, value.value) != (last_at, last_value):
            work.take(value, last_at, last_value)
            last_at, last_value = value.at, value.value
            is_heard = True
    heard_at = heard_at if is_heard else state.heard_at
    return SeriesState(last_at, last_value, heard_at, work.entries), work.changes


def is_late(value: Value, last_at: datetime | None, last_value: float | None) -> bool:
    if value.value is None:
        return value.event_id is not None
    if last_at is None:
        return False
    return value.at < last_at or (value.at == last_at and value.value != last_value)


@dataclass(slots=True)
class _Work:
    """One call of `advance`: the states of the rules, and what has happened so far."""

    ruleset: RuleSet
    entries: dict[str, Entry]
    changes: Changes = field(default_factory=Changes)
    spans: dict[str, Span] = field(default_factory=dict)  # those that are open, by cause

    def take(self, value: Value, last_at: datetime | None, last_value: float | None) -> None:
        rules = self.ruleset.looking_at(value)
        if self.entries:
            self._drop_others(rules, value)
        for rule in rules:
            if value.value is None and rule.condition != "absent":
                continue
            entry = self.entries.pop(rule.rule_id, None)
            if entry is None and value.value is not None and evaluation.is_quiet(rule, value.value):
                continue
            before = entry.state if entry else State(last_at=last_at, last_value=last_value)
            sample = Sample(value.at, value.value)
            after, happened = evaluation.step(rule, before, sample, baseline=value.baseline)
            if not after.is_idle:
                self.entries[rule.rule_id] = Entry(self.ruleset.hashes[rule.rule_id], after)
            if happened or after.opened_at is not None:
                self._note(rule, value, before, after, happened)

    def _drop_others(self, rules: Sequence[AlertRule], value: Value) -> None:
        """Drop the states of rules that changed or no longer apply; what was open is over."""
        current = {rule.rule_id: self.ruleset.hashes[rule.rule_id] for rule in rules}
        for rule_id in [*self.entries]:
            if current.get(rule_id) != self.entries[rule_id].hash:
                state = self.entries.pop(rule_id).state
                if state.opened_at is not None:
                    cause = value.series.cause(rule_id)
                    self._end(cause, value.at, None, state.worst_value, reason="rule")

    def _note(
        self,
        rule: AlertRule,
        value: Value,
        before: State,
        after: State,
        happened: Sequence[Opened | Resolved],
    ) -> None:
        cause = value.series.cause(rule.rule_id)
        for event in happened:
            if isinstance(event, Opened):
                first = before.last_value if rule.condition == "absent" else after.first_value
                span = Span(
                    rule, value, event.at, event.value, first, after.worst_value, event.value,
                    max(event.at, value.at),
                )  # fmt: skip
                self.spans[cause] = span
                self.changes.spans.append(span)
            else:
                self._end(cause, event.at, event.value, before.worst_value)
        if after.opened_at is None:
            return
        if span_now := self.spans.get(cause):
            span_now.worst_value, span_now.last_at = after.worst_value, value.at
            span_now.last_value = after.last_value
            return
        seen = self.changes.seen.setdefault(cause, Seen(cause, value.at, value.value))
        seen.at, seen.worst_value = value.at, after.worst_value
        if value.value is not None:
            seen.value, seen.count = value.value, seen.count + 1

    def _end(
        self,
        cause: str,
        at: datetime,
        value: float | None,
        worst_value: float | None,
        *,
        reason: EndReason | None = None,
    ) -> None:
        span = self.spans.pop(cause, None)
        if span is None:
            seen = self.changes.seen.pop(cause, None)
            count = 0 if seen is None else seen.count
            self.changes.ended.append(Seen(cause, at, value, worst_value, count, reason))
            return
        span.resolved_at = span.last_at = max(at, span.opened_at)
        if value is not None:
            span.last_value = value


def prune(
    series: Series,
    state: SeriesState,
    ruleset: RuleSet,
    *,
    now: datetime,
    gone: EndReason | None = None,
) -> tuple[SeriesState, list[Seen]]:
    """The state without rules that changed or no longer apply today, and what they had open.

    To what is `gone`, such as an edge without a key, none applies from now on.
    """
    if series.signal.startswith(KPI) and ruleset.is_closed(series.batch_id, now):
        gone = "batch"
    current: Mapping[str, str] = {} if gone else ruleset.hashes
    if gone is None and (place := series.scope) is not None:
        farm_id, barn_id, device_id = place
        today = Value(
            series=series, at=now, value=None, farm_id=farm_id, barn_id=barn_id, device_id=device_id
        )
        current = {rule.rule_id: current[rule.rule_id] for rule in ruleset.looking_at(today)}
    entries = {
        rule_id: entry
        for rule_id, entry in state.entries.items()
        if current.get(rule_id) == entry.hash
    }
    ended_at = now if gone else state.last_at or now
    ended = [
        Seen(series.cause(rule_id), ended_at, None, entry.state.worst_value, reason=gone or "rule")
        for rule_id, entry in state.entries.items()
        if rule_id not in entries and entry.state.opened_at is not None
    ]
    return replace(state, entries=entries), ended


# --- evaluated again


@dataclass(frozen=True, slots=True)
class Past:
    """An episode as it is stored."""

    episode_id: UUID
    cause: str
    opened_at: datetime
    resolved_at: datetime | None
    raised_at: datetime
    is_paged: bool
    # A person or a change of the farm ended it, not the values.
    is_fixed: bool = False


@dataclass(slots=True)
class Corrections:
    """How stored episodes become what the values say."""

    changed: list[tuple[Past, Span]] = field(default_factory=list)
    withdrawn: list[Past] = field(default_factory=list)
    new: list[Span] = field(default_factory=list)


def lookback(rule: AlertRule) -> timedelta:
    """How far before a moment the values lie that decide what is pending at it."""
    return timedelta(seconds=3 * rule.for_s + (rule.window_s or 0) + 2 * evaluation.MAX_GAP_S)


def corrections(
    past: Sequence[Past], spans: Sequence[Span], *, begin: datetime, fixed_before: datetime | None
) -> Corrections:
    """Match the stored episodes of one cause with those that values from `begin` on give.

    The same begin first, then whatever overlaps. An episode that people heard the end of is not
    opened again: it is withdrawn, and another takes its place. What was raised before
    `fixed_before` is of another rule and stays, and so does what the values did not end.
    """
    corrected = Corrections()
    fixed = [
        episode
        for episode in past
        if episode.is_fixed or (fixed_before is not None and episode.raised_at < fixed_before)
    ]
    left = [episode for episode in past if episode not in fixed]
    todo = [span for span in spans if not any(_overlap(episode, span) for episode in fixed)]
    for is_same in (_same_begin, _overlap):
        for span in [*todo]:
            episode = next((candidate for candidate in left if is_same(candidate, span)), None)
            if episode is None:
                continue
            left.remove(episode)
            todo.remove(span)
            if episode.resolved_at is not None and episode.is_paged and span.resolved_at is None:
                corrected.withdrawn.append(episode)
                corrected.new.append(span)
            else:
                if episode.opened_at < begin:
                    span.opened_at = episode.opened_at
                corrected.changed.append((episode, span))
    corrected.new += todo
    corrected.withdrawn += [episode for episode in left if episode.opened_at >= begin]
    return corrected


def _same_begin(past: Past, span: Span) -> bool:
    return past.opened_at == span.opened_at


def _overlap(past: Past, span: Span) -> bool:
    return (span.resolved_at is None or past.opened_at <= span.resolved_at) and (
        past.resolved_at is None or span.opened_at <= past.resolved_at
    )
