"""Pure: the page to change a camera's schedule; the database decides when it takes effect."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud import completeness
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.schedules import cron
from farmiq.cloud.console.sites import view as sites
from farmiq.cloud.console.sites.strips import Camera, Wake
from farmiq.cloud.console.sites.view import Site
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

MAX_CRON = 200
# Examples beside the input field.
EXAMPLES = (
    (marked("twice a day"), "0 8,16 * * *"),
    (marked("every 4 hours"), "0 */4 * * *"),
    (marked("every hour"), "0 * * * *"),
    (marked("every 30 minutes"), "*/30 * * * *"),
)
_MAX_TIMES = 12
_MINUTES, _MINUTE_S, _HOUR_S = 60, 60, 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A schedule that waits for its day."""

    change_id: UUID
    device_id: UUID
    cron: str
    effective_date: date

    @property
    def words(self) -> str:
        return cron.words(self.cron)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A camera's schedule on the page of its site; `today`: the wakes that today expects of it."""

    camera: Camera
    href: str
    words: str
    today: int
    change: Change | None
    takes_effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effect of a change, from fn_preview_schedule_change."""

    cron: str
    words: str
    text: str
    when: str
    consequence: str
    dst_note: str
    times: str
    added: str
    removed: str
    same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    company: Company
    site: Site
    camera: Camera
    now: datetime
    zone: str
    local_now: str
    change: Change | None
    takes_effect: str
    change_date: str
    current_words: str
    current_times: str
    entered: str
    problem: str
    preview: Preview | None
    page: str = "sites"

    @property
    def title(self) -> str:
        name = _("Schedule of %(camera)s") % {"camera": words.cut(self.camera.device_name)}
        return words.title(name, problems=int(bool(self.problem)))

    @property
    def examples(self) -> tuple[tuple[str, str], ...]:
        return tuple((_(text), expression) for text, expression in EXAMPLES)

    @property
    def address(self) -> str:
        return address(self.site, self.camera)

    def example(self, cron: str) -> str:
        return f"{self.address}?{urlencode({'cron': cron})}"


def address(site: Site, camera: Camera) -> str:
    return f"/sites/{site.site_id}/cameras/{camera.device_id}/schedule"


def preview(
    answer: Mapping[str, Any],
    *,
    zone: ZoneInfo,
    now: datetime,
    before: Sequence[datetime],
    after: Sequence[datetime],
    current: str | None,
) -> Preview:
    """`before` and `after` are the wakes of the first day by the old and by the new schedule."""
    first = date.fromisoformat(answer["effective_date"])
    at = datetime.fromisoformat(answer["takes_effect_at"])
    return Preview(
        cron=answer["new_wake_schedule_cron"],
        words=cron.words(answer["new_wake_schedule_cron"]),
        text=_("This change will take effect at midnight (%(time)s from now)")
        % {"time": hours(at - now)},
        when=f"{completeness.day(first)}, {at.astimezone(zone):%H:%M}, {words.zone_name(zone, at)}",
        consequence=_consequence(answer, today=now.astimezone(zone).date(), first=first),
        dst_note=answer.get("dst_note", ""),
        times=times(after, zone=zone),
        added=times(sorted(set(after) - set(before)), zone=zone),
        removed=times(sorted(set(before) - set(after)), zone=zone),
        same=answer["new_wake_schedule_cron"].split() == (current or "").split(),
    )


def _consequence(answer: Mapping[str, Any], *, today: date, first: date) -> str:
    today_count, then_count = answer["expected_today"], answer["expected_tomorrow"]
    given = {"num": today_count, "then": then_count, "day": words.day(first)}
    if (first - today).days == 1:
        text = ngettext(
            "Today keeps %(num)s expected image; tomorrow %(then)s",
            "Today keeps %(num)s expected images; tomorrow %(then)s",
            today_count,
        )
    else:
        text = ngettext(
            "Today keeps %(num)s expected image; %(day)s %(then)s",
            "Today keeps %(num)s expected images; %(day)s %(then)s",
            today_count,
        )
    return text % given


def times(instants: Sequence[datetime], *, zone: ZoneInfo) -> str:
    """All of them if they are few, else the first and the last; a repeated hour is there twice."""
    texts = [f"{at.astimezone(zone):%H:%M}" for at in instants]
    if not texts:
        return _("none")
    if len(texts) <= _MAX_TIMES:
        return ", ".join(texts)
    return _("%(first)s … %(last)s: %(count)s times") % {
        "first": ", ".join(texts[:3]),
        "last": texts[-1],
        "count": len(texts),
    }


def effect(at: datetime, *, now: datetime) -> str:
    """The text of DB2-02, in real hours: a day on which the clock changes has not 24."""
    return _("at midnight (%(time)s from now)") % {"time": hours(at - now)}


def hours(left: timedelta) -> str:
    """Whole hours, rounded; below one, minutes. The same text as fn_time_left."""
    seconds = left.total_seconds()
    minutes = max(1, round(seconds / _MINUTE_S))
    if minutes < _MINUTES:
        return ngettext("%(num)s minute", "%(num)s minutes", minutes) % {"num": minutes}
    count = math.floor(seconds / _HOUR_S + 0.5)
    return ngettext("%(num)s hour", "%(num)s hours", count) % {"num": count}


def schedule_row(
    camera: Camera, site: Site, wakes: Sequence[Wake], change: Change | None, *, now: datetime
) -> ScheduleRow:
    at = sites.takes_effect_at(change.effective_date, site) if change else now
    return ScheduleRow(
        camera=camera,
        href=address(site, camera),
        words=cron.words(camera.wake_schedule_cron),
        today=sum(wake.expected_at is not None for wake in wakes),
        change=change,
        takes_effect=effect(at, now=now) if change else "",
    )


def view(
    company: Company,
    site: Site,
    camera: Camera,
    *,
    change: Change | None,
    times_today: Sequence[datetime],
    entered: str,
    problem: str,
    preview: Preview | None,
    now: datetime,
) -> ScheduleView:
    zone = words.zone(site.timezone)
    at = sites.takes_effect_at(change.effective_date, site) if change else now
    return ScheduleView(
        company=company,
        site=site,
        camera=camera,
        now=now,
        zone=words.zone_name(zone, now),
        local_now=f"{now.astimezone(zone):%H:%M}",
        change=change,
        takes_effect=effect(at, now=now) if change else "",
        change_date=completeness.day(change.effective_date) if change else "",
        current_words=cron.words(camera.wake_schedule_cron),
        current_times=times(times_today, zone=zone),
        entered=entered,
        problem=problem,
        preview=preview,
    )
