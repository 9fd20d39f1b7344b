"""JSON lines on standard error. Of an event only what names it, never a payload.

The allow-list below is what keeps that promise: a field that is not on it is not written.
Of one kind of warning or error only so many lines a minute are written, so nobody can fill the
disk by being refused; what is left out is counted, and log.left_out says how many.
"""

import atexit
import logging
import sys
import threading
from collections.abc import MutableMapping
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
    """Whatever it is now: it may have been replaced, and closed, since logging was configured."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def get(service: str) -> Logger:
    logger: Logger = structlog.get_logger().bind(service=service)
    return logger


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


def _tell_left_out(now: float) -> None:
    for kind, count in _limit.left_out(now=now).items():
        get(_ABOUT_THE_LOG).warning("log.left_out", name=kind, count=count, limit=MAX_LINES)


atexit.register(_tell_left_out, float("inf"))


def _drop_beyond_limit(
    _logger: Any, method: str, fields: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    now, service = monotonic(), fields.get("service")
    _tell_left_out(now)
    limited = method in _LIMITED and service != _ABOUT_THE_LOG
    if limited and not _limit.take(f"{service} {fields.get('event')}", now=now):
        raise structlog.DropEvent
    return fields


def _is_within_limit(record: logging.LogRecord) -> bool:
    now = monotonic()
    _tell_left_out(now)
    return _limit.take(f"{record.name} {record.filename}:{record.lineno}", now=now)
