"""Pure: what values do to the states of their series, and what the clock says of heartbeats."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from farmiq.cloud.alerts.evaluating.ruleset import KPI, RuleSet, Series, Value
from farmiq.farm.alerts import evaluation
from farmiq.farm.alerts.evaluation import Opened, Resolved, Sample, State
from farmiq.messages.alerts import AlertRule, EndReason

# Two heartbeats of an edge, and a little for the way.
MAX_QUIET = timedelta(seconds=150)


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


def lookback(rule: AlertRule) -> timedelta:
    """How far before a moment the values lie that decide what is pending at it."""
    return timedelta(seconds=3 * rule.for_s + (rule.window_s or 0) + 2 * evaluation.MAX_GAP_S)


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
