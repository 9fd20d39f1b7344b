"""OpenAPI 3.1 of a site's HTTP routes: what programs may call; the console's pages are not in it.

The routes read their bodies themselves, so the document is written here; a test holds it against
the routes that exist.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from farmiq import __version__
from farmiq.cloud.deadletter.api import ROOT as DEAD_LETTERS
from farmiq.cloud.deadletter.api import DeadLetterOrder
from farmiq.cloud.ingestion.batch import MOST_BYTES, MOST_EVENTS
from farmiq.contracts import schemas
from farmiq.messages.bus import BusEvent
from farmiq.messages.ids import Id

SITES = ("edge", "cloud")


class OutboxBatch(msgspec.Struct, kw_only=True):
    """Events of one edge. Their payloads are those of the AsyncAPI document."""

    events: list[BusEvent]
    batchId: Id | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815 - the contract's spelling


class BatchAccepted(msgspec.Struct, kw_only=True):
    """`deduped` counts the events that were known before; without any it is absent."""

    accepted: bool
    batchId: str  # noqa: N815 - the contract's spelling
    deduped: int | msgspec.UnsetType = msgspec.UNSET


class ErrorDetail(msgspec.Struct, kw_only=True):
    """One thing that is wrong: an event of a batch by its index, or a field of a request."""

    reason: str
    index: int | msgspec.UnsetType = msgspec.UNSET
    event_id: str | msgspec.UnsetType | None = msgspec.UNSET
    field: str | msgspec.UnsetType = msgspec.UNSET


class Error(msgspec.Struct, kw_only=True):
    code: str
    message: str
    traceId: str  # noqa: N815 - the contract's spelling
    details: list[ErrorDetail] | msgspec.UnsetType = msgspec.UNSET


class ErrorBody(msgspec.Struct, kw_only=True):
    error: Error


class LatestReading(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    metric_value: float | None
    unit: str
    occurred_at: datetime
    stored_at: datetime
    reading_count: int
    age_s: float
    expected_interval_s: float
    state: str


class LatestReadings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    company: str
    timezone: str
    as_of: datetime
    summary: str
    problems: int
    readings: list[LatestReading]


class DeadLetterGroup(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Letters of one queue that died of the same reason, but for what is particular to each."""

    queue: str
    reason: str
    count: int
    oldest: str | None
    newest: str | None
    event_types: list[str]


