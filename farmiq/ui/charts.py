"""Pure: what a chart is made of; the macro `chart` of ui.html writes it, chart.js draws it."""

from typing import NamedTuple


class Column(NamedTuple):
    """`role`: line, points, bars, expected or forecast; low and high make a band.

    expected_low and expected_high, forecast_low and forecast_high are bands too.
    """

    label: str
    role: str
