"""Pure: the pages about rules and maintenance windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.alerts import rule_form
from farmiq.cloud.console.alerts.view import TONES, edge_name
from farmiq.cloud.console.company.view import Company
from farmiq.farm.alerts import rules as farm_rules
from farmiq.messages.alerts import AlertRule
from farmiq.ui import sentences, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

MAX_SHOWN = 50
_FAMILIES = (
    ("telemetry", marked("Climate and sensors")),
    ("feed", marked("Feed")),
    ("kpi", marked("Animals")),
    ("weighing", marked("Weighings")),
    ("edge", marked("Edges")),
    ("camera", marked("Cameras")),
    ("bus", marked("Cloud")),
)
_CONDITIONS = (
    ("above", marked("is above the limit")),
    ("below", marked("is below the limit")),
    ("rises", marked("rises by more than the limit")),
    ("falls", marked("falls by more than the limit")),
    ("differs", marked("differs from its comparison, in per cent")),
    ("absent", marked("does not come any more")),
)
_BASELINES = (
    ("", marked("With nothing: the limit is a value")),
    ("standard", marked("With the breed standard: the limit is per cent")),
    ("same_hour", marked("With the same hour of other days: the limit is per cent")),
)


# --- the list


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleRow:
    rule_id: str
    sentence: str
    name: str
    tone: str
    severity: str
    enabled: bool
    is_default: bool
    changed_by: str
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesView:
    company: Company
    now: datetime
    zone: str
    groups: tuple[tuple[str, tuple[RuleRow, ...]], ...]
    on: int
    total: int
    may_change: bool
    may_try: bool
    page: str = "alerts"

    @property
    def title(self) -> str:
        return _("Rules")

    @property
    def sentence(self) -> str:
        return _("%(on)s of %(total)s rules are on") % {"on": self.on, "total": self.total}


def rules_view(company: Company, rules: Sequence[Mapping[str, Any]], *, now: datetime) -> RulesView:
    rows = [(rule["signal"].partition(".")[0], rule_row(rule)) for rule in rules]
    groups = tuple(
        (_(label), tuple(row for of, row in rows if of == family)) for family, label in _FAMILIES
    )
    return RulesView(
        company=company,
        now=now,
        zone=words.zone_name(words.zone(company.timezone), now),
        groups=tuple((label, members) for label, members in groups if members),
        on=sum(row.enabled for _of, row in rows),
        total=len(rows),
        may_change=company.may("admin"),
        may_try=company.may("operator"),
    )


def rule_row(rule: Mapping[str, Any]) -> RuleRow:
    sentence = rule["sentence"]
    return RuleRow(
        rule_id=rule["rule_id"],
        sentence=sentences.shown(sentence),
        name=rule["name"] or "",
        tone=TONES[rule["severity"]] if rule["enabled"] else "muted",
        severity=words.severity(rule["severity"]),
        enabled=rule["enabled"],
        is_default=rule["is_default"],
        changed_by=rule["changed_by"] or "",
        href=f"/alerts/rules/{quote(rule['rule_id'], safe='')}",
    )


# --- one rule: form, sentence, dry run


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRow:
    subject: str
    message: str
    opened_at: datetime
    opened: str
    resolved_at: datetime | None
    resolved: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What the rule would have done; `since` is when the values begin, if that is later."""

    count: int
    series_count: int
    days: int
    is_whole: bool
    rows: tuple[TriedRow, ...]
    since_at: datetime | None = None
    since: str = ""

    @property
    def sentence(self) -> str:
        return ngettext(
            "In the last %(days)s days it would have called %(num)s time",
            "In the last %(days)s days it would have called %(num)s times",
            self.count,
        ) % {"days": self.days, "num": self.count}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    company: Company
    now: datetime
    zone: str
    rule_id: str | None
    row: RuleRow | None
    form: Mapping[str, str]
    problems: Mapping[str, str]
    problem: str
    sentence: str
    tried: Tried | None
    signals: list[tuple[str, str]]
    farms: list[tuple[str, str]]
    barns: list[tuple[str, str]]
    is_shipped: bool
    may_change: bool
    may_try: bool
    page: str = "alerts"

    @property
    def title(self) -> str:
        return self.row.sentence if self.row else _("New rule")

    @property
    def address(self) -> str:
        return self.row.href if self.row else "/alerts/rules/new"

    @property
    def conditions(self) -> list[tuple[str, str]]:
        return [(value, _(text)) for value, text in _CONDITIONS]

    @property
    def baselines(self) -> list[tuple[str, str]]:
        return [(value, _(text)) for value, text in _BASELINES]

    @property
    def severities(self) -> list[tuple[str, str]]:
        return [(name, words.severity(name)) for name in ("info", "warning", "critical")]

    @property
    def fields(self) -> list[tuple[str, str]]:
        """What the form that saves sends: the fields that were tried."""
        return [(name, self.form.get(name, "")) for name in rule_form.FIELDS]

    def error(self, field: str) -> str:
        return self.problems.get(field, "")


