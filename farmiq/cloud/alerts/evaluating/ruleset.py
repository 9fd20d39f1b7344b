"""Pure: series and their values, and which rules of a tenant look at one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import product
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.farm.alerts import rules as farm_rules
from farmiq.farm.alerts.rules import Animals, Subject
from farmiq.messages.alerts import AlertRule

TELEMETRY, KPI, WEIGHING = "telemetry.", "kpi.", "weighing."
# Known places of a tenant; more than this are looked up anew.
MAX_MEMO = 100_000


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
        """Farm, barn and device of a series of telemetry, or the station of one of weighings."""
        farm_id, barn_id, device_id = self.subject.split("/")
        return farm_id, barn_id, device_id

    @property
    def scope(self) -> tuple[str, str, str | None] | None:
        """Farm, barn and device of what stands in a barn, else None."""
        if self.signal.startswith((TELEMETRY, WEIGHING)):
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
    age_at_placing_days: int | None


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
            at_placing = batch.age_at_placing_days
            animals = Animals(batch.species, None if at_placing is None else at_placing + days)
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


def timed_value(series: Series, at: datetime, value: float) -> Value:
    """What a look of the clock found of a series: its subject says whose it is."""
    kind, _, name = series.subject.partition(":")
    farm_id, barn_id, device_id = series.scope or (None, None, None)
    return Value(
        series=series,
        at=at,
        value=value,
        farm_id=farm_id,
        barn_id=barn_id,
        device_id=name if kind == "camera" else device_id,
        edge_cluster_id=name if kind == "edge" else None,
    )


def tick(value: Value, now: datetime) -> Value:
    """A look at the clock behind the newest value of a series."""
    return replace(value, at=max(now, value.at), value=None, event_id=None)
