"""Pure: a cron expression as a person says it, such as "every 5 minutes".

The database decides what an expression means (fn_cron_schedule). What has no short sentence here
is counted, or left to the expression, which pages show beside the words.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

_MINUTES, _HOURS = 60, 24
_DAY_OF_MONTH, _MONTH, _WEEKDAY = 2, 3, 4
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_MONTH_NAMES = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_WEEKDAY_NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_NAMES: dict[int, dict[str, int]] = {
    _MONTH: {name: number for number, name in enumerate(_MONTH_NAMES, 1)},
    _WEEKDAY: {name: number for number, name in enumerate(_WEEKDAY_NAMES)},
}
_TERM = re.compile(r"(\*|[A-Z]+|[0-9]{1,2})(?:-([A-Z]+|[0-9]{1,2}))?(?:/([1-9][0-9]?))?")
# More times than these are not listed.
MAX_LISTED = 6
_WORKDAYS = (1, 2, 3, 4, 5)


class _Fields(NamedTuple):
    """The chosen values of each field; days, months and weekdays are empty if all are chosen."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]


def words(expression: str | None) -> str:
    """The schedule in words; "no schedule" without one; the expression if it has no short words."""
    if not expression:
        return _("no schedule")
    return _words(expression) or " ".join(expression.split())


def _words(expression: str) -> str:
    fields = _parse(expression)
    if fields is None or (fields.days and fields.weekdays):
        return ""
    days = _days(fields)
    times = _times(fields, daily=not days)
    return _("%(times)s %(days)s") % {"times": times, "days": days} if days else times


def _parse(expression: str) -> _Fields | None:
    texts = expression.upper().split()
    if len(texts) != len(_RANGES):
        return None
    fields = []
    for number, text in enumerate(texts):
        values = _field(number, text)
        if values is None:
            return None
        lowest, highest = _RANGES[number]
        of_all = len(values) == (7 if number == _WEEKDAY else highest - lowest + 1)
        fields.append(() if number >= _DAY_OF_MONTH and of_all else values)
    return _Fields(*fields)


def _field(number: int, text: str) -> tuple[int, ...] | None:
    """The values that a field chooses; None for what has no words here, such as L or 5#2."""
    lowest, highest = _RANGES[number]
    chosen: set[int] = set()
    for term in text.split(","):
        parts = _TERM.fullmatch(term)
        if parts is None:
            return None
        first = lowest if parts[1] == "*" else _value(number, parts[1])
        if parts[1] == "*" or (parts[3] and not parts[2]):
            last: int | None = highest
        else:
            last = _value(number, parts[2]) if parts[2] else first
        if first is None or last is None or not lowest <= first <= last <= highest:
            return None
        chosen.update(range(first, last + 1, int(parts[3] or 1)))
    if number == _WEEKDAY:
        # 0 and 7 are Sunday.
        chosen = {value % 7 for value in chosen}
    return tuple(sorted(chosen))


def _value(number: int, text: str) -> int | None:
    return int(text) if text.isdigit() else _NAMES.get(number, {}).get(text)


def _times(fields: _Fields, *, daily: bool) -> str:
    minutes, hours = fields.minutes, fields.hours
    step = _step(minutes, _MINUTES)
    all_day = len(hours) == _HOURS
    if step and all_day:
        return _every_minutes(step, minutes[0])
    if len(minutes) == 1:
        return _by_hours(minutes[0], hours, daily=daily)
    if step and len(hours) > 1 and _is_run(hours):
        return _("%(often)s from %(first)s to %(last)s") % {
            "often": _every_minutes(step, 0),
            "first": _clock(hours[0], minutes[0]),
            "last": _clock(hours[-1], minutes[-1]),
        }
    if all_day and len(minutes) <= MAX_LISTED:
        return _("every hour at minutes %(minutes)s") % {
            "minutes": _list([str(m) for m in minutes])
        }
    return _listed(minutes, hours, daily=daily)


def _every_minutes(step: int, first: int) -> str:
    often = (
        _("every minute")
        if step == 1
        else ngettext("every %(num)s minute", "every %(num)s minutes", step) % {"num": step}
    )
    if first == 0:
        return often
    return _("%(often)s from minute %(first)s on") % {"often": often, "first": first}


def _by_hours(minute: int, hours: Sequence[int], *, daily: bool) -> str:
    if len(hours) == _HOURS:
        if minute == 0:
            return _("every hour")
        return _("every hour at minute %(minute)s") % {"minute": minute}
    step = _step(hours, _HOURS)
    if step:
        often = ngettext("every %(num)s hour", "every %(num)s hours", step) % {"num": step}
        if (hours[0], minute) == (0, 0):
            return often
        return _("%(often)s from %(first)s on") % {
            "often": often,
            "first": _clock(hours[0], minute),
        }
    if len(hours) > MAX_LISTED and _is_run(hours):
        return _("%(often)s from %(first)s to %(last)s") % {
            "often": _("every hour"),
            "first": _clock(hours[0], minute),
            "last": _clock(hours[-1], minute),
        }
    return _listed((minute,), hours, daily=daily)


def _listed(minutes: Sequence[int], hours: Sequence[int], *, daily: bool) -> str:
    count = len(minutes) * len(hours)
    if count > MAX_LISTED:
        return ngettext("%(num)s time a day", "%(num)s times a day", count) % {"num": count}
    times = _list([_clock(hour, minute) for hour in hours for minute in minutes])
    return (_("at %(times)s daily") if daily else _("at %(times)s")) % {"times": times}


def _days(fields: _Fields) -> str:
    """On which days; empty if on all."""
    texts = []
    if fields.weekdays == _WORKDAYS:
        texts.append(_("from Monday to Friday"))
    elif fields.weekdays:
        names = (_("Sunday"), _("Monday"), _("Tuesday"), _("Wednesday"), _("Thursday"),
                 _("Friday"), _("Saturday"))  # fmt: skip
        texts.append(_("on %(days)s") % {"days": _list([names[day] for day in fields.weekdays])})
    if fields.days:
        days = _list([str(day) for day in fields.days])
        texts.append(
            ngettext("on day %(days)s of the month", "on days %(days)s of the month",
                     len(fields.days)) % {"days": days}
        )  # fmt: skip
    if fields.months:
        month_names = (_("January"), _("February"), _("March"), _("April"), _("May"), _("June"),
                 _("July"), _("August"), _("September"), _("October"), _("November"),
                 _("December"))  # fmt: skip
        months = _list([month_names[month - 1] for month in fields.months])
        texts.append(_("in %(months)s") % {"months": months})
    return " ".join(texts)


def _step(values: Sequence[int], size: int) -> int:
    """How far apart several values are if they are spread evenly over the whole size, else 0."""
    if len(values) == 1:
        return 0
    step = size // len(values)
    evenly = step * len(values) == size and values[0] < step
    return step if evenly and tuple(values) == tuple(range(values[0], size, step)) else 0


def _is_run(values: Sequence[int]) -> bool:
    return tuple(values) == tuple(range(values[0], values[-1] + 1))


def _clock(hour: int, minute: int) -> str:
    return f"{hour:02}:{minute:02}"


def _list(texts: Sequence[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    return _("%(list)s and %(last)s") % {"list": ", ".join(texts[:-1]), "last": texts[-1]}
