"""What the pages of all areas share: who is signed in, the tenant, live updates, files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from farmiq.edge.api_keys import Role
from farmiq.edge.console import nav
from farmiq.edge.console.sign_ins import SignIn, SignIns
from farmiq.edge.console.tenant import SelectableTenant, Tenant
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.ui import forms, live, look

MAX_TENANTS = 200


class Visit(NamedTuple):
    """A request of somebody who is signed in: a transaction, the tenant, the database's clock."""

    connection: db.Connection
    tenant: Tenant
    now: datetime
    signed_in: SignIn


@dataclass(frozen=True)
class Pages:
    """`timezone` is the edge's own, for tenants whose farms have none or several."""

    pool: db.Pool
    sign_ins: SignIns
    hub: live.Hub
    timezone: str

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/live", self.live, "GET"),
        )
        look.add_files(app)
        app.state.unknown = look.not_found(app.router.not_found)

    async def live(self, request: Request) -> Response:
        signed_in = await self.sign_ins.require(request)
        if self.hub.is_full(signed_in.token_hash):
            raise HttpError(429, "too many live pages are open: close some", retry_after_s=10)
        about = request.query_params.get("about", live.ANY)
        if about not in (*live.TOPICS, live.ANY):
            raise HttpError(400, f"about is one of: {', '.join((*live.TOPICS, live.ANY))}")
        source = live.stream(
            self.hub,
            about=about,
            company_id="",
            sign_in=signed_in.token_hash,
            lasts_s=signed_in.remaining_s,
            signed_in=partial(self.sign_ins.signed_in, request),
        )
        headers = {**look.HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(source, media_type="text/event-stream", headers=headers)

    @asynccontextmanager
    async def visit(
        self, request: Request, *areas: str, role: Role = "viewer"
    ) -> AsyncIterator[Visit]:
        """For a key with this role that is for one of these areas; without areas for every key.

        Raises HttpError 401, 403, 404 for a tenant that the key does not reach, or 429.
        """
        signed_in = await self.sign_ins.require(request)
        self.require(request, signed_in, *areas, role=role)
        async with db.transaction(self.pool) as connection:
            tenant = await self._tenant(connection, request, signed_in)
            at: datetime = await db.fetch_value(connection, "select fn_now()")
            yield Visit(connection, tenant, at.astimezone(UTC), signed_in)

    def require(self, request: Request, signed_in: SignIn, *areas: str, role: Role) -> None:
        """Raises HttpError 403, or 429 if the key acts too often."""
        if areas:
            reachable = next((area for area in areas if signed_in.reads(area)), areas[0])
            signed_in.require(request, reachable, role)

    async def _tenant(
        self, connection: db.Connection, request: Request, signed_in: SignIn
    ) -> Tenant:
        """The tenant of the address, else the chosen one, else the first."""
        given = request.query_params.get("company")
        only = signed_in.key_tenant_id
        if given and only not in (None, given):
            raise HttpError(404, "there is no such tenant")
        tenant_id = given or only or signed_in.chosen_tenant_id
        known = [] if only else await tenants(connection)
        if only is None and tenant_id not in known:
            if given:
                raise HttpError(404, "there is no such tenant")
            tenant_id = known[0] if known else ""
        name, timezone = await _described(connection, tenant_id or "")
        return Tenant(
            tenant_id=tenant_id or "",
            name=name,
            timezone=timezone or self.timezone,
            email=signed_in.name,
            role=signed_in.role,
            areas=signed_in.areas,
            only_tenant_id=only,
        )

    async def page(
        self, template: str, signed_in: SignIn, view: Any, *, status: int = 200, **more: Any
    ) -> Response:
        """A whole page; a key of all tenants can switch to another one on it."""
        choices: list[SelectableTenant] = []
        if signed_in.key_tenant_id is None:
            async with db.transaction(self.pool) as connection:
                known = await tenants(connection)
            if len(known) > 1:
                choices = [
                    SelectableTenant(company_id=tenant_id, name=tenant_id) for tenant_id in known
                ]
        return await asyncio.to_thread(
            look.page, template, status=status, view=view, csrf=signed_in.csrf_token,
            choices=choices, nav=nav.entries(view.company),
            forms=nav.offline_forms(view.company), **more,
        )  # fmt: skip

    async def form(self, request: Request, signed_in: SignIn) -> dict[str, str]:
        """The fields of a form that a page of this sign-in sent."""
        form = await forms.read(request)
        if not forms.came_from_us(form, signed_in.csrf_token):
            raise HttpError(403, "this form is not of your sign-in: load the page again")
        return form


async def tenants(connection: db.Connection) -> list[str]:
    """The tenants that this edge works for, by name."""
    rows = await db.fetch_all(
        connection,
        """
        select tenant_id from devices union select tenant_id from farms
        union select tenant_id from cloud_farms union select tenant_id from cloud_tenants
        order by 1 limit %s
        """,
        MAX_TENANTS,
    )
    return [tenant_id for (tenant_id,) in rows]


async def _described(connection: db.Connection, tenant_id: str) -> tuple[str, str | None]:
    """The farm's name if there is one farm, else the tenant's id; the zone if all have the same."""
    rows = await db.fetch_all(
        connection,
        """
        select (select case when count(*) = 1 then min(name) end from cloud_farms
            where tenant_id = %s),
          (select case when count(distinct timezone) = 1 then min(timezone) end from farm_zones
            where tenant_id = %s)
        """,
        tenant_id,
        tenant_id,
    )
    name, timezone = rows[0]
    return name or tenant_id, timezone
