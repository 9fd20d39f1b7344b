"""Logs: every line is JSON, and of an event nothing but id, type and trace."""

import contextlib
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from farmiq.plumbing import log

Lines = Callable[[], list[dict[str, Any]]]
SECRET = "4711 kg of pork"


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Logging is set up into memory, and put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    written = io.StringIO()
    log.configure("debug", stream=written)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level


def test_log_line_has_service_time_event_and_level(lines: Lines) -> None:
    log.get("edge-ingress-gateway").warning("ingress.slow", duration_ms=12.5)

    (line,) = lines()
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "service": "edge-ingress-gateway",
        "event": "ingress.slow",
        "level": "warning",
        "duration_ms": 12.5,
    }


def test_log_of_an_event_has_only_id_type_and_trace(lines: Lines) -> None:
    log.get("x").info(
        "accepted",
        event_id="e-1",
        event_type="telemetry.ingested",
        trace_id="trace-1",
        payload={"weight": SECRET},
        metric_value=SECRET,
        raw=SECRET,
        topic=SECRET,
        device_id=SECRET,
        email=SECRET,
    )

    (line,) = lines()
    assert set(line) == {
        "service", "event", "level", "timestamp", "event_id", "event_type", "trace_id",
    }  # fmt: skip
    assert SECRET not in json.dumps(line)


@pytest.mark.parametrize("name", ["payload", "payload_json", "body", "value", "unit", "reading"])
def test_allowed_log_fields_name_no_content(name: str) -> None:
    assert name not in log.ALLOWED


def test_bound_log_fields_are_limited_to_the_allowed_list(lines: Lines) -> None:
    with structlog.contextvars.bound_contextvars(trace_id="trace-1", payload=SECRET):
        log.get("x").bind(reading=SECRET).info("bound")

    (line,) = lines()
    assert line["trace_id"] == "trace-1"
    assert SECRET not in json.dumps(line)


def test_libraries_come_out_as_the_same_json(lines: Lines) -> None:
    logging.getLogger("some.library").warning(
        "could not %s", "connect\nat all", extra={"payload": SECRET}
    )

    (line,) = lines()
    assert (line["event"], line["level"]) == ("could not connect\nat all", "warning")
    assert line["timestamp"].endswith("Z")
    assert SECRET not in json.dumps(line)


def test_info_lines_of_libraries_are_left_out(lines: Lines) -> None:
    logging.getLogger("some.library").info("connected")

    assert lines() == []


@pytest.mark.parametrize("through", ["ours", "library"])
def test_an_exception_is_one_line_with_its_trace(lines: Lines, through: str) -> None:
    try:
        int("first\nsecond")
    except ValueError as error:
        if through == "ours":
            log.get("x").error("failed", exc_info=error)
        else:
            logging.getLogger("some.library").exception("failed")

    (line,) = lines()
    assert line["event"] == "failed"
    assert "ValueError: invalid literal" in line["exception"]
    assert "Traceback" in line["exception"]


def test_values_that_are_not_json_do_not_break_the_line(lines: Lines) -> None:
    log.get("x").info("odd", error=object(), reason="\ud800\x00\n", count={1, 2})

    (line,) = lines()
    assert line["reason"] == "\ud800\x00\n"


def test_log_level_leaves_out_lines_below_it() -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    written = io.StringIO()
    try:
        log.configure("warning", stream=written)
        log.get("x").info("quiet")
        log.get("x").error("loud")
    finally:
        structlog.reset_defaults()
        root.handlers, root.level = handlers, level

    assert [json.loads(line)["event"] for line in written.getvalue().splitlines()] == ["loud"]


@pytest.mark.usefixtures("lines")
def test_standard_error_may_be_replaced_and_closed_meanwhile() -> None:
    """As it is for a command that was called within another program."""
    first, second = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(first):
        log.configure("warning")
        kept = log.get("test")
    first.close()
    with contextlib.redirect_stderr(second):
        kept.warning("still.told")
        logging.getLogger("library").warning("too")
    assert [json.loads(line)["event"] for line in second.getvalue().splitlines()] == [
        "still.told",
        "too",
    ]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the limit of lines goes by; tests move it."""
    now = [0.0]
    monkeypatch.setattr(log, "_limit", log.LineLimit())
    monkeypatch.setattr("farmiq.plumbing.log.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize("through", ["ours", "library"])
def test_repeated_warning_beyond_its_limit_is_counted_and_told(
    lines: Lines, clock: list[float], through: str
) -> None:
    def refuse() -> None:
        if through == "ours":
            log.get("http").warning("http.refused")
        else:
            logging.getLogger("some.library").warning("refused %s", clock)

    for _ in range(log.MAX_LINES + 40):
        refuse()
    log.get("http").warning("http.other")
    assert len(lines()) == log.MAX_LINES + 1, "another kind has its own limit"

    clock[0] = log.WINDOW_S
    refuse()
    told, again = lines()[-2:]
    assert (told["event"], told["count"]) == ("log.left_out", 40)
    assert "refuse" in told["name"] or "test_log.py" in told["name"]
    assert again["level"] == "warning"


@pytest.mark.usefixtures("clock")
def test_info_lines_are_not_limited(lines: Lines) -> None:
    for _ in range(log.MAX_LINES + 40):
        log.get("x").info("done")

    assert len(lines()) == log.MAX_LINES + 40


def test_number_of_limited_log_kinds_is_bounded() -> None:
    limit = log.LineLimit(max_lines=1)
    written = [limit.take(f"kind {number}", now=0) for number in range(5_000)]

    assert sum(written) == log._MAX_KINDS + 1
    assert limit.left_out(now=60) == {"other": 3_999}


def test_long_text_of_a_field_is_cut(lines: Lines) -> None:
    log.get("x").warning("odd", error="x" * 1_000_000)

    assert len(lines()[0]["error"]) < 5_000


def test_events_are_told_in_bounded_lines_of_one_type(lines: Lines) -> None:
    handled = [(n, "telemetry.ingested", f"trace-{n}") for n in range(log.MAX_EVENTS_IN_A_LINE + 1)]
    log.events(log.get("x"), "x.stored", [*handled, (7, "feed.lot.received", "t")], batch_id="b")

    first, second, feed = lines()
    assert first["count"] == len(first["event_id"]) == log.MAX_EVENTS_IN_A_LINE
    assert (second["event_id"], second["trace_id"]) == (["64"], ["trace-64"])
    assert (feed["event_type"], feed["event_id"], feed["batch_id"]) == (
        "feed.lot.received", ["7"], "b",
    )  # fmt: skip


def test_no_events_write_no_log_line(lines: Lines) -> None:
    log.events(log.get("x"), "x.stored", [])
    assert lines() == []
