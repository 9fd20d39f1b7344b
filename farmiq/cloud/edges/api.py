"""The routes of edges: enrol, rotate a key, send heartbeats, fetch master data; people list."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import prometheus_client
from fastapi import Depends, Header, Query, Request, Response
from msgspec import Meta
from pydantic import BaseModel, Field

from farmiq import api
from farmiq.api import BodyOf, JsonBody, route
from farmiq.cloud.edges import context, registry
from farmiq.cloud.edges.keyring import EDGE_TOKEN, Keyring
from farmiq.cloud.edges.registry import EdgeHeartbeat, KnownKeyError, NotAllowedError, Registration
from farmiq.cloud.identity import people, sign_in
from farmiq.messages import check
from farmiq.messages.context import EdgeContext
from farmiq.messages.ids import ID_PATTERN
from farmiq.plumbing import db, http, log, tokens
from farmiq.plumbing.http import HttpError

ROOT = "/api/v1/edges"
ENROLL = f"{ROOT}/enroll"
ROTATE = f"{ROOT}/rotate"
HEARTBEAT = f"{ROOT}/heartbeat"
CONTEXT = f"{ROOT}/context"
MAX_FARMS_NAMED = 200
JWKS = "/.well-known/jwks.json"
MAX_BYTES = 16 * 1024
# It names up to 200 farms.
MAX_HEARTBEAT_BYTES = 64 * 1024
NAME = "cloud-edges-registry"

ROTATIONS = prometheus_client.Counter(
    "farmiq_edge_key_rotations_total", "Times that an edge's key was replaced by another"
)

T = TypeVar("T")


class EdgeEnrolment(msgspec.Struct, kw_only=True):
    """A code of `farmiq edge invite`, and the public part of the edge's own Ed25519 key."""

    code: Annotated[str, Meta(min_length=1, max_length=64)]
    public_key: dict[str, Any]


class EdgeRotation(msgspec.Struct, kw_only=True):
    """The next key. The one that signs this request stays good for `overlap_hours` more.

    The token has to be signed for exactly this body (claim `request_sha256`), so a token that was
    read on the way replaces nothing.
    """

    public_key: dict[str, Any]
    overlap_hours: Annotated[float, Meta(ge=0, le=720)] = 24.0


class EdgeRegistered(api.Model):
    """What the edge is from now on; `old_key_until` is said after a rotation."""

    edge_cluster_id: str
    tenants: list[str]
    key_id: str
    issuer: str
    audience: str
    old_key_until: api.At | None = None


_ID = ID_PATTERN.removeprefix("^").removesuffix(r"(?![\s\S])")


class ContextFilter(api.Filter):
    farms: Annotated[
        str | None,
        Field(
            pattern=rf"^{_ID}(,{_ID}){{0,{MAX_FARMS_NAMED - 1}}}$",
            description="Only these farms, with commas between; all of the tenants without it.",
        ),
    ] = None


class EdgeKeyReplaced(api.Model):
    """Said to an edge that still signs with a key of which another has taken the place."""

    key_id: str
    replaced_by: str


class EdgeKey(api.Model):
    """`good` says whether tokens signed with it are accepted now."""

    key_id: str
    enrolled_at: api.At
    valid_until: api.At | None
    revoked_at: api.At | None
    replaced_by: str | None
    good: bool


class LastHeartbeat(api.Model):
    """What an edge last said of itself. `clock_offset_s`: how far its clock is ahead of ours.

    Totals are null from an edge of an older version. `alerts_missing` is by how many open alerts
    the edge and the cloud differ: events of alerts that did not arrive; null while events wait.
    """

    received_at: api.At
    sent_at: api.At
    clock_offset_s: float
    versions: dict[str, str]
    waiting: int
    oldest_s: float
    dlq: int
    disk_percent: float
    open_alerts: int | None
    quarantine: int | None
    dead_letters: int | None
    losses: int | None
    farms: list[str] | None
    alerts_missing: int | None


class EdgeListed(api.Model):
    """An edge as one tenant sees it; it is silent after three minutes without a heartbeat."""

    tenant_id: str
    edge_cluster_id: str
    state: Literal["never heard", "heard", "silent"]
    keys: list[EdgeKey]
    heartbeat: LastHeartbeat | None


class Edges(api.Model):
    edges: list[EdgeListed]


class Jwks(BaseModel):
    """A JWK set (RFC 7517): the keys of enrolled edges that are good now."""

    keys: list[dict[str, str]]


# Edges of any version post here: the content type does not matter, the charset does.
EnrolmentBody = BodyOf(EdgeEnrolment, max_bytes=MAX_BYTES, content_type=None)
RotationBody = BodyOf(EdgeRotation, max_bytes=MAX_BYTES, content_type=None)
HeartbeatBody = BodyOf(EdgeHeartbeat, max_bytes=MAX_HEARTBEAT_BYTES, content_type=None)


