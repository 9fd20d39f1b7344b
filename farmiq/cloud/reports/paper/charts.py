"""Charts of a report as vectors: growth with its standard and forecast, and bars by day."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from farmiq.cloud.reports.model import BatchReport
from farmiq.cloud.reports.paper import sheet
from farmiq.cloud.reports.paper.sheet import Sheet, cut, width
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _

_AXIS, _LABEL = 28.0, 7.5
_STEPS = (1, 2, 2.5, 5, 10)
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A place for a chart: its lower left corner and size, without the axes."""

    x: float
    y: float
    w: float
    h: float


@dataclass(frozen=True, slots=True)
class Scale:
    """From values to points of the paper."""

    low: float
    high: float
    begin: float
    length: float

    def at(self, value: float) -> float:
        return self.begin + (value - self.low) / (self.high - self.low) * self.length


def ticks(low: float, high: float, *, count: int = 5) -> list[float]:
    """Round values from `low` on that reach `high`: about `count` of them."""
    span = max(high - low, 1e-9)
    raw = span / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(step * power for step in _STEPS if step * power >= raw * 0.999)
    first = math.floor(low / step)
    last = math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


def _decimals(values: Sequence[float]) -> int:
    step = values[1] - values[0]
    return max(0, -math.floor(math.log10(step) + 1e-9)) if step < 1 else int(step % 1 != 0)


def growth(paper: Sheet, report: BatchReport, box: Box) -> None:
    """Mean weights by age with the range of most animals, the standard, and what will come."""
    ahead = report.forecast.by_age
    ages = [day.age_days for day in report.weighed] + [age for age, _estimate in ahead]
    if not ages:
        _empty(paper, box, _("No weighings yet: the curve appears with the first ones."))
        return
    low_age, high_age = min(*ages, ages[0]), max(*ages, ages[0])
    if high_age - low_age < 7:  # noqa: PLR2004 - a curve over less looks like a wall
        low_age, high_age = max(0, high_age - 7), max(high_age, 7)
    standard = [(age, kg) for age, kg in report.standard if age <= high_age]
    heavy = [
        *(day.p90_kg or day.mean_kg for day in report.weighed),
        *(estimate.high_kg for _age, estimate in ahead),
        *(kg for _age, kg in standard),
    ]
    kg_ticks = ticks(0, max(heavy))
    across = Scale(low_age, high_age, box.x + _AXIS, box.w - _AXIS - 8)
    up = Scale(0, kg_ticks[-1], box.y, box.h)
    _grid(paper, box, up, kg_ticks, unit="kg")
    _ages(paper, box, across)
    canvas = paper.canvas

    band = [day for day in report.weighed if day.p10_kg is not None and day.p90_kg is not None]
    canvas.saveState()
    canvas.clipPath(_rectangle(paper, box), stroke=0, fill=0)
    if len(band) > 1:
        _area(
            paper,
            [(across.at(day.age_days), up.at(day.p90_kg or 0)) for day in band],
            [(across.at(day.age_days), up.at(day.p10_kg or 0)) for day in band],
            sheet.BAND,
        )
    if len(ahead) > 1:
        _area(
            paper,
            [(across.at(age), up.at(estimate.high_kg)) for age, estimate in ahead],
            [(across.at(age), up.at(estimate.low_kg)) for age, estimate in ahead],
            sheet.FORECAST_BAND,
        )
    _line(paper, [(across.at(age), up.at(kg)) for age, kg in standard], sheet.MUTED, dash=(4, 3))
    _line(
        paper,
        [(across.at(age), up.at(estimate.kg)) for age, estimate in ahead],
        sheet.ACCENT,
        dash=(1.5, 2),
        thick=1.4,
    )
    target = report.batch.target_weight_kg
    if target is not None and target <= kg_ticks[-1]:
        _line(
            paper,
            [(box.x + _AXIS, up.at(target)), (box.x + box.w, up.at(target))],
            sheet.WARN,
            dash=(2, 2),
        )
    canvas.restoreState()
    if target is not None and target <= kg_ticks[-1]:
        label = _("target %(weight)s kg") % {"weight": words.number(target)}
        paper.text(box.x + _AXIS + 4, up.at(target) + 3, label, _LABEL, color=sheet.WARN)
    _line(
        paper,
        [(across.at(day.age_days), up.at(day.mean_kg)) for day in report.weighed],
        sheet.GOOD,
        thick=1.4,
    )
    for day in report.weighed:
        canvas.setFillColor(sheet.GOOD)
        canvas.circle(across.at(day.age_days), up.at(day.mean_kg), 1.7, stroke=0, fill=1)
    _legend(paper, box, report)


def _legend(paper: Sheet, box: Box, report: BatchReport) -> None:
    entries: list[tuple[str, Callable[[float, float], None]]] = [
        (_("mean weight"), lambda x, y: _sample(paper, x, y, sheet.GOOD, dot=True)),
        (_("8 of 10 animals"), lambda x, y: _sample_area(paper, x, y, sheet.BAND)),
    ]
    if report.standard:
        entries.append(
            (_("breed standard"), lambda x, y: _sample(paper, x, y, sheet.MUTED, dash=(4, 3)))
        )
    if report.forecast.by_age:
        entries.append(
            (
                _("forecast with its 80 % range"),
                lambda x, y: _sample(paper, x, y, sheet.ACCENT, dash=(1.5, 2)),
            )
        )
    x, y = box.x + _AXIS, box.y - 27
    for label, draw in entries:
        draw(x, y)
        paper.text(x + 20, y, label, _LABEL, color=sheet.MUTED)
        x += 20 + width(label, _LABEL) + 16


