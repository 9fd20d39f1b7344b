"""Pure: the pages about programs, from sums of wakes and the time.

The comparison, the tables and their totals come from the same sums; so levels agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from farmiq.cloud import completeness
from farmiq.cloud.console.company.view import Company
from farmiq.ui import words
from farmiq.ui.charts import Column
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

LEVELS = ("company", "program", "site", "session", "device", "payload")
LEVEL_WORDS = {
    "company": marked("Company"),
    "program": marked("Programs"),
    "site": marked("Sites"),
    "session": marked("Days of sites"),
    "device": marked("Cameras"),
    "payload": marked("Wakes"),
}
NAME_WORDS = {
    "company": marked("Company"),
    "program": marked("Program"),
    "site": marked("Site"),
    "session": marked("Site"),
    "device": marked("Camera"),
    "payload": marked("Camera"),
}
# The level below, which a row leads to.
BELOW = {
    "company": "program",
    "program": "site",
    "site": "session",
    "session": "device",
    "device": "payload",
}
SPANS = (7, 30, 90)
KINDS = ("control", "experimental")
KIND_WORDS = {"control": marked("Control"), "experimental": marked("Experimental")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    program_id: UUID
    program_name: str
    program_type: str
    is_active: bool
    sites: int

    @property
    def kind(self) -> str:
        return _(KIND_WORDS[self.program_type])


@dataclass(frozen=True, slots=True, kw_only=True)
class DayOfKind:
    """A program's share of a date; `temperature` is a sum of so many `temperatures`."""

    program_id: UUID
    program_type: str
    session_date: date
    is_over: bool
    expected: int
    completed: int
    temperature: float | None
    temperatures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Sums of wakes; averages are of all wakes that said a value."""

    sessions: int
    expected: int
    received: int
    completed: int
    failed: int
    pending: int
    extra: int
    on_schedule: int
    avg_temperature: float | None
    avg_humidity: float | None

    @property
    def complete_percent(self) -> int | None:
        return completeness.shown(self.completed, self.expected)

    @property
    def completed_a_day(self) -> float | None:
        return self.completed / self.sessions if self.sessions else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    id: UUID
    name: str
    day: date | None
    at: datetime | None
    href: str
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramsQuery:
    """What a page shows: a level, so many days, and the parts that were chosen on the way down."""

    days: int = 30
    level: str = "program"
    program: UUID | None = None
    site: UUID | None = None
    session: UUID | None = None
    device: UUID | None = None

    @property
    def path(self) -> str:
        return f"/programs/{self.program}" if self.program else "/programs"

    @property
    def top(self) -> str:
        """The level that a page begins with."""
        return "site" if self.program else "program"

    def address(self, **changes: Any) -> str:
        names = ("days", "level", "program", "site", "session", "device")
        given = {name: getattr(self, name) for name in names} | changes
        path = f"/programs/{given['program']}" if given["program"] else "/programs"
        top = "site" if given["program"] else "program"
        left = {
            name: str(value)
            for name, value in given.items()
            if name != "program" and value is not None and (name, value) not in (
                ("days", 30), ("level", top))
        }  # fmt: skip
        return f"{path}?{urlencode(left)}#figures" if left else path


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The figures of one level with their totals; `more`: rows that do not fit on the page."""

    level: str
    rows: tuple[Row, ...]
    totals: Figures
    more: bool

    @property
    def name_word(self) -> str:
        return _(NAME_WORDS[self.level])


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A kind of program, or one program, beside the others."""

    key: str
    name: str
    kind: str
    href: str
    figures: Figures
    programs: int
    sites: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    now: datetime
    zone: str
    query: ProgramsQuery
    begin: date
    program: Program | None
    programs: tuple[Program, ...]
    kinds: tuple[Compared, ...]
    compared: tuple[Compared, ...]
    table: Table
    trail: tuple[tuple[str, str], ...]
    chart_names: tuple[str, ...]
    completeness_rows: tuple[tuple[Any, ...], ...]
    temperature_rows: tuple[tuple[Any, ...], ...]
    page: str = "programs"

    @property
    def title(self) -> str:
        name = words.cut(self.program.program_name) if self.program else _("Programs")
        return words.title(name, problems=0)

    @property
    def sentence(self) -> str:
        count = len(self.programs)
        if not count:
            return _("No programs yet")
        return ngettext("%(num)s program", "%(num)s programs", count) % {"num": count}

    @property
    def columns(self) -> list[Column]:
        return [Column(name, "line") for name in self.chart_names]

    @property
    def all_href(self) -> str:
        return self.query.address(level=self.query.top, site=None, session=None, device=None)

    @property
    def level_tabs(self) -> list[tuple[str, str, str]]:
        levels = LEVELS[LEVELS.index(self.query.top) :] if self.program else LEVELS
        return [(level, _(LEVEL_WORDS[level]), f"{self._of_level(level)}") for level in levels]

    def _of_level(self, level: str) -> str:
        """Another level of the same selection; what is chosen below that level is left."""
        outer = {"site": ("site",), "session": ("site",), "device": ("site", "session"),
                "payload": ("site", "session", "device")}.get(level, ())  # fmt: skip
        dropped = {name: None for name in ("site", "session", "device") if name not in outer}
        address = self.query.address(level=level, **dropped)
        return address if "#" in address else f"{address}#figures"

    @property
    def span_tabs(self) -> list[tuple[str, str, str]]:
        return [
            (str(days), _("%(count)s days") % {"count": days}, self.query.address(days=days))
            for days in SPANS
        ]


def figures(row: Mapping[str, Any]) -> Figures:
    numbers = {name: row[name] for name in Figures.__dataclass_fields__}
    for name in ("avg_temperature", "avg_humidity"):
        numbers[name] = None if row[name] is None else float(row[name])
    return Figures(**numbers)


def begin_of(days: int, *, today: date) -> date:
    return today - timedelta(days=days)


def view(
    company: Company,
    *,
    query: ProgramsQuery,
    begin: date,
    programs: Sequence[Program],
    of_programs: Sequence[Mapping[str, Any]],
    level_rows: Sequence[Mapping[str, Any]],
    totals: Mapping[str, Any],
    days: Sequence[DayOfKind],
    names: Mapping[str, str],
    limit: int,
    now: datetime,
) -> View:
    """`of_programs` are the sums of each program, `level_rows` those of the chosen level."""
    known = {program.program_id: program for program in programs}
    compared = tuple(
        Compared(
            key=str(row["id"]),
            name=row["name"],
            kind=known[row["id"]].kind,
            href=query.address(
                program=row["id"], level="site", site=None, session=None, device=None
            ),
            figures=figures(row),
            programs=1,
            sites=known[row["id"]].sites,
        )
        for row in of_programs
        if row["id"] in known
    )
    series = _series(days, query.program, known)
    return View(
        company=company,
        now=now,
        zone=words.zone_name(words.zone(company.timezone), now),
        query=query,
        begin=begin,
        program=known.get(query.program) if query.program else None,
        programs=tuple(programs),
        kinds=_kinds(compared, known, days),
        compared=tuple(sorted(compared, key=lambda part: (part.kind, part.name.casefold()))),
        table=Table(
            level=query.level,
            rows=tuple(_row(row, query) for row in level_rows[:limit]),
            totals=figures(totals),
            more=len(level_rows) > limit,
        ),
        trail=tuple(_trail(query, names)),
        chart_names=tuple(series),
        completeness_rows=_chart(series, _complete),
        temperature_rows=_chart(series, _mean_temperature),
    )


def _kinds(
    compared: Sequence[Compared], known: Mapping[UUID, Program], days: Sequence[DayOfKind]
) -> tuple[Compared, ...]:
    """Control and experimental, each the sum of its programs."""
    types = {str(program.program_id): program.program_type for program in known.values()}
    kinds = []
    for kind in KINDS:
        of_kind = [part for part in compared if types[part.key] == kind]
        if of_kind:
            kinds.append(
                Compared(
                    key=kind,
                    name=_(KIND_WORDS[kind]),
                    kind=_(KIND_WORDS[kind]),
                    href="",
                    figures=_sum(
                        [part.figures for part in of_kind],
                        [day for day in days if day.program_type == kind],
                    ),
                    programs=len(of_kind),
                    sites=sum(part.sites for part in of_kind),
                )
            )
    return tuple(kinds)


def _sum(parts: Sequence[Figures], days: Sequence[DayOfKind]) -> Figures:
    """Counts add up; the mean temperature is of all wakes, not of means."""
    counts = ("sessions", "expected", "received", "completed", "failed", "pending", "extra",
              "on_schedule")  # fmt: skip
    return Figures(
        **{name: sum(getattr(part, name) for part in parts) for name in counts},
        avg_temperature=_mean_temperature(days),
        avg_humidity=None,
    )


def _row(row: Mapping[str, Any], query: ProgramsQuery) -> Row:
    return Row(
        id=row["id"],
        name=row["name"],
        day=row["day"],
        at=row["at"] if query.level == "payload" else None,
        href=_below(row, query),
        figures=figures(row),
    )


def _below(row: Mapping[str, Any], query: ProgramsQuery) -> str:
    below = BELOW.get(query.level)
    if below is None:
        return ""
    chosen = {} if query.level == "company" else {query.level: row["id"]}
    if query.level == "program":
        chosen |= {"site": None, "session": None, "device": None}
    return query.address(level=below, **chosen)


def _trail(query: ProgramsQuery, names: Mapping[str, str]) -> list[tuple[str, str]]:
    """The parts that were chosen on the way down, with the way back to each."""
    steps = []
    for part, below in (("site", "session"), ("session", "device"), ("device", "payload")):
        if part not in names:
            continue
        after = {"site": ("session", "device"), "session": ("device",), "device": ()}[part]
        steps.append((names[part], query.address(level=below, **dict.fromkeys(after))))
    return steps


def _series(
    days: Sequence[DayOfKind], program_id: UUID | None, known: Mapping[UUID, Program]
) -> dict[str, dict[date, list[DayOfKind]]]:
    """Control and experimental; on the page of a program, it and all others of the other kind."""
    program = known.get(program_id) if program_id else None
    series: dict[str, dict[date, list[DayOfKind]]] = {}
    for day in days:
        if not day.is_over:
            continue
        if program is None:
            name = _(KIND_WORDS[day.program_type])
        elif day.program_id == program.program_id:
            name = words.cut(program.program_name)
        elif day.program_type != program.program_type:
            name = _("%(kind)s programs") % {"kind": _(KIND_WORDS[day.program_type])}
        else:
            continue
        series.setdefault(name, {}).setdefault(day.session_date, []).append(day)
    return dict(sorted(series.items()))


def _chart(
    series: Mapping[str, Mapping[date, Sequence[DayOfKind]]], figure: Any
) -> tuple[tuple[Any, ...], ...]:
    dates = sorted({day for days in series.values() for day in days})
    if not dates:
        return ()
    if all(figure(day) is None for days in series.values() for day in days.values()):
        return ()
    every = [dates[0] + timedelta(days=back) for back in range((dates[-1] - dates[0]).days + 1)]
    return tuple(
        (
            datetime.combine(day, time(), tzinfo=UTC),
            *(figure(days[day]) if day in days else None for days in series.values()),
        )
        for day in every
    )


def _complete(days: Sequence[DayOfKind]) -> float | None:
    """At most 100: an extra wake may make up for a missed one, but not for a missed day (C-75)."""
    expected = sum(day.expected for day in days)
    percent = completeness.percent(sum(day.completed for day in days), expected)
    return None if percent is None else min(100.0, percent)


def _mean_temperature(days: Sequence[DayOfKind]) -> float | None:
    count = sum(day.temperatures for day in days)
    return sum(day.temperature or 0 for day in days) / count if count else None
