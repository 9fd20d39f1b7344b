"""The HTTP side of what people enter in the cloud, barn records and feed; and its service."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field

from farmiq import api
from farmiq.api import Handler, Id, JsonBody
from farmiq.cloud import posting
from farmiq.cloud.bus import TOPOLOGY
from farmiq.cloud.identity import people, sign_in
from farmiq.cloud.identity.people import PeopleRoutes, Visit
from farmiq.cloud.sink import Sink
from farmiq.config import CloudSettings
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, http
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.runtime import schedule

MAX_ROWS = 1000
MAX_BYTES = 16 * 1024

ROLE = "operator"
ERRORS = {
    **people.FORBIDDEN,
    404: "NOT_FOUND: the company has no such barn, batch, lot, record or event.",
    409: "CONFLICT: the Idempotency-Key was used for something else, or what is to be replaced is "
    "replaced already.",
}


class EntryFilter(api.SpanFilter):
    """Which entries, newest first."""

    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None
    barn: Annotated[Id | None, Field(description="Only this barn's.")] = None
    counted: Annotated[bool, Field(description="Only what nothing else replaces.")] = False
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    format: Annotated[api.TableFormat, Field(description="json, csv or parquet.")] = "json"
    company: people.Company = None


OfBatch = Annotated[
    Id | None, Field(description="Only this batch's: its own, or in its barn on that day.")
]


def post_route(path: str, model: Any, operation_id: str) -> Callable[[Handler], Handler]:
    """A route by which people enter something."""
    return people.route(
        "POST", path, model, operation_id=operation_id, status_code=201, responses=ERRORS
    )


def list_route(path: str, model: Any, operation_id: str) -> Callable[[Handler], Handler]:
    """A route that lists entries, newest first."""
    responses = {200: api.TABLES, **people.NO_COMPANY}
    return people.route("GET", path, model, operation_id=operation_id, responses=responses)


class EntryApi(PeopleRoutes):
    """An API of what people enter."""

    async def post(self, visit: Visit, body: JsonBody[Any], key: str) -> BusEvent:
        """What a POST does: the event of the body, stored and committed. Raises HttpError."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=ROLE) as caller:
            content = body.decode(raw)
            return await posting.accept(
                await caller.become_service(),
                content,
                raw,
                tenant_id=caller.tenant_id,
                by=caller.email,
                key=key,
                trace_id=http.trace_id(visit.request),
            )


Make = Callable[[sign_in.SignIns], EntryApi]


async def run(settings: CloudSettings, server: http.HttpServer, of: Sink, make: Make) -> None:
    """The service of a sink whose events people post too: consume, serve, publish."""
    url = settings.db_url.get_secret_value()
    name = of.work.service
    async with (
        db.pool(url, name=f"{name}-api", min_size=0, timeout_s=3.0) as pool,
        amqp.publisher(
            settings.amqp_url.get_secret_value(), name=name, topology=TOPOLOGY, tls=settings.tls
        ) as publisher,
        asyncio.TaskGroup() as group,
    ):
        sign_ins = sign_in.SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
        make(sign_ins).add_to(server.app)
        group.create_task(of.run(settings, server))
        job = posting.publish_job(pool, publisher, *of.work.event_types)
        group.create_task(schedule.run_repeatedly(job))
