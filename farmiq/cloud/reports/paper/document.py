"""The pages of a report: at most two of a batch, and one of the farm before them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from zoneinfo import ZoneInfo

from farmiq.cloud.reports import wording
from farmiq.cloud.reports.model import KEY_FIGURES, BatchReport, FarmReport, Made
from farmiq.cloud.reports.paper import charts, sheet
from farmiq.cloud.reports.paper.charts import Box
from farmiq.cloud.reports.paper.sheet import INNER, MARGIN, WIDTH, Sheet, cut, wrapped
from farmiq.cloud.reports.periods import Period
from farmiq.cloud.reports.queries import Alert, Listed, Note
from farmiq.ui import i18n, sentences, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

_ROW = 15.0
_NONE = "\N{EN DASH}"
Item = TypeVar("Item")
_TONES = {
    "security": sheet.BAD,
    "critical": sheet.BAD,
    "warning": sheet.WARN,
    "info": sheet.MUTED,
}


@dataclass(frozen=True, slots=True)
class Column:
    """`width` is a share of the table; numbers stand on the right."""

    title: str
    width: float
    is_number: bool = False


def batch_pdf(report: BatchReport, made: Made) -> bytes:
    paper = _paper(wording.batch_title(report), report.period, made, report.batch.timezone)
    _batch_pages(paper, report)
    return paper.content()


def farm_pdf(report: FarmReport, made: Made) -> bytes:
    paper = _paper(report.farm.name, report.period, made, report.farm.timezone)
    _head(paper, report.period)
    paper.paragraph(report.farm.name, 20, bold=True, max_lines=1)
    paper.y -= 8
    paper.paragraph(wording.farm_headline(report), 12.5)
    _batch_table(paper, report)
    _alerts(paper, report.alerts, report.farm.timezone, with_barn=True)
    paper.end_page()
    for batch in report.batches:
        _batch_pages(paper, batch)
    return paper.content()


def _paper(title: str, period: Period, made: Made, timezone: str) -> Sheet:
    zone = words.zone(timezone)
    here = made.made_at.astimezone(zone)
    footer = _(
        "%(company)s · made on %(day)s, %(time)s (%(zone)s) of what had arrived; late data may "
        "change it"
    ) % {
        "company": made.company,
        "day": words.day(here.date()),
        "time": f"{here:%H:%M}",
        "zone": words.zone_name(zone, made.made_at),
    }
    name = f"{wording.kind(period)} {period.name}: {title}"
    return Sheet(title=name, author=made.company, language=i18n.language(), footer=footer)


def _head(paper: Sheet, period: Period) -> None:
    paper.y -= 8
    canvas, x, y = paper.canvas, MARGIN, paper.y
    canvas.setFillColor(sheet.GOOD)
    canvas.circle(x + 4, y + 3, 4, stroke=0, fill=1)
    paper.text(x + 13, y, "FarmIQ", 10, bold=True, color=sheet.GOOD)
    kind = f"{wording.kind(period)} · {wording.span(period)}"
    paper.text(WIDTH - MARGIN, y, kind, 9, color=sheet.MUTED, align="right")
    paper.y -= 7
    paper.rule(paper.y)
    paper.y -= 12


def _batch_pages(paper: Sheet, report: BatchReport) -> None:
    _head(paper, report.period)
    paper.paragraph(wording.batch_title(report), 20, bold=True, max_lines=1)
    paper.y -= 2
    paper.paragraph(wording.batch_subtitle(report), 9, color=sheet.MUTED, max_lines=1)
    paper.y -= 7
    paper.paragraph(wording.batch_headline(report), 12.5)
    _key_figures(paper, report)
    paper.heading(_("Growth"), _forecast_note(report))
    height = 206.0
    paper.y -= height + 16
    charts.growth(paper, report, Box(MARGIN, paper.y, INNER, height))
    paper.y -= 34
    _two_charts(paper, report)
    paper.end_page()
    _head(paper, report.period)
    paper.paragraph(wording.batch_title(report), 12, bold=True, max_lines=1)
    _days(paper, report)
    _alerts(paper, report.alerts, report.batch.timezone)
    _notes(paper, report)
    paper.end_page()


def _key_figures(paper: Sheet, report: BatchReport) -> None:
    """Eight cards in two rows."""
    gap, height = 8.0, 56.0
    across = (INNER - 3 * gap) / 4
    paper.y -= 12
    for place, kind in enumerate(KEY_FIGURES):
        row, column = divmod(place, 4)
        x = MARGIN + column * (across + gap)
        y = paper.y - height - row * (height + gap)
        paper.canvas.setFillColor(sheet.SOFT)
        paper.canvas.roundRect(x, y, across, height, 5, stroke=0, fill=1)
        name, unit, _decimals = wording.FIGURES[kind]
        paper.text(x + 9, y + height - 15, cut(_(name), 8, across - 16), 8, color=sheet.MUTED)
        figure = report.latest.get(kind)
        if figure is None:
            paper.text(x + 9, y + 20, _NONE, 16, color=sheet.MUTED, bold=True)
            continue
        is_old = report.is_old(figure)
        value = wording.figure_value(figure)
        paper.text(x + 9, y + 20, value, 16, bold=True, color=sheet.MUTED if is_old else sheet.TEXT)
        if unit:
            taken = sheet.width(value, 16, bold=True)
            paper.text(x + 13 + taken, y + 20, _(unit), 8.5, color=sheet.MUTED)
        if is_old:
            day = words.day(figure.kpi_date, today=report.period.last)
            below, tone = _("on %(day)s") % {"day": day}, sheet.MUTED
        else:
            below = wording.expected(figure)
            tone = sheet.BAD if wording.is_worse(figure) else sheet.MUTED
        paper.text(x + 9, y + 8, cut(below, 7.5, across - 14), 7.5, color=tone)
    paper.y -= 2 * height + gap


def _forecast_note(report: BatchReport) -> str:
    if report.forecast.by_age:
        age, estimate = report.forecast.by_age[-1]
        return _("at %(age)s days about %(weight)s kg (%(low)s to %(high)s)") % {
            "age": age,
            "weight": words.number(estimate.kg, 2),
            "low": words.number(estimate.low_kg, 2),
            "high": words.number(estimate.high_kg, 2),
        }
    return ""


def _two_charts(paper: Sheet, report: BatchReport) -> None:
    gap, height = 20.0, 106.0
    across = (INNER - gap) / 2
    feed, dead = _compared(report)
    top = paper.y
    paper.heading(_("Feed"))
    paper.text(MARGIN, paper.y - 6, cut(feed, 8.5, across), 8.5, color=sheet.MUTED)
    paper.text(MARGIN + across + gap, top - 22, _("Deaths"), 11, bold=True)
    paper.text(MARGIN + across + gap, paper.y - 6, cut(dead, 8.5, across), 8.5, color=sheet.MUTED)
    paper.y -= height + 30
    days = [line.on for line in report.lines]
    charts.bars(
        paper, days, [line.feed_kg for line in report.lines],
        Box(MARGIN, paper.y, across, height), unit="kg", color=sheet.ACCENT,
    )  # fmt: skip
    charts.bars(
        paper, days, [line.dead for line in report.lines],
        Box(MARGIN + across + gap, paper.y, across, height),
        unit=_("animals"), color=sheet.BAD, whole=True,
    )  # fmt: skip
    paper.y -= 14


def _compared(report: BatchReport) -> tuple[str, str]:
    """Feed and deaths of the period beside those of the one before."""
    now, before = report.now, report.before
    fed = _NONE if now.feed_kg is None else f"{words.number(now.feed_kg, 0)} kg"
    died = words.number(now.dead, 0)
    if before is None:
        return fed, died
    last = _NONE if before.feed_kg is None else f"{words.number(before.feed_kg, 0)} kg"
    if report.period.kind == "week":
        pattern = _("%(now)s (the week before: %(before)s)")
    else:
        pattern = _("%(now)s (the month before: %(before)s)")
    return (
        pattern % {"now": fed, "before": last},
        pattern % {"now": died, "before": words.number(before.dead, 0)},
    )


def _days(paper: Sheet, report: BatchReport) -> None:
    paper.heading(
        _("Day by day"),
        _("%(share)s of the hours have readings, %(count)s animals were weighed")
        % {
            "share": words.percent(report.now.coverage_pct / 100),
            "count": words.number(report.now.weighed, 0),
        },
    )
    columns = [
        Column(_("Day"), 0.16),
        Column(_("Age"), 0.08, is_number=True),
        Column(_("Animals"), 0.12, is_number=True),
        Column(_("Died"), 0.1, is_number=True),
        Column(_("Feed kg"), 0.13, is_number=True),
        Column(_("g/animal"), 0.13, is_number=True),
        Column(_("Weight kg"), 0.14, is_number=True),
        Column(_("Readings"), 0.14, is_number=True),
    ]
    rows = [
        [
            words.day(line.on, today=line.on),
            str(line.age_days),
            _number(line.head_count, 0),
            _number(line.dead, 0),
            _number(line.feed_kg, 0),
            _number(line.feed_per_head_g, 0),
            _number(line.weight_kg, 2),
            _NONE if line.coverage_pct is None else words.percent(line.coverage_pct / 100),
        ]
        for line in report.lines
    ]
    # A month and its alerts fit on one page.
    _table(paper, columns, rows, row_height=13.0 if len(rows) > 10 else _ROW)  # noqa: PLR2004


def _batch_table(paper: Sheet, report: FarmReport) -> None:
    if not report.batches:
        return
    paper.heading(_("Batches"))
    columns = [
        Column(_("Barn"), 0.26),
        Column(_("Age"), 0.09, is_number=True),
        Column(_("Animals"), 0.13, is_number=True),
        Column(_("Weight kg"), 0.14, is_number=True),
        Column(_("Standard"), 0.14, is_number=True),
        Column(_("Died"), 0.1, is_number=True),
        Column(_("Feed kg"), 0.14, is_number=True),
    ]
    rows = []
    for batch in report.batches:
        weight, heads = batch.latest.get("weight_mean"), batch.latest.get("head_count")
        share = wording.relative(weight) if weight is not None else None
        is_new = weight is not None and not batch.is_old(weight)
        rows.append(
            [
                f"{batch.batch.barn} ({batch.batch.batch_id})",
                str(batch.age_days),
                _number(None if heads is None else heads.value, 0),
                _number(weight.value if weight is not None and is_new else None, 2),
                _NONE
                if share is None or not is_new
                else f"{'+' if share >= 0 else '-'}{words.percent(abs(share))}",
                words.number(batch.now.dead, 0),
                _number(batch.now.feed_kg, 0),
            ]
        )
    _table(paper, columns, rows)
    if report.others:
        paper.y -= 4
        paper.paragraph(
            _("Not shown here, with reports of their own: %(batches)s")
            % {"batches": ", ".join(report.others)},
            8.5,
            color=sheet.MUTED,
            max_lines=2,
        )


def _alerts(paper: Sheet, alerts: Listed[Alert], timezone: str, *, with_barn: bool = False) -> None:
    zone = words.zone(timezone)
    paper.heading(
        _("Alerts"),
        ngettext("%(count)s alert", "%(count)s alerts", alerts.count) % {"count": alerts.count},
    )
    if not alerts.items:
        paper.paragraph(_("There were none in this period."), 9, color=sheet.MUTED)
        return

    def draw(alert: Alert) -> float:
        barn = f"{alert.barn}: " if with_barn and alert.barn else ""
        return _entry(
            paper,
            wording.severity(alert),
            wording.alert_time(alert, zone),
            barn + sentences.translated(alert.message, timezone),
            _TONES[alert.severity],
        )

    _listed(paper, alerts, draw)


def _notes(paper: Sheet, report: BatchReport) -> None:
    zone = ZoneInfo(report.batch.timezone)
    if not report.notes.items or not paper.has_room(60):
        return
    paper.heading(_("Notes and medicines"))

    def draw(item: Note) -> float:
        name, text = wording.note(item)
        return _entry(paper, name, wording.instant(item.occurred_at, zone), text, sheet.MUTED)

    _listed(paper, report.notes, draw)


def _listed(paper: Sheet, listed: Listed[Item], draw: Callable[[Item], float]) -> None:
    """As many as the page has room for; a line says how many more there are."""
    shown = 0
    for item in listed.items:
        if not paper.has_room(44):
            break
        draw(item)
        shown += 1
    if listed.count > shown:
        paper.paragraph(
            _("and %(count)s more, on the pages of FarmIQ") % {"count": listed.count - shown},
            8.5,
            color=sheet.MUTED,
            max_lines=1,
        )


def _entry(paper: Sheet, what: str, when: str, text: str, color: str) -> float:
    """A word, a time, and two lines of text at most."""
    begin = paper.y
    lines = wrapped(text, 9, INNER - 200, max_lines=2)
    paper.y -= 12
    paper.text(MARGIN, paper.y, cut(what, 8.5, 62, bold=True), 8.5, bold=True, color=color)
    paper.text(MARGIN + 66, paper.y, cut(when, 8.5, 126), 8.5, color=sheet.MUTED)
    for number, line in enumerate(lines):
        if number:
            paper.y -= 11.5
        paper.text(MARGIN + 200, paper.y, line, 9)
    paper.y -= 4
    paper.rule(paper.y)
    return begin - paper.y


def _table(
    paper: Sheet, columns: Sequence[Column], rows: Sequence[Sequence[str]],
    *, row_height: float = _ROW,
) -> None:  # fmt: skip
    total = sum(column.width for column in columns)
    paper.y -= 10
    _cells(paper, columns, [column.title for column in columns], total, color=sheet.MUTED)
    paper.y -= 4
    paper.rule(paper.y)
    for row in rows:
        paper.y -= row_height - 4
        _cells(paper, columns, row, total)
        paper.y -= 4
        paper.rule(paper.y)


def _cells(
    paper: Sheet, columns: Sequence[Column], texts: Sequence[str], total: float,
    *, color: str = sheet.TEXT,
) -> None:  # fmt: skip
    x = MARGIN
    for column, text in zip(columns, texts, strict=True):
        room = column.width / total * INNER
        shown = cut(text, 8.5, room - 6)
        if column.is_number:
            paper.text(x + room, paper.y, shown, 8.5, color=color, align="right")
        else:
            paper.text(x, paper.y, shown, 8.5, color=color)
        x += room


def _number(value: float | None, decimals: int) -> str:
    return _NONE if value is None else words.number(value, decimals)
