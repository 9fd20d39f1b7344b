"""Sentences that the product makes in English, as pages in another language show them."""

import re
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from farmiq.farm import growth, heads
from farmiq.farm.alerts import advice, defaults, rules
from farmiq.farm.alerts.rules import Subject
from farmiq.farm.growth import DailyMean, NotEnoughDataError
from farmiq.farm.postings import Stay
from farmiq.farm.vision.dishes import change, curve
from farmiq.messages import barn
from farmiq.plumbing.broker import flood
from farmiq.ui import elsewhere, i18n, sentences
from farmiq.ui.entry import fields

FUNCTIONS = Path(__file__).parents[3] / "farmiq/cloud/sql/functions"
# Words that no German sentence has; species and names of settings stay as people wrote them.
ENGLISH = re.compile(r"\b(the|of|above|below|no|for|reading|days|hours?|minutes?|more|than|is)\b")


def german(text: str) -> str:
    with i18n.use("de"):
        return sentences.translated(text)


def test_every_default_rule_has_a_german_sentence() -> None:
    shown = {german(rules.sentence(rule)) for rule in defaults.DEFAULTS}
    assert [text for text in shown if ENGLISH.search(text)] == []
    assert "Temperatur über 33 °C, für 10 Minuten (pig; ab 70 Tagen Alter)" in shown


def test_the_stored_text_of_an_alert_gets_its_values_back() -> None:
    subject = Subject("north/b2/dev-1", "north", "b2", "dev-1")
    rule = next(rule for rule in defaults.DEFAULTS if rule.rule_id == "default.heat.any")
    said = rules.sentence(rule, subject=subject, names={"b2": "House in the wood"})
    stored = rules.with_value(said, 41.25, "°C")
    assert stored == "temperature of dev-1 in House in the wood above 38 °C for 5 minutes: 41.25 °C"
    assert (
        german(stored)
        == "Temperatur von dev-1 in House in the wood über 38 °C, für 5 Minuten: 41,25 °C"
    )


@pytest.mark.parametrize(
    ("stored", "english", "german_text"),
    [
        (
            "temperature of d-1 in Barn 1 on Hill Farm above 38 °C: 41.25 °C at 2026-11-18 18:30Z",
            "temperature of d-1 in Barn 1 on Hill Farm above 38 °C: 41.25 °C at 19 Nov 2026 01:30",
            "Temperatur von d-1 in Barn 1, Hill Farm über 38 °C: 41,25 °C, 19. Nov. 2026 01:30",
        ),
        (
            "no CO2 reading in barn 1 on Hill for 1 hour: the last was 9 l at 2026-11-18 18:30Z",
            "no CO2 reading in barn 1 on Hill for 1 hour: the last was 9 l at 19 Nov 2026 01:30",
            "kein Messwert (CO2) in Stall 1, Hill, für 1 Stunde: zuletzt 9 l, 19. Nov. 2026 01:30",
        ),
        (
            "mortality of the day in Barn 1 on Hill Farm above 1 %: 2 %",
            "mortality of the day in Barn 1 on Hill Farm above 1 %: 2 %",
            "Verluste des Tages in Barn 1, Hill Farm über 1 %: 2 %",
        ),
    ],
)
def test_places_are_worded_and_moments_are_those_of_the_site(
    stored: str, english: str, german_text: str
) -> None:
    assert sentences.translated(stored, "Asia/Bangkok") == english
    with i18n.use("de"):
        assert sentences.translated(stored, "Asia/Bangkok") == german_text


def test_a_metric_that_only_the_farm_knows_keeps_its_name() -> None:
    assert german("soil moisture in barn 3 above 3.5: 5") == "soil moisture in Stall 3 über 3,5: 5"


def test_what_to_do_is_german_for_every_rule() -> None:
    texts = {
        advice.advice(source="rule", signal=rule.signal, condition=rule.condition)
        for rule in defaults.DEFAULTS
    } | {advice.advice(source=source, signal=None, condition=None) for source in ("edge", "x")}
    assert [text for text in texts if german(text) == text] == []


