"""Upload one object by a presigned address: the driver of `upload_rules`, for device and edge.

sender --POST presign--> receiver --address--> sender --PUT--> store
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx2

from farmiq.plumbing import http_client, ids, log
from farmiq.plumbing.retry import retry_after_s
from farmiq.plumbing.storage import upload_rules
from farmiq.plumbing.storage.upload_rules import (
    Outcome,
    Policy,
    Presigning,
    Putting,
    Rejected,
    Response,
    Stored,
    Unavailable,
)

__all__ = ["Outcome", "Policy", "Receiver", "Rejected", "Stored", "Unavailable", "Upload", "upload"]

MAX_TEXT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """Where objects go. The two hooks run after an address came and after a PUT succeeded."""

    client: httpx2.AsyncClient
    presign_url: str
    policy: Policy
    service: str
    on_presigned: Callable[[], None]
    on_put: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One object. `read` gives its bytes, or why they cannot be sent."""

    object_id: str
    sha256: str
    content_type: str
    trace_id: str
    token: str
    presign_body: bytes
    read: Callable[[], Awaitable[bytes | Unavailable | Rejected]]


async def upload(receiver: Receiver, wanted: Upload) -> Outcome:
    """Drive one upload until it is stored, rejected, or nothing can be learnt now."""
    state: upload_rules.State = Presigning(receiver.policy.max_puts)
    while True:
        match state:
            case Presigning():
                response = await _presign(receiver, wanted)
                state = upload_rules.after_presign(
                    state,
                    response,
                    receiver.policy,
                    object_id=wanted.object_id,
                    sha256=wanted.sha256,
                )
                if response.is_success:
                    receiver.on_presigned()
            case Putting():
                data = await wanted.read()
                if not isinstance(data, bytes):
                    return data
                headers = {"Content-Type": wanted.content_type, **state.headers}
                response = await _send(receiver, wanted, "PUT", state.url, data, headers)
                state = upload_rules.after_put(state, response, receiver.policy)
                if response.is_success:
                    receiver.on_put()
            case _:
                return state


async def _presign(receiver: Receiver, wanted: Upload) -> Response:
    headers = {"Authorization": f"Bearer {wanted.token}", "Content-Type": "application/json"}
    response = await _send(
        receiver, wanted, "POST", receiver.presign_url, wanted.presign_body, headers
    )
    if response.status is not None and not response.is_success:
        log.get(receiver.service).warning(
            "presign.refused",
            status=response.status,
            code=str(response.error.get("code", "")),
            trace_id=str(response.error.get("traceId", "")),
        )
    return response


async def _send(  # noqa: PLR0917 - the parts of one request
    receiver: Receiver,
    wanted: Upload,
    method: str,
    url: str,
    content: bytes,
    headers: Mapping[str, str],
) -> Response:
    traced = {**headers, "x-request-id": str(ids.new()), "x-trace-id": wanted.trace_id}
    try:
        response = await http_client.send(
            receiver.client, method, url, content=content, headers=traced
        )
    except (*http_client.FAILED, OSError) as error:
        return Response(None, text=http_client.why(error)[:MAX_TEXT])
    return Response(
        response.status,
        body=response.json(),
        text=response.body[:MAX_TEXT].decode(errors="replace"),
        retry_after_s=retry_after_s(response.headers.get("Retry-After"), now=datetime.now(UTC)),
    )
