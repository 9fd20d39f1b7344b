"""OpenAPI 3.1 of a site's HTTP routes: what programs may call; the console's pages are not in it.

The routes read their bodies themselves, so the document is written here; a test holds it against
the routes that exist.
"""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from farmiq import __version__
from farmiq.cloud.deadletter.api import ROOT as DEAD_LETTERS
from farmiq.cloud.deadletter.api import DeadLetterOrder
from farmiq.cloud.deadletter.rules import QUEUES
from farmiq.contracts import schemas
from farmiq.contracts.generated import generated
from farmiq.edge.ingress.api import MAX_ON_A_PAGE, Chosen, Closing
from farmiq.edge.ingress.rules import KINDS
from farmiq.edge.ingress.rules import Kind as RejectionKind
from farmiq.edge.sync import api as sync
from farmiq.edge.sync.api import OutboxChoice, OutboxMoved, OutboxPage, SyncStatus
from farmiq.plumbing.http import ErrorBody

SITES = ("edge", "cloud")


class QuarantineRow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message that could not be taken. `truncated`: its bytes were cut, it cannot be redriven."""

    quarantine_id: UUID
    topic: str
    kind: RejectionKind
    gist: str
    reasons: list[str]
    raw_size_bytes: int
    truncated: bool
    received_count: int
    first_received_at: datetime
    last_received_at: datetime
    redriven_count: int
    last_redriven_at: datetime | None


class QuarantineCount(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    kind: RejectionKind
    reason: str
    rows: int
    messages: int


class QuarantinePage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`next` is the `before` of the next page; null on the last. Totals are of all messages."""

    rows: list[QuarantineRow]
    next: UUID | None
    counts: list[QuarantineCount]
    total_rows: int
    total_bytes: int


class QuarantinedMessage(QuarantineRow, kw_only=True, forbid_unknown_fields=True):
    raw_base64: str


