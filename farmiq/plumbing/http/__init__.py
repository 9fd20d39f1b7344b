"""HTTP for a process: one server for all its services, with limits and one error body.

server: the routes, health and readiness    protocol: uvicorn with our limits
middleware: what every request passes       errors: the standard error body
requests: caller, rate, body of a request   checks: what readiness asks
"""

from farmiq.plumbing.http.checks import Check
from farmiq.plumbing.http.errors import (
    CODES,
    ERRORS,
    ErrorBody,
    HttpError,
    error_response,
    reason,
    trace_id,
)
from farmiq.plumbing.http.protocol import serve
from farmiq.plumbing.http.requests import (
    JSON,
    allow,
    authenticated,
    bearer,
    body,
    body_parts,
    network,
)
from farmiq.plumbing.http.server import HttpServer, RawRoute

__all__ = [
    "CODES", "ERRORS", "JSON", "Check", "ErrorBody", "HttpError", "HttpServer", "RawRoute",
    "allow", "authenticated", "bearer", "body", "body_parts", "error_response", "network",
    "reason", "serve", "trace_id",
]  # fmt: skip