def _label(signal: str) -> str:
    return sentences.translated_phrase("signal", farm_rules.words(signal)[0])


def signals(metrics: Sequence[str], chosen: str) -> list[tuple[str, str]]:
    """What a rule can look at: known signals, and the metrics that devices report."""
    known = {signal: _label(signal) for signal in farm_rules.WORDS}
    for metric in metrics:
        known.setdefault(f"telemetry.{metric}", _label(f"telemetry.{metric}"))
    if chosen:
        known.setdefault(chosen, _label(chosen))
    families = [family for family, _name in _FAMILIES]
    labels = dict(_FAMILIES)

    def order(item: tuple[str, str]) -> tuple[int, str]:
        family = item[0].partition(".")[0]
        return families.index(family) if family in families else len(families), item[1].lower()

    return [
        (signal, f"{_(labels.get(signal.partition('.')[0], ''))}: {label}")
        for signal, label in sorted(known.items(), key=order)
    ]


def rule_view(
    company: Company,
    *,
    row: Mapping[str, Any] | None,
    form: Mapping[str, str],
    rule: AlertRule | None,
    problems: Mapping[str, str],
    problem: str = "",
    tried: Tried | None,
    places: Any,
    is_shipped: bool,
    now: datetime,
) -> RuleView:
    """`row` is the rule as it is; `rule` the one of the form, if that is valid."""
    names = dict(places.farms) | {barn: name.partition(", ")[0] for _f, barn, name in places.barns}
    sentence = farm_rules.sentence(rule, names=names) if rule else ""
    return RuleView(
        company=company,
        now=now,
        zone=words.zone_name(words.zone(company.timezone), now),
        rule_id=row["rule_id"] if row else None,
        row=rule_row(row) if row else None,
        form=form,
        problems=problems,
        problem=problem,
        sentence=sentences.shown(sentence),
        tried=tried,
        signals=signals(places.metrics, form.get("signal", "")),
        farms=[("", _("All farms")), *places.farms],
        barns=[
            ("", _("All barns")),
            *((f"{farm}/{barn}", name) for farm, barn, name in places.barns),
        ],
        is_shipped=is_shipped,
        may_change=company.may("admin"),
        may_try=company.may("operator"),
    )


def tried(trial: Any, *, days: int, now: datetime, zone: ZoneInfo) -> Tried:
    since_at = trial.values_from
    if since_at is not None and since_at - trial.begin_at < timedelta(hours=1):
        since_at = None
    return Tried(
        since_at=since_at,
        since=words.instant(since_at, now=now, zone=zone) if since_at else "",
        count=len(trial.episodes),
        series_count=trial.series_count,
        days=days,
        is_whole=trial.is_whole,
        rows=tuple(
            TriedRow(
                subject=episode["subject"],
                message=sentences.shown(episode["message"], zone.key),
                opened_at=episode["opened_at"],
                opened=words.instant(episode["opened_at"], now=now, zone=zone),
                resolved_at=episode["resolved_at"],
                resolved=words.instant(episode["resolved_at"], now=now, zone=zone)
                if episode["resolved_at"]
                else _("still"),
            )
            for episode in reversed(trial.episodes[-MAX_SHOWN:])
        ),
    )


