"""The routes of edges: enrol by a code, rotate a key, say how one is; people list them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar

import msgspec
import prometheus_client
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from msgspec import Meta

from farmiq.cloud.edges import heartbeat, registry
from farmiq.cloud.edges.heartbeat import EdgeHeartbeat
from farmiq.cloud.edges.keyring import Keyring
from farmiq.cloud.edges.registry import KnownKey, NotAllowed, Registration
from farmiq.cloud.identity import session
from farmiq.cloud.identity.desk import Desk
from farmiq.messages import check
from farmiq.plumbing import db, http, log, tokens
from farmiq.plumbing.http import HttpError

ROOT = "/api/v1/edges"
ENROLL = f"{ROOT}/enroll"
ROTATE = f"{ROOT}/rotate"
HEARTBEAT = f"{ROOT}/heartbeat"
JWKS = "/.well-known/jwks.json"
MOST_BYTES = 16 * 1024
NAME = "cloud-edges-registry"
NO_STORE = {"Cache-Control": "no-store"}

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


class EdgeRegistered(msgspec.Struct, kw_only=True):
    """What the edge is from now on; `old_key_until` is said after a rotation."""

    edge_cluster_id: str
    tenants: list[str]
    key_id: str
    issuer: str
    audience: str
    old_key_until: datetime | msgspec.UnsetType = msgspec.UNSET


class EdgeKeyReplaced(msgspec.Struct, kw_only=True):
    """Said to an edge that still signs with a key of which another has taken the place."""

    key_id: str
    replaced_by: str


@dataclass
class Api:
    pool: db.Pool
    desk: Desk
    keyring: Keyring

    def add_to(self, app: FastAPI) -> None:
        for path, endpoint, method in (
            (ROOT, self.edges, "GET"),
            (ENROLL, self.enroll, "POST"),
            (ROTATE, self.rotate, "POST"),
            (HEARTBEAT, self.heartbeat, "POST"),
            (JWKS, self.jwks, "GET"),
        ):
            app.add_route(path, endpoint, methods=[method])

    async def enroll(self, request: Request) -> Response:
        asked = _decoded(await _read(request), EdgeEnrolment)
        public = _public(asked.public_key)
        return self._registered(
            await self._do(lambda tx: registry.enroll(tx, asked.code, public)), status=201
        )

    async def rotate(self, request: Request) -> Response:
        edge = await self.keyring.identify(request)
        body = await _read(request)
        asked = _decoded(body, EdgeRotation)
        if not edge.registered:
            raise HttpError(
                409, "this key stands in a file (FARMIQ_EDGE_KEYS_FILE): enrol the edge instead"
            )
        if not edge.signed(ROTATE, body):
            raise HttpError(
                403,
                "to rotate takes a token that the current key signed for this very request "
                "(claim request_sha256): use `farmiq edge rotate` of this version",
            )
        public, overlap = _public(asked.public_key), timedelta(hours=asked.overlap_hours)
        made = await self._do(lambda tx: registry.rotate(tx, edge.key_id, public, overlap=overlap))
        ROTATIONS.inc()
        log.get(NAME).warning(
            "edges.key_replaced", name=made.edge_cluster_id, reason=f"by {made.key_id}"
        )
        return self._registered(made)

    async def heartbeat(self, request: Request) -> Response:
        edge = await self.keyring.identify(request)
        said = _decoded(await _read(request), EdgeHeartbeat)
        if said.tenant_id not in edge.tenants:
            raise HttpError(403, f"this token does not speak for tenant {said.tenant_id!r}")
        if odd := check.not_in_utc(said.sent_at, "sent_at"):
            raise _invalid("; ".join(odd))
        await self._do(lambda tx: heartbeat.keep(tx, edge.edge_cluster_id, said))
        if edge.replaced_by is None:
            return Response(status_code=204)
        # Whoever holds the old key hears of it while it is still good.
        told = EdgeKeyReplaced(key_id=edge.key_id, replaced_by=edge.replaced_by)
        return Response(msgspec.json.encode(told), media_type="application/json", headers=NO_STORE)

    async def edges(self, request: Request) -> Response:
        """Those of the person's company, as row level security shows them."""
        try:
            signed_in = await self.desk.signed_in(request)
            if signed_in is None:
                raise HttpError(401, "sign in first")
            async with session.as_person(self.pool, signed_in.token) as connection:
                found = await registry.listed(connection)
        except session.SignedOut:
            raise HttpError(401, "sign in first") from None
        except db.UNAVAILABLE:
            raise _away() from None
        return Response(
            msgspec.json.encode({"edges": found}), media_type="application/json", headers=NO_STORE
        )

    async def jwks(self, _: Request) -> Response:
        keys = await self._do(registry.good_keys)
        return JSONResponse({"keys": keys}, headers={"Cache-Control": "max-age=2"})

    async def _do(self, work: Callable[[db.Connection], Awaitable[T]]) -> T:
        try:
            async with db.transaction(self.pool) as tx:
                return await work(tx)
        except NotAllowed as error:
            raise HttpError(403, str(error)) from None
        except KnownKey as error:
            raise HttpError(409, str(error)) from None
        except db.UNAVAILABLE:
            raise _away() from None

    def _registered(self, made: Registration, *, status: int = 200) -> Response:
        answer = EdgeRegistered(
            edge_cluster_id=made.edge_cluster_id,
            tenants=list(made.tenants),
            key_id=made.key_id,
            issuer=self.keyring.settings.token_issuer,
            audience=self.keyring.settings.token_audience,
            old_key_until=made.old_key_until or msgspec.UNSET,
        )
        return Response(
            msgspec.json.encode(answer), status, headers=NO_STORE, media_type="application/json"
        )


async def _read(request: Request) -> bytes:
    return await http.body(request, what="a request", most=MOST_BYTES, kind=None)


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        found = msgspec.json.decode(body, type=kind)
    except check.REFUSED as error:
        raise _invalid(str(error)) from None
    if unkeepable := check.keepable(body):
        raise _invalid("; ".join(unkeepable))
    return found


def _invalid(why: str) -> HttpError:
    details = [{"field": "body", "reason": why[:500]}]
    return HttpError(400, "the request is not valid", details=details)


def _public(jwk: dict[str, Any]) -> tokens.PublicKey:
    try:
        return tokens.PublicKey.read(jwk)
    except tokens.TokenError as error:
        details = [{"field": "public_key", "reason": str(error)}]
        raise HttpError(400, "the key is not valid", details=details) from None


def _away() -> HttpError:
    return HttpError(503, "the database is away; try again", retry_after_s=5)
