"""The keyring: which edge signed a token, and for whom it speaks (C-50).

Keys come from the registry, and from a file of keys for those who keep one. What the registry says
is believed for two seconds, so a revoked key ends within them.
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
from farmiq.cloud.edges.registry import Known
from farmiq.config import CloudSettings
from farmiq.messages.ids import ID_PATTERN
from farmiq.plumbing import db, http, tokens
from farmiq.plumbing.http import HttpError

# How edges call routes, for the document.
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
BELIEVED_S = 2.0
_MAX_KEPT = 10_000
ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Edge:
    """Who signed a good token. `registered` is False for a key of the file.

    `admin` is the edge's own word, meant for one command: it tells such tokens from those that
    travel all day, and gives nobody more than the tenants of the registry. `request_sha256` is the
    one request that the token was made for, `replaced_by` the key that has taken this one's place.
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
    _kept: dict[str, tuple[float, list[Known]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises TokenError if the file of keys cannot be read."""
        file = self.settings.edge_keys_file
        self._file = tokens.read_keys(file) if file else KeySet([])
        self._in_file = frozenset(key.kid for key in self._file.keys)

    async def identify(self, request: Request) -> Edge:
        """Raises HttpError: 401 for the token, 403 for what it claims, 503 if nobody can tell."""
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

    async def _known(self, key_id: str) -> list[Known]:
        until, known = self._kept.get(key_id, (0.0, []))
        if time.monotonic() < until:
            return known
        try:
            async with self.pool.connection() as connection:
                known = await registry.known(connection, key_id)
        except db.UNAVAILABLE:
            raise HttpError(503, "the database is away; try again", retry_after_s=5) from None
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        self._kept[key_id] = time.monotonic() + BELIEVED_S, known
        return known


def _edge(key_id: str, claims: tokens.Claims, *, registered: bool) -> Edge:
    said = claims.values.get("tenants")
    return Edge(
        edge_cluster_id=_name(claims.values.get("edge_cluster_id"), claims.subject),
        tenants=frozenset(t for t in said if isinstance(t, str))
        if isinstance(said, list)
        else frozenset(),
        key_id=key_id,
        registered=registered,
        admin=claims.values.get("role") == ADMIN,
        request_sha256=claims.values.get("request_sha256"),
    )


def _name(*said: Any) -> str:
    """The claim of that name, else the subject, if it can be a name at all (C-94)."""
    fit = (each for each in said if isinstance(each, str) and re.match(ID_PATTERN, each))
    return next(fit, "unknown")


def _as_registered(edge: Edge, known: list[Known]) -> Edge:
    """Raises if the registration does not say what the token claims."""
    good = {each.tenant_id: each.edge_cluster_id for each in known if each.good}
    if not good:
        gone = "was revoked" if any(each.revoked for each in known) else "was replaced by another"
        raise tokens.TokenError(f"token refused: its key {gone}")
    if edge.edge_cluster_id not in good.values():
        raise HttpError(403, f"this key is not registered for edge {edge.edge_cluster_id!r}"[:200])
    foreign = [t for t in edge.tenants if good.get(t) != edge.edge_cluster_id]
    if foreign:
        raise HttpError(403, f"this edge is not registered for tenant {min(foreign)!r}"[:200])
    return replace(edge, replaced_by=known[0].replaced_by)