@pytest.mark.parametrize(
    ("days", "changes", "said"),
    [
        ([], [], "noch nichts gemessen"),
        ([1, 2], [0.1, 0.1], "2 Messungen mit Wachstum, eine Vorhersage braucht 5"),
        (
            [1, 1.1, 1.2, 1.3, 1.4],
            [0.1, 0.1, 0.1, 0.1, 0.1],
            "0,4 Tage mit Wachstum, eine Vorhersage braucht 2",
        ),
    ],
)
def test_why_a_dish_has_no_forecast_is_german(
    days: list[float], changes: list[float], said: str
) -> None:
    measured = [
        curve.Measurement(day, level, 1.0) for day, level in zip(days, changes, strict=True)
    ]
    with pytest.raises(curve.NotEnoughDataError) as none:
        curve.forecast(measured, 0.5)
    assert german(str(none.value)) == said


def test_why_a_dish_was_not_measured_is_german() -> None:
    problem = change.measure(b"no picture", None).problem or ""
    assert problem.startswith("not readable: ")
    assert german(problem).startswith("nicht lesbar: ")
    assert (
        german("glare: only 35% of the dish is in sight")
        == "Spiegelung: nur 35% der Schale sind zu sehen"
    )


def test_why_there_is_no_forecast_is_german() -> None:
    with pytest.raises(NotEnoughDataError) as none:
        growth.fit([])
    with pytest.raises(NotEnoughDataError) as few:
        growth.fit([DailyMean(1, 0.1, 5)])
    assert german(str(none.value)) == "es gibt noch keine Wiegungen"
    assert german(str(few.value)).startswith("es gibt Wiegungen von 1 Tagen; ")


def test_a_refusal_is_shown_at_its_field_in_german() -> None:
    reason = heads.too_many("mortality", 12, 3)
    with i18n.use("de"):
        errors = fields.errors_of([{"field": "value", "reason": reason}], "")
    assert errors == {"value": "Mehr, als da sind: 3 Tiere der Herde sind an diesem Tag noch da."}


def test_a_rule_of_barn_records_is_german() -> None:
    with pytest.raises(ValueError, match="negative") as wrong:
        barn.RecordContent(record_type="mortality", value=-1)
    assert german(str(wrong.value)) == "der Wert darf nicht negativ sein (mortality)"


def test_english_pages_and_unknown_texts_stay_as_they_are() -> None:
    text = "temperature above 38 °C for 5 minutes"
    assert sentences.translated(text) == text
    assert german("a text of somebody in a barn") == "a text of somebody in a barn"
    hostile = "temperature " + "of in on above for " * 100
    assert german(hostile) == hostile


def as_said(pattern: str) -> str:
    return re.sub(r"%\(\w+\)s", "%s", pattern)


@pytest.mark.parametrize("pattern", elsewhere.OF_SQL)
def test_patterns_of_sql_are_those_of_the_functions(pattern: str) -> None:
    said = as_said(pattern)
    written = [file.read_text() for file in FUNCTIONS.glob("*.sql")]
    # raise exception has a lone % for a value
    assert any(said in text or said.replace("%s", "%") in text for text in written)


def test_patterns_of_floods_are_recognized() -> None:
    pause = flood.Pause(datetime(2026, 11, 18, 10, tzinfo=UTC), 2)
    for held in (None, pause):
        said = flood.describe(flood.Flow(5, 20), held)
        assert german(said).startswith("es sendet mehr als 5 messages je Sekunde")


def test_a_day_of_a_refusal_keeps_its_date() -> None:
    class Event:
        farm_id, barn_id = "f", "b"

    stay = Stay("f", "b", date(2026, 11, 1), None, date(2026, 10, 1))
    reason = stay.problem("B1", Event())  # type: ignore[arg-type]
    assert german(reason or "") == (
        "die Herde 'B1' ist ab 2026-11-01 in diesem Stall, nicht am 2026-10-01"
    )
