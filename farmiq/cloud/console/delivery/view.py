"""Pure: what the pages of delivery say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.ui import words
from farmiq.ui.charts import Column
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

# An event that waits longer than this at an edge that is heard is not just on its way.
LATE_S = 15 * 60
MAX_CLOCK_OFFSET_S = 60
DISK_FULL_PERCENT = 85
# Counts of queues are written every 15 s: older ones are said to be old.
COUNTS_OLD_AFTER = timedelta(minutes=2)

Tone = Literal["good", "warn", "bad", "info", "muted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """What an edge last said of itself; None for what an older version does not say."""

    received_at: datetime
    clock_offset_s: float
    versions: Mapping[str, str]
    waiting: int
    oldest_s: float
    dead_letters: int
    disk_percent: float
    open_alerts: int | None
    quarantine: int | None
    losses: int | None
    farms: Sequence[str] | None
    alerts_missing: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge as one company sees it, and what came from it in the last 24 hours."""

    edge_id: str
    state: Literal["never heard", "heard", "silent"]
    good_keys: int
    heartbeat: Heartbeat | None
    # Its ledger keeps losses for a year and more: that they grew is news, for as long as the alert.
    has_new_losses: bool = False
    events: int = 0
    duplicates: int = 0

    @property
    def is_revoked(self) -> bool:
        """None of its keys is good: nothing is expected from it."""
        return self.good_keys == 0

    @property
    def silent_since(self) -> datetime | None:
        is_silent = self.state == "silent" and not self.is_revoked
        return self.heartbeat.received_at if is_silent and self.heartbeat else None


@dataclass(frozen=True, slots=True)
class Finding:
    """A sentence about one figure: what it is counted as, and how bad it is."""

    text: str
    value: float
    name: str
    key: str = ""
    tone: Tone = "bad"


@dataclass(frozen=True, slots=True)
class EdgeRow:
    edge: Edge
    problems: tuple[Finding, ...]
    tone: Tone
    word: str

    @property
    def version(self) -> str:
        """The edge's software as it names it; the first if it names several parts."""
        versions = self.edge.heartbeat.versions if self.edge.heartbeat else {}
        return versions.get("farmiq") or next(iter(versions.values()), "")


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of the bus, as it was counted last."""

    queue: str
    messages: int
    consumers: int
    max_messages: int
    counted_at: datetime

    @property
    def is_dead_letters(self) -> bool:
        return self.queue.endswith((".dlq.queue", ".unrouted.queue"))

    @property
    def tone(self) -> Tone:
        if self.is_dead_letters:
            return "warn" if self.messages else "muted"
        if not self.consumers:
            return "bad"
        return "warn" if self.messages > self.max_messages / 2 else "muted"

    @property
    def word(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if self.is_dead_letters:
            return _("wait for a person") if self.messages else ""
        if not self.consumers:
            return _("nobody reads it")
        return _("more than half full") if self.messages > self.max_messages / 2 else ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message of a camera in quarantine, with every reason."""

    quarantine_id: Any
    camera: str
    kind: str
    reasons: Sequence[str]
    received_count: int
    last_received_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What of the company waits at a station of its way; `late`: of these longer than LATE_S."""

    station: str
    count: int
    oldest_at: datetime | None
    late: int = 0

    @property
    def word(self) -> str:
        return {
            "edges": _("Events at the edges, for the cloud"),
            "entries": _("Entries of people, for the bus"),
            "messages": _("Messages to people, for their channel"),
        }[self.station]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the queries found."""

    waiting: Sequence[Waiting] = ()

    edges: Sequence[Edge]
    dead_letters: int
    conflicts: int
    rejected: Sequence[Rejected]
    rejected_total: int
    queues: Sequence[Queue]

    def counts_are_old(self, now: datetime) -> bool:
        """Whether the service that counts queues has stopped."""
        return bool(self.queues) and now - self.queues[0].counted_at > COUNTS_OLD_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    facts: Facts
    rows: Sequence[EdgeRow]
    headline: Sequence[Finding]
    events: int
    duplicates: int
    now: datetime
    where: ZoneInfo
    page: str = "delivery"

    @property
    def title(self) -> str:
        return words.title(_("Delivery"), problems=len(self.headline))

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def as_of(self) -> str:
        return words.instant(self.now, now=self.now, zone=self.where)

    @property
    def has_edges(self) -> bool:
        return bool(self.rows)


