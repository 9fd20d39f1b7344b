"""The client of the cloud: batches, heartbeats and master data, with a short-lived token."""

import asyncio
import gzip
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Self

import httpx2
import msgspec

from farmiq.config import EdgeSettings
from farmiq.edge.identity import Identity
from farmiq.edge.sync.rules import ACCEPTED, CloudResponse
from farmiq.messages import contract
from farmiq.messages.bus import BusEvent
from farmiq.messages.text import storable
from farmiq.plumbing import http_client, tracing
from farmiq.plumbing.retry import retry_after_s

ROUTE = "/api/v1/ingestion/batch"
HEARTBEAT = "/api/v1/edges/heartbeat"
CONTEXT = "/api/v1/edges/context"
# More do not fit into an address; then the cloud sends all farms of the tenant.
MAX_FARMS_NAMED = 50
MAX_BATCH_BYTES = 5 * 1024 * 1024
# Compressing less than this costs more than it saves; more than that would hold the loop up.
_WORTH_COMPRESSING = 1024
_TOO_LONG_FOR_THE_LOOP = 256 * 1024
# After that many failures in a row the connection itself is suspected (peers 4).
_REBUILD_AFTER = 5
ACCESS_DENIED = 401

Connect = Callable[[], httpx2.AsyncClient]


class Cloud:
    """Keeps one connection alive, and opens a new one after failures in a row."""

    def __init__(self, connect: Connect, settings: EdgeSettings) -> None:
        self._connect = connect
        self._client = connect()
        self._settings = settings
        self._identity = Identity(settings)
        self._compress = settings.sync_gzip
        self._unanswered = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def send(
        self, batch_id: str, tenant_id: str, events: list[BusEvent], *, republish: bool = False
    ) -> CloudResponse:
        """Send a batch; every failure becomes a CloudResponse, nothing is raised.

        With `republish` the cloud hands the events on although it has them (C-99).
        """
        marked = {"republish": True} if republish else {}
        body = msgspec.json.encode({"batchId": batch_id, "events": events, **marked})
        if len(body) > MAX_BATCH_BYTES:
            return CloudResponse(413, problem=f"{len(body)} bytes are more than a batch may have")
        token = self._identity.token(tenant_id, role="admin" if republish else None)
        headers = {"Authorization": f"Bearer {token}", "x-request-id": batch_id}
        if tracing.is_on():
            headers["traceparent"] = tracing.batch_traceparent(batch_id, tracing.FORWARD.name)
        if not self._compress or len(body) < _WORTH_COMPRESSING:
            return await self._post(ROUTE, body, headers)
        packed = {**headers, "Content-Encoding": "gzip"}
        answer = await self._post(ROUTE, await _compressed(body), packed)
        if answer.status not in (400, 415) or _details(answer.body):
            return answer
        # A cloud or proxy that does not know compressed bodies: it must not count against events.
        answer = await self._post(ROUTE, body, headers)
        if answer.status == ACCEPTED:
            self._compress = False
        return answer

    async def send_heartbeat(self, tenant_id: str, heartbeat: dict[str, Any]) -> CloudResponse:
        """Send one tenant's heartbeat; nothing is raised."""
        headers = {"Authorization": f"Bearer {self._identity.token(tenant_id)}"}
        return await self._post(HEARTBEAT, msgspec.json.encode(heartbeat), headers)

    async def fetch_context(
        self, tenant_id: str, farms: Sequence[str], *, etag: str | None
    ) -> CloudResponse:
        """Ask for the tenant's master data, unless it is as `etag` says; nothing is raised."""
        named = f"?farms={','.join(farms)}" if len(farms) <= MAX_FARMS_NAMED else ""
        headers = {"Authorization": f"Bearer {self._identity.token(tenant_id)}"}
        if etag is not None:
            headers["If-None-Match"] = etag
        return await self._send("GET", CONTEXT + named, b"", headers)

    def has_key(self, key_id: str) -> bool:
        """Whether this edge's key is this one; if so, it signs with it from now on."""
        if self._identity.key_id != key_id:
            return False
        self._identity.clear_tokens()
        return True

    async def _post(self, route: str, body: bytes, headers: dict[str, str]) -> CloudResponse:
        return await self._send(
            "POST", route, body, {**headers, "Content-Type": "application/json"}
        )

    async def _send(
        self, method: str, route: str, body: bytes, headers: dict[str, str]
    ) -> CloudResponse:
        url = self._settings.cloud_url.rstrip("/") + route
        try:
            answer = await http_client.send(
                self._client, method, url, content=body, headers=headers
            )
        except http_client.FAILED as error:
            await self._unreached()
            return CloudResponse(None, problem=storable(http_client.why(error)))
        self._unanswered = 0
        if answer.status == ACCESS_DENIED:
            self._identity.clear_tokens()
        return CloudResponse(
            answer.status,
            body=answer.json(),
            etag=answer.headers.get("ETag"),
            contract=contract.parse(answer.headers.get(contract.HEADER)),
            retry_after_s=retry_after_s(answer.headers.get("Retry-After"), now=datetime.now(UTC)),
        )

    async def _unreached(self) -> None:
        self._unanswered += 1
        if self._unanswered % _REBUILD_AFTER == 0:
            await self._client.aclose()
            self._client = self._connect()


async def _compressed(body: bytes) -> bytes:
    if len(body) <= _TOO_LONG_FOR_THE_LOOP:
        return gzip.compress(body, compresslevel=1, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, 1, mtime=0)


def _details(body: Any) -> bool:
    error = body.get("error") if isinstance(body, dict) else None
    return isinstance(error, dict) and bool(error.get("details"))
