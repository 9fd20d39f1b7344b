"""The catalogue of metrics is whole and current, and no label can grow without bound."""

from pathlib import Path

import prometheus_client
import pytest

from farmiq.contracts import metrics

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "metrics.md"
ENTRIES = metrics.entries()


def test_page_is_what_the_code_has() -> None:
    assert PAGE.read_text(encoding="utf-8") == metrics.document(), "run `make docs`"


def test_every_metric_of_the_process_is_in_the_catalogue() -> None:
    families = {family.name for family in prometheus_client.REGISTRY.collect()}
    ours = {name for name in families if name.startswith(metrics.PREFIX)}
    assert {entry.name.removesuffix("_total") for entry in ENTRIES} == ours
    assert all(entry.meaning for entry in ENTRIES)


def test_label_that_is_not_bounded_is_refused() -> None:
    for label in ("device_id", "event_id", "trace_id", "user"):
        with pytest.raises(metrics.UnboundedLabelError, match=label):
            metrics.check_labels("farmiq_x_total", ("outcome", label))


def test_every_label_that_is_listed_is_used() -> None:
    assert {label for entry in ENTRIES for label in entry.labels} == metrics.LABELS.keys()