def view(company: Company, facts: Facts, *, now: datetime) -> View:
    rows = sorted((edge_row(edge, now=now) for edge in facts.edges), key=_worst_first)
    return View(
        company=company,
        facts=facts,
        rows=rows,
        headline=headline(rows, facts, now=now),
        events=sum(edge.events for edge in facts.edges),
        duplicates=sum(edge.duplicates for edge in facts.edges),
        now=now,
        where=words.zone(company.timezone),
    )


_ORDER = ("bad", "warn", "good", "info", "muted")


def _worst_first(row: EdgeRow) -> tuple[int, str]:
    return _ORDER.index(row.tone), row.edge.edge_id


def edge_row(edge: Edge, *, now: datetime) -> EdgeRow:
    problems = tuple(edge_problems(edge, now=now))
    if edge.is_revoked:
        return EdgeRow(edge, problems, "muted", _("revoked"))
    if edge.state == "never heard":
        return EdgeRow(edge, problems, "warn", _("never heard"))
    if edge.state == "silent":
        return EdgeRow(edge, problems, "bad", _("silent"))
    if any(problem.tone == "bad" for problem in problems):
        return EdgeRow(edge, problems, "bad", _("needs attention"))
    if problems:
        return EdgeRow(edge, problems, "warn", _("needs attention"))
    return EdgeRow(edge, problems, "good", _("arrives"))


def edge_problems(edge: Edge, *, now: datetime) -> list[Finding]:
    """What is wrong with an edge, worst first, in whole sentences."""
    heartbeat = edge.heartbeat
    if edge.is_revoked or heartbeat is None:
        return []
    silent_s = (now - edge.silent_since).total_seconds() if edge.silent_since else 0
    clock_s, disk = heartbeat.clock_offset_s, heartbeat.disk_percent
    is_late = heartbeat.waiting and heartbeat.oldest_s > LATE_S
    checks: list[tuple[str, float | None, str, Tone]] = [
        ("silent_s", round(silent_s), _silent(silent_s), "bad"),
        ("losses", heartbeat.losses if edge.has_new_losses else 0, _losses(heartbeat.losses or 0),
         "bad"),
        ("dead_letters", heartbeat.dead_letters, _rejected_by_cloud(heartbeat.dead_letters), "bad"),
        ("oldest_s", heartbeat.oldest_s if is_late else 0, _late(heartbeat.oldest_s), "warn"),
        ("quarantine", heartbeat.quarantine, _unread(heartbeat.quarantine or 0), "warn"),
        ("clock_offset_s", clock_s if abs(clock_s) > MAX_CLOCK_OFFSET_S else 0, _clock(clock_s),
         "warn"),
        ("disk_percent", disk if disk >= DISK_FULL_PERCENT else 0, _disk(disk), "warn"),
        ("alerts_missing", heartbeat.alerts_missing, _missing(heartbeat.alerts_missing or 0),
         "warn"),
    ]  # fmt: skip
    return [
        Finding(text, value, f"edge.{name}", edge.edge_id, tone)
        for name, value, text, tone in checks
        if value
    ]


def _silent(seconds: float) -> str:
    text = _("Silent for %(time)s; what it has since then is still there.")
    return text % {"time": words.duration(seconds)}


def _losses(count: int) -> str:
    text = _(
        "Messages were lost lately, %(count)s in all: the list of losses at the edge says why."
    )
    return text % {"count": words.number(count)}


def _rejected_by_cloud(count: int) -> str:
    text = ngettext(
        "%(count)s event was refused by the cloud and waits at the edge.",
        "%(count)s events were refused by the cloud and wait at the edge.",
        count,
    )
    return text % {"count": words.number(count)}


