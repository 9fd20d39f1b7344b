"""JSON lines on standard error. Of an event only what names it, never a payload.

The allow-list below is what keeps that promise: a field that is not on it is not written.
Of one kind of warning or error only so many lines a minute are written, so nobody can fill the
disk by being refused; what is left out is counted, and log.left_out says how many.
"""

import atexit
import contextlib
import logging
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TextIO, cast

import structlog

_OF_AN_EVENT = {"event_id", "event_type", "trace_id", "session_id", "media_id", "seq"}
_OPERATIONAL = {
    "event", "level", "timestamp", "service", "request_id", "duration_ms", "status", "code",
    "error", "count", "method", "route", "engine", "queue", "batch_id", "attempt", "wait_s",
    "reason", "pid", "port", "exception", "logger", "name", "version", "tenant_id", "limit",
}  # fmt: skip
# Journals and containers split lines of 16 KiB and more; a trace_id has up to 128 characters.
MAX_EVENTS_IN_A_LINE = 64
ALLOWED = _OF_AN_EVENT | _OPERATIONAL

MAX_LINES = 60
WINDOW_S = 60.0
_MAX_KINDS = 1_000
_MAX_TEXT = 4_000
_MAX_TRACEBACK = 16_000
_LIMITED = {"warning", "error", "critical", "exception"}
_ABOUT_THE_LOG = "log"

Logger = structlog.typing.FilteringBoundLogger


def configure(level: str = "info", stream: TextIO | None = None) -> None:
    """Call once per process. Libraries that log the ordinary way come out as the same JSON."""
    _limit.clear()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _only_allowed,
    ]
    into = stream or cast(TextIO, _StandardError())
    structlog.configure(
        processors=[_drop_beyond_limit, *shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=into),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(into)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processor=structlog.processors.JSONRenderer(), foreign_pre_chain=shared
        )
    )
    handler.addFilter(_is_within_limit)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


class _StandardError:
    """Whatever it is now: it may have been replaced, and closed, since logging was configured.

    A service works on when nobody reads its log any more.
    """

    def write(self, text: str) -> int:
        with contextlib.suppress(BrokenPipeError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            sys.stderr.flush()


def get(service: str) -> Logger:
    logger: Logger = structlog.get_logger().bind(service=service)
    return logger


def events(
    logger: Logger, what: str, handled: Iterable[tuple[object, str, object]], **fields: object
) -> None:
    """Say which events a hop has handled: (event_id, event_type, trace_id) of each (C-37, RB-13).

    In lines of one type and at most MAX_EVENTS_IN_A_LINE each, because a line per event costs ten
    times as much, and readers of logs cut long lines.
    """
    if not logger.is_enabled_for(logging.INFO):
        return
    by_type: defaultdict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for event_id, event_type, trace_id in handled:
        event_ids, trace_ids = by_type[event_type]
        event_ids.append(str(event_id))
        trace_ids.append(str(trace_id))
    for event_type, (event_ids, trace_ids) in by_type.items():
        for start in range(0, len(event_ids), MAX_EVENTS_IN_A_LINE):
            some = slice(start, start + MAX_EVENTS_IN_A_LINE)
            logger.info(
                what,
                event_type=event_type,
                count=len(event_ids[some]),
                event_id=event_ids[some],
                trace_id=trace_ids[some],
                **fields,
            )


def _only_allowed(
    _logger: Any, _method: str, fields: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    return {
        name: _cut(name, value)
        for name, value in fields.items()
        if name in ALLOWED or name.startswith("_")
    }


def _cut(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name == "exception":
        return value[-_MAX_TRACEBACK:]  # the end tells what went wrong
    return value if len(value) <= _MAX_TEXT else f"{value[:_MAX_TEXT]}…"


@dataclass
class LineLimit:
    """How many lines of each kind were written in its minute. Time comes in as an argument."""

    max_lines: int = MAX_LINES
    window_s: float = WINDOW_S
    # By kind: when its minute began, and how many lines came since.
    _lines: dict[str, tuple[float, int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, kind: str, *, now: float) -> bool:
        """Whether one more line of this kind may be written."""
        with self._lock:
            if kind not in self._lines and len(self._lines) >= _MAX_KINDS:
                kind = "other"
            began_at, count = self._lines.get(kind, (now, 0))
            self._lines[kind] = began_at, count + 1
            return count < self.max_lines

    def clear(self) -> None:
        """Begin to count anew, for another stream."""
        with self._lock:
            self._lines.clear()

    def left_out(self, *, now: float) -> dict[str, int]:
        """Forget the minutes that are over; how many lines each of them lacks, if any."""
        with self._lock:
            over = [
                kind
                for kind, (began_at, _) in self._lines.items()
                if now - began_at >= self.window_s
            ]
            counts = {kind: self._lines.pop(kind)[1] - self.max_lines for kind in over}
        return {kind: count for kind, count in counts.items() if count > 0}


_limit = LineLimit()


def _log_left_out(now: float) -> None:
    for kind, count in _limit.left_out(now=now).items():
        get(_ABOUT_THE_LOG).warning("log.left_out", name=kind, count=count, limit=MAX_LINES)


atexit.register(_log_left_out, float("inf"))


def _drop_beyond_limit(
    _logger: Any, method: str, fields: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    now, service = monotonic(), fields.get("service")
    _log_left_out(now)
    limited = method in _LIMITED and service != _ABOUT_THE_LOG
    if limited and not _limit.take(f"{service} {fields.get('event')}", now=now):
        raise structlog.DropEvent
    return fields


def _is_within_limit(record: logging.LogRecord) -> bool:
    now = monotonic()
    _log_left_out(now)
    return _limit.take(f"{record.name} {record.filename}:{record.lineno}", now=now)
