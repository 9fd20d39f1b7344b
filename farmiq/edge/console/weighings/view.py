"""Pure: weighings of a day and one in full, as the pages show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from farmiq.edge.console.tenant import PageView, Tenant
from farmiq.edge.console.weighings.queries import Figures
from farmiq.ui import words
from farmiq.ui.estimates import Estimate
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

TONES = {"created": "info", "finalized": "good", "cancelled": "muted", "INCOMPLETE": "warn"}


def state_word(state: str) -> str:
    return {
        "created": _("Being weighed"),
        "finalized": _("Complete"),
        "cancelled": _("Cancelled"),
        "INCOMPLETE": _("Incomplete"),
    }[state]


def part_word(part: str) -> str:
    """A part that is missing (farm/sessions.py), as people say it."""
    return {
        "created": _("the start"),
        "weight": _("the weight"),
        "image": _("the image"),
        "finalized": _("the end"),
    }.get(part, part)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighingRow:
    session_id: UUID
    station_id: str
    barn_id: str
    tone: str
    word: str
    weight_kg: float | None
    start_at: datetime
    started: str
    why: str
    image_id: UUID | None


def row(
    session: Mapping[str, Any], image_id: UUID | None, *, now: datetime, tenant: Tenant
) -> WeighingRow:
    weight = session["final_weight_kg"]
    return WeighingRow(
        session_id=session["session_id"],
        station_id=session["station_id"],
        barn_id=session["barn_id"],
        tone=TONES[session["state"]],
        word=state_word(session["state"]),
        weight_kg=session["initial_weight_kg"] if weight is None else weight,
        start_at=session["start_at"],
        started=words.instant(session["start_at"], now=now, zone=words.zone(tenant.timezone)),
        why=session["incomplete_reason"] or session["cancel_reason"] or "",
        image_id=image_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DayView(PageView):
    day: date
    is_today: bool
    state: str | None
    sentence: str
    tone: str
    figures: Figures
    rows: Sequence[WeighingRow]
    next_href: str
    fragment: str
    shows_images: bool

    @property
    def before(self) -> date:
        return self.day - timedelta(days=1)

    @property
    def after(self) -> date:
        return self.day + timedelta(days=1)


def day_view(
    tenant: Tenant,
    *,
    now: datetime,
    day: date,
    state: str | None,
    figures: Figures,
    sessions: Sequence[Mapping[str, Any]],
    images: Mapping[UUID, UUID],
    next_href: str,
    fragment: str,
) -> DayView:
    return DayView(
        company=tenant,
        now=now,
        title=words.title(_("Weighings"), problems=figures.incomplete),
        page="weighings",
        day=day,
        is_today=day == now.astimezone(words.zone(tenant.timezone)).date(),
        state=state,
        sentence=_sentence(figures),
        tone="warn" if figures.incomplete else "good" if figures.total else "muted",
        figures=figures,
        rows=[
            row(session, images.get(session["session_id"]), now=now, tenant=tenant)
            for session in sessions
        ],
        next_href=next_href,
        fragment=fragment,
        shows_images=tenant.reads("media"),
    )


def _sentence(figures: Figures) -> str:
    if not figures.total:
        return _("No weighings on this day")
    text = ngettext("%(count)s weighing", "%(count)s weighings", figures.total)
    counted = text % {"count": words.number(figures.total)}
    if not figures.incomplete:
        return _("%(weighings)s, all with every part that was due") % {"weighings": counted}
    text = ngettext(
        "%(weighings)s, %(count)s incomplete",
        "%(weighings)s, %(count)s incomplete",
        figures.incomplete,
    )
    return text % {"weighings": counted, "count": words.number(figures.incomplete)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    event_id: UUID
    name: str
    at: datetime
    when: str
    weight_kg: float | None
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighingView(PageView):
    row: WeighingRow
    batch_id: str | None
    device_id: str
    missing: str
    estimate: Estimate | None
    events: Sequence[EventRow]
    images: Sequence[UUID]
    fragment: str
    shows_images: bool


def _event_word(event_type: str) -> str:
    return {
        "weighvision.session.created": _("Weighing began"),
        "weighvision.weight.recorded": _("Weight recorded"),
        "weighvision.image.captured": _("Image taken"),
        "weighvision.session.finalized": _("Weighing ended"),
        "weighvision.session.cancelled": _("Weighing cancelled"),
    }.get(event_type, event_type)


def weighing_view(
    tenant: Tenant,
    session: Mapping[str, Any],
    estimate: Estimate | None,
    *,
    now: datetime,
    fragment: str,
) -> WeighingView:
    zone = words.zone(tenant.timezone)
    stored = [image["media_id"] for image in session["images"] if image["bound"]]
    missing = [part_word(part) for part in session["missing"]]
    return WeighingView(
        company=tenant,
        now=now,
        title=words.title(_("Weighing"), problems=int(session["state"] == "INCOMPLETE")),
        page="weighings",
        row=row(session, stored[0] if stored else None, now=now, tenant=tenant),
        batch_id=session["batch_id"],
        device_id=session["device_id"],
        missing=", ".join(missing),
        estimate=estimate,
        events=[
            EventRow(
                event_id=event["event_id"],
                name=_event_word(event["event_type"]),
                at=event["occurred_at"],
                when=words.instant(event["occurred_at"], now=now, zone=zone),
                weight_kg=event["weight_kg"],
                note=event["reason"] or "",
            )
            for event in session["events"]
        ],
        images=stored,
        fragment=fragment,
        shows_images=tenant.reads("media"),
    )
