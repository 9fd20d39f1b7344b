"""Who may call the edge's HTTP API, by `Authorization: Bearer …`: a key with a role, or a device.

A viewer reads, an operator also acts (redrive, commands, feed), an admin also changes who may. A
key may be bound to one tenant, and to areas of the API (`/api/v1/{area}/…`).
`farmiq key add` makes a key and prints it once; the database has only its hash. A device's token
comes with its credentials (`farmiq device add`) and lets it upload its own images, nothing else.
"""

from dataclasses import dataclass
from typing import Annotated, Any, LiteralString

from fastapi import Depends, Request

from farmiq.edge import api_keys
from farmiq.edge.api_keys import Role
from farmiq.plumbing import db, http


@dataclass(frozen=True, slots=True)
class Caller:
    """The holder of a key. `tenant_id`: the only tenant that it reaches; None is all of them."""

    name: str
    role: Role
    tenant_id: str | None = None

    def tenant(self, requested: str | None) -> str | None:
        """The tenant to use, None for all. Raises HttpError 403 for another tenant."""
        if self.tenant_id is None:
            return requested
        if requested not in (None, self.tenant_id):
            raise http.HttpError(
                403, f"the key {self.name!r} is of another tenant than {requested!r}"[:300]
            )
        return self.tenant_id

    def reaches(self, tenant_id: str) -> bool:
        return self.tenant_id in (None, tenant_id)


@dataclass(frozen=True, slots=True)
class DeviceCaller:
    """A registered device, where it stands."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None

    @property
    def name(self) -> str:
        return f"{self.tenant_id}/{self.device_id}"


async def require(
    request: Request, pool: db.Pool, role: Role, *, by_tenant: bool = False
) -> Caller:
    """The caller, if allowed. Raises HttpError 401 or 403.

    With `by_tenant` the route shows only the tenant of the caller; other routes reject keys that
    are bound to a tenant. Calls that need more than a viewer are limited in rate: HttpError 429.
    """
    rows = await _authenticate(
        request,
        pool,
        "select name, role, tenant_id, areas from api_keys "
        "where key_sha256 = %s and revoked_at is null",
        missing="send a key: Authorization: Bearer … (farmiq key add makes one)",
    )
    if not rows:
        raise http.HttpError(401, "this key is not known, or was revoked")
    caller, areas = Caller(*rows[0][:3]), rows[0][3]
    area = request.url.path.removeprefix("/api/v1/").partition("/")[0]
    if areas is not None and area not in areas:
        raise http.HttpError(
            403, f"the key {caller.name!r} is for {', '.join(areas) or 'nothing'}, not for {area}"
        )
    if caller.tenant_id is not None and not by_tenant:
        raise http.HttpError(
            403, f"this is about all tenants, and the key {caller.name!r} is bound to one"
        )
    if api_keys.ROLES.index(caller.role) < api_keys.ROLES.index(role):
        raise http.HttpError(
            403, f"the key {caller.name!r} has the role {caller.role}; this needs {role}"
        )
    if role != "viewer":
        http.allow(request, f"the key {caller.name!r}")
    return caller


class KeyWithRole:
    """A dependency: the caller, if their key has this role.

    The handler is a method of an Api that has a `pool`.
    """

    security = "key"

    def __init__(self, role: Role, *, by_tenant: bool = False) -> None:
        self._role, self._by_tenant = role, by_tenant
        self.errors = {
            401: "UNAUTHENTICATED: no key, or one that is not known (farmiq key add).",
            403: "FORBIDDEN: the key's role does not reach.",
            503: "UNAVAILABLE: the edge's database is away; try again after Retry-After.",
        }
        if role != "viewer":
            self.errors[429] = http.ERRORS[429]

    async def __call__(self, request: Request) -> Caller:
        pool = request.scope["endpoint"].__self__.pool
        return await require(request, pool, self._role, by_tenant=self._by_tenant)


# Keys that are bound to a tenant may call these routes, which show only that tenant.
Viewer = Annotated[Caller, Depends(KeyWithRole("viewer", by_tenant=True))]
Operator = Annotated[Caller, Depends(KeyWithRole("operator", by_tenant=True))]
Admin = Annotated[Caller, Depends(KeyWithRole("admin", by_tenant=True))]
# These routes are about all tenants.
ViewerOfAll = Annotated[Caller, Depends(KeyWithRole("viewer"))]
OperatorOfAll = Annotated[Caller, Depends(KeyWithRole("operator"))]


class DeviceToken:
    """A dependency: the device that calls. The handler is a method of an Api with a `pool`."""

    security = "deviceToken"
    errors = {401: http.ERRORS[401], 503: http.ERRORS[503]}  # noqa: RUF012 - nobody writes to it

    async def __call__(self, request: Request) -> DeviceCaller:
        return await require_device(request, request.scope["endpoint"].__self__.pool)


Device = Annotated[DeviceCaller, Depends(DeviceToken())]


async def require_device(request: Request, pool: db.Pool) -> DeviceCaller:
    """The device that calls. Raises HttpError 401.

    The table is read each time: the token of a revoked or rotated device ends at once.
    """
    rows = await _authenticate(
        request,
        pool,
        "select tenant_id, farm_id, barn_id, device_id, station_id from devices "
        "where token_sha256 = %s and revoked_at is null",
        missing="send the device's token: Authorization: Bearer … (farmiq device add | rotate)",
    )
    if not rows:
        raise http.HttpError(
            401, "this token is no device's, or the device was revoked or rotated since"
        )
    return DeviceCaller(*rows[0])


async def _authenticate(
    request: Request, pool: db.Pool, query: LiteralString, *, missing: str
) -> list[tuple[Any, ...]]:
    """The rows of the owner of this bearer token; `query` takes its hash."""
    key = http.bearer(request)
    if not key:
        raise http.HttpError(401, missing)
    async with pool.connection(timeout=5.0) as connection:
        rows = await db.fetch_all(connection, query, api_keys.digest(key))
    if rows:
        http.authenticated(request, api_keys.digest(key).hex())
    return rows
