"""Pure: the sentences and names of a report, in the language that is set (farmiq.ui.i18n)."""

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from farmiq.cloud.reports.model import BatchReport, FarmReport
from farmiq.cloud.reports.periods import Period
from farmiq.cloud.reports.queries import Alert, Figure, Note
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

# Less than this share apart is as expected.
NEAR = 0.01
BEHIND = -0.05
# By figure: its name, its unit, and how many decimals it is shown with.
FIGURES: dict[str, tuple[str, str, int | None]] = {
    "head_count": (marked("Animals"), "", 0),
    "weight_mean": (marked("Mean weight"), "kg", 2),
    "adg_7d": (marked("Gain in 7 days"), marked("g/day"), 0),
    "weight_uniformity": (marked("Uniformity"), "%", 0),
    "fcr": (marked("Feed conversion"), "kg/kg", 2),
    "intake_per_head": (marked("Feed per animal"), marked("g/day"), 0),
    "mortality_pct": (marked("Mortality since placing"), "%", 1),
    "data_coverage": (marked("Hours with readings"), "%", 0),
}
# More of these is worse.
LESS_IS_BETTER = frozenset({"fcr", "mortality_pct"})
_RECORDS = {
    "note": marked("Note"),
    "welfare": marked("Welfare"),
    "housing": marked("Housing"),
    "treatment": marked("Treatment"),
    "vaccination": marked("Vaccination"),
}


def kind(period: Period) -> str:
    return _("Weekly report") if period.kind == "week" else _("Monthly report")


def span(period: Period) -> str:
    """9 Nov to 15 Nov 2026."""
    return _("%(first)s to %(last)s") % {
        "first": words.day(period.first, today=period.last),
        "last": words.day(period.last),
    }


def batch_title(report: BatchReport) -> str:
    return _("%(barn)s, batch %(batch)s") % {
        "barn": report.batch.barn,
        "batch": report.batch.batch_id,
    }


def batch_subtitle(report: BatchReport) -> str:
    batch = report.batch
    animals = batch.species if batch.breed is None else f"{batch.species}, {batch.breed}"
    text = _("%(farm)s · %(animals)s · %(count)s placed on %(day)s · %(age)s days old")
    if batch.age_at_placing_days is None:
        text = _("%(farm)s · %(animals)s · %(count)s placed on %(day)s · age not known")
    return text % {
        "farm": batch.farm,
        "animals": animals,
        "count": words.number(batch.placed_count, 0),
        "day": words.day(batch.placed_on),
        "age": report.age_days,
    }


def batch_headline(report: BatchReport) -> str:
    return " ".join([_weight(report), *_deaths(report), *_target(report), *_sale(report)])


def _weight(report: BatchReport) -> str:
    figure = report.latest.get("weight_mean")
    if figure is None:
        return _("No animal of this batch was weighed yet.")
    values = {
        "weight": words.number(figure.value, 2),
        "age": report.batch.age(figure.kpi_date),
        "day": words.day(figure.kpi_date, today=report.period.last),
    }
    if report.is_old(figure):
        return (
            _("No animal was weighed in this period; on %(day)s they weighed %(weight)s kg.")
            % values
        )
    share = relative(figure)
    if share is None:
        text = _("The animals weigh %(weight)s kg at %(age)s days.")
        if report.batch.age_at_placing_days is None:
            text = _("The animals weigh %(weight)s kg, %(age)s days after they were placed.")
        return text % values
    values["share"] = words.percent(abs(share))
    if abs(share) < NEAR:
        return _("The animals weigh %(weight)s kg at %(age)s days, as the standard says.") % (
            values
        )
    if share > 0:
        return (
            _("The animals weigh %(weight)s kg at %(age)s days, %(share)s above the standard.")
            % values
        )
    return (
        _("The animals weigh %(weight)s kg at %(age)s days, %(share)s below the standard.") % values
    )


def _deaths(report: BatchReport) -> list[str]:
    dead = round(report.now.dead)
    if not report.days:
        return []
    if not dead:
        return [_("None died.")]
    return [ngettext("%(count)s died.", "%(count)s died.", dead) % {"count": words.number(dead, 0)}]


def _target(report: BatchReport) -> list[str]:
    day, target = report.forecast.reaches_target_on, report.batch.target_weight_kg
    if day is None or target is None or day <= report.period.last:
        return []
    return [
        _("They reach %(weight)s kg on about %(day)s.")
        % {"weight": words.number(target), "day": words.day(day, today=report.period.last)}
    ]


