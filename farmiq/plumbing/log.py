"""JSON lines on standard error. Of an event only what names it, never a payload.

The allow-list below is what keeps that promise: a field that is not on it is not written.
"""

import contextlib
import logging
import sys
from collections import defaultdict
from collections.abc import Iterable, MutableMapping
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
        processors=[*shared, structlog.processors.JSONRenderer()],
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
        name: value for name, value in fields.items() if name in ALLOWED or name.startswith("_")
    }