def _late(seconds: float) -> str:
    return _("The oldest event waits for %(time)s.") % {"time": words.duration(seconds)}


def _unread(count: int) -> str:
    text = ngettext(
        "%(count)s message of a device could not be read.",
        "%(count)s messages of devices could not be read.",
        count,
    )
    return text % {"count": words.number(count)}


def _clock(offset_s: float) -> str:
    ahead, behind = _("Its clock is %(time)s ahead."), _("Its clock is %(time)s behind.")
    return (ahead if offset_s > 0 else behind) % {"time": words.duration(abs(offset_s))}


def _disk(percent: float) -> str:
    return _("Its disk is %(percent)s full.") % {"percent": words.percent(percent / 100)}


def _missing(count: int) -> str:
    text = ngettext(
        "%(count)s alert of it did not arrive here.",
        "%(count)s alerts of it did not arrive here.",
        count,
    )
    return text % {"count": words.number(count)}


def headline(rows: Sequence[EdgeRow], facts: Facts, *, now: datetime) -> list[Finding]:
    """What is wrong, as sentences; none if everything arrives."""
    findings: list[Finding] = []
    silent = sorted(
        ((since, row.edge.edge_id) for row in rows if (since := row.edge.silent_since)),
    )
    if silent:
        since, edge_id = silent[0]
        time = words.duration((now - since).total_seconds())
        text = ngettext(
            "Edge %(edge)s is silent for %(time)s.",
            "%(count)s edges are silent, %(edge)s for %(time)s.",
            len(silent),
        )
        values = {"edge": words.cut(edge_id), "time": time, "count": len(silent)}
        findings.append(Finding(text % values, len(silent), "delivery.silent_edges"))
    if facts.dead_letters:
        text = ngettext(
            "%(count)s dead letter waits.", "%(count)s dead letters wait.", facts.dead_letters
        )
        count = words.number(facts.dead_letters)
        findings.append(
            Finding(text % {"count": count}, facts.dead_letters, "delivery.dead_letters")
        )
    others = sum(row.word == _("needs attention") for row in rows)
    if others:
        text = ngettext(
            "%(count)s edge needs attention.", "%(count)s edges need attention.", others
        )
        findings.append(Finding(text % {"count": others}, others, "delivery.edges_with_problems"))
    never = sum(row.edge.state == "never heard" and not row.edge.is_revoked for row in rows)
    if never:
        text = ngettext(
            "%(count)s edge was never heard.", "%(count)s edges were never heard.", never
        )
        findings.append(
            Finding(text % {"count": never}, never, "delivery.edges_never_heard", "", "warn")
        )
    return [*findings, *_stuck_in_the_cloud(facts, now=now)]


def _stuck_in_the_cloud(facts: Facts, *, now: datetime) -> list[Finding]:
    findings = [
        Finding(_late_text(waiting), waiting.late, "delivery.late", waiting.station, "warn")
        for waiting in facts.waiting
        if waiting.late
    ]
    if facts.rejected_total:
        text = ngettext(
            "%(count)s message of a camera waits in quarantine.",
            "%(count)s messages of cameras wait in quarantine.",
            facts.rejected_total,
        ) % {"count": words.number(facts.rejected_total)}
        findings.append(Finding(text, facts.rejected_total, "delivery.rejected", "", "warn"))
    troubled = sum(bool(queue.word) for queue in facts.queues)
    if troubled:
        text = ngettext(
            "%(count)s queue of the bus needs attention.",
            "%(count)s queues of the bus need attention.",
            troubled,
        ) % {"count": troubled}
        findings.append(Finding(text, troubled, "delivery.troubled_queues"))
    if facts.counts_are_old(now):
        age_s = round((now - facts.queues[0].counted_at).total_seconds())
        text = _("The queues of the bus were last counted %(time)s ago.")
        text %= {"time": words.duration(age_s)}
        findings.append(Finding(text, age_s, "delivery.counted_s", "", "warn"))
    return findings


