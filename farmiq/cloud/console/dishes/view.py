"""Pure: the dishes of a site as its page and the API show them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.sites.view import Site
from farmiq.farm.vision.dishes import curve
from farmiq.farm.vision.dishes.curve import Forecast, NotEnoughDataError
from farmiq.ui import words
from farmiq.ui.charts import Column
from farmiq.ui.i18n import gettext as _

THRESHOLDS = (10, 20, 30, 50)
DEFAULT_THRESHOLD = 30
MAP_PX, MARGIN_PX = 300, 30
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """A camera at a site and its newest dish; `problem` is of its last image."""

    device_id: UUID
    device_name: str
    x_position: float | None
    y_position: float | None
    series_id: UUID | None
    started_at: datetime | None
    ended_at: datetime | None
    reference_image_id: UUID | None
    problem: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    series_id: UUID
    image_id: UUID
    observed_at: datetime
    covered_change: float
    covered_quality: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """When a threshold is passed, as instants; `latest_at` is None if that is too far ahead."""

    at: datetime
    earliest_at: datetime
    latest_at: datetime | None
    is_passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Dish:
    """`smoothed` is the curve at each measurement that counts, by its image."""

    camera: Camera
    measured: tuple[Measured, ...]
    smoothed: dict[datetime, float]
    passing: Passing | None
    why_not: str

    @property
    def change(self) -> float | None:
        """The curve's last value."""
        return list(self.smoothed.values())[-1] if self.smoothed else None

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Of the chart, in percent."""
        return [
            (
                item.observed_at,
                round(100 * item.covered_change, 2),
                _percent(self.smoothed.get(item.observed_at)),
            )
            for item in self.measured
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A dish on the map: pixels, and its shade from 0 to 1 (None: nothing measured)."""

    dish: Dish
    x: float
    y: float
    shade: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    site: Site
    now: datetime
    threshold: int
    dishes: tuple[Dish, ...]
    spots: tuple[Spot, ...]
    has_mp4: bool = False
    page: str = "sites"

    @property
    def title(self) -> str:
        return _("Dishes of %(site)s") % {"site": words.cut(self.site.site_name)}

    @property
    def columns(self) -> tuple[Column, ...]:
        return Column(_("Measured"), "points"), Column(_("Smoothed"), "line")

    @property
    def thresholds(self) -> tuple[int, ...]:
        return tuple(sorted({*THRESHOLDS, self.threshold}))

    @property
    def counted(self) -> int:
        return sum(dish.camera.series_id is not None for dish in self.dishes)

    def day(self, at: datetime) -> str:
        return words.day(at.astimezone(words.zone(self.site.timezone)).date())


def view(
    company: Company,
    site: Site,
    *,
    cameras: Sequence[Camera],
    measured: Sequence[Measured],
    now: datetime,
    threshold: int = DEFAULT_THRESHOLD,
    has_mp4: bool = False,
) -> View:
    dishes = all_dishes(cameras, measured, threshold=threshold / 100)
    return View(
        company=company,
        site=site,
        now=now,
        threshold=threshold,
        dishes=tuple(dishes),
        spots=tuple(_spots(dishes)),
        has_mp4=has_mp4,
    )


def all_dishes(
    cameras: Sequence[Camera], measured: Sequence[Measured], *, threshold: float
) -> list[Dish]:
    of_series: dict[UUID, list[Measured]] = {}
    for item in measured:
        of_series.setdefault(item.series_id, []).append(item)
    return [
        _dish(camera, of_series.get(camera.series_id, []) if camera.series_id else [], threshold)
        for camera in cameras
    ]


def _dish(camera: Camera, measured: Sequence[Measured], threshold: float) -> Dish:
    begin = measured[0].observed_at if measured else None
    points = [
        curve.Measurement(_days(item.observed_at, begin), item.covered_change, item.covered_quality)
        for item in measured
        if begin is not None
    ]
    counted = [item for item in measured if item.covered_quality >= curve.MIN_QUALITY]
    levels = [point.change for point in curve.curve(points)]
    passing, why_not = None, ""
    try:
        passing = _passing(curve.forecast(points, threshold), begin)
    except NotEnoughDataError as error:
        why_not = str(error)
    return Dish(
        camera=camera,
        measured=tuple(measured),
        smoothed={item.observed_at: level for item, level in zip(counted, levels, strict=True)},
        passing=passing,
        why_not=why_not,
    )


def _passing(forecast: Forecast, begin: datetime | None) -> Passing | None:
    if begin is None:
        return None
    late = forecast.latest_day
    return Passing(
        at=begin + timedelta(days=forecast.day),
        earliest_at=begin + timedelta(days=forecast.earliest_day),
        latest_at=None if late is None else begin + timedelta(days=late),
        is_passed=forecast.is_passed,
    )


def _spots(dishes: Sequence[Dish]) -> list[Spot]:
    """Where cameras stand, fitted into the map; y grows upwards, as on paper."""
    placed = [
        (dish, dish.camera.x_position, dish.camera.y_position)
        for dish in dishes
        if dish.camera.x_position is not None and dish.camera.y_position is not None
    ]
    if not placed:
        return []
    left, bottom = min(x for __, x, __y in placed), min(y for __, __x, y in placed)
    width = max(max(x for __, x, __y in placed) - left, max(y for __, __x, y in placed) - bottom)
    scale = (MAP_PX - 2 * MARGIN_PX) / width if width > 0 else 0.0
    return [
        Spot(
            dish=dish,
            x=round(MARGIN_PX + (x - left) * scale, 1),
            y=round(MAP_PX - MARGIN_PX - (y - bottom) * scale, 1),
            shade=dish.change,
        )
        for dish, x, y in placed
    ]


def _days(at: datetime, begin: datetime | None) -> float:
    return (at - begin).total_seconds() / _DAY_S if begin else 0.0


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)
