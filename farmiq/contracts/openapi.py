"""OpenAPI 3.1 of a site's HTTP routes: what programs may call; the console's pages are not in it.

FastAPI writes the document of a site's application with nothing behind it; what the dependencies
of a handler say of themselves (callers, bodies, errors) is added.
"""

import copy
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from farmiq import __version__
from farmiq.api import BodyOf, ResponseOf
from farmiq.cloud.alerts import api as alerts
from farmiq.cloud.analytics import api as analytics
from farmiq.cloud.analytics.forecast import ForecastApi
from farmiq.cloud.barn import api as cloud_barn
from farmiq.cloud.camera.accounts import api as camera_accounts
from farmiq.cloud.console.dishes.api import DishApi
from farmiq.cloud.console.pages import Pages
from farmiq.cloud.console.telemetry.routes import TelemetryPages
from farmiq.cloud.console.weighings.api import WeighingApi
from farmiq.cloud.deadletter import api as deadletter
from farmiq.cloud.edges import api as edges
from farmiq.cloud.farms import api as farms
from farmiq.cloud.feed import api as cloud_feed
from farmiq.cloud.identity.sign_in import COOKIE
from farmiq.cloud.ingestion.service import Ingestion
from farmiq.cloud.media import api as cloud_media
from farmiq.cloud.media.intake import Intake
from farmiq.cloud.notification import api as notification
from farmiq.cloud.telemetry import api as cloud_telemetry
from farmiq.config import CloudSettings, EdgeSettings
from farmiq.contracts import schemas
from farmiq.edge.barn import api as barn
from farmiq.edge.devices import api as devices
from farmiq.edge.feed import api as feed
from farmiq.edge.ingress.api import Api as IngressApi
from farmiq.edge.media import api as media
from farmiq.edge.sync import api as sync
from farmiq.edge.telemetry import api as telemetry
from farmiq.edge.weighvision import api as weighvision
from farmiq.plumbing import http

SITES = ("edge", "cloud")
ALWAYS = ("/healthz", "/readyz", "/metrics", "/version")
_BEARER = {"type": "http", "scheme": "bearer"}
SECURITY = {
    "edge": {"key": _BEARER, "deviceToken": _BEARER},
    "cloud": {
        "edgeToken": {**_BEARER, "bearerFormat": "JWT"},
        "signInToken": _BEARER,
        "signIn": {"type": "apiKey", "in": "cookie", "name": COOKIE},
    },
}


def app(site: str) -> FastAPI:
    """The routes of a site, with nothing behind them."""
    server = http.HttpServer(title=site, version="0")
    nothing: Any = None
    if site == "edge":
        IngressApi(nothing, nothing).add_to(server.app)
        devices.Api(nothing).add_to(server.app)
        sync.Api(nothing, nothing).add_to(server.app)
        telemetry.Api(nothing).add_to(server.app)
        weighvision.Api(nothing, timezone="UTC").add_to(server.app)
        media.Api(EdgeSettings.load_some({}), nothing, nothing, nothing).add_to(server.app)
        feed.Api(nothing).add_to(server.app)
        barn.Api(nothing).add_to(server.app)
    else:
        settings = CloudSettings.load_some({})
        Ingestion(settings, nothing, nothing, nothing, nothing).add_to(server.app)
        pages = Pages(nothing, nothing)
        TelemetryPages(pages).add_to(server.app)
        WeighingApi(pages, patience_s=0).add_to(server.app)
        DishApi(pages).add_to(server.app)
        edges.Api(nothing, nothing, nothing).add_to(server.app)
        farms.Api(nothing).add_to(server.app)
        cloud_media.Api(nothing, nothing).add_to(server.app)
        Intake(settings, nothing, nothing, nothing).add_to(server.app)
        cloud_telemetry.Api(nothing).add_to(server.app)
        deadletter.Api(nothing, nothing, nothing).add_to(server.app)
        camera_accounts.Api(nothing, nothing).add_to(server.app)
        analytics.Api(nothing).add_to(server.app)
        alerts.Api(nothing).add_to(server.app)
        ForecastApi(nothing).add_to(server.app)
        cloud_barn.Api(nothing).add_to(server.app)
        cloud_feed.Api(nothing).add_to(server.app)
        notification.Api(nothing, nothing, nothing).add_to(server.app)
    return server.app