def _sale(report: BatchReport) -> list[str]:
    day = report.batch.safe_to_sell_from
    if day is None or day <= report.period.last:
        return []
    return [
        _("Because of a medicine they may be sold from %(day)s on.")
        % {"day": words.day(day, today=report.period.last)}
    ]


def farm_headline(report: FarmReport) -> str:
    if not report.batches:
        return _("There were no animals on this farm in this period.")
    dead = round(sum(batch.now.dead for batch in report.batches))
    died = (
        ngettext("%(count)s animal died.", "%(count)s animals died.", dead)
        % {"count": words.number(dead, 0)}
        if dead
        else _("No animal died.")
    )
    return f"{_growth(report.batches)} {died}"


def _growth(batches: Sequence[BatchReport]) -> str:
    shares = [
        (batch.batch.barn, share)
        for batch in batches
        if (figure := batch.latest.get("weight_mean")) is not None
        and not batch.is_old(figure)
        and (share := relative(figure)) is not None
    ]
    if not shares:
        return _("There are no weighings of this period to compare with a breed standard.")
    behind = [barn for barn, share in shares if share < BEHIND]
    if behind:
        return ngettext(
            "%(count)s of %(total)s batches is more than 5 %% below its standard: %(barns)s.",
            "%(count)s of %(total)s batches are more than 5 %% below their standard: %(barns)s.",
            len(behind),
        ) % {"count": len(behind), "total": len(shares), "barns": ", ".join(behind)}
    return ngettext(
        "The batch grows as its standard expects.",
        "All %(total)s batches grow as their standards expect.",
        len(shares),
    ) % {"total": len(shares)}


def relative(figure: Figure) -> float | None:
    """How far a figure is above what was expected, as a share."""
    if not figure.expected_value:
        return None
    return figure.value / figure.expected_value - 1


def figure_value(figure: Figure) -> str:
    return words.number(figure.value, FIGURES[figure.kpi_type][2])


def expected(figure: Figure) -> str:
    """Such as: expected 2.26 (+2 %); nothing without a standard."""
    share = relative(figure)
    if share is None or figure.expected_value is None:
        return ""
    value = words.number(figure.expected_value, FIGURES[figure.kpi_type][2])
    sign = "+" if share >= 0 else "-"
    return _("expected %(value)s (%(share)s)") % {
        "value": value,
        "share": f"{sign}{words.percent(abs(share))}",
    }


def is_worse(figure: Figure) -> bool:
    """Whether it is clearly on the wrong side of what was expected."""
    share = relative(figure)
    if share is None:
        return False
    return share > -BEHIND if figure.kpi_type in LESS_IS_BETTER else share < BEHIND


def severity(alert: Alert) -> str:
    return words.severity(alert.severity)


def alert_time(alert: Alert, zone: ZoneInfo) -> str:
    opened = instant(alert.opened_at, zone)
    if alert.resolved_at is None:
        return _("%(time)s, still open") % {"time": opened}
    lasted = words.duration((alert.resolved_at - alert.opened_at).total_seconds())
    return _("%(time)s, for %(duration)s") % {"time": opened, "duration": lasted}


def instant(at: datetime, zone: ZoneInfo) -> str:
    here = at.astimezone(zone)
    return f"{words.day(here.date(), today=here.date())} {here:%H:%M}"


def note(item: Note) -> tuple[str, str]:
    """What kind of record it is, and its text."""
    name = _(_RECORDS.get(item.record_type, item.record_type))
    if item.text is not None:
        return name, item.text
    animals = round(item.number or 0)
    treated = ngettext("%(count)s animal", "%(count)s animals", animals) % {
        "count": words.number(animals, 0)
    }
    return name, f"{item.product}, {treated}" if item.product else treated


def file_name(period: Period, *, subject: str) -> str:
    """Such as farmiq-2026-W46-b-1.pdf: letters that every disk takes."""
    safe = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-"
        for letter in subject[:80]
    )
    return f"farmiq-{period.name}-{safe}.pdf"


def mail(period: Period, *, subject: str, headline: str) -> tuple[str, str]:
    """Subject and text of the mail that brings a report."""
    title = _("%(kind)s %(span)s: %(subject)s") % {
        "kind": kind(period),
        "span": span(period),
        "subject": subject,
    }
    text = _(
        "%(headline)s\n\nThe report is attached as PDF. Whoever runs FarmIQ at your company "
        "can end these mails on the page Reports."
    ) % {"headline": headline}
    return title, text