# --- maintenance windows


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRow:
    window_id: UUID
    scope: str
    reason: str
    made_by: str
    begin_at: datetime
    begin: str
    end_at: datetime
    end: str
    held: int
    tone: str
    word: str
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowsView:
    company: Company
    now: datetime
    zone: str
    rows: tuple[WindowRow, ...]
    current: int
    form: Mapping[str, str]
    problems: Mapping[str, str]
    problem: str
    scopes: list[tuple[str, str]]
    may_act: bool
    page: str = "alerts"

    @property
    def title(self) -> str:
        return _("Maintenance")

    @property
    def sentence(self) -> str:
        if not self.current:
            return _("No calls are held back")
        return ngettext(
            "Calls are held back by %(num)s window",
            "Calls are held back by %(num)s windows",
            self.current,
        ) % {"num": self.current}

    @property
    def durations(self) -> list[tuple[str, str]]:
        return [
            (str(hours), words.duration(hours * 3600)) for hours in (1, 2, 4, 8, 12, 24, 48, 168)
        ]

    def error(self, field: str) -> str:
        return self.problems.get(field, "")


def windows_view(
    company: Company,
    windows: Sequence[Mapping[str, Any]],
    *,
    places: Any,
    form: Mapping[str, str],
    problems: Mapping[str, str],
    problem: str = "",
    now: datetime,
) -> WindowsView:
    zone = words.zone(company.timezone)
    rows = tuple(_window(window, now=now, zone=zone) for window in windows)
    return WindowsView(
        company=company,
        now=now,
        zone=words.zone_name(zone, now),
        rows=rows,
        current=sum(row.tone == "info" for row in rows),
        form={"hours": "2", **form},
        problems=problems,
        problem=problem,
        scopes=[
            ("", _("Everything")),
            *((f"farm:{farm}", name) for farm, name in places.farms),
            *((f"barn:{farm}/{barn}", name) for farm, barn, name in places.barns),
            *((f"edge:{edge}", edge_name(edge)) for edge in places.edges),
        ],
        may_act=company.may("operator"),
    )


def _window(window: Mapping[str, Any], *, now: datetime, zone: ZoneInfo) -> WindowRow:
    if window["end_at"] <= now:
        tone, word = "muted", _("over")
    elif window["begin_at"] > now:
        tone, word = "muted", _("to come")
    else:
        tone, word = "info", _("now")
    parts = (
        window["barn"] or window["barn_id"], window["farm"] or window["farm_id"],
        window["device_id"], window["edge_cluster_id"], window["rule_id"],
    )  # fmt: skip
    return WindowRow(
        window_id=window["window_id"],
        scope=", ".join(part for part in parts if part) or _("Everything"),
        reason=window["reason"],
        made_by=window["made_by"],
        begin_at=window["begin_at"],
        begin=words.instant(window["begin_at"], now=now, zone=zone),
        end_at=window["end_at"],
        end=words.instant(window["end_at"], now=now, zone=zone),
        held=window["held"],
        tone=tone,
        word=word,
        is_over=window["end_at"] <= now,
    )


def window_values(
    form: Mapping[str, str], *, now: datetime, zone: ZoneInfo
) -> tuple[dict[str, Any], dict[str, str]]:
    """The window of a form, and what is wrong by field."""
    problems: dict[str, str] = {}
    if not form.get("reason"):
        problems["reason"] = _("Say why: others see it")
    begin_at = now
    if text := form.get("begin"):
        try:
            begin_at = datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)
        except (ValueError, OverflowError):
            problems["begin"] = _("This is no time")
        if begin_at - now > MAX_AHEAD:
            begin_at = now
            problems["begin"] = _("This is no time")
    hours = rule_form.number_of(form.get("hours", "")) or 0.0
    if not 0 < hours <= MAX_HOURS:
        problems["hours"] = _("Choose for how long")
        hours = 1.0
    kind, _colon, name = form.get("scope", "").partition(":")
    farm_id, _slash, barn_id = name.partition("/")
    values = {
        "begin_at": begin_at,
        "end_at": begin_at + timedelta(hours=hours),
        "reason": form.get("reason", ""),
        "farm_id": farm_id if kind in ("farm", "barn") else None,
        "barn_id": barn_id if kind == "barn" else None,
        "device_id": form.get("device_id") or None,
        "edge_cluster_id": name if kind == "edge" else None,
        "rule_id": form.get("rule_id") or None,
    }
    return values, problems


MAX_HOURS = 366 * 24
MAX_AHEAD = timedelta(days=3660)
