"""The standard error body (C-105), and which exception becomes which error."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from farmiq.plumbing import db, log

CODES = {
    400: "VALIDATION_ERROR", 401: "UNAUTHENTICATED", 403: "FORBIDDEN", 404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED", 408: "REQUEST_TIMEOUT", 409: "CONFLICT", 412: "PRECONDITION_FAILED",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE", 429: "TOO_MANY_REQUESTS", 431: "HEADERS_TOO_LARGE",
    503: "UNAVAILABLE",
}  # fmt: skip
TOO_SLOW, TOO_LONG = 408, 431
# What the OpenAPI documents say of an error where the operation says nothing of its own.
ERRORS = {
    400: "VALIDATION_ERROR: not valid; `details` names everything that is wrong.",
    401: "UNAUTHENTICATED: no token, or not a good one.",
    403: "FORBIDDEN: the caller's role does not reach.",
    404: "NOT_FOUND: there is none.",
    408: "REQUEST_TIMEOUT: the body was not here in time.",
    429: "TOO_MANY_REQUESTS: the caller acts too often; wait for Retry-After.",
    503: "UNAVAILABLE: the database is away; try again after Retry-After.",
}
_REASONS = {"missing": "is missing", "extra_forbidden": "is not known"}


class ErrorDetail(BaseModel):
    """One thing that is wrong: an event of a batch by its index, or a field of a request."""

    reason: str
    index: int | None = None
    event_id: str | None = None
    field: str | None = None


class Error(BaseModel):
    code: str
    message: str
    traceId: str  # noqa: N815 - the contract's spelling
    details: list[ErrorDetail] = []


class ErrorBody(BaseModel):
    """The standard error body (C-105)."""

    error: Error


class HttpError(Exception):
    """An answer with the standard error body (C-105)."""

    # The page that a browser is led to instead.
    location: str | None = None

    def __init__(
        self,
        status: int,
        message: str,
        *,
        details: list[dict[str, Any]] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.details = status, message, details
        self.retry_after_s = retry_after_s


def error_response(request: Request, error: HttpError) -> JSONResponse:
    headers = {"Retry-After": str(error.retry_after_s)} if error.retry_after_s else {}
    if error.status == TOO_SLOW or _waits_for_continue(request):
        headers["Connection"] = "close"  # the rest of the body is not waited for
    body = error_body(error, trace=trace_id(request))
    return _Escaped(body, status_code=error.status, headers=headers)


def _waits_for_continue(request: Request) -> bool:
    """Whether the client has sent no body yet and, refused, never will."""
    return "100-continue" in request.headers.get("expect", "").lower()


class _Escaped(JSONResponse):
    """An answer may quote what was sent, and half a character has no UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content).encode()


def error_body(error: HttpError, *, trace: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "code": CODES.get(error.status, "ERROR"),
        "message": error.message,
        "traceId": trace,
    }
    if error.details:
        body["details"] = error.details
    return {"error": body}


def trace_id(request: Request) -> str:
    value: str = request.scope.get("farmiq.trace_id", "")
    return value


def handle_errors(app: FastAPI) -> None:
    """Answer every exception of a handler with the standard error body."""
    app.add_exception_handler(HttpError, _on_http_error)
    app.add_exception_handler(HTTPException, _on_starlette_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    for unavailable in db.UNAVAILABLE:
        app.add_exception_handler(unavailable, _on_database_unavailable)
    app.add_exception_handler(ClientDisconnect, _on_gone)
    app.add_exception_handler(Exception, _on_any_error)


async def _on_http_error(request: Request, error: Any) -> Response:
    return error_response(request, error)


async def _on_starlette_error(request: Request, error: Any) -> Response:
    answer = error_response(request, HttpError(error.status_code, str(error.detail)))
    answer.headers.update(error.headers or {})  # such as Allow, which a 405 must carry
    return answer


async def _on_invalid_request(request: Request, error: Any) -> Response:
    if any(item["loc"][0] == "path" for item in error.errors()):
        # An address that cannot be one is an address of nothing.
        return error_response(request, HttpError(404, "there is none of this id or name"))
    details = [
        {"field": ".".join(str(part) for part in item["loc"][1:]), "reason": reason(item)}
        for item in error.errors()
    ]
    return error_response(request, HttpError(400, "the request is not valid", details=details))


def reason(item: Mapping[str, Any]) -> str:
    """What is wrong, of an error of pydantic."""
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    if item["type"] == "literal_error":
        return f"is none of: {item['ctx']['expected']}"
    return _REASONS.get(item["type"], str(item["msg"]))


async def _on_database_unavailable(request: Request, error: Exception) -> Response:
    log.get("http").warning("http.database_away", error=db.first_line(error))
    return error_response(
        request, HttpError(503, "the database is away; try again", retry_after_s=5)
    )


async def _on_gone(_: Request, error: Exception) -> Response:
    """The client left while it sent the body, or sent no HTTP; nobody reads this answer."""
    log.get("http").debug("http.gone", error=repr(error))
    return Response(status_code=400)


async def _on_any_error(request: Request, error: Exception) -> Response:
    log.get("http").error("http.failed", error=repr(error), exc_info=error)
    answer = error_response(request, HttpError(500, "something went wrong on our side"))
    # This answer is given outside of _Identify, which has seen the exception pass.
    answer.headers.update(request.scope.get("farmiq.ids", {}))
    return answer
