"""Requests of every kind at a live API, made from its OpenAPI document by Schemathesis."""

import asyncio
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from pydantic import ValidationError
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from farmiq.plumbing.http import CODES, ErrorBody
from tests.support.until import until

Operation = APIOperation[Any, Any, Any, Any]
Request = Case[Any]

# The share of good answers below which a route was not looked at, only knocked at.
LEAST_GOOD = 0.2


@dataclass(frozen=True)
class Known:
    """Parts of a request with which an operation does what it is there for; the rest is drawn."""

    path: dict[str, Any] | None = None
    query: dict[str, Any] | None = None
    bodies: tuple[Any, ...] = ()
    # Done before each request: what the last one used up is there again.
    prepare: Callable[[], None] | None = None


# Its token is signed for the very request: none that is drawn is let in (tests of the edges do so).
SIGNED = {"POST /api/v1/edges/rotate"}


@dataclass
class Tally:
    """What an operation answered, and what was wrong with that."""

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> float:
        return sum(n for status, n in self.statuses.items() if status < 300) / (
            self.statuses.total() or 1
        )


@dataclass(frozen=True)
class Site:
    """A live API: where, who calls which operation, and what is known there, by `POST /path`."""

    document: dict[str, Any]
    url: str
    headers: Mapping[str, Mapping[str, str]]
    known: Mapping[str, Known]

    def ask(self, *, examples: int, at: int) -> dict[str, Tally]:
        """So many requests per operation, the same for the same `at`."""
        schema = schemathesis.openapi.from_dict(self.document)
        schema.config.generation.update(database="none", with_security_parameters=False)
        found: dict[str, Tally] = {}
        for each in schema.get_all_operations():
            assert isinstance(each, Ok), each
            operation = each.ok()
            found[operation.label] = self._one(operation, examples=examples, at=at)
        return found

    def _one(self, operation: Operation, *, examples: int, at: int) -> Tally:
        tally = Tally()
        known = self.known.get(operation.label, Known())
        schemes = operation.definition.raw.get("security") or [{"": []}]
        (scheme,) = schemes[0]
        headers = dict(self.headers.get(scheme, {}))

        def send(case: Request) -> None:
            if known.prepare is not None:
                known.prepare()
            answer = case.call(base_url=self.url, headers=headers, timeout=60)
            tally.statuses[answer.status_code] += 1
            tally.wrong += problems(case, answer)

        _draw(_working(operation, known), send, count=examples // 3, at=at)
        if operation.body or any(True for _ in operation.iter_parameters()):
            _draw(operation.as_strategy(), send, count=examples // 3, at=at)
            # Where the document allows any text there is nothing that it does not allow.
            with suppress(Unsatisfiable):
                misfits = operation.as_strategy(GenerationMode.NEGATIVE)
                _draw(misfits, send, count=examples // 3, at=at)
        return tally


def _draw(
    cases: st.SearchStrategy[Request], send: Callable[[Request], None], *, count: int, at: int
) -> None:
    @seed(at)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    # A number with each: Hypothesis would not draw a request twice that leaves nothing open.
    @given(cases, st.integers())
    def drawn(case: Request, _: int) -> None:
        send(case)

    drawn()


def _working(operation: Operation, known: Known) -> st.SearchStrategy[Request]:
    """What is known to work; all that the document allows where nothing is."""
    fixed: dict[str, Any] = {"path_parameters": known.path, "query": known.query}
    bodies = [{"body": body} for body in known.bodies] or [{}]
    return st.one_of([operation.as_strategy(**fixed, **body) for body in bodies])


def problems(case: Request, answer: Response) -> list[str]:
    """What is wrong with an answer: a fault of ours, or one that the document does not know."""
    sent = f"{case.method} {case.formatted_path} {case.query} {case.body!r}"[:600]
    found = []
    try:
        case.validate_response(
            answer,
            checks=[
                not_a_server_error,
                status_code_conformance,
                content_type_conformance,
                response_schema_conformance,
            ],
        )
    except FailureGroup as failures:
        found = [str(each) for each in failures.exceptions]
    if answer.status_code >= 400 and not is_standard(answer):
        found.append(f"not the standard error body: {answer.text[:200]}")
    return [f"{sent} -> {answer.status_code}: {why}" for why in found]


def is_standard(answer: Response) -> bool:
    try:
        error = ErrorBody.model_validate_json(answer.content).error
    except ValidationError:
        return False
    return error.code == CODES.get(answer.status_code) and bool(error.message and error.traceId)


@contextmanager
def running(
    site: str, document: dict[str, Any], url: str, environment: Mapping[str, str], folder: Path
) -> Iterator[None]:
    """The services of a site in a process of their own; whoever asks needs this one."""
    with (folder / f"{site}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "farmiq", "run", site],
            env={**os.environ, **environment},
            stdout=log,
            stderr=log,
        )

    def ready() -> bool:
        assert process.poll() is None, Path(log.name).read_text()
        try:
            return client.get("/readyz").status_code == 200 and all(
                client.get(path).status_code != 404 for path in document["paths"]
            )
        except httpx2.HTTPError:
            return False

    try:
        with httpx2.Client(base_url=url, timeout=30) as client:
            asyncio.run(until(ready, within_s=150))
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def assert_sound(found: Mapping[str, Tally]) -> None:
    wrong = [f"{name}: {why}" for name, tally in found.items() for why in tally.wrong]
    assert not wrong, "\n".join(wrong[:20])
    barren = {
        name: dict(each.statuses)
        for name, each in found.items()
        if each.good < LEAST_GOOD and name not in SIGNED
    }
    assert not barren, barren
