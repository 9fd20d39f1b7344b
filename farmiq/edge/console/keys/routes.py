"""The page of keys of the edge's HTTP API: who has one, what for; one more, and the end of one.

An admin gives no more than they have: a key of one tenant makes keys of this tenant.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from farmiq.edge import api_keys, audit
from farmiq.edge.api_keys import Role
from farmiq.edge.console.pages import Pages, Visit
from farmiq.edge.console.tenant import Tenant
from farmiq.messages.wording import worded
from farmiq.plumbing import db, ids
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words
from farmiq.ui.entry.fields import Errors
from farmiq.ui.i18n import gettext as _

PATH = "/keys"
ROLE: Role = "admin"
NOT_VALID = 422
MAX_NAME = 100
MAX_KEYS = 500


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    role: Role
    tenant_id: str | None
    areas: Sequence[str] | None
    created_at: datetime
    revoked_at: datetime | None
    has_pin: bool
    last_sign_in_at: datetime | None

    @property
    def area_words(self) -> str:
        return ", ".join(self.areas) if self.areas else _("all areas")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysView:
    company: Tenant
    now: datetime
    keys: Sequence[Key]
    values: Mapping[str, str] = field(default_factory=dict)
    errors: Errors = field(default_factory=dict)
    # The name and the text of a new key, this once.
    made: tuple[str, str] | None = None
    page: str = "keys"

    @property
    def title(self) -> str:
        return _("Keys")

    @property
    def good(self) -> int:
        return sum(key.revoked_at is None for key in self.keys)

    @property
    def roles(self) -> list[tuple[str, str]]:
        says = {"viewer": _("reads"), "operator": _("reads and acts"), "admin": _("may do all")}
        return [(role, says[role]) for role in api_keys.ROLES]

    def role_word(self, role: Role) -> str:
        return dict(self.roles)[role]

    @property
    def areas(self) -> Sequence[str]:
        return api_keys.AREAS

    def local(self, at: datetime) -> str:
        return words.local(at, self.company.timezone)

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def error(self, name: str) -> str:
        return self.errors.get(name, "")


@dataclass(frozen=True)
class KeyPages:
    pages: Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            (PATH, self.show, "GET"),
            (PATH, self.add, "POST"),
            (f"{PATH}/revoke", self.revoke, "POST"),
        )

    async def show(self, request: Request) -> Response:
        async with self._visit(request) as visit:
            view = await _view(visit, {"role": "viewer"})
        return await self.pages.page("edge_keys.html", visit.signed_in, view)

    async def add(self, request: Request) -> Response:
        """The key is on this answer only, so it is no redirect."""
        async with self._visit(request) as visit:
            form = await self.pages.form(request, visit.signed_in)
            errors, made = await _added(visit, form)
            view = await _view(visit, form if errors else {}, errors=errors, made=made)
        status = NOT_VALID if errors else 200
        return await self.pages.page("edge_keys.html", visit.signed_in, view, status=status)

    async def revoke(self, request: Request) -> Response:
        async with self._visit(request) as visit:
            form = await self.pages.form(request, visit.signed_in)
            name = form.get("name", "").replace("\0", "")
            if name == visit.signed_in.name:
                raise HttpError(409, worded("this is the key that you are signed in with"))
            cursor = await visit.connection.execute(
                "update api_keys set revoked_at = fn_now() where name = %s and revoked_at is null "
                "and (%s::text is null or tenant_id = %s)",
                (name, visit.signed_in.key_tenant_id, visit.signed_in.key_tenant_id),
            )
            if not cursor.rowcount:
                raise HttpError(404, worded("there is no such key"))
            await audit.note(
                visit.connection, actor=_actor(visit), action="key.revoke", subject=name
            )
        return RedirectResponse(PATH, 303, headers=look.HEADERS)

    @asynccontextmanager
    async def _visit(self, request: Request) -> AsyncIterator[Visit]:
        """For an admin of all areas: a key must not make one that reaches further."""
        async with self.pages.visit(request, *api_keys.AREAS, role=ROLE) as visit:
            if visit.signed_in.areas is not None:
                raise HttpError(403, worded("keys are for admins of all areas"))
            yield visit


async def _added(visit: Visit, form: Mapping[str, str]) -> tuple[Errors, tuple[str, str] | None]:
    name, role = form.get("name", "").strip(), form.get("role", "")
    areas = [area for area in api_keys.AREAS if form.get(f"area.{area}")]
    if not name or len(name) > MAX_NAME or not name.isprintable():
        return {"name": _("A name of 1 to %(count)s letters.") % {"count": MAX_NAME}}, None
    if role not in api_keys.ROLES:
        return {"role": _("Choose one of them.")}, None
    key, tenant_id = api_keys.new_key(), visit.signed_in.key_tenant_id
    if tenant_id is None and form.get("only_tenant"):
        tenant_id = visit.tenant.tenant_id
    cursor = await visit.connection.execute(
        """
        insert into api_keys (api_key_id, name, role, key_sha256, tenant_id, areas, created_at)
        values (%s, %s, %s, %s, %s, %s, fn_now())
        on conflict on constraint api_keys_name_key do nothing
        """,
        (ids.new(), name, role, api_keys.digest(key), tenant_id, areas or None),
    )
    if not cursor.rowcount:
        return {"name": _("There is a key of this name already.")}, None
    await audit.note(
        visit.connection, actor=_actor(visit), action="key.add", subject=name, role=role,
        tenant_id=tenant_id, areas=areas or None,
    )  # fmt: skip
    return {}, (name, key)


def _actor(visit: Visit) -> str:
    return f"key {visit.signed_in.name}"


async def _view(
    visit: Visit,
    values: Mapping[str, str],
    *,
    errors: Errors | None = None,
    made: tuple[str, str] | None = None,
) -> KeysView:
    """Keys that are good before those that are not; of another tenant none."""
    only = visit.signed_in.key_tenant_id
    keys = await db.fetch_as(
        visit.connection,
        Key,
        """
        select k.name, k.role, k.tenant_id, k.areas, k.created_at, k.revoked_at,
          k.pin_bcrypt is not null as has_pin,
          (select max(s.created_at) from console_sign_ins s where s.api_key_id = k.api_key_id)
            as last_sign_in_at
        from api_keys k where %s::text is null or k.tenant_id = %s
        order by k.revoked_at is not null, lower(k.name) limit %s
        """,
        (only, only, MAX_KEYS),
    )
    return KeysView(
        company=visit.tenant,
        now=visit.now,
        keys=keys,
        values=values,
        errors=errors or {},
        made=made,
    )
