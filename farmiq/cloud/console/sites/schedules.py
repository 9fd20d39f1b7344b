"""Pure: the page to change a camera's schedule; the database decides when it takes effect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from farmiq.cloud import completeness
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.sites import day as site_day
from farmiq.cloud.console.sites import view as sites
from farmiq.cloud.console.sites.day import Change, May
from farmiq.cloud.console.sites.strips import Camera
from farmiq.cloud.console.sites.view import Site
from farmiq.ui import words

MAX_CRON = 200
# Examples beside the input field.
EXAMPLES = (
    ("Twice a day", "0 8,16 * * *"),
    ("Every 4 hours", "0 */4 * * *"),
    ("Every hour", "0 * * * *"),
    ("Every 30 minutes", "*/30 * * * *"),
)
_MAX_TIMES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The effect of a change, from fn_preview_schedule_change."""

    cron: str
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
    current_times: str
    entered: str
    problem: str
    preview: Preview | None
    may: May

    @property
    def title(self) -> str:
        return words.title(
            f"Schedule of {self.camera.device_name}", problems=int(bool(self.problem))
        )

    @property
    def examples(self) -> tuple[tuple[str, str], ...]:
        return EXAMPLES

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
        text=answer["text"],
        when=f"{completeness.day(first)}, {at.astimezone(zone):%H:%M}, {words.zone_name(zone, at)}",
        consequence=_consequence(answer, today=now.astimezone(zone).date(), first=first),
        dst_note=answer.get("dst_note", ""),
        times=times(after, zone=zone),
        added=times(sorted(set(after) - set(before)), zone=zone),
        removed=times(sorted(set(before) - set(after)), zone=zone),
        same=answer["new_wake_schedule_cron"].split() == (current or "").split(),
    )


def _consequence(answer: Mapping[str, Any], *, today: date, first: date) -> str:
    then = "tomorrow" if (first - today).days == 1 else f"on {completeness.day(first)}"
    images = words.count(answer["expected_today"], "expected image")
    return f"Today keeps {images}; {then} {answer['expected_tomorrow']:,}"


def times(instants: Sequence[datetime], *, zone: ZoneInfo) -> str:
    """All of them if they are few, else the first and the last; a repeated hour is there twice."""
    texts = [f"{at.astimezone(zone):%H:%M}" for at in instants]
    if not texts:
        return "none"
    if len(texts) <= _MAX_TIMES:
        return ", ".join(texts)
    return f"{', '.join(texts[:3])} … {texts[-1]}: {len(texts)} times"


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
    may: May,
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
        takes_effect=site_day.effect(at, now=now) if change else "",
        change_date=completeness.day(change.effective_date) if change else "",
        current_times=times(times_today, zone=zone),
        entered=entered,
        problem=problem,
        preview=preview,
        may=may,
    )
