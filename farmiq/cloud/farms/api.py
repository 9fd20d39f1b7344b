"""The routes of master data: farms, barns, batches, feed products, metrics, breed standards.

Reads run as the person, under row level security. A handler reads the body before it opens a
transaction, so a slow sender does not hold one.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Query, Request, Response

from farmiq import api
from farmiq.api import BodyOf, Handler, JsonBody, PathText
from farmiq.cloud.farms import kinds, models, store
from farmiq.cloud.farms.kinds import (
    BARNS,
    BATCHES,
    BREED_STANDARDS,
    FARMS,
    FEED_PRODUCTS,
    METRICS,
    Kind,
)
from farmiq.cloud.identity import people
from farmiq.cloud.identity.people import AVisit, Caller, PeopleRoutes, Visit
from farmiq.plumbing.http import HttpError
from farmiq.roster import RosterError

ROOT = "/api/v1"
MAX_BYTES = 64 * 1024
MAX_CSV_BYTES = 4 * 1024 * 1024
# Roles; each may also do what the ones before it may. Batches are placed and closed by those who
# work in the barns; the rest is a company's plan.
PLANS, CARE = "admin", "operator"

T = TypeVar("T", bound=msgspec.Struct)

WRITING = {
    **people.FORBIDDEN,
    409: "CONFLICT: another batch is in the barn at that time, others refer to the row, or a "
    "treatment's withdrawal days would be lost.",
}


class CsvBody(BodyOf[str]):
    """Documents a body of CSV; `read` gives its text."""

    def __init__(self) -> None:
        super().__init__(
            str, what="a file", max_bytes=MAX_CSV_BYTES, content_type="text/csv",
            message="the file is not valid; nothing was changed",
        )  # fmt: skip

    def decode(self, raw: bytes) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise api.invalid(("body", "is not UTF-8")) from None


Csv = Annotated[JsonBody[str], Depends(CsvBody())]


def _body(kind: type[T]) -> Any:
    return Depends(BodyOf(kind, what="a body", max_bytes=MAX_BYTES))


Farm = Annotated[JsonBody[kinds.FarmValues], _body(kinds.FarmValues)]
Barn = Annotated[JsonBody[kinds.BarnValues], _body(kinds.BarnValues)]
Batch = Annotated[JsonBody[kinds.BatchValues], _body(kinds.BatchValues)]
FeedProduct = Annotated[JsonBody[kinds.FeedProductValues], _body(kinds.FeedProductValues)]
Metric = Annotated[JsonBody[kinds.MetricValues], _body(kinds.MetricValues)]
BreedStandard = Annotated[JsonBody[kinds.BreedStandardValues], _body(kinds.BreedStandardValues)]
Importing = Annotated[models.ImportFilter, Query()]


def _route(
    method: str, path: str, model: Any = None, **options: Any
) -> Callable[[Handler], Handler]:
    """A route for people who are signed in."""
    responses: dict[int, Any] = {404: people.MISSING, **(WRITING if method != "GET" else {})}
    if method == "PUT":
        responses[201] = {"model": model, "description": "Added."}
    return people.route(method, f"{ROOT}/{path}", model, responses=responses, **options)


class Api(PeopleRoutes):
    # --- farms

    @_route("GET", "farms", models.RegisteredFarms)
    async def farms(self, request: Request, query: Annotated[models.FarmFilter, Query()]) -> Any:
        """Farms, in the order of their ids."""
        return await self._ls(request, FARMS, query)

    @_route("GET", "farms/{farm_id}", models.RegisteredFarm)
    async def farm(self, visit: AVisit, farm_id: PathText) -> Any:
        """One farm."""
        return await self._show(visit, FARMS, farm_id)

    @_route("PUT", "farms/{farm_id}", models.RegisteredFarm)
    async def put_farm(
        self, visit: AVisit, response: Response, farm_id: PathText, body: Farm
    ) -> Any:
        """Add or change a farm (admins)."""
        return await self._put(visit, response, FARMS, body, farm_id)

    @_route("DELETE", "farms/{farm_id}", status_code=204)
    async def delete_farm(self, visit: AVisit, farm_id: PathText) -> None:
        """Remove a farm that has no barns (admins)."""
        await self._delete(visit, FARMS, farm_id)

    @_route("POST", "farms/import", models.Imported)
    async def import_farms(self, request: Request, query: Importing, body: Csv) -> Any:
        """Add and change the farms of a CSV file, all or none (admins)."""
        return await self._import(request, FARMS, query, body)

    # --- barns

    @_route("GET", "barns", models.RegisteredBarns)
    async def barns(self, request: Request, query: Annotated[models.BarnFilter, Query()]) -> Any:
        """Barns, in the order of their ids."""
        return await self._ls(request, BARNS, query)

    @_route("GET", "barns/{farm_id}/{barn_id}", models.RegisteredBarn)
    async def barn(self, visit: AVisit, farm_id: PathText, barn_id: PathText) -> Any:
        """One barn."""
        return await self._show(visit, BARNS, farm_id, barn_id)

    @_route("PUT", "barns/{farm_id}/{barn_id}", models.RegisteredBarn)
    async def put_barn(
        self, visit: AVisit, response: Response, farm_id: PathText, barn_id: PathText, body: Barn
    ) -> Any:
        """Add or change a barn (admins)."""
        return await self._put(visit, response, BARNS, body, farm_id, barn_id)

    @_route("DELETE", "barns/{farm_id}/{barn_id}", status_code=204)
    async def delete_barn(self, visit: AVisit, farm_id: PathText, barn_id: PathText) -> None:
        """Remove a barn that has no batches (admins)."""
        await self._delete(visit, BARNS, farm_id, barn_id)

    @_route("POST", "barns/import", models.Imported)
    async def import_barns(self, request: Request, query: Importing, body: Csv) -> Any:
        """Add and change the barns of a CSV file, all or none (admins)."""
        return await self._import(request, BARNS, query, body)

    # --- batches

    @_route("GET", "batches", models.RegisteredBatches)
    async def batches(self, request: Request, query: Annotated[models.BatchFilter, Query()]) -> Any:
        """Batches, in the order of their ids."""
        return await self._ls(request, BATCHES, query)

    @_route("GET", "batches/{batch_id}", models.RegisteredBatch)
    async def batch(self, visit: AVisit, batch_id: PathText) -> Any:
        """One batch."""
        return await self._show(visit, BATCHES, batch_id)

    @_route("PUT", "batches/{batch_id}", models.RegisteredBatch)
    async def put_batch(
        self, visit: AVisit, response: Response, batch_id: PathText, body: Batch
    ) -> Any:
        """Add or change a batch (operators).

        With `closed_on` it is closed: the last day on which the animals were in the barn. 409 if
        another batch is there then, or if a treatment would be lost that does not name the batch.
        """
        return await self._put(visit, response, BATCHES, body, batch_id)

    @_route("DELETE", "batches/{batch_id}", status_code=204)
    async def delete_batch(self, visit: AVisit, batch_id: PathText) -> None:
        """Remove a batch (operators).

        Not one that must not be sold yet. Events stay; without their batch they are of no figure.
        """
        await self._delete(visit, BATCHES, batch_id)

    @_route("POST", "batches/import", models.Imported)
    async def import_batches(self, request: Request, query: Importing, body: Csv) -> Any:
        """Add and change the batches of a CSV file, all or none (operators)."""
        return await self._import(request, BATCHES, query, body)

    # --- feed products

    @_route("GET", "feed-products", models.RegisteredFeedProducts)
    async def feed_products(
        self, request: Request, query: Annotated[models.FeedProductFilter, Query()]
    ) -> Any:
        """Feed products, in the order of their ids."""
        return await self._ls(request, FEED_PRODUCTS, query)

    @_route("GET", "feed-products/{feed_product_id}", models.RegisteredFeedProduct)
    async def feed_product(self, visit: AVisit, feed_product_id: PathText) -> Any:
        """One feed product."""
        return await self._show(visit, FEED_PRODUCTS, feed_product_id)

    @_route("PUT", "feed-products/{feed_product_id}", models.RegisteredFeedProduct)
    async def put_feed_product(
        self, visit: AVisit, response: Response, feed_product_id: PathText, body: FeedProduct
    ) -> Any:
        """Add or change a feed product (admins)."""
        return await self._put(visit, response, FEED_PRODUCTS, body, feed_product_id)

    @_route("DELETE", "feed-products/{feed_product_id}", status_code=204)
    async def delete_feed_product(self, visit: AVisit, feed_product_id: PathText) -> None:
        """Remove a feed product (admins)."""
        await self._delete(visit, FEED_PRODUCTS, feed_product_id)

    @_route("POST", "feed-products/import", models.Imported)
    async def import_feed_products(self, request: Request, query: Importing, body: Csv) -> Any:
        """Add and change the feed products of a CSV file, all or none (admins)."""
        return await self._import(request, FEED_PRODUCTS, query, body)

    # --- metrics

    @_route("GET", "metrics", models.RegisteredMetrics)
    async def metrics(
        self, request: Request, query: Annotated[models.MetricFilter, Query()]
    ) -> Any:
        """The metric catalogue, in the order of the names."""
        return await self._ls(request, METRICS, query)

    @_route("GET", "metrics/{metric_type}", models.RegisteredMetric)
    async def metric(self, visit: AVisit, metric_type: PathText) -> Any:
        """One metric."""
        return await self._show(visit, METRICS, metric_type)

    @_route("PUT", "metrics/{metric_type}", models.RegisteredMetric)
    async def put_metric(
        self, visit: AVisit, response: Response, metric_type: PathText, body: Metric
    ) -> Any:
        """Add or change a metric (admins)."""
        return await self._put(visit, response, METRICS, body, metric_type)

    @_route("DELETE", "metrics/{metric_type}", status_code=204)
    async def delete_metric(self, visit: AVisit, metric_type: PathText) -> None:
        """Remove a metric from the catalogue (admins)."""
        await self._delete(visit, METRICS, metric_type)

    @_route("POST", "metrics/import", models.Imported)
    async def import_metrics(self, request: Request, query: Importing, body: Csv) -> Any:
        """Add and change the metrics of a CSV file, all or none (admins)."""
        return await self._import(request, METRICS, query, body)

    # --- breed standards

    @_route("GET", "breed-standards", models.RegisteredBreedStandards)
    async def breed_standards(
        self, request: Request, query: Annotated[models.BreedStandardFilter, Query()]
    ) -> Any:
        """Breed standards, by species, breed, sex and age."""
        return await self._ls(request, BREED_STANDARDS, query)

    @_route(
        "GET",
        "breed-standards/{species}/{breed}/{sex}/{age_days}",
        models.RegisteredBreedStandard,
    )
    async def breed_standard(
        self, visit: AVisit, species: PathText, breed: PathText, sex: PathText, age_days: PathText
    ) -> Any:
        """What a breed is expected to be at an age."""
        return await self._show(visit, BREED_STANDARDS, species, breed, sex, age_days)

    @_route(
        "PUT",
        "breed-standards/{species}/{breed}/{sex}/{age_days}",
        models.RegisteredBreedStandard,
    )
    async def put_breed_standard(  # noqa: PLR0917 - FastAPI calls it by names
        self,
        visit: AVisit,
        response: Response,
        species: PathText,
        breed: PathText,
        sex: PathText,
        age_days: PathText,
        body: BreedStandard,
    ) -> Any:
        """Add or change what a breed is expected to be at an age (admins)."""
        return await self._put(
            visit, response, BREED_STANDARDS, body, species, breed, sex, age_days
        )

    @_route("DELETE", "breed-standards/{species}/{breed}/{sex}/{age_days}", status_code=204)
    async def delete_breed_standard(
        self, visit: AVisit, species: PathText, breed: PathText, sex: PathText, age_days: PathText
    ) -> None:
        """Remove an age of a breed standard (admins)."""
        await self._delete(visit, BREED_STANDARDS, species, breed, sex, age_days)

    @_route("POST", "breed-standards/import", models.Imported)
    async def import_breed_standards(self, request: Request, query: Importing, body: Csv) -> Any:
        """Add and change the breed standards of a CSV file, all or none (admins)."""
        return await self._import(request, BREED_STANDARDS, query, body)

    # --- what all kinds have in common

    async def _ls(self, request: Request, kind: Kind, query: models.KeyFilter) -> Any:
        async with self.people.caller(request, query.company) as caller:
            rows = await store.page(
                caller.connection,
                kind,
                caller.tenant_id,
                filters=query.filters,
                after=query.after,
                limit=query.limit + 1,
            )
        last = rows[query.limit - 1] if len(rows) > query.limit else None
        next_cursor = api.cursor(*(last[name] for name in kind.key)) if last else None
        return {kind.table: rows[: query.limit], "next_cursor": next_cursor}

    async def _show(self, visit: Visit, kind: Kind, *ids: str) -> Any:
        async with self.people.caller(*visit) as caller:
            return await _find(caller, kind, ids)

    async def _put(
        self, visit: Visit, response: Response, kind: Kind, body: JsonBody[T], *ids: str
    ) -> Any:
        raw = await body.raw()
        async with self.people.caller(*visit, least=_least(kind)) as caller:
            row = _row(kind, body.decode(raw), ids)
            is_new = await store.find(caller.connection, kind, caller.tenant_id, _key(kind, row))
            await _saved(caller, kind, row)
            response.status_code = 201 if is_new is None else 200
            return await _find(caller, kind, ids)

    async def _delete(self, visit: Visit, kind: Kind, *ids: str) -> None:
        async with self.people.caller(*visit, least=_least(kind)) as caller:
            key = _path_key(kind, ids)
            service = await caller.become_service()
            try:
                removed = await store.remove(
                    service, kind, caller.tenant_id, key, actor=caller.email
                )
            except store.RejectedError as error:
                raise HttpError(409, str(error)) from None
            if not removed:
                raise HttpError(404, f"there is no such {kind.noun}")

    async def _import(
        self, request: Request, kind: Kind, query: models.ImportFilter, body: JsonBody[str]
    ) -> Any:
        raw = await body.raw()
        async with self.people.caller(request, query.company, least=_least(kind)) as caller:
            text = body.decode(raw)
            service = await caller.become_service()
            try:
                lines, problems = kinds.parse(kind, text)
                changed = await store.import_(
                    service,
                    kind,
                    caller.tenant_id,
                    lines,
                    problems=problems,
                    actor=caller.email,
                    dry_run=query.dry_run,
                )
            except RosterError as error:
                details = [
                    {
                        "field": f"line {problem.line} {problem.field}".strip(),
                        "reason": problem.reason,
                    }
                    for problem in error.shown()
                ]
                message = "the file is not valid; nothing was changed"
                raise HttpError(400, message, details=details) from None
        return {"rows": len(lines), "changed": changed, "dry_run": query.dry_run}


def _least(kind: Kind) -> str:
    return CARE if kind is BATCHES else PLANS


async def _find(caller: Caller, kind: Kind, ids: tuple[str, ...]) -> Mapping[str, Any]:
    """Raises HttpError 404, also for rows of other companies."""
    key = _path_key(kind, ids)
    row = await store.find(caller.connection, kind, caller.tenant_id, key)
    if row is None:
        raise HttpError(404, f"there is no such {kind.noun}")
    return row


async def _saved(caller: Caller, kind: Kind, row: msgspec.Struct) -> None:
    service = await caller.become_service()
    try:
        await store.save(service, kind, caller.tenant_id, [row], actor=caller.email)
    except store.UnknownError as error:
        raise api.missing(error.field or "body", str(error)) from None
    except store.RejectedError as error:
        if error.field is not None:
            raise api.invalid((error.field, str(error))) from None
        raise HttpError(409, str(error)) from None


def _row(kind: Kind, values: msgspec.Struct, ids: tuple[str, ...]) -> Any:
    """The values of a body with the ids of its path. Raises HttpError 400 for such ids."""
    given = {**msgspec.structs.asdict(values), **dict(zip(kind.key, ids, strict=True))}
    try:
        return msgspec.convert(given, kind.struct, strict=False)
    except msgspec.ValidationError as error:
        raise api.invalid(("path", str(error))) from None


def _key(kind: Kind, row: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(row, name) for name in kind.key}


def _path_key(kind: Kind, ids: tuple[str, ...]) -> dict[str, Any]:
    """The ids of a path by their columns; an age that is no number matches nothing."""
    key: dict[str, Any] = dict(zip(kind.key, ids, strict=True))
    if "age_days" in key:
        is_age = re.fullmatch("[0-9]{1,5}", key["age_days"])
        key["age_days"] = int(key["age_days"]) if is_age else -1
    return key