def bars(
    paper: Sheet, days: Sequence[date], values: Sequence[float | None], box: Box, *,
    unit: str, color: str, whole: bool = False,
) -> None:  # fmt: skip
    """A bar for each day; a day without a value has none, and a dash at its foot."""
    known = [value for value in values if value is not None]
    if not known:
        _empty(paper, box, _("Nothing was recorded in this period."))
        return
    highest = max(*known, 0.0, 1.0 if whole else 1e-9)
    steps = ticks(0, highest, count=min(4, math.ceil(highest)) if whole else 4)
    up = Scale(0, steps[-1], box.y, box.h)
    _grid(paper, box, up, steps, unit=unit)
    room = (box.w - _AXIS) / len(days)
    thick = min(room * 0.7, 22.0)
    canvas = paper.canvas
    every = 1 if len(days) <= 10 else 5  # noqa: PLR2004 - a month has no room for 31 dates
    for place, (day, value) in enumerate(zip(days, values, strict=True)):
        middle = box.x + _AXIS + room * (place + 0.5)
        if value is None:
            canvas.setStrokeColor(sheet.MUTED)
            canvas.setLineWidth(0.8)
            canvas.setDash()
            canvas.line(middle - 2, box.y + 3, middle + 2, box.y + 3)
        else:
            canvas.setFillColor(color)
            canvas.rect(
                middle - thick / 2, box.y, thick, max(up.at(value) - box.y, 0), stroke=0, fill=1
            )
        if place % every == 0:
            label = words.day(day, today=day)
            paper.text(middle, box.y - 11, label, 6.8, color=sheet.MUTED, align="center")


def _grid(paper: Sheet, box: Box, up: Scale, values: Sequence[float], *, unit: str) -> None:
    decimals = _decimals(values)
    for value in values:
        y = up.at(value)
        paper.rule(y, color=sheet.LINE, begin=box.x + _AXIS, end=box.x + box.w)
        paper.text(
            box.x + _AXIS - 4, y - 2.4, words.number(value, decimals), _LABEL,
            color=sheet.MUTED, align="right",
        )  # fmt: skip
    paper.text(box.x, box.y + box.h + 7, unit, _LABEL, color=sheet.MUTED)


def _ages(paper: Sheet, box: Box, across: Scale) -> None:
    for age in ticks(across.low, across.high, count=8):
        if across.low <= age <= across.high and age == int(age):
            x = across.at(age)
            paper.text(x, box.y - 11, f"{int(age)}", _LABEL, color=sheet.MUTED, align="center")
    label = _("age in days")
    paper.text(box.x + box.w, box.y - 27, label, _LABEL, color=sheet.MUTED, align="right")


def _empty(paper: Sheet, box: Box, text: str) -> None:
    paper.canvas.setFillColor(sheet.SOFT)
    paper.canvas.roundRect(box.x, box.y, box.w, box.h, 5, stroke=0, fill=1)
    paper.text(
        box.x + box.w / 2, box.y + box.h / 2 - 3, cut(text, 8.5, box.w - 16), 8.5,
        color=sheet.MUTED, align="center",
    )  # fmt: skip


def _line(
    paper: Sheet, points: Sequence[Point], color: str, *,
    dash: tuple[float, float] | None = None, thick: float = 1.0,
) -> None:  # fmt: skip
    if len(points) < 2:  # noqa: PLR2004 - one point is no line
        return
    canvas = paper.canvas
    canvas.setStrokeColor(color)
    canvas.setLineWidth(thick)
    canvas.setLineJoin(1)
    canvas.setDash(*dash) if dash else canvas.setDash()
    path = canvas.beginPath()
    path.moveTo(*points[0])
    for point in points[1:]:
        path.lineTo(*point)
    canvas.drawPath(path, stroke=1, fill=0)
    canvas.setDash()


def _area(paper: Sheet, above: Sequence[Point], below: Sequence[Point], color: str) -> None:
    path = paper.canvas.beginPath()
    path.moveTo(*above[0])
    for point in (*above[1:], *reversed(below)):
        path.lineTo(*point)
    path.close()
    paper.canvas.setFillColor(color)
    paper.canvas.drawPath(path, stroke=0, fill=1)


def _rectangle(paper: Sheet, box: Box) -> object:
    path = paper.canvas.beginPath()
    path.rect(box.x + _AXIS, box.y, box.w - _AXIS, box.h + 2)
    return path


def _sample(
    paper: Sheet, x: float, y: float, color: str, *,
    dash: tuple[float, float] | None = None, dot: bool = False,
) -> None:  # fmt: skip
    _line(paper, [(x, y + 2.5), (x + 16, y + 2.5)], color, dash=dash, thick=1.4)
    if dot:
        paper.canvas.setFillColor(color)
        paper.canvas.circle(x + 8, y + 2.5, 1.7, stroke=0, fill=1)


def _sample_area(paper: Sheet, x: float, y: float, color: str) -> None:
    paper.canvas.setFillColor(color)
    paper.canvas.rect(x, y - 0.5, 16, 6, stroke=0, fill=1)
