"""The OpenAPI documents name the routes that exist, in types that fit what they answer."""

import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from pydantic import BaseModel
from starlette.routing import Route
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.telemetry import view as readings
from farmiq.cloud.console.telemetry.routes import LatestReadings
from farmiq.cloud.edges import api as edges
from farmiq.cloud.ingestion import batch
from farmiq.cloud.ingestion.batch import BatchAccepted, OutboxBatch
from farmiq.contracts import openapi
from farmiq.edge.devices.api import NewDevice
from farmiq.edge.devices.device import COLUMNS
from farmiq.plumbing import http
from farmiq.plumbing.http import ErrorBody
from tests.unit.contracts.test_asyncapi import looked_up, refs
from tests.unit.messages import samples

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLES = Path(samples.__file__).parent / "examples"
NOW = datetime(2025, 1, 2, 10, 0, 1, tzinfo=UTC)


# A second of a core each; nobody here changes it.
written_for = cache(openapi.document)


def for_programs(path: str) -> bool:
    known = {"/healthz", "/readyz", "/metrics", "/version", edges.JWKS}
    return path.startswith("/api/") or path in known


@pytest.mark.parametrize("site", openapi.SITES)
def test_document_lists_exactly_the_routes_for_programs(site: str) -> None:
    exist = {
        (route.path, method.lower())
        for route in openapi.app(site).routes
        if isinstance(route, Route) and for_programs(route.path)
        for method in route.methods or ()
        if method != "HEAD"
    }
    document = written_for(site)
    written = {(path, method) for path, item in document["paths"].items() for method in item}
    assert written == exist


@pytest.mark.parametrize("site", openapi.SITES)
def test_every_reference_resolves_and_every_operation_has_responses(site: str) -> None:
    document = written_for(site)
    for ref in refs(document):
        looked_up(ref, document)
    for item in document["paths"].values():
        for operation in item.values():
            assert operation["summary"]
            assert all(answer["description"] for answer in operation["responses"].values())
            for scheme in operation.get("security", []):
                assert scheme.keys() <= document["components"]["securitySchemes"].keys()


@pytest.mark.parametrize("site", openapi.SITES)
def test_stored_document_is_current(site: str) -> None:
    kept = json.loads((DOCS / f"openapi-{site}.json").read_text())
    current = written_for(site)
    paths = kept["paths"].keys() | current["paths"].keys()
    stale = [path for path in paths if kept["paths"].get(path) != current["paths"].get(path)]
    assert not stale, "run `make docs`"
    assert kept == current, "run `make docs`"


@pytest.mark.req("FB-06")
@pytest.mark.parametrize(
    ("example", "kind"),
    [
        ("002.example-1.request", OutboxBatch),
        ("002.example-1.response", BatchAccepted),
        ("002.example-3.response", ErrorBody),
        ("002.example-4.request", OutboxBatch),
        ("002.example-4.response", BatchAccepted),
    ],
)
def test_the_documented_bodies_are_of_these_types(example: str, kind: Any) -> None:
    raw = (EXAMPLES / f"{example}.json").read_bytes()
    if issubclass(kind, BaseModel):
        written = kind.model_validate_json(raw).model_dump_json(exclude_unset=True)
    else:
        written = msgspec.json.encode(msgspec.json.decode(raw, type=kind)).decode()
    assert json.loads(written) == json.loads(raw)


def test_batch_errors_are_named_by_their_codes() -> None:
    for status, said in batch.ERRORS.items():
        assert said.partition(":")[0] == http.CODES[int(status)]


def test_the_latest_readings_are_of_their_type() -> None:
    company = Company(
        company_id=UUID(int=7), name="Hill", tenant_id="t", timezone="UTC", email="a@b"
    )
    reading = readings.Reading(
        event_id=UUID(int=8),
        farm_id="f", barn_id="b", device_id="d", metric_type="temperature", value=21.5, unit="C",
        captured_at=NOW, arrived_at=NOW, count=1, history=(),
    )  # fmt: skip
    answer = json.dumps(readings.as_json(readings.view(company, [reading], now=NOW)))
    (found,) = LatestReadings.model_validate_json(answer).readings
    assert found.metric_value == 21.5


def test_a_device_is_described_with_the_fields_that_it_has() -> None:
    assert NewDevice.__struct_fields__ == COLUMNS


def test_the_command_prints_the_document_of_a_site() -> None:
    for arguments, site in (([], "cloud"), (["cloud"], "cloud"), (["edge"], "edge")):
        printed = CliRunner().invoke(app, ["openapi", *arguments])
        assert json.loads(printed.stdout) == written_for(site)
    assert CliRunner().invoke(app, ["openapi", "moon"]).exit_code == 2