def _late_text(waiting: Waiting) -> str:
    text = (
        ngettext(
            "%(count)s entry waits for the bus for more than %(time)s.",
            "%(count)s entries wait for the bus for more than %(time)s.",
            waiting.late,
        )
        if waiting.station == "entries"
        else ngettext(
            "%(count)s message to people waits for more than %(time)s.",
            "%(count)s messages to people wait for more than %(time)s.",
            waiting.late,
        )
    )
    return text % {"count": words.number(waiting.late), "time": words.duration(LATE_S)}


@dataclass(frozen=True, slots=True)
class Hour:
    """What came from an edge in an hour, and the worst that it said of itself."""

    hour: datetime
    events: int
    duplicates: int
    heartbeats: int
    max_waiting: int | None
    max_oldest_s: float | None


@dataclass(frozen=True, slots=True)
class Action:
    at: datetime
    actor: str
    action: str
    key_id: str | None

    @property
    def word(self) -> str:
        return {
            "invite": _("invited"),
            "enroll": _("enrolled"),
            "rotate": _("replaced its key"),
            "revoke": _("revoked"),
            "grant": _("gave it a further company"),
        }.get(self.action, self.action)


@dataclass(frozen=True, slots=True)
class Episode:
    """An open alert about this edge."""

    episode_id: Any
    severity: str
    message: str
    opened_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeFacts:
    edge: Edge
    hours: Sequence[Hour]
    actions: Sequence[Action]
    episodes: Sequence[Episode]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeView:
    company: Company
    facts: EdgeFacts
    row: EdgeRow
    now: datetime
    where: ZoneInfo
    page: str = "delivery"

    @property
    def edge(self) -> Edge:
        return self.row.edge

    @property
    def title(self) -> str:
        name = _("Edge %(edge)s") % {"edge": words.cut(self.edge.edge_id)}
        return words.title(name, problems=len(self.row.problems))

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def sentence(self) -> str:
        """How it is; what is wrong stands below, each with its figure."""
        if self.edge.is_revoked:
            return _("Revoked: the cloud takes nothing from this edge.")
        if self.edge.state == "never heard":
            return _("Enrolled, but never heard.")
        if self.edge.state == "silent":
            return _("This edge is silent.")
        if self.row.problems:
            return _("This edge needs attention.")
        return _("Everything arrives from this edge.")

    @property
    def waiting_columns(self) -> list[Column]:
        return [Column(_("Waiting"), "line")]

    @property
    def arrived_columns(self) -> list[Column]:
        return [Column(_("Events"), "bars"), Column(_("Known already"), "line")]

    @property
    def waiting(self) -> list[tuple[datetime, int | None]]:
        """Events that waited at the edge, the most of each hour; None: nothing was heard."""
        by_hour = {hour.hour: hour.max_waiting for hour in self.facts.hours}
        return [(at, by_hour.get(at)) for at in hours_until(self.now)]

    @property
    def arrived(self) -> list[tuple[datetime, int | None, int | None]]:
        """Events that arrived in each hour, and how many of them were known already."""
        by_hour = {hour.hour: hour for hour in self.facts.hours}
        return [
            (at, hour.events, hour.duplicates) if (hour := by_hour.get(at)) else (at, None, None)
            for at in hours_until(self.now)
        ]


HISTORY_HOURS = 7 * 24


def hours_until(now: datetime) -> list[datetime]:
    """The hours of the last week, oldest first; the last is the one that runs."""
    last = now.replace(minute=0, second=0, microsecond=0)
    return [last - timedelta(hours=back) for back in range(HISTORY_HOURS - 1, -1, -1)]


def edge_view(company: Company, facts: EdgeFacts, *, now: datetime) -> EdgeView:
    return EdgeView(
        company=company,
        facts=facts,
        row=edge_row(facts.edge, now=now),
        now=now,
        where=words.zone(company.timezone),
    )
