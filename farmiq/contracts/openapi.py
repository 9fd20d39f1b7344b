"""OpenAPI 3.1 of a site's HTTP routes: what programs may call; the console's pages are not in it.

The routes read their bodies themselves, so the document is written here; a test holds it against
the routes that exist.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

from farmiq import __version__
from farmiq.cloud.ingestion.batch import MOST_BYTES, MOST_EVENTS
from farmiq.contracts import schemas
from farmiq.edge.sync import api as sync
from farmiq.edge.sync.api import OutboxChoice, OutboxMoved, OutboxPage, SyncStatus
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
    "edge": (
        Health, Readiness, Version, ErrorBody, SyncStatus, OutboxPage, OutboxChoice, OutboxMoved,
    ),
    "cloud": (
        Health, Readiness, Version, ErrorBody, OutboxBatch, BatchAccepted, LatestReadings,
    ),
}  # fmt: skip
WRONG = {
    "400": "VALIDATION_ERROR: not valid; `details` names every bad event. Nothing was stored.",
    "401": "UNAUTHENTICATED: no token, or not a good one.",
    "403": "FORBIDDEN: the token does not speak for a tenant, or the tenant is not known.",
    "413": f"PAYLOAD_TOO_LARGE: more than {MOST_EVENTS} events or {MOST_BYTES} bytes.",
    "415": "UNSUPPORTED_MEDIA_TYPE: send application/json, as it is or compressed with gzip.",
    "503": "UNAVAILABLE: the database or the bus is away; try again after Retry-After.",
}


def document(site: str) -> dict[str, Any]:
    """The document of `edge` or `cloud`."""
    paths = {**_always(), **(_cloud() if site == "cloud" else _edge())}
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
        return {"securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer"}}}
    return {
        "securitySchemes": {
            "edgeToken": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
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


# What any route of the edge may answer instead: access.require and a database that is away.
_EDGE_WRONG = {
    "400": "VALIDATION_ERROR: not valid; `details` says what.",
    "401": "UNAUTHENTICATED: no key, or not a good one (`farmiq key add` makes one).",
    "403": "FORBIDDEN: the key's role does not suffice.",
    "503": "UNAVAILABLE: the edge's database is away; try again after Retry-After.",
}


def _edge() -> dict[str, Any]:
    return {
        sync.STATUS: _edge_get("How delivery to the cloud goes (viewer)", SyncStatus),
        sync.OUTBOX: _edge_get(
            "Events owed or delivered to the cloud, newest id first (viewer)",
            OutboxPage,
            parameters=_query(sync.Listed),
        ),
        sync.REDRIVE: _edge_post("Send events of the dlq again (admin)", OutboxChoice, OutboxMoved),
        sync.UNCLAIM: _edge_post(
            "Free events held beyond their lease (admin)", OutboxChoice, OutboxMoved
        ),
    }


def _edge_get(summary: str, kind: Any, **more: Any) -> dict[str, Any]:
    answers = {"200": _answer("So it is.", kind), **_edge_wrong()}
    return _get(summary, answers, security=[{"apiKey": []}], **more)


def _edge_post(summary: str, asked: Any, kind: Any) -> dict[str, Any]:
    return {
        "post": {
            "summary": summary,
            "security": [{"apiKey": []}],
            "requestBody": {"required": True, "content": _json(asked)},
            "responses": {"200": _answer("Done, or what would be done.", kind), **_edge_wrong()},
        }
    }


def _edge_wrong() -> dict[str, Any]:
    return {status: _answer(why, ErrorBody) for status, why in _EDGE_WRONG.items()}


def _query(kind: Any) -> list[dict[str, Any]]:
    """The fields of a type as parameters of a query."""
    properties = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in properties.items()
    ]


def _cloud() -> dict[str, Any]:
    return {
        "/api/v1/ingestion/batch": {
            "post": {
                "summary": "Ingest edge outbox batch",
                "operationId": "postBatch",
                "security": [{"edgeToken": []}],
                "description": "The body may be sent with Content-Encoding: gzip.",
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
    }


def _get(summary: str, responses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"summary": summary, **more, "responses": responses}}


def _answer(description: str, kind: Any) -> dict[str, Any]:
    return {"description": description, "content": _json(kind)}


def _json(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schemas.ref(kind)}}
