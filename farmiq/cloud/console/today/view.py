"""Pure: the page Today. Sentence, title, list and cards come from the same reasons."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from urllib.parse import quote

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.sites import view as site_list
from farmiq.cloud.console.telemetry import view as telemetry
from farmiq.cloud.console.telemetry.view import State
from farmiq.cloud.console.today import pipeline, reasons
from farmiq.cloud.console.today.first_steps import Step
from farmiq.cloud.console.today.pipeline import NOTHING_ARRIVED, Arrived, Segment
from farmiq.cloud.console.today.queries import RegisteredBarn
from farmiq.cloud.console.today.reasons import Known, Place, Rank, Reason
from farmiq.ui import sparkline, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext
from farmiq.ui.sparkline import Point

PAGE = "today"
DAY_S = 86_400.0
# A line of weights is at least so high, in kg.
MIN_WEIGHT_SPAN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """The newest mean weight of a batch and what it gained since the oldest of the last week."""

    kg: float
    is_today: bool
    day: date
    day_text: str
    gained_kg: float | None
    days: int
    spark: sparkline.Drawing

    @property
    def gained(self) -> str:
        """In grams, with its sign."""
        grams = round(1000 * (self.gained_kg or 0.0))
        return f"{'+' if grams > 0 else ''}{words.number(grams, 0)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BarnCard:
    """`devices`: those expected to send; a device is online if one of its sensors is current."""

    place: Place
    key: str
    name: str
    farm_name: str
    href: str
    needs_attention: bool
    devices: int
    online: int
    last_contact_at: datetime | None
    batch_id: str | None
    batch_href: str
    age_days: int | None
    head_count: float | None
    weight: Weight | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCard:
    """`due`: images of today that should be here by now."""

    row: site_list.Row
    place: Place
    needs_attention: bool
    received: int
    due: int
    later: int


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    zone: str
    now: datetime
    as_of: str
    reasons: tuple[Reason, ...]
    barns: tuple[BarnCard, ...]
    sites: tuple[SiteCard, ...]
    pipeline: tuple[Segment, ...]
    steps: tuple[Step, ...]
    refresh_at: datetime | None
    page: str = PAGE

    @property
    def problems(self) -> int:
        return len(self.reasons)

    @property
    def shown(self) -> tuple[Reason, ...]:
        return self.reasons[: reasons.MAX_SHOWN]

    @property
    def others(self) -> tuple[Reason, ...]:
        """Behind one press."""
        return self.reasons[reasons.MAX_SHOWN :]

    @property
    def places(self) -> int:
        return len(self.barns) + len(self.sites)

    @property
    def unwell(self) -> int:
        """Barns and sites that a reason is about."""
        barns = sum(card.needs_attention for card in self.barns)
        return barns + sum(card.needs_attention for card in self.sites)

    @property
    def elsewhere(self) -> int:
        """Reasons about no barn and no site: what is on the way to the screen."""
        return sum(not reason.places for reason in self.reasons)

    @property
    def is_critical(self) -> bool:
        return any(reason.rank is Rank.CRITICAL for reason in self.reasons)

    @property
    def is_new(self) -> bool:
        """Nothing was ever received: the page shows the first steps instead."""
        return bool(self.steps)

    @property
    def sentence(self) -> str:
        if self.is_new:
            done = sum(step.is_done for step in self.steps)
            return _("%(done)s of %(total)s steps to the first reading are done") % {
                "done": done, "total": len(self.steps)
            }  # fmt: skip
        return sentence(
            barns=len(self.barns), sites=len(self.sites), unwell=self.unwell,
            elsewhere=self.elsewhere,
        )  # fmt: skip

    @property
    def name(self) -> str:
        return _("Today")

    @property
    def title(self) -> str:
        return words.title(self.name, problems=self.problems)


def sentence(*, barns: int, sites: int, unwell: int, elsewhere: int) -> str:
    on_the_way = ngettext(
        "%(num)s problem on the way of the data", "%(num)s problems on the way of the data",
        elsewhere,
    ) % {"num": elsewhere}  # fmt: skip
    if not unwell:
        well = _all_well(barns, sites)
        return f"{well}; {on_the_way}" if elsewhere else well
    unwell_text = _unwell(barns, sites, unwell)
    return f"{unwell_text}; {on_the_way}" if elsewhere else unwell_text


def _all_well(barns: int, sites: int) -> str:
    counts = {"barns": barns, "sites": sites, "total": barns + sites}
    if barns > 1 and sites > 1:
        return _("All %(barns)s barns and %(sites)s sites on track") % counts
    if barns and sites:
        return _("All %(total)s barns and sites on track") % counts
    if sites:
        text = ngettext("The only site is on track", "All %(num)s sites on track", sites)
        return text % {"num": sites}
    if barns:
        return ngettext("The only barn is on track", "All %(barns)s barns on track", barns) % counts
    return _("No barn and no site yet")


def _unwell(barns: int, sites: int, unwell: int) -> str:
    counts = {"num": unwell, "total": barns + sites}
    if not sites:
        if barns == 1:
            return _("The only barn needs attention")
        return ngettext(
            "%(num)s of %(total)s barns needs attention",
            "%(num)s of %(total)s barns need attention",
            unwell,
        ) % counts  # fmt: skip
    if not barns:
        if sites == 1:
            return _("The only site needs attention")
        return ngettext(
            "%(num)s of %(total)s sites needs attention",
            "%(num)s of %(total)s sites need attention",
            unwell,
        ) % counts  # fmt: skip
    return ngettext(
        "%(num)s of %(total)s barns and sites needs attention",
        "%(num)s of %(total)s barns and sites need attention",
        unwell,
    ) % counts  # fmt: skip


def view(
    company: Company,
    known: Known,
    *,
    registered: Sequence[RegisteredBarn] = (),
    arrived: Arrived = NOTHING_ARRIVED,
    steps: Sequence[Step] = (),
    refresh_at: datetime | None = None,
) -> View:
    """`steps` are those to the first reading, of a company that has none yet."""
    all_reasons = tuple(reasons.reasons(known))
    unwell = frozenset[Place]().union(*(reason.places for reason in all_reasons))
    zone = words.zone(company.timezone)
    moments = (at for at in (refresh_at, known.readings.refresh_at) if at is not None)
    return View(
        company=company,
        zone=words.zone_name(zone, known.now),
        now=known.now,
        as_of=f"{known.now.astimezone(zone):%H:%M:%S}",
        reasons=all_reasons,
        barns=_barn_cards(known, registered, unwell),
        sites=_site_cards(known, unwell),
        pipeline=pipeline.segments(known, arrived),
        steps=tuple(steps),
        refresh_at=min(moments, default=None),
    )


def _barn_cards(
    known: Known, registered: Sequence[RegisteredBarn], unwell: frozenset[Place]
) -> tuple[BarnCard, ...]:
    reporting = {(barn.farm_id, barn.barn_id): barn for barn in known.readings.barns}
    by_place: Mapping[Place, RegisteredBarn] = {(e.farm_id, e.barn_id): e for e in registered}
    places = [*by_place, *(place for place in sorted(reporting) if place not in by_place)]
    cards = [_barn_card(p, by_place.get(p), reporting.get(p), unwell, known) for p in places]
    return tuple(sorted(cards, key=lambda card: not card.needs_attention))


def _barn_card(
    place: Place,
    registered: RegisteredBarn | None,
    reporting: telemetry.Barn | None,
    unwell: frozenset[Place],
    known: Known,
) -> BarnCard:
    devices = [
        [row for row in device.rows if row.state is not State.REVOKED]
        for device in (reporting.devices if reporting else ())
    ]
    expected = [rows for rows in devices if rows]
    batch_id = registered.batch_id if registered else None
    return BarnCard(
        place=place,
        key=telemetry.html_id("c", *place),
        name=known.barn_name(place),
        farm_name=registered.farm_name if registered else place[0],
        href=f"/telemetry#{telemetry.html_id('b', *place)}" if reporting else "",
        needs_attention=place in unwell,
        devices=len(expected),
        online=sum(any(row.state is State.CURRENT for row in rows) for rows in expected),
        last_contact_at=max(
            (row.reading.arrived_at for rows in devices for row in rows), default=None
        ),
        batch_id=batch_id,
        batch_href=f"/batches/{quote(batch_id, safe='')}" if batch_id else "",
        age_days=registered.age_days if registered else None,
        head_count=registered.head_count if registered else None,
        weight=_weight(registered) if registered else None,
    )


def _weight(barn: RegisteredBarn) -> Weight | None:
    if not barn.weights_kg:
        return None
    points = [
        Point(datetime.combine(day, time(12), tzinfo=UTC), kg)
        for day, kg in zip(barn.weight_dates, barn.weights_kg, strict=True)
    ]
    newest = barn.weight_dates[-1]
    return Weight(
        kg=barn.weights_kg[-1],
        is_today=newest == barn.today,
        day=newest,
        day_text=words.day(newest, today=barn.today),
        gained_kg=barn.weights_kg[-1] - barn.weights_kg[0] if len(points) > 1 else None,
        days=(newest - barn.weight_dates[0]).days,
        spark=sparkline.draw(points, interval_s=DAY_S, now=points[-1].at, min_span=MIN_WEIGHT_SPAN),
    )


def _site_cards(known: Known, unwell: frozenset[Place]) -> tuple[SiteCard, ...]:
    cards = [_site_card(row, unwell) for row in known.sites if row.site.is_active]
    return tuple(sorted(cards, key=lambda card: not card.needs_attention))


def _site_card(row: site_list.Row, unwell: frozenset[Place]) -> SiteCard:
    counts = {tally.state: tally.count for tally in row.strip.tallies}
    later = counts.get(strips.State.DUE, 0)
    not_due = later + counts.get(strips.State.NOT_REQUIRED, 0)
    place = ("site", str(row.site.site_id))
    return SiteCard(
        row=row,
        place=place,
        needs_attention=place in unwell,
        received=counts.get(strips.State.RECEIVED, 0),
        due=sum(counts.values()) - not_due,
        later=later,
    )
