"""The link in a message: a page with one button. Only the button acknowledges.

Mail scanners and chat programs follow links: a GET changes nothing. The token in the address is
signed, names one episode and one contact, and ends after MAX_AGE.
"""

import html
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse

from farmiq.cloud import episodes
from farmiq.cloud.notification import contacts, words
from farmiq.cloud.notification.sending import queries, store
from farmiq.plumbing import db
from farmiq.plumbing.sealing import Sealer, SealError
from farmiq.ui import i18n, look, sentences
from farmiq.ui import words as ui_words
from farmiq.ui.i18n import gettext as _

PATH = "/alerts/ack"
MAX_AGE = timedelta(days=3)
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
}
_PAGE = """<!doctype html>
<html lang="{language}"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>:root{{color-scheme:light dark}}
body{{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:2rem auto;padding:0 1rem}}
button{{font:inherit;padding:.8rem 1.2rem;width:100%}}</style></head>
<body><main><h1>{title}</h1>{paragraphs}{form}</main></body></html>
"""
_FORM = '<form method="post"><button type="submit">{label}</button></form>'


class _Ticket(msgspec.Struct, frozen=True, array_like=True):
    tenant_id: str
    episode_id: UUID
    contact_id: str
    expires_at: int


def link(
    sealer: Sealer, public_url: str, *, tenant_id: str, episode_id: UUID, contact_id: str,
    created_at: datetime,
) -> str:  # fmt: skip
    """The address for one contact; a message that is sent again has the same one."""
    expires_at = int((created_at + MAX_AGE).timestamp())
    ticket = _Ticket(tenant_id, episode_id, contact_id, expires_at)
    return f"{public_url.rstrip('/')}{PATH}/{sealer.token(msgspec.json.encode(ticket))}"


@dataclass
class AckPage:
    pool: db.Pool
    sealer: Sealer | None

    def add_to(self, app: FastAPI) -> None:
        """Pages for people, so not in the document of the API."""
        for method, endpoint in (("GET", self.show), ("POST", self.acknowledge)):
            app.router.add_api_route(
                f"{PATH}/{{token}}", look.with_error_pages(endpoint), methods=[method],
                include_in_schema=False, response_class=HTMLResponse,
            )  # fmt: skip

    async def show(self, request: Request) -> HTMLResponse:
        if (ticket := self._ticket(request.path_params["token"])) is None:
            return _unknown()
        try:
            async with db.transaction(self.pool) as tx:
                if await _holder(tx, ticket) is None:
                    return _unknown()
                view = await queries.ack_view(tx, ticket.tenant_id, ticket.episode_id)
        except db.UNAVAILABLE:
            return _later()
        if view is None:
            return _unknown()
        if view.state == "active":
            label = html.escape(_("I look after it"))
            return _page(_("Alert"), *_about(view), form=_FORM.format(label=label))
        return _page(_state(view), *_about(view))

    async def acknowledge(self, request: Request) -> HTMLResponse:
        if (ticket := self._ticket(request.path_params["token"])) is None:
            return _unknown()
        try:
            async with db.transaction(self.pool) as tx:
                if (by := await _holder(tx, ticket)) is None:
                    return _unknown()
                await episodes.acknowledge(tx, ticket.tenant_id, ticket.episode_id, by=by)
                view = await queries.ack_view(tx, ticket.tenant_id, ticket.episode_id)
        except db.UNAVAILABLE:
            return _later()
        return _unknown() if view is None else _page(_state(view), *_about(view))

    def _ticket(self, token: str) -> _Ticket | None:
        """What a valid token says; an invalid one costs no query."""
        if self.sealer is None:
            return None
        try:
            return msgspec.json.decode(self.sealer.content(token), type=_Ticket)
        except (SealError, msgspec.MsgspecError):
            return None


async def _holder(tx: db.Connection, ticket: _Ticket) -> str | None:
    """Whose link it is; None if it is too old, or if they left since the message was sent."""
    if (await store.now(tx)).timestamp() >= ticket.expires_at:
        return None
    contact = await contacts.find_contact(tx, ticket.tenant_id, ticket.contact_id)
    if contact is None or not contact["enabled"]:
        return None
    return contacts.label(contact["name"], contact["contact_id"])


def _state(view: queries.AckView) -> str:
    if view.state == "acknowledged":
        return words.acknowledged_by(view.acknowledged_by)
    return _("It is over already")


def _about(view: queries.AckView) -> tuple[str, ...]:
    where = ", ".join(filter(None, (view.barn, view.farm)))
    since = _("Since") + " " + words.local(view.opened_at, ZoneInfo(view.timezone))
    what = (
        f"{ui_words.severity(view.severity)}: {sentences.translated(view.message, view.timezone)}"
    )
    return tuple(filter(None, (what, where, since)))


def _page(title: str, *paragraphs: str, form: str = "", status: int = 200) -> HTMLResponse:
    text = _PAGE.format(
        language=i18n.language(),
        title=html.escape(title),
        paragraphs="".join(f"<p>{html.escape(text)}</p>" for text in paragraphs),
        form=form,
    )
    return HTMLResponse(text, status_code=status, headers=_HEADERS)


def _unknown() -> HTMLResponse:
    """The same for every token that is not good: nobody learns which part was."""
    reason = _("The link is not valid, or older than three days. Acknowledge in FarmIQ instead.")
    return _page(_("This link does not work"), reason, status=404)


def _later() -> HTMLResponse:
    return _page(_("Try again in a moment"), _("The database is away."), status=503)