class QuarantineResult(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What became of the chosen ones; `gone` ones were discarded, or taken by somebody else."""

    chosen: int
    truncated: int
    conflicts: int
    accepted: int
    refused: int
    gone: int
    dry_run: bool


class EdgeAlert(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    alert_id: UUID
    kind: str
    subject: str
    severity: Literal["info", "warning", "security", "critical"]
    message: str
    seen_count: int
    raised_at: datetime
    last_seen_at: datetime
    closed_at: datetime | None
    closed_by: str | None


class EdgeAlerts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    alerts: list[EdgeAlert]
    next: UUID | None


class AlertClosed(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    closed: bool


class Loss(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What was dropped on purpose, by a device or by this edge."""

    loss_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    event_class: str = msgspec.field(name="class")
    count: int
    first_seq: int
    last_seq: int
    reason: str
    occurred_at: datetime
    recorded_at: datetime


class LossTotal(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    tenant_id: str
    event_class: str = msgspec.field(name="class")
    count: int


class Losses(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    losses: list[Loss]
    next: UUID | None
    totals: list[LossTotal]


class SeqGap(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`boot_id` is that of the numbers after the gap."""

    boot_id: str
    first_missing: int
    last_missing: int


class DeviceGaps(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`not_listed` of the missing numbers lie in lower gaps than those that are listed."""

    tenant_id: str
    device_id: str
    highest_seq: int
    missing: int
    missing_since: datetime | None
    not_listed: int
    gaps: list[SeqGap]


class AllGaps(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    devices: list[DeviceGaps]


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
    """`origin` is the queue whose consumer did not take it; null: no queue wanted it.

    `unreadable` names properties of the message that could not be decoded and are left out.
    """

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
    unreadable: str | None


class DeadLetters(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    letters: list[DeadLetter]


TYPES = {
    "edge": (
        QuarantinePage, QuarantinedMessage, Chosen,
        QuarantineResult, EdgeAlerts, Closing, AlertClosed, Losses, AllGaps,
        SyncStatus, OutboxPage, OutboxChoice,
        OutboxMoved,
    ),
    "cloud": (DeadLetterGroups, DeadLetters, DeadLetterOrder),
}  # fmt: skip


def document(site: str) -> dict[str, Any]:
    """The document of `edge` or `cloud`."""
    paths, components = generated(site)
    paths |= _cloud() if site == "cloud" else _edge()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"FarmIQ {site}",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This installation."}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted({**schemas.components(TYPES[site]), **components}.items())),
            **_security(site),
        },
    }


def _security(site: str) -> dict[str, Any]:
    if site != "cloud":
        bearer = {"type": "http", "scheme": "bearer"}
        return {"securitySchemes": {"key": bearer, "deviceToken": bearer}}
    return {
        "securitySchemes": {
            "edgeToken": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
            "signInToken": {"type": "http", "scheme": "bearer"},
            "signIn": {"type": "apiKey", "in": "cookie", "name": "farmiq_sign_in"},
        }
    }


def _cloud() -> dict[str, Any]:
    return {
        **_dead_letters(),
    }


TOO_OFTEN = "TOO_MANY_REQUESTS: the key or person acts too often; wait for Retry-After."
# What every route of the edge may answer besides.
EDGE_WRONG = {
    "400": "VALIDATION_ERROR: not valid; `details` says what.",
    "401": "UNAUTHENTICATED: no key, or one that is not known (farmiq key add).",
    "403": "FORBIDDEN: the key's role does not reach.",
    "503": "UNAVAILABLE: the edge's database is away; try again after Retry-After.",
}


def _edge() -> dict[str, Any]:
    page = (_query("before", "uuid"), _limit(MAX_ON_A_PAGE))
    chosen = (
        _enum("kind", *KINDS),
        *(_query(name) for name in ("reason", "topic")),
        *(_hours(name) for name in ("older_than_hours", "newer_than_hours")),
    )
    quarantine_id = {**_query("quarantine_id", "uuid"), "in": "path", "required": True}
    return {
        "/api/v1/quarantine": _read(
            "Messages that could not be taken, newest first, and how many by reason",
            QuarantinePage,
            *chosen,
            *page,
        ),
        "/api/v1/quarantine/{quarantine_id}": _read(
            "One of them, with its bytes",
            QuarantinedMessage,
            quarantine_id,
            missing="There is none.",
        ),
        "/api/v1/quarantine/redrive": _act("Handle some messages again", Chosen, QuarantineResult),
        "/api/v1/quarantine/discard": _act(
            "Give some up for good, onto the loss ledger", Chosen, QuarantineResult
        ),
        "/api/v1/alerts": _read(
            "What a person should look at, newest first",
            EdgeAlerts,
            _enum("closed", "true", "false"),
            *page,
        ),
        "/api/v1/alerts/close": _act(
            "An alert was dealt with", Closing, AlertClosed, missing="No such alert is open."
        ),
        "/api/v1/losses": _read("What was dropped on purpose, newest first", Losses, *page),
        "/api/v1/devices/gaps": _read("Which numbers of which devices are missing", AllGaps),
        **_edge_sync(),
    }


def _edge_sync() -> dict[str, Any]:
    listed = msgspec.json.schema(sync.Listed)["$defs"]["Listed"]["properties"]
    parameters = ({**_query(name), "schema": schema} for name, schema in listed.items())
    return {
        sync.STATUS: _read("How delivery to the cloud goes", SyncStatus),
        sync.OUTBOX: _read(
            "Events owed or delivered to the cloud, newest id first", OutboxPage, *parameters
        ),
        sync.REDRIVE: _act("Send events of the dlq again (for admins)", OutboxChoice, OutboxMoved),
        sync.RELEASE: _act(
            "Free events held beyond their lease (for admins)", OutboxChoice, OutboxMoved
        ),
    }


def _query(name: str, kind: str = "string") -> dict[str, Any]:
    texts = ("uuid", "date-time")
    schema = {"type": "string", "format": kind} if kind in texts else {"type": kind}
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _limit(maximum: int) -> dict[str, Any]:
    return {**_query("limit"), "schema": {"type": "integer", "minimum": 1, "maximum": maximum}}


def _hours(name: str) -> dict[str, Any]:
    return {**_query(name), "schema": {"type": "number", "minimum": 0}}


def _enum(name: str, *choices: str) -> dict[str, Any]:
    return {**_query(name), "schema": {"type": "string", "enum": [*choices]}}


def _read(summary: str, answer: Any, *parameters: Any, missing: str = "") -> dict[str, Any]:
    """A route that a viewer may call."""
    more = {"security": [{"key": []}], **({"parameters": list(parameters)} if parameters else {})}
    return _get(summary, _edge_answers(answer, missing), **more)


def _act(summary: str, body: Any, answer: Any, *, missing: str = "") -> dict[str, Any]:
    """A route that an operator may call."""
    return {
        "post": {
            "summary": summary,
            "security": [{"key": []}],
            "requestBody": {"required": True, "content": _json(body)},
            "responses": {
                **_edge_answers(answer, missing),
                "413": _answer("PAYLOAD_TOO_LARGE: choose with a filter instead.", ErrorBody),
                "415": _answer("UNSUPPORTED_MEDIA_TYPE: send it in UTF-8.", ErrorBody),
                "429": _answer(TOO_OFTEN, ErrorBody),
            },
        }
    }


def _edge_answers(answer: Any, missing: str) -> dict[str, Any]:
    errors = {**EDGE_WRONG, **({"404": f"NOT_FOUND: {missing}"} if missing else {})}
    return {
        "200": _answer("It is answered.", answer),
        **{status: _answer(why, ErrorBody) for status, why in sorted(errors.items())},
    }


def _dead_letters() -> dict[str, Any]:
    errors = {
        "400": "VALIDATION_ERROR: no such queue, or an order that is not valid or chooses nothing.",
        "401": "UNAUTHENTICATED: nobody is signed in.",
        "403": "FORBIDDEN: neither an admin of the company nor a super admin.",
        "429": TOO_OFTEN,
        "503": "UNAVAILABLE: the database or the bus is away.",
    }
    moving = errors | {
        "409": "CONFLICT: letters are being moved already.",
        "413": "PAYLOAD_TOO_LARGE: the order is too long.",
        "415": "UNSUPPORTED_MEDIA_TYPE: send application/json.",
    }
    lines = {
        "description": "A line per letter with its outcome, and a summary as the last line.",
        "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
    }
    filters = [
        _enum("queue", *QUEUES),
        *(_query(name) for name in ("reason", "event_type", "event_id")),
    ]
    paths: dict[str, Any] = {}
    for path, summary, kind in (
        ("", "Dead letters by queue and reason", DeadLetterGroups),
        ("/messages", "The first dead letters that are meant, oldest first", DeadLetters),
    ):
        answers = {status: _answer(why, ErrorBody) for status, why in errors.items()}
        answers["200"] = _answer("Those the person may see.", kind)
        paths[f"{DEAD_LETTERS}{path}"] = _get(
            summary, answers, security=_PEOPLE, parameters=filters
        )
    for verb, summary in (
        ("redrive", "Send dead letters back to the queues they came from"),
        ("discard", "Take dead letters away for good"),
    ):
        answers = {status: _answer(why, ErrorBody) for status, why in moving.items()}
        paths[f"{DEAD_LETTERS}/{verb}"] = {
            "post": {
                "summary": summary,
                "operationId": f"{verb}DeadLetters",
                "security": _PEOPLE,
                "requestBody": {"required": True, "content": _json(DeadLetterOrder)},
                "responses": {"200": lines, **answers},
            }
        }
    return paths


_PEOPLE: list[dict[str, list[str]]] = [{"signIn": []}, {"signInToken": []}]


def _get(summary: str, responses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"summary": summary, **more, "responses": responses}}


def _answer(description: str, kind: Any) -> dict[str, Any]:
    return {"description": description, "content": _json(kind)}


def _json(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schemas.ref(kind)}}