def document(site: str) -> dict[str, Any]:
    """The document of `edge` or `cloud`."""
    routes = [
        route
        for route in app(site).routes
        if isinstance(route, APIRoute) and _is_for_programs(route.path)
    ]
    document = get_openapi(
        title=f"FarmIQ {site}",
        version=__version__,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        servers=[{"url": "/", "description": "This installation."}],
        routes=routes,
    )
    bodies: list[Any] = []
    for route in routes:
        for method in sorted(route.methods or ()):
            operation = document["paths"][route.path_format][method.lower()]
            bodies += _describe(operation, route)
    error = http.ErrorBody.model_json_schema(ref_template=schemas.PREFIX + "{model}")
    components = {
        **document["components"]["schemas"],
        **error.pop("$defs"),
        http.ErrorBody.__name__: error,
        **schemas.components(bodies),
    }
    for name in ("HTTPValidationError", "ValidationError"):
        components.pop(name, None)
    # A copy: parts of it are the handlers' own, and who reads a document may change it.
    return copy.deepcopy(
        {
            **document,
            "paths": _without_titles(document["paths"]),
            "components": {
                "schemas": dict(sorted(_without_titles(components).items())),
                "securitySchemes": SECURITY[site],
            },
        }
    )


def _is_for_programs(path: str) -> bool:
    return path.startswith("/api/") or path in (*ALWAYS, edges.JWKS)


def _describe(operation: dict[str, Any], route: APIRoute) -> list[Any]:
    """Add what the dependencies of a handler say of themselves. Returns the types of bodies."""
    _summarise(operation, route)
    responses = operation["responses"]
    responses.pop("422", None)
    implied: dict[int, str] = {}
    bodies = []
    for dependency in _dependencies(route.dependant):
        if isinstance(dependency, BodyOf):
            is_text = dependency.kind is str
            bodies += [] if is_text else [dependency.kind]
            schema = {"type": "string"} if is_text else schemas.ref(dependency.kind)
            content = {dependency.content_type or http.JSON: {"schema": schema}}
            operation["requestBody"] = {"required": True, "content": content}
        if isinstance(dependency, ResponseOf):
            bodies.append(dependency.kind)
            responses[str(dependency.status)] = {
                "description": dependency.description,
                "content": {http.JSON: {"schema": schemas.ref(dependency.kind)}},
            }
        if security := getattr(dependency, "security", None):
            names = security if isinstance(security, tuple) else (security,)
            operation["security"] = [{name: []} for name in names]
        implied |= getattr(dependency, "errors", {})
    for parameter in operation.get("parameters", []):
        parameter["schema"] = _without_null(parameter["schema"])
    places = {parameter["in"] for parameter in operation.get("parameters", [])}
    if places - {"path"}:
        implied.setdefault(400, http.ERRORS[400])
    if "path" in places:
        implied.setdefault(404, http.ERRORS[404])
    for status, why in implied.items():
        content = {http.JSON: {"schema": {"$ref": schemas.PREFIX + http.ErrorBody.__name__}}}
        responses.setdefault(str(status), {"description": why, "content": content})
    operation["responses"] = dict(sorted(responses.items()))
    return bodies


def _summarise(operation: dict[str, Any], route: APIRoute) -> None:
    """The first line of a handler's docstring is the summary, the rest the description."""
    if route.operation_id is None:
        del operation["operationId"]
    if route.summary is None:
        summary, _, operation["description"] = route.description.partition("\n\n")
        operation["summary"] = summary.removesuffix(".")
        if not operation["description"]:
            del operation["description"]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is not given is absent, never null; its description stands beside it."""
    choices = [option for option in schema.pop("anyOf", []) if option != {"type": "null"}]
    schema.pop("description", None)
    if len(choices) == 1:
        return {**choices[0], **schema}
    return {**schema, "anyOf": choices} if choices else schema


def _dependencies(dependant: Dependant) -> Iterator[Any]:
    for dependency in dependant.dependencies:
        yield from _dependencies(dependency)
        yield dependency.call


def _without_titles(value: Any) -> Any:
    """Pydantic titles each field with its name once more."""
    if isinstance(value, dict):
        return {
            name: _without_titles(item)
            for name, item in value.items()
            if name != "title" or not isinstance(item, str)
        }
    return [_without_titles(item) for item in value] if isinstance(value, list) else value