@dataclass
class Api(api.Routes):
    pool: db.Pool
    sign_ins: sign_in.SignIns
    keyring: Keyring

    @route(
        "POST",
        ENROLL,
        status_code=201,
        response_model_exclude_unset=True,
        responses={
            403: "FORBIDDEN: nobody made the code, it was used, or it is over.",
            409: "CONFLICT: the key is registered already.",
            503: http.ERRORS[503],
        },
    )
    async def enroll(
        self, body: Annotated[JsonBody[EdgeEnrolment], Depends(EnrolmentBody)]
    ) -> EdgeRegistered:
        """Register an edge's key by a one-time code."""
        wanted = await body.read()
        public = _public(wanted.public_key)
        made = await self._do(lambda tx: registry.enroll(tx, wanted.code, public))
        return self._registered(made)

    @route(
        "POST",
        ROTATE,
        response_model_exclude_unset=True,
        dependencies=[EDGE_TOKEN],
        responses={
            403: "FORBIDDEN: the token was not signed for this very request (claim "
            "`request_sha256`, as `farmiq edge rotate` makes it).",
            409: "CONFLICT: the key is registered, from a file, or replaced already.",
        },
    )
    async def rotate(
        self, request: Request, body: Annotated[JsonBody[EdgeRotation], Depends(RotationBody)]
    ) -> EdgeRegistered:
        """Register the next key of an edge; the old one stays good for a while."""
        edge = await self.keyring.identify(request)
        raw = await body.raw()
        wanted = body.decode(raw)
        if not edge.registered:
            raise HttpError(
                409, "this key stands in a file (FARMIQ_EDGE_KEYS_FILE): enrol the edge instead"
            )
        if not edge.signed(ROTATE, raw):
            raise HttpError(
                403,
                "to rotate takes a token that the current key signed for this very request "
                "(claim request_sha256): use `farmiq edge rotate` of this version",
            )
        public, overlap = _public(wanted.public_key), timedelta(hours=wanted.overlap_hours)
        made = await self._do(lambda tx: registry.rotate(tx, edge.key_id, public, overlap=overlap))
        ROTATIONS.inc()
        log.get(NAME).warning(
            "edges.key_replaced", name=made.edge_cluster_id, reason=f"by {made.key_id}"
        )
        return self._registered(made)

    @route(
        "POST",
        HEARTBEAT,
        EdgeKeyReplaced,
        response_description="Stored; another key has taken this one's place.",
        dependencies=[EDGE_TOKEN],
        responses={204: {"description": "Stored; it replaces the one before."}},
    )
    async def heartbeat(
        self, request: Request, body: Annotated[JsonBody[EdgeHeartbeat], Depends(HeartbeatBody)]
    ) -> Any:
        """Say how an edge is."""
        edge = await self.keyring.identify(request)
        received = await body.read()
        if received.tenant_id not in edge.tenants:
            raise HttpError(403, f"this token does not speak for tenant {received.tenant_id!r}")
        if odd := check.not_in_utc(received.sent_at, "sent_at"):
            raise api.invalid(("body", "; ".join(odd)))
        await self._do(lambda tx: registry.store_heartbeat(tx, edge.edge_cluster_id, received))
        if edge.replaced_by is None:
            return Response(status_code=204)
        # The holder of the old key is informed while it is still valid.
        return EdgeKeyReplaced(key_id=edge.key_id, replaced_by=edge.replaced_by)

    @route(
        "GET",
        CONTEXT,
        dependencies=[
            EDGE_TOKEN,
            Depends(api.ResponseOf(EdgeContext, description="The context, with its ETag.")),
        ],
        responses={304: {"description": "It is as the `If-None-Match` of the request names it."}},
    )
    async def context(
        self,
        request: Request,
        query: Annotated[ContextFilter, Query()],
        if_none_match: Annotated[
            str | None, Header(description="The ETag of the copy that the edge has.")
        ] = None,
    ) -> Response:
        """The master data that concerns an edge: its tenants' farms, barns, batches, standards."""
        edge = await self.keyring.identify(request)
        farms = query.farms.split(",") if query.farms else []
        content = await self._do(lambda tx: context.read(tx, edge.tenants, farms))
        body = msgspec.json.encode(content)
        etag = f'"{hashlib.sha256(body).hexdigest()}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if if_none_match == etag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=http.JSON, headers=headers)

    @people.route("GET", ROOT, Edges)
    async def edges(self, request: Request) -> Any:
        """The edges of the person's company, their keys and how they are."""
        person = await self.sign_ins.require(request)
        async with self.sign_ins.as_person(person) as connection:
            rows = await registry.list_edges(connection)
        return {"edges": rows}

    @route("GET", JWKS, responses={503: http.ERRORS[503]})
    async def jwks(self, response: Response) -> Jwks:
        """The public keys of enrolled edges."""
        response.headers["Cache-Control"] = "max-age=2"
        return Jwks(keys=await self._do(registry.valid_keys))

    async def _do(self, work: Callable[[db.Connection], Awaitable[T]]) -> T:
        try:
            async with db.transaction(self.pool) as tx:
                return await work(tx)
        except NotAllowedError as error:
            raise HttpError(403, str(error)) from None
        except KnownKeyError as error:
            raise HttpError(409, str(error)) from None

    def _registered(self, made: Registration) -> EdgeRegistered:
        until = {"old_key_until": made.old_key_until} if made.old_key_until else {}
        return EdgeRegistered(
            edge_cluster_id=made.edge_cluster_id,
            tenants=list(made.tenants),
            key_id=made.key_id,
            issuer=self.keyring.settings.token_issuer,
            audience=self.keyring.settings.token_audience,
            **until,
        )


def _public(jwk: dict[str, Any]) -> tokens.PublicKey:
    try:
        return tokens.PublicKey.read(jwk)
    except tokens.TokenError as error:
        details = [{"field": "public_key", "reason": str(error)}]
        raise HttpError(400, "the key is not valid", details=details) from None
