"""Pure: what needs attention now, worst first; signs of one cause are one reason.

Signs are open alerts, sensors that are late, sites whose cameras owe images, batches that need
attention on their own page, and what edges say of themselves. An edge that is silent explains its
farms' silent sensors.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import IntEnum
from urllib.parse import quote
from uuid import UUID

from farmiq.cloud.console.alerts import view as alerts
from farmiq.cloud.console.batches.view import Batch
from farmiq.cloud.console.sites import view as site_list
from farmiq.cloud.console.telemetry import view as telemetry
from farmiq.cloud.console.telemetry.view import State
from farmiq.ui import metrics, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

MAX_SHOWN = 7
# An edge reports every minute; after ten the rule that ships calls people.
EDGE_QUIET = timedelta(minutes=3)
EDGE_SILENT = timedelta(minutes=10)
# Events that wait longer at an edge are stuck, not on their way.
MAX_WAITING_S = 3600.0
# Of an edge's own totals the rules look at these; the reason is the same.
_EDGE_SIGNALS = {
    "edge.heard": "silent",
    "edge.oldest_s": "backlog",
    "edge.waiting": "backlog",
    "edge.dead_letters": "dead-letters",
    "edge.quarantine": "quarantine",
}
# Alerts of cameras that say the same as the strip of their site.
_CAMERA_SILENT = ("missed_wakes", "high_failure_rate", "image_transmission_failed", "device_silent")
# Rules that ship and say the same as the page of batches.
_BATCH_RULES = {
    "rule:default.mortality.standard": "mortality",
    "rule:default.weight.behind": "behind",
}
_TELEMETRY = "telemetry."

Place = tuple[str, str]  # farm_id and barn_id, or "site" and site_id


class Rank(IntEnum):
    """Worst first."""

    CRITICAL = 0
    WARNING = 1
    LATE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """An open row of alert_episodes; `site_id` is that of its camera."""

    episode_id: UUID
    cause: str
    severity: str
    signal: str | None
    is_absence: bool
    message: str
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    edge_cluster_id: str | None
    batch_id: str | None
    opened_at: datetime
    last_at: datetime
    last_value: float | None
    is_acknowledged: bool
    site_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An enrolled edge with what it last said of itself; None if it never did."""

    edge_cluster_id: str
    received_at: datetime | None
    waiting: int | None
    oldest_s: float | None
    dead_letters: int | None
    quarantine: int | None
    farms: list[str] | None

    def is_quiet(self, now: datetime) -> bool:
        return self.received_at is not None and now - self.received_at > EDGE_QUIET


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """`signs`: how many things say so. `is_text`: the words are those of a rule or a device."""

    cause: str
    rank: Rank
    where: str
    why: str
    href: str
    action: str
    since: datetime | None = None
    places: frozenset[Place] = frozenset()
    is_acknowledged: bool = False
    is_text: bool = False
    signs: int = 1
    # Of an alert, with its last value.
    episode_id: UUID | None = None
    quantity: alerts.Quantity | None = None

    @property
    def key(self) -> str:
        return telemetry.html_id("r", self.cause)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What all signs are made from. `sites_since`: the first wake of today with a problem."""

    now: datetime
    readings: telemetry.View
    sites: Sequence[site_list.Row] = ()
    sites_since: Mapping[UUID, datetime] = field(default_factory=dict)
    episodes: Sequence[Episode] = ()
    edges: Sequence[Edge] = ()
    barn_names: Mapping[Place, str] = field(default_factory=dict)
    batches: Sequence[Batch] = ()

    def barn_name(self, place: Place) -> str:
        return self.barn_names.get(place, place[1])


def reasons(known: Known) -> list[Reason]:
    """All of them, worst first; each cause once."""
    explained = _farms_of_quiet_edges(known)
    silent = _silent_devices(known, explained)
    cause_of = _causes_of_silence(silent)
    signs: list[Reason] = [
        *_of_episodes(known, explained, cause_of),
        *_of_edges(known),
        *_of_sensors(known, silent),
        *_of_sites(known),
        *_of_batches(known),
    ]
    by_cause: dict[str, list[Reason]] = {}
    for sign in signs:
        by_cause.setdefault(sign.cause, []).append(sign)
    merged = [_merged(group) for group in by_cause.values()]
    return sorted(merged, key=_order(known.now))


def _order(now: datetime) -> Callable[[Reason], tuple[int, bool, timedelta, str]]:
    """The newest of a rank first: somebody has lived with the old ones for a while."""

    def order(reason: Reason) -> tuple[int, bool, timedelta, str]:
        age = timedelta.max if reason.since is None else now - reason.since
        return reason.rank, reason.is_acknowledged, age, reason.cause

    return order


def _merged(signs: Sequence[Reason]) -> Reason:
    """The words of the worst sign, the places of all, the time of the first."""
    worst = min(signs, key=lambda sign: sign.rank)
    alerting = [sign for sign in signs if sign.episode_id is not None]
    new = [sign for sign in alerting if not sign.is_acknowledged]
    # What nobody has acknowledged is not older than itself because of what somebody has.
    dated = new if 0 < len(new) < len(alerting) else signs
    return replace(
        worst,
        since=min((sign.since for sign in dated if sign.since is not None), default=None),
        places=frozenset().union(*(sign.places for sign in signs)),
        is_acknowledged=bool(alerting) and not new,
        signs=sum(sign.signs for sign in signs),
    )


# --- silent edges explain silent sensors


def _farms_of_quiet_edges(known: Known) -> dict[str, str]:
    """Farms that only quiet edges speak for, and the edge."""
    heard = {
        farm
        for edge in known.edges
        if edge.received_at is not None and not edge.is_quiet(known.now)
        for farm in edge.farms or ()
    }
    return {
        farm: edge.edge_cluster_id
        for edge in known.edges
        if edge.is_quiet(known.now)
        for farm in edge.farms or ()
        if farm not in heard
    }


def _edge_cause(edge_cluster_id: str, what: str) -> str:
    return f"edge:{edge_cluster_id}:{what}"


def _edge_address(edge_cluster_id: str) -> str:
    return f"/delivery/edges/{quote(edge_cluster_id, safe='')}"


def _of_edges(known: Known) -> Iterator[Reason]:
    for edge in known.edges:
        if edge.is_quiet(known.now):
            yield _quiet_edge(edge, known)
        elif edge.received_at is not None:
            yield from _of_totals(edge)


def _quiet_edge(edge: Edge, known: Known) -> Reason:
    assert edge.received_at is not None  # noqa: S101 - it was heard once
    farms = set(edge.farms or ())
    is_long = known.now - edge.received_at > EDGE_SILENT
    return Reason(
        cause=_edge_cause(edge.edge_cluster_id, "silent"),
        rank=Rank.CRITICAL if is_long else Rank.WARNING,
        where=edge.edge_cluster_id,
        why=_("The edge reports nothing; its farms cannot be seen from here"),
        since=edge.received_at,
        href=_edge_address(edge.edge_cluster_id),
        action=_("Look at the edge"),
        places=frozenset(place for place in _barn_places(known) if place[0] in farms),
    )


def _barn_places(known: Known) -> set[Place]:
    seen = {(barn.farm_id, barn.barn_id) for barn in known.readings.barns}
    return seen | set(known.barn_names)


def _of_totals(edge: Edge) -> Iterator[Reason]:
    name = edge.edge_cluster_id
    if edge.oldest_s is not None and edge.oldest_s > MAX_WAITING_S:
        yield Reason(
            cause=_edge_cause(name, "backlog"),
            rank=Rank.WARNING,
            where=name,
            why=_("Events wait at the edge and do not arrive here"),
            since=None if edge.received_at is None else edge.received_at - _seconds(edge.oldest_s),
            href=_edge_address(name),
            action=_("Look at the edge"),
        )
    if edge.dead_letters:
        yield Reason(
            cause=_edge_cause(name, "dead-letters"),
            rank=Rank.WARNING,
            where=name,
            why=_("Events that the cloud refused wait for a decision"),
            href=_edge_address(name),
            action=_("Look at the edge"),
        )
    if edge.quarantine:
        yield Reason(
            cause=_edge_cause(name, "quarantine"),
            rank=Rank.WARNING,
            where=name,
            why=_("Messages that the edge refused wait in its quarantine"),
            href=_edge_address(name),
            action=_("Look at the edge"),
        )


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=min(seconds, 1e9))


# --- sensors and devices


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentDevice:
    place: Place
    device: telemetry.Device
    late: tuple[telemetry.Row, ...]


def _silent_devices(known: Known, explained: Collection[str]) -> list[SilentDevice]:
    """Devices with late sensors that no silent edge explains."""
    return [
        SilentDevice(place=(barn.farm_id, barn.barn_id), device=device, late=late)
        for barn in known.readings.barns
        if barn.farm_id not in explained
        for device in barn.devices
        if (late := tuple(row for row in device.rows if row.state is State.LATE))
    ]


def _causes_of_silence(silent: Iterable[SilentDevice]) -> dict[str, str]:
    """By device: several silent devices of one barn have one cause, such as its network."""
    in_barn: dict[Place, list[str]] = {}
    for silent_device in silent:
        in_barn.setdefault(silent_device.place, []).append(silent_device.device.device_id)
    return {
        device_id: _device_cause(device_id) if len(devices) == 1 else _barn_cause(place)
        for place, devices in in_barn.items()
        for device_id in devices
    }


def _device_cause(device_id: str) -> str:
    return f"device:{device_id}:silent"


def _barn_cause(place: Place) -> str:
    return f"barn:{place[0]}/{place[1]}:silent"


def _of_sensors(known: Known, silent: Sequence[SilentDevice]) -> Iterator[Reason]:
    in_barn: dict[Place, list[SilentDevice]] = {}
    for silent_device in silent:
        in_barn.setdefault(silent_device.place, []).append(silent_device)
    for place, devices in in_barn.items():
        if len(devices) == 1:
            yield _one_silent(known, devices[0])
        else:
            yield _several_silent(known, place, devices)
    for barn in known.readings.barns:
        for device in barn.devices:
            ahead = [row for row in device.rows if row.state is State.AHEAD]
            if ahead:
                yield _ahead(known, (barn.farm_id, barn.barn_id), device, ahead[0])


def _where(known: Known, place: Place, device: telemetry.Device) -> str:
    return f"{known.barn_name(place)} · {device.label}"


def _one_silent(known: Known, silent_device: SilentDevice) -> Reason:
    labels = [row.metric.label for row in silent_device.late]
    expected = [row for row in silent_device.device.rows if row.state is not State.REVOKED]
    if len(labels) == len(expected) > 1:
        why = _("The device sends nothing")
    else:
        why = _("No new reading of %(metrics)s") % {"metrics": ", ".join(labels)}
    return Reason(
        cause=_device_cause(silent_device.device.device_id),
        rank=Rank.LATE,
        where=_where(known, silent_device.place, silent_device.device),
        why=why,
        since=min(row.reading.captured_at for row in silent_device.late),
        href=silent_device.late[0].href,
        action=_("See its readings"),
        places=frozenset({silent_device.place}),
        is_text=True,
    )


def _several_silent(known: Known, place: Place, devices: Sequence[SilentDevice]) -> Reason:
    since = [row.reading.captured_at for silent_device in devices for row in silent_device.late]
    names = ", ".join(silent_device.device.label for silent_device in devices[:3])
    count = len(devices)
    return Reason(
        cause=_barn_cause(place),
        rank=Rank.LATE,
        where=known.barn_name(place),
        why=ngettext(
            "%(num)s device is late: %(names)s", "%(num)s devices are late: %(names)s", count
        )
        % {"num": count, "names": names if count <= 3 else f"{names}, …"},  # noqa: PLR2004
        since=min(since),
        href=f"/telemetry#{telemetry.html_id('b', *place)}",
        action=_("See its readings"),
        places=frozenset({place}),
        is_text=True,
    )


def _ahead(known: Known, place: Place, device: telemetry.Device, row: telemetry.Row) -> Reason:
    ahead_s = (row.reading.captured_at - known.now).total_seconds()
    return Reason(
        cause=f"device:{device.device_id}:clock",
        rank=Rank.WARNING,
        where=_where(known, place, device),
        why=_("The clock of the device runs %(time)s ahead") % {"time": words.duration(ahead_s)},
        href=row.href,
        action=_("See its readings"),
        places=frozenset({place}),
        is_text=True,
    )


# --- alerts


def _of_episodes(
    known: Known, explained: Mapping[str, str], cause_of: Mapping[str, str]
) -> Iterator[Reason]:
    at_sites = {row.site.site_id: row for row in known.sites}
    devices = {device.device_id: device for barn in known.readings.barns for device in barn.devices}
    for episode in known.episodes:
        href, action = _next_step(episode)
        site = at_sites.get(episode.site_id) if episode.site_id else None
        quantity = alerts.last_value(
            signal=episode.signal,
            value=episode.last_value,
            at=None if episode.is_absence else episode.last_at,
        )
        yield Reason(
            cause=_cause(episode, explained, cause_of),
            rank=Rank.WARNING if episode.severity == "warning" else Rank.CRITICAL,
            where=_episode_where(known, episode, devices, site),
            why=alerts.wording(episode.message, quantity, known.readings.company.timezone),
            episode_id=episode.episode_id,
            quantity=quantity,
            since=episode.opened_at,
            href=href,
            action=action,
            places=_episode_places(episode, site),
            is_acknowledged=episode.is_acknowledged,
            is_text=True,
        )


def _cause(episode: Episode, explained: Mapping[str, str], cause_of: Mapping[str, str]) -> str:
    """The cause that it shares with other signs, else its own."""
    what = _EDGE_SIGNALS.get(episode.signal or "")
    if what and episode.edge_cluster_id:
        return _edge_cause(episode.edge_cluster_id, what)
    if episode.is_absence and episode.farm_id and episode.farm_id in explained:
        return _edge_cause(explained[episode.farm_id], "silent")
    if episode.is_absence and episode.device_id:
        return cause_of.get(episode.device_id, _device_cause(episode.device_id))
    alert_type = episode.cause.removeprefix("camera:").partition("|")[0]
    if episode.site_id and (
        alert_type in _CAMERA_SILENT or episode.signal == "camera.completeness"
    ):
        return f"site:{episode.site_id}"
    about_batch = _BATCH_RULES.get(episode.cause.partition("|")[0])
    if about_batch and episode.batch_id:
        return _batch_cause(episode.batch_id, about_batch)
    return episode.cause


def _next_step(episode: Episode) -> tuple[str, str]:
    signal = episode.signal or ""
    if signal.startswith(_TELEMETRY) and episode.device_id:
        metric_type = signal.removeprefix(_TELEMETRY)
        return telemetry.address(episode.device_id, metric_type), _("See its readings")
    if signal == "edge.heard" and episode.edge_cluster_id:
        return _edge_address(episode.edge_cluster_id), _("Look at the edge")
    return f"/alerts/{episode.episode_id}", _("Open the alert")


def _episode_where(
    known: Known,
    episode: Episode,
    devices: Mapping[str, telemetry.Device],
    site: site_list.Row | None,
) -> str:
    if site is not None:
        return words.cut(site.site.site_name)
    if episode.farm_id and episode.barn_id:
        barn = known.barn_name((episode.farm_id, episode.barn_id))
        if episode.device_id is None:
            return barn
        device = devices.get(episode.device_id)
        label = device.label if device else metrics.device_label(episode.device_id, episode.barn_id)
        return f"{barn} · {label}"
    return episode.edge_cluster_id or episode.device_id or episode.farm_id or _("The cloud")


def _episode_places(episode: Episode, site: site_list.Row | None) -> frozenset[Place]:
    if site is not None:
        return frozenset({("site", str(site.site.site_id))})
    if episode.farm_id and episode.barn_id:
        return frozenset({(episode.farm_id, episode.barn_id)})
    return frozenset()


# --- sites


def _of_sites(known: Known) -> Iterator[Reason]:
    for row in known.sites:
        if row.attention:
            yield Reason(
                cause=f"site:{row.site.site_id}",
                rank=Rank.LATE,
                where=words.cut(row.site.site_name),
                why=_("Images of today: %(problems)s") % {"problems": row.strip.problems_say},
                since=known.sites_since.get(row.site.site_id),
                href=row.href,
                action=_("Look at the site"),
                places=frozenset({("site", str(row.site.site_id))}),
                is_text=True,
            )


# --- batches


def _batch_cause(batch_id: str, problem: str) -> str:
    return f"batch:{batch_id}:{problem}"


def _of_batches(known: Known) -> Iterator[Reason]:
    """What the page of batches calls a problem; open alerts are signs of their own."""
    for batch in known.batches:
        for problem in batch.problems:
            if problem != "alerts":
                yield Reason(
                    cause=_batch_cause(batch.batch_id, problem),
                    rank=Rank.WARNING,
                    where=words.cut(batch.barn_name),
                    why=_batch_text(batch, problem),
                    href=batch.href,
                    action=_("Look at the batch"),
                    places=frozenset({(batch.farm_id, batch.barn_id)}),
                    is_text=True,
                )


def _batch_text(batch: Batch, problem: str) -> str:
    if problem == "withdrawal" and batch.safe_to_sell_from is not None:
        on = words.day(batch.safe_to_sell_from, today=batch.today)
        return _("Not to be sold before %(on)s") % {"on": on}
    return _("High mortality") if problem == "mortality" else _("Behind its standard")
