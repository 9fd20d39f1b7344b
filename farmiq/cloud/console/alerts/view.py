"""Pure: the pages about episodes of alerts, from their rows and the time."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.farm.alerts import rules as farm_rules
from farmiq.farm.alerts.advice import advice
from farmiq.ui import sentences, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

# How far back pages look at what is over.
DAYS = 30
ON_A_PAGE = 50
MAX_OPEN = 500
MAX_PAGE = 100
STATES = ("active", "acknowledged", "resolved")
TONES = {"security": "bad", "critical": "bad", "warning": "warn", "info": "info"}
_TABS = {
    "active": marked("Active (%(count)s)"),
    "acknowledged": marked("Acknowledged (%(count)s)"),
    "resolved": marked("Resolved (%(count)s)"),
}
_REASONS = {
    "person": marked("Ended by hand"),
    "rule": marked("Ended: its rule was changed or no longer applies"),
    "edge": marked("Ended: its edge is no longer connected"),
    "moved": marked("Ended: the device was moved"),
    "revoked": marked("Ended: the device was taken out of service"),
    "batch": marked("Ended: the batch was closed"),
    "camera": marked("Ended: the camera was switched off"),
    "long": marked("Ended: nothing came from the device for a month"),
}
_STEPS = {
    "opened": marked("People were called"),
    "worsened": marked("It became worse; people were called again"),
    "escalated": marked("Nobody had acknowledged; the second level was called"),
}
_ABOUT = {
    "opened": marked("about the beginning"),
    "worsened": marked("about the worsening"),
    "escalated": marked("because nobody had acknowledged"),
    "acknowledged": marked("about the acknowledgement"),
    "resolved": marked("about the end"),
}
_SENT = {
    "pending": ("info", marked("waits to be sent")),
    "sent": ("good", marked("sent")),
    "failed": ("bad", marked("not delivered")),
    "dropped": ("muted", marked("not needed any more")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A row of alert_episodes with the names that people know, and who was told."""

    episode_id: UUID
    source: str
    rule_id: str | None
    severity: str
    signal: str | None
    is_absence: bool
    # What the rule compares with, if not with a number alone.
    baseline: str | None
    subject: str
    message: str
    state: str
    farm_id: str | None
    farm: str | None
    barn_id: str | None
    barn: str | None
    device_id: str | None
    device_name: str | None
    edge_cluster_id: str | None
    batch_id: str | None
    timezone: str | None
    opened_at: datetime
    last_at: datetime
    resolved_at: datetime | None
    raised_at: datetime
    paged_at: datetime | None
    first_value: float | None
    worst_value: float | None
    last_value: float | None
    held_by: str | None
    window_reason: str | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    note: str | None
    ended_reason: str | None
    ended_by: str | None
    ended_note: str | None
    notified: Sequence[Mapping[str, Any]]

    @property
    def key(self) -> str:
        return f"a-{self.episode_id}"

    @property
    def address(self) -> str:
        return f"/alerts/{self.episode_id}"

    @property
    def is_open(self) -> bool:
        return self.state in ("active", "acknowledged")

    @property
    def parent_id(self) -> str | None:
        """The episode that holds this one back."""
        kind, _, name = (self.held_by or "").partition(":")
        return name if kind == "episode" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A value with its text: `value` is exact. `at`: its time, where it may be old by now."""

    value: float
    text: str
    unit: str
    label: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notified:
    name: str
    tone: str
    word: str
    at: datetime
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """An episode in a list."""

    episode: Episode
    tone: str
    severity: str
    message: str
    where: str
    since: str
    until: str
    quantity: Quantity | None
    notified: tuple[Notified, ...]
    silence: str
    ended: str
    children: tuple["Row", ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListView:
    company: Company
    now: datetime
    zone: str
    as_of: str
    state: str
    page_number: int
    counts: Mapping[str, int]
    rows: tuple[Row, ...]
    following: str | None
    may_act: bool
    page: str = "alerts"

    @property
    def name(self) -> str:
        return _("Alerts")

    @property
    def title(self) -> str:
        return words.title(self.name, problems=self.counts["active"])

    @property
    def address(self) -> str:
        return list_address(self.state, self.page_number)

    @property
    def fragment(self) -> str:
        return list_address(self.state, self.page_number, path="/alerts/rows")

    @property
    def tabs(self) -> list[tuple[str, str, str]]:
        return [
            (state, _(_TABS[state]) % {"count": self.counts[state]}, list_address(state))
            for state in STATES
        ]

    @property
    def sentence(self) -> str:
        active, acknowledged = self.counts["active"], self.counts["acknowledged"]
        if active:
            return ngettext(
                "%(num)s problem waits for somebody",
                "%(num)s problems wait for somebody",
                active,
            ) % {"num": active}
        if acknowledged:
            return ngettext(
                "%(num)s problem is being looked after",
                "%(num)s problems are being looked after",
                acknowledged,
            ) % {"num": acknowledged}
        return _("Nothing is wrong that a rule knows of")

    @property
    def tone(self) -> str:
        return "warn" if self.counts["active"] else "good"


def list_address(state: str, page: int = 1, *, path: str = "/alerts") -> str:
    query = {"state": state} if state != "active" else {}
    if page > 1:
        query["page"] = str(page)
    return f"{path}?{urlencode(query)}" if query else path


def list_view(
    company: Company,
    episodes: Sequence[Episode],
    counts: Mapping[str, int],
    *,
    state: str,
    page: int,
    now: datetime,
) -> ListView:
    """`episodes` has one more than the page shows if there are more."""
    zone = words.zone(company.timezone)
    limit = page_size(state)
    shown = episodes[:limit]
    return ListView(
        company=company,
        now=now,
        zone=words.zone_name(zone, now),
        as_of=f"{now.astimezone(zone):%H:%M:%S}",
        state=state,
        page_number=page,
        counts=counts,
        rows=_nested([row(episode, now=now, zone=zone) for episode in shown]),
        following=list_address(state, page + 1) if len(episodes) > limit else None,
        may_act=company.may("operator"),
    )


def page_size(state: str) -> int:
    return ON_A_PAGE if state == "resolved" else MAX_OPEN


def _nested(rows: Sequence[Row]) -> tuple[Row, ...]:
    """What an episode of the same list holds back stands under it."""
    by_id = {str(row.episode.episode_id): row for row in rows}
    children: dict[str, list[Row]] = {}
    for child in rows:
        if (parent_id := child.episode.parent_id) in by_id and parent_id is not None:
            children.setdefault(parent_id, []).append(child)
    return tuple(
        replace(parent, children=tuple(children.get(str(parent.episode.episode_id), ())))
        for parent in rows
        if parent.episode.parent_id not in by_id
    )


def row(episode: Episode, *, now: datetime, zone: ZoneInfo) -> Row:
    shown = quantity(episode)
    return Row(
        episode=episode,
        tone=TONES[episode.severity] if episode.is_open else "muted",
        severity=words.severity(episode.severity),
        message=wording(episode.message, shown, zone.key),
        where=where(episode),
        since=words.instant(episode.opened_at, now=now, zone=zone),
        until=words.instant(episode.resolved_at, now=now, zone=zone) if episode.resolved_at else "",
        quantity=shown,
        notified=tuple(_notified(item, now=now, zone=zone) for item in episode.notified),
        silence=silence(episode),
        ended=_(_REASONS[episode.ended_reason]) if episode.ended_reason else "",
    )


def where(episode: Episode) -> str:
    """Barn, farm and device as people call them; else the edge, camera or batch."""
    barn = episode.barn or (episode.barn_id and _("barn %(id)s") % {"id": episode.barn_id})
    farm = episode.farm or episode.farm_id
    parts = [barn, farm, episode.device_name or episode.device_id]
    if not any(parts[:2]):
        parts += [episode.edge_cluster_id and edge_name(episode.edge_cluster_id)]
    if not barn and episode.batch_id:
        parts += [_("batch %(id)s") % {"id": episode.batch_id}]
    return ", ".join(part for part in parts if part) or episode.subject


def edge_name(edge_id: str) -> str:
    """Many are called edge-… already."""
    return edge_id if edge_id.startswith("edge") else _("edge %(id)s") % {"id": edge_id}


def wording(message: str, beside: Quantity | None, zone: str) -> str:
    """The sentence of an alert, without the value of its begin where another stands beside it."""
    return sentences.shown(message if beside is None else farm_rules.without_value(message), zone)


def quantity(episode: Episode) -> Quantity | None:
    """The last value with its time; of what is over the worst."""
    if episode.is_open or episode.is_absence:
        return last_value(
            signal=episode.signal,
            value=episode.last_value,
            at=None if episode.is_absence else episode.last_at,
        )
    return _quantity(episode.worst_value, episode.signal, _worst(episode))


def last_value(*, signal: str | None, value: float | None, at: datetime | None) -> Quantity | None:
    """Of an open alert; `at` is None of an absence: its beginning says how old the value is."""
    return _quantity(value, signal, _("last value"), at=at)


def _worst(episode: Episode) -> str:
    """Against a standard that changes by the day the worst need not be the highest or lowest."""
    return _("worst") if episode.baseline is None else _("farthest off")


def _quantity(
    value: float | None, signal: str | None, label: str, *, at: datetime | None = None
) -> Quantity | None:
    if value is None or signal is None or signal == "edge.heard":
        return None
    unit = farm_rules.words(signal)[1]
    if unit == "s":
        return Quantity(value=value, text=words.duration(value), unit="", label=label, at=at)
    return Quantity(value=value, text=words.number(value), unit=unit, label=label, at=at)


def _notified(item: Mapping[str, Any], *, now: datetime, zone: ZoneInfo) -> Notified:
    at = datetime.fromisoformat(item["at"])
    tone, word = _SENT[item["state"]]
    return Notified(
        name=item["name"] or "",
        tone=tone,
        word=_(word),
        at=at,
        text=words.instant(at, now=now, zone=zone),
    )


def silence(episode: Episode) -> str:
    """Why nobody was told of it; empty if somebody was, or will be."""
    if any(item["state"] in ("sent", "pending") for item in episode.notified):
        return ""
    if episode.held_by is not None:
        return _holder(episode, episode.held_by)
    if episode.paged_at is not None:
        if episode.notified:
            return _("No message arrived: nobody knows of it")
        return _("Nobody was told: no contact fits")
    if episode.state == "acknowledged":
        return ""
    return _("Nobody was called: it was old when it arrived, or it has just begun")


def _holder(episode: Episode, held_by: str) -> str:
    kind, _colon, name = held_by.partition(":")
    if kind == "window":
        return _("Held back by maintenance: %(reason)s") % {"reason": episode.window_reason or name}
    if kind == "episode":
        return _("Held back by another problem")
    return _("Held back until edge %(id)s has sent everything") % {"id": name}


# --- one episode


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A line of the timeline."""

    key: str
    at: datetime
    text: str
    tone: str
    what: str
    who: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    href: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailView:
    company: Company
    now: datetime
    zone: str
    as_of: str
    row: Row
    parent: Row | None
    held: tuple[Row, ...]
    moments: tuple[Moment, ...]
    links: tuple[Link, ...]
    rule_sentence: str
    advice: str
    values: tuple[tuple[str, Quantity], ...]
    times_before: int
    may_act: bool
    page: str = "alerts"

    @property
    def name(self) -> str:
        return words.cut(self.row.message)

    @property
    def title(self) -> str:
        return words.title(self.name, problems=int(self.row.episode.state == "active"))

    @property
    def fragment(self) -> str:
        return f"{self.row.episode.address}/parts"

    @property
    def state(self) -> tuple[str, str]:
        """Tone and word of the chip."""
        episode = self.row.episode
        if episode.state == "withdrawn":
            return "muted", _("Withdrawn: later data show that it never was")
        if episode.state == "resolved":
            return ("muted", _("Ended")) if episode.ended_reason else ("good", _("Resolved"))
        if episode.state == "acknowledged":
            return "info", _("Acknowledged")
        return TONES[episode.severity], _("Active")

    @property
    def before(self) -> str:
        return ngettext(
            "%(num)s other time in the last 30 days",
            "%(num)s other times in the last 30 days",
            self.times_before,
        ) % {"num": self.times_before}


