"""Requests of every kind, drawn from an OpenAPI document by Schemathesis, and what is answered.

Imported when it is used: the library takes a second of every worker that only collects tests.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

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
from tests.support.any_request import Known, Site, Tally

Operation = APIOperation[Any, Any, Any, Any]
Request = Case[Any]


def ask(site: Site, *, examples: int, at: int) -> dict[str, Tally]:
    """So many requests per operation, the same for the same `at`."""
    schema = schemathesis.openapi.from_dict(site.document)
    schema.config.generation.update(database="none", with_security_parameters=False)
    found: dict[str, Tally] = {}
    for each in schema.get_all_operations():
        assert isinstance(each, Ok), each
        operation = each.ok()
        found[operation.label] = _one(site, operation, examples=examples, at=at)
    return found


def _one(site: Site, operation: Operation, *, examples: int, at: int) -> Tally:
    tally = Tally()
    known = site.known.get(operation.label, Known())
    schemes = operation.definition.raw.get("security") or [{"": []}]
    (scheme,) = schemes[0]
    headers = dict(site.headers.get(scheme, {}))

    def send(case: Request) -> None:
        if known.prepare is not None:
            known.prepare()
        answer = case.call(base_url=site.url, headers=headers, timeout=60)
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
