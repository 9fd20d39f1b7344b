"""The keyring: which edge signed a token, and for which tenants (C-50).

Keys come from the registry, and from a file of keys if there is one. What the registry says is
cached for two seconds, so a revoked key ends within them.
"""

import re
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from fastapi import Depends, Request
from joserfc.jwk import KeySet

from farmiq import api
from farmiq.cloud.edges import registry
from farmiq.cloud.edges.registry import RegisteredKey
from farmiq.config import CloudSettings
from farmiq.messages.ids import ID_PATTERN
from farmiq.plumbing import db, http, tokens
from farmiq.plumbing.http import HttpError

# How edges authenticate, for the OpenAPI document.
EDGE_TOKEN = Depends(
    api.Documented(
        "edgeToken",
        errors={
            401: "UNAUTHENTICATED: no token, or not a good one; a revoked key's is none.",
            403: "FORBIDDEN: the token claims more than its key is registered for.",
            503: http.ERRORS[503],
        },
    )
)
CACHE_S = 2.0
_MAX_CACHED = 10_000
ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Edge:
    """The signer of a valid token. `registered` is False for a key of the file.

    `admin` is a claim of the edge, for the token of one command: it separates such tokens from
    those of every batch, and gives no right beyond the tenants of the registry. `request_sha256`:
    the token is for this one request. `replaced_by`: the key that replaced this one.
    """

    edge_cluster_id: str
    tenants: frozenset[str]
    key_id: str
    registered: bool
    admin: bool
    request_sha256: str | None = None
    replaced_by: str | None = None

    def signed(self, route: str, body: bytes) -> bool:
        """Whether the token was made for exactly this request."""
        return self.request_sha256 == tokens.request_digest(route, body)


@dataclass
class Keyring:
    settings: CloudSettings
    pool: db.Pool
    _file: KeySet = field(init=False)
    _in_file: frozenset[str | None] = field(init=False)
    _cache: dict[str, tuple[float, list[RegisteredKey]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises TokenError if the file of keys cannot be read."""
        file = self.settings.edge_keys_file
        self._file = tokens.read_keys(file) if file else KeySet([])
        self._in_file = frozenset(key.kid for key in self._file.keys)

    async def identify(self, request: Request) -> Edge:
        """Raises HttpError: 401 for the token, 403 for its claims, 503 if the database is down."""
        token = http.bearer(request)
        if not token:
            raise HttpError(401, "a bearer token is required")
        try:
            edge = await self._identify(token)
        except tokens.TokenError as error:
            raise HttpError(401, str(error)) from None
        http.authenticated(request, edge.key_id)
        return edge

    async def _identify(self, token: str) -> Edge:
        if len(token) > tokens.MAX_BYTES:
            raise tokens.TokenError("token is too long")
        key_id = tokens.key_id(token)
        if key_id is None:
            raise tokens.TokenError("token refused: it does not name its key (kid)")
        if key_id in self._in_file:
            claims = self._verify(token, self._file)
            return _edge(key_id, claims, registered=False)
        known = await self._known(key_id) if tokens.is_thumbprint(key_id) else []
        if not known:
            raise tokens.TokenError("token refused: its key is not registered here")
        claims = self._verify(token, tokens.PublicKey(known[0].public_x).as_set())
        return _as_registered(_edge(key_id, claims, registered=True), known)

    def _verify(self, token: str, keys: KeySet) -> tokens.Claims:
        return tokens.verify(
            token,
            keys,
            issuer=self.settings.token_issuer,
            audience=self.settings.token_audience,
            now=datetime.now(UTC),
        )

    async def _known(self, key_id: str) -> list[RegisteredKey]:
        until, known = self._cache.get(key_id, (0.0, []))
        if time.monotonic() < until:
            return known
        async with self.pool.connection() as connection:
            known = await registry.registrations(connection, key_id)
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[key_id] = time.monotonic() + CACHE_S, known
        return known


def _edge(key_id: str, claims: tokens.Claims, *, registered: bool) -> Edge:
    claimed = claims.values.get("tenants")
    return Edge(
        edge_cluster_id=_name(claims.values.get("edge_cluster_id"), claims.subject),
        tenants=frozenset(t for t in claimed if isinstance(t, str))
        if isinstance(claimed, list)
        else frozenset(),
        key_id=key_id,
        registered=registered,
        admin=claims.values.get("role") == ADMIN,
        request_sha256=claims.values.get("request_sha256"),
    )


def _name(*claims: Any) -> str:
    """The first claim that is a valid name (C-94)."""
    fit = (claim for claim in claims if isinstance(claim, str) and re.match(ID_PATTERN, claim))
    return next(fit, "unknown")


def _as_registered(edge: Edge, known: list[RegisteredKey]) -> Edge:
    """Raises if the token claims more than its key is registered for."""
    good = {key.tenant_id: key.edge_cluster_id for key in known if key.good}
    if not good:
        gone = "was revoked" if any(key.revoked for key in known) else "was replaced by another"
        raise tokens.TokenError(f"token refused: its key {gone}")
    if edge.edge_cluster_id not in good.values():
        raise HttpError(403, f"this key is not registered for edge {edge.edge_cluster_id!r}"[:200])
    others = [t for t in edge.tenants if good.get(t) != edge.edge_cluster_id]
    if others:
        raise HttpError(403, f"this edge is not registered for tenant {min(others)!r}"[:200])
    return replace(edge, replaced_by=known[0].replaced_by)