def detail_view(
    company: Company,
    episode: Episode,
    *,
    rule: Mapping[str, Any] | None,
    parent: Episode | None,
    held: Sequence[Episode],
    steps: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    times_before: int,
    now: datetime,
) -> DetailView:
    """`rule` is that of the episode as it is now, if there still is one."""
    zone = words.zone(episode.timezone or company.timezone)
    return DetailView(
        company=company,
        now=now,
        zone=words.zone_name(zone, now),
        as_of=f"{now.astimezone(zone):%H:%M:%S}",
        row=row(episode, now=now, zone=zone),
        parent=None if parent is None else row(parent, now=now, zone=zone),
        held=tuple(row(child, now=now, zone=zone) for child in held),
        moments=timeline(episode, steps, messages, now=now, zone=zone),
        links=_links(episode, rule),
        rule_sentence=sentences.shown(rule["sentence"]) if rule else "",
        advice=sentences.translated(
            advice(
                source=episode.source,
                signal=episode.signal,
                condition=rule["condition"] if rule else "absent" if episode.is_absence else None,
            )
        ),
        values=_values(episode),
        times_before=times_before,
        may_act=company.may("operator"),
    )


def _values(episode: Episode) -> tuple[tuple[str, Quantity], ...]:
    """With the column that each comes from."""
    worst = _("worst value") if episode.baseline is None else _("farthest off")
    last_at = episode.last_at if episode.is_open and not episode.is_absence else None
    named = (
        ("first_value", _("first value"), episode.first_value, None),
        ("worst_value", worst, episode.worst_value, None),
        ("last_value", _("last value"), episode.last_value, last_at),
    )
    return tuple(
        (column, shown)
        for column, label, value, at in named
        if (shown := _quantity(value, episode.signal, label, at=at))
    )


