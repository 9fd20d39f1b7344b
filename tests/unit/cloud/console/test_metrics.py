import pytest

from farmiq.ui import metrics
from farmiq.ui.metrics import Catalogue, CatalogueEntry


@pytest.mark.parametrize(
    ("metric_type", "value", "label", "text"),
    [
        ("temperature", 26.0, "Temperature", "26.0"),
        ("temperature", 26.24, "Temperature", "26.2"),
        ("humidity", 61.6, "Humidity", "62"),
        ("co2", 1790.4, "CO₂", "1,790"),
        ("silo.weight", 5440.7, "Silo", "5,441"),
        ("litter.moisture", 31.25, "Litter moisture", "31.2"),
        ("litter.moisture", 0.012, "Litter moisture", "0.012"),
        ("litter.moisture", 31.0, "Litter moisture", "31.0"),
    ],
)
def test_metric_has_a_label_and_the_same_decimals_for_every_value(
    metric_type: str, value: float, label: str, text: str
) -> None:
    metric = Catalogue().of(metric_type)
    assert (metric.label, metric.text(value)) == (label, text)


def test_catalogue_of_the_company_comes_first_and_keeps_the_known_span() -> None:
    own = Catalogue([CatalogueEntry("temperature", "Raumtemperatur", 2)]).of("temperature")
    assert (own.label, own.text(26), own.min_span) == ("Raumtemperatur", "26.00", 4)


@pytest.mark.parametrize(
    ("plausible", "lowest", "highest", "unit"),
    [
        ((-30.0, 60.0), -127.0, 20.0, "°C"),
        ((-30.0, 60.0), 20.0, 85.0, "°C"),
        ((None, 60.0), -127.0, 85.0, "°C"),
    ],
)
def test_values_beyond_the_range_of_the_catalogue_are_not_plausible(
    plausible: tuple[float | None, float | None], lowest: float, highest: float, unit: str
) -> None:
    metric = Catalogue([CatalogueEntry("temperature", "Air", 1, "°C", *plausible)])
    assert metric.of("temperature").has_implausible(lowest, highest, unit)


@pytest.mark.parametrize(
    ("plausible", "lowest", "highest", "unit"),
    [
        ((-30.0, 60.0), -30.0, 60.0, "°C"),
        ((None, 60.0), -127.0, 20.0, "°C"),
        ((-30.0, None), 20.0, 85.0, "°C"),
        ((-30.0, 60.0), 70.0, 85.0, "F"),
    ],
)
def test_values_within_the_range_or_in_another_unit_may_be_right(
    plausible: tuple[float | None, float | None], lowest: float, highest: float, unit: str
) -> None:
    metric = Catalogue([CatalogueEntry("temperature", "Air", 1, "°C", *plausible)])
    assert not metric.of("temperature").has_implausible(lowest, highest, unit)


def test_span_of_an_unknown_metric_follows_its_values() -> None:
    unknown = Catalogue().of("litter.moisture")
    assert unknown.span([-40.0, 20.0]) == 2.0
    assert unknown.span([]) == 0.0


@pytest.mark.parametrize(
    ("device_id", "label"),
    [
        ("barn-1-climate", "climate"),
        ("barn-1", "barn-1"),
        ("barn-1-", "barn-1-"),
        ("barn-10-climate", "barn-10-climate"),
        ("climate-1", "climate-1"),
    ],
)
def test_device_goes_by_its_id_without_that_of_its_barn(device_id: str, label: str) -> None:
    assert metrics.device_label(device_id, "barn-1") == label
