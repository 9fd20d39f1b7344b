"""JSON lines on standard error. Of an event only what names it, never a payload.

The allow-list below is what keeps that promise: a field that is not on it is not written.
"""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO, cast

import structlog

_OF_AN_EVENT = {"event_id", "event_type", "trace_id", "session_id", "media_id", "seq"}
_OPERATIONAL = {
    "event", "level", "timestamp", "service", "request_id", "duration_ms", "status", "code",
    "error", "count", "method", "route", "engine", "queue", "batch_id", "attempt", "wait_s",
    "reason", "pid", "port", "exception", "logger", "name", "version", "tenant_id", "limit",
}  # fmt: skip
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
        name: value for name, value in fields.items() if name in ALLOWED or name.startswith("_")
    }