def _links(episode: Episode, rule: Mapping[str, Any] | None) -> tuple[Link, ...]:
    family, _dot, name = (episode.signal or "").partition(".")
    links = []
    if family == "telemetry" and episode.device_id:
        device, metric = quote(episode.device_id, safe=""), quote(name, safe="")
        links.append(Link(href=f"/telemetry/{device}/{metric}", text=_("The sensor's chart")))
    if episode.batch_id:
        batch = quote(episode.batch_id, safe="")
        links.append(Link(href=f"/batches/{batch}", text=_("The batch")))
    if episode.edge_cluster_id and family != "telemetry":
        edge = quote(episode.edge_cluster_id, safe="")
        links.append(Link(href=f"/delivery/edges/{edge}", text=_("The edge")))
    if episode.subject.startswith("camera:"):
        camera = quote(episode.subject.removeprefix("camera:"), safe="")
        links.append(Link(href=f"/devices/camera/{camera}", text=_("The camera")))
    if rule is not None:
        address = f"/alerts/rules/{quote(rule['rule_id'], safe='')}"
        links.append(Link(href=address, text=_("The rule")))
    return tuple(links)


def timeline(
    episode: Episode,
    steps: Collection[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    *,
    now: datetime,
    zone: ZoneInfo,
) -> tuple[Moment, ...]:
    """What happened, oldest first."""

    def moment(key: str, at: datetime, tone: str, what: str, **texts: str) -> Moment:
        text = words.instant(at, now=now, zone=zone)
        return Moment(key=key, at=at, text=text, tone=tone, what=what, **texts)

    lines = [moment("opened", episode.opened_at, TONES[episode.severity], _("It began"))]
    if (episode.raised_at - episode.opened_at).total_seconds() > WORTH_SAYING_S:
        lines.append(moment("raised", episode.raised_at, "info", _("It was found here")))
    # Of a step that no contact fits nobody heard.
    heard = {message["step"] for message in messages}
    lines += [
        moment(
            f"step-{step['step']}",
            step["created_at"],
            "info",
            _(_STEPS[step["step"]]) if step["step"] in heard else _("No contact fits: not told"),
        )
        for step in steps
        if step["step"] in _STEPS
    ]
    for message in messages:
        tone, word = _SENT[message["state"]]
        about = _(_ABOUT[message["step"]])
        what = _("Message %(about)s: %(result)s") % {"about": about, "result": _(word)}
        who = f"{message['contact'] or ''}, {message['channel']}".strip(", ")
        at = message["ended_at"] or message["created_at"]
        key, error = f"m-{message['message_id']}", message["error"] or ""
        lines.append(moment(key, at, tone, what, who=who, detail=error))
    if episode.acknowledged_at is not None:
        by, note = episode.acknowledged_by or "", episode.note or ""
        what = _("Somebody looks after it")
        lines.append(moment("ack", episode.acknowledged_at, "info", what, who=by, detail=note))
    if episode.resolved_at is not None:
        lines.append(_end(episode, moment))
    order = {"opened": 0, "raised": 1}
    return tuple(sorted(lines, key=lambda line: (line.at, order.get(line.key, 2))))


# A difference of times that people should know of.
WORTH_SAYING_S = 120


def _end(episode: Episode, moment: Any) -> Moment:
    what, who, note = _("The values are good again"), "", ""
    if episode.state == "withdrawn":
        what = _("Withdrawn: data that came later show that it never was")
    elif episode.ended_reason is not None:
        what = _(_REASONS[episode.ended_reason])
        who, note = episode.ended_by or "", episode.ended_note or ""
    elif episode.is_absence:
        what = _("Values come again")
    elif episode.source != "rule":
        what = _("It is over")
    ended: Moment = moment("end", episode.resolved_at, "good", what, who=who, detail=note)
    return ended