class DeadLetterGroups(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    groups: list[DeadLetterGroup]


class DeadLetter(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`origin` is the queue whose consumer did not take it; null: no queue wanted it."""

    queue: str
    origin: str | None
    exchange: str
    routing_key: str
    reason: str
    attempts: int
    failed_at: str | None
    event_id: str | None
    event_type: str | None
    tenant_id: str | None
    size_bytes: int


class DeadLetters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    letters: list[DeadLetter]


class Health(msgspec.Struct, kw_only=True):
    status: Literal["ok"]


class Readiness(msgspec.Struct, kw_only=True):
    """`problems` names what does not work, in words."""

    status: Literal["ready", "not ready"]
    problems: dict[str, str]


class Version(msgspec.Struct, kw_only=True):
    name: str
    version: str


TYPES = {
    "edge": (Health, Readiness, Version, ErrorBody),
    "cloud": (
        Health, Readiness, Version, ErrorBody, OutboxBatch, BatchAccepted, LatestReadings,
        DeadLetterGroups, DeadLetters, DeadLetterOrder,
    ),
}  # fmt: skip
WRONG = {
    "400": "VALIDATION_ERROR: not valid; `details` names every bad event. Nothing was stored.",
    "401": "UNAUTHENTICATED: no token, or not a good one.",
    "403": "FORBIDDEN: the token does not speak for a tenant, or the tenant is not known.",
    "413": f"PAYLOAD_TOO_LARGE: more than {MOST_EVENTS} events or {MOST_BYTES} bytes.",
    "415": "UNSUPPORTED_MEDIA_TYPE: send application/json.",
    "503": "UNAVAILABLE: the database or the bus is away; try again after Retry-After.",
}


def document(site: str) -> dict[str, Any]:
    """The document of `edge` or `cloud`."""
    paths = {**_always(), **(_cloud() if site == "cloud" else {})}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"FarmIQ {site}",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This installation."}],
        "paths": paths,
        "components": {"schemas": schemas.components(TYPES[site]), **_security(site)},
    }


def _security(site: str) -> dict[str, Any]:
    if site != "cloud":
        return {}
    return {
        "securitySchemes": {
            "edgeToken": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            "signInToken": {"type": "http", "scheme": "bearer"},
            "signIn": {"type": "apiKey", "in": "cookie", "name": "farmiq_sign_in"},
        }
    }


def _always() -> dict[str, Any]:
    metrics = {"description": "Metrics.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    return {
        "/healthz": _get("The process lives", {"200": _answer("It does.", Health)}),
        "/readyz": _get(
            "Its parts work",
            {"200": _answer("They do.", Readiness), "503": _answer("Not all do.", Readiness)},
        ),
        "/metrics": _get("Metrics for Prometheus", {"200": metrics}),
        "/version": _get("Name and version", {"200": _answer("Both.", Version)}),
    }


def _cloud() -> dict[str, Any]:
    return {
        "/api/v1/ingestion/batch": {
            "post": {
                "summary": "Ingest edge outbox batch",
                "operationId": "postBatch",
                "security": [{"edgeToken": []}],
                "requestBody": {"required": True, "content": _json(OutboxBatch)},
                "responses": {
                    "202": _answer("Accepted: noted, and confirmed by the bus.", BatchAccepted),
                    **{status: _answer(why, ErrorBody) for status, why in WRONG.items()},
                },
            }
        },
        "/api/v1/telemetry/latest": _get(
            "The newest reading of every sensor",
            {
                "200": _answer("The readings of the person's company.", LatestReadings),
                "401": _answer("Nobody is signed in.", ErrorBody),
            },
            security=[{"signIn": []}],
        ),
        **_dead_letters(),
    }


def _dead_letters() -> dict[str, Any]:
    wrong = {
        "400": "VALIDATION_ERROR: no such queue, or not a valid order.",
        "401": "UNAUTHENTICATED: nobody is signed in.",
        "403": "FORBIDDEN: neither an admin of the company nor a super admin.",
        "503": "UNAVAILABLE: the database or the bus is away.",
    }
    moving = wrong | {
        "409": "CONFLICT: letters are being moved already.",
        "413": "PAYLOAD_TOO_LARGE: the order is too long.",
        "415": "UNSUPPORTED_MEDIA_TYPE: send application/json.",
    }
    lines = {
        "description": "A line per letter with its outcome, and a summary as the last line.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
    which = [
        {"name": name, "in": "query", "schema": {"type": "string"}, "required": False}
        for name in ("queue", "reason", "event_type", "event_id")
    ]
    found: dict[str, Any] = {}
    for path, summary, kind in (
        ("", "Dead letters by queue and reason", DeadLetterGroups),
        ("/messages", "The first dead letters that are meant, oldest first", DeadLetters),
    ):
        answers = {status: _answer(why, ErrorBody) for status, why in wrong.items()}
        answers["200"] = _answer("Those the person may see.", kind)
        found[f"{DEAD_LETTERS}{path}"] = _get(summary, answers, security=_PEOPLE, parameters=which)
    for verb, summary in (
        ("redrive", "Send dead letters back to the queues they came from"),
        ("discard", "Take dead letters away for good"),
    ):
        answers = {status: _answer(why, ErrorBody) for status, why in moving.items()}
        found[f"{DEAD_LETTERS}/{verb}"] = {
            "post": {
                "summary": summary,
                "operationId": f"{verb}DeadLetters",
                "security": _PEOPLE,
                "requestBody": {"required": True, "content": _json(DeadLetterOrder)},
                "responses": {"200": lines, **answers},
            }
        }
    return found


_PEOPLE: list[dict[str, list[str]]] = [{"signIn": []}, {"signInToken": []}]


def _get(summary: str, responses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"summary": summary, **more, "responses": responses}}


def _answer(description: str, kind: Any) -> dict[str, Any]:
    return {"description": description, "content": _json(kind)}


def _json(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schemas.ref(kind)}}
