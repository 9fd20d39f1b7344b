"""The routes of delivery at the edge: the outbox, its dead letters, the quarantine; and acting."""

from dataclasses import dataclass
from typing import Annotated, Any, get_args
from uuid import UUID

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import Field

from farmiq import api
from farmiq.edge import losses
from farmiq.edge.console.delivery import queries
from farmiq.edge.console.delivery import view as delivery
from farmiq.edge.console.delivery.view import DeliveryView
from farmiq.edge.console.pages import Pages, Visit
from farmiq.edge.ingress import handlers, rules
from farmiq.edge.ingress.quarantine import Quarantine
from farmiq.edge.sync import handlers as outbox
from farmiq.plumbing import deadletters
from farmiq.plumbing.http import HttpError
from farmiq.ui import look

MAX_MOVED = 1000
KINDS = get_args(rules.Kind)


class LossesQuery(api.Filter):
    before: UUID | None = None
    company: Annotated[str | None, Field(max_length=200)] = None


class QuarantineQuery(LossesQuery):
    kind: rules.Kind | None = None
    done: Annotated[str, Field(max_length=60)] = ""


@dataclass(frozen=True)
class DeliveryPages:
    pages: Pages
    patience_s: float

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/delivery", self.delivery, "GET"),
            ("/delivery/parts", self.parts, "GET"),
            ("/delivery/dead-letters", self.dead_letters, "GET"),
            ("/delivery/dead-letters/redrive", self.redrive_letters, "POST"),
            ("/delivery/dead-letters/discard", self.discard_letters, "POST"),
            ("/delivery/quarantine", self.quarantine, "GET"),
            ("/delivery/quarantine/redrive", self.redrive, "POST"),
            ("/delivery/quarantine/discard", self.discard, "POST"),
            ("/delivery/quarantine/{quarantine_id}", self.message, "GET"),
            ("/delivery/losses", self.losses, "GET"),
        )

    # --- the outbox

    async def delivery(self, request: Request) -> Response:
        async with self.pages.visit(request, "sync", "quarantine", "losses") as visit:
            if not visit.tenant.reads("sync"):
                _, _, first = delivery.tabs(visit.tenant)[0]
                return RedirectResponse(first, 303, headers=look.HEADERS)
            view = await self._delivery(visit)
        return await self.pages.page("edge_delivery.html", visit.signed_in, view)

    async def parts(self, request: Request) -> Response:
        async with self.pages.visit(request, "sync") as visit:
            view = await self._delivery(visit)
        return await look.fragment(request, "edge_delivery_parts.html", "parts", view)

    async def _delivery(self, visit: Visit) -> DeliveryView:
        backlog = await queries.backlog(visit.connection, visit.tenant.tenant_id)
        return delivery.delivery_view(
            visit.tenant, backlog, now=visit.now, patience_s=self.patience_s
        )

    async def dead_letters(self, request: Request) -> Response:
        async with self.pages.visit(request, "sync") as visit:
            connection, tenant, now, signed_in = visit
            by_reason = await queries.dead_by_reason(connection, tenant.tenant_id)
            view = delivery.dead_letters_view(
                tenant,
                by_reason,
                await queries.dead_letters(connection, tenant.tenant_id),
                total=sum(count for *_, count in by_reason),
                now=now,
                done=delivery.outcome_text(request.query_params.get("done", "")),
            )
        return await self.pages.page("edge_dead_letters.html", signed_in, view)

    async def redrive_letters(self, request: Request) -> Response:
        return await self._move_letters(request, outbox.redrive, "moved")

    async def discard_letters(self, request: Request) -> Response:
        return await self._move_letters(request, outbox.discard, "discarded")

    async def _move_letters(self, request: Request, move: Any, word: str) -> Response:
        async with self.pages.visit(request, "sync", role="admin") as visit:
            form = await self.pages.form(request, visit.signed_in)
            chosen = {"tenant_id": visit.tenant.tenant_id, **_chosen(form, "event_type", "reason")}
            chosen["dlq_reason"] = chosen.pop("reason", None)
            moved = await move(
                visit.connection, chosen, limit=MAX_MOVED, actor=f"key {visit.signed_in.name}"
            )
        address = f"/delivery/dead-letters?done={word}-{len(moved)}"
        return RedirectResponse(address, 303, headers=look.HEADERS)

    # --- the quarantine

    async def quarantine(self, request: Request) -> Response:
        query = api.parse(QuarantineQuery, request)
        async with self.pages.visit(request, "quarantine") as visit:
            connection, tenant, now, signed_in = visit
            only = tenant.only_tenant_id
            view = delivery.quarantine_view(
                tenant,
                await queries.rejected(connection, only, kind=query.kind, before=query.before),
                await queries.rejected_by_reason(connection, only),
                max_rows=queries.MAX_ROWS,
                kind=query.kind,
                now=now,
                done=delivery.outcome_text(query.done),
            )
        return await self.pages.page("edge_quarantine.html", signed_in, view)

    async def message(self, request: Request) -> Response:
        try:
            quarantine_id = UUID(request.path_params["quarantine_id"])
        except ValueError:
            raise _no_message() from None
        async with self.pages.visit(request, "quarantine") as visit:
            row = await queries.rejected_message(
                visit.connection, visit.tenant.only_tenant_id, quarantine_id
            )
            if row is None:
                raise _no_message()
        done = delivery.outcome_text(request.query_params.get("done", ""))
        view = delivery.rejected_view(visit.tenant, row, now=visit.now, done=done)
        return await self.pages.page("edge_rejected.html", visit.signed_in, view)

    async def redrive(self, request: Request) -> Response:
        return await self._move(request, discard=False)

    async def discard(self, request: Request) -> Response:
        return await self._move(request, discard=True)

    async def _move(self, request: Request, *, discard: bool) -> Response:
        """By the very functions of the API and the command; each transaction is its own."""
        async with self.pages.visit(request, "quarantine", role="operator") as visit:
            form = await self.pages.form(request, visit.signed_in)
        chosen = {**_chosen(form, "id", "kind"), "tenant_id": visit.tenant.only_tenant_id}
        if not chosen.keys() & {"id", "kind"}:
            raise HttpError(400, "choose a message or a kind of messages")
        if chosen.get("kind") not in (None, *KINDS):
            raise HttpError(400, f"kind is one of: {', '.join(KINDS)}")
        if given := chosen.pop("id", None):
            try:
                chosen["ids"] = [UUID(given)]
            except ValueError:
                raise _no_message() from None
        name = visit.signed_in.name
        by = Quarantine(handlers.handle, f"key {name}", f"discarded by {name}")
        move = deadletters.discard if discard else deadletters.redrive
        result = await move(self.pages.pool, by, chosen, limit=MAX_MOVED)
        done = delivery.outcome(result.described(), discarded=discard)
        return RedirectResponse(f"/delivery/quarantine?done={done}", 303, headers=look.HEADERS)

    # --- losses

    async def losses(self, request: Request) -> Response:
        query = api.parse(LossesQuery, request)
        async with self.pages.visit(request, "losses") as visit:
            connection, tenant, now, signed_in = visit
            only = tenant.only_tenant_id
            totals = await losses.totals(connection, tenant_id=only)
            rows = await losses.latest(
                connection, before=query.before, limit=queries.MAX_ROWS + 1, tenant_id=only
            )
            view = delivery.losses_view(
                tenant,
                rows,
                total=sum(total["count"] for total in totals),
                max_rows=queries.MAX_ROWS,
                now=now,
            )
        return await self.pages.page("edge_losses.html", signed_in, view)


def _chosen(form: dict[str, str], *names: str) -> dict[str, Any]:
    """What the form names; a NUL can be in no text of the database."""
    return {
        name: value for name in names if (value := form.get(name, "").replace("\0", "").strip())
    }


def _no_message() -> HttpError:
    return HttpError(404, "there is no such message in quarantine")
