"""The way to the cloud: one POST per batch, compressed, signed with a short-lived token."""

import asyncio
import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Self

import httpx2
import msgspec

from farmiq.config import EdgeSettings
from farmiq.edge.sync.verdict import Answer
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import tokens

ROUTE = "/api/v1/ingestion/batch"
MOST_BYTES = 5 * 1024 * 1024
# Compressing less than this costs more than it saves; more than that would hold the loop up.
_WORTH_COMPRESSING = 1024
_TOO_LONG_FOR_THE_LOOP = 256 * 1024
_LIFETIME = timedelta(minutes=10)
_RENEW_BEFORE = timedelta(minutes=2)
# After that many failures in a row the connection itself is suspected (peers 4).
_REBUILD_AFTER = 5

Connect = Callable[[], httpx2.AsyncClient]


class Cloud:
    """Keeps one connection alive, and makes a new one if the old does not get through."""

    def __init__(self, connect: Connect, settings: EdgeSettings) -> None:
        self._connect = connect
        self._client = connect()
        self._settings = settings
        self._key = read_key(settings.edge_key_file)
        self._tokens: dict[str, tuple[datetime, str]] = {}
        self._compress = settings.sync_gzip
        self._unanswered = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def send(self, batch_id: str, tenant_id: str, events: list[BusEvent]) -> Answer:
        """Whatever happens on the way becomes an Answer; nothing is raised."""
        body = msgspec.json.encode({"batchId": batch_id, "events": events})
        if len(body) > MOST_BYTES:
            return Answer(413, problem=f"{len(body)} bytes are more than a batch may have")
        if not self._compress or len(body) < _WORTH_COMPRESSING:
            return await self._post(batch_id, tenant_id, body)
        answer = await self._post(batch_id, tenant_id, await _compressed(body), "gzip")
        if answer.status not in (400, 415) or _details(answer.body):
            return answer
        # A cloud or proxy that does not know compressed bodies: it must not count against events.
        self._compress = False
        return await self._post(batch_id, tenant_id, body)

    async def _post(
        self, batch_id: str, tenant_id: str, body: bytes, encoding: str | None = None
    ) -> Answer:
        headers = {
            "Authorization": f"Bearer {self._token(tenant_id)}",
            "Content-Type": "application/json",
            "x-request-id": batch_id,
        }
        if encoding:
            headers["Content-Encoding"] = encoding
        url = self._settings.cloud_url.rstrip("/") + ROUTE
        try:
            response = await self._client.post(url, content=body, headers=headers)
        except httpx2.HTTPError as error:
            await self._unreached()
            return Answer(None, problem=f"{type(error).__name__}: {error}"[:500])
        self._unanswered = 0
        return Answer(
            response.status_code,
            body=_json(response),
            retry_after_s=_seconds(response.headers.get("Retry-After"), now=datetime.now(UTC)),
        )

    async def _unreached(self) -> None:
        self._unanswered += 1
        if self._unanswered % _REBUILD_AFTER == 0:
            await self._client.aclose()
            self._client = self._connect()

    def _token(self, tenant_id: str) -> str:
        now = datetime.now(UTC)
        expires_at, token = self._tokens.get(tenant_id, (now, ""))
        if now + _RENEW_BEFORE < expires_at:
            return token
        token = tokens.sign(
            self._key,
            subject=self._settings.edge_cluster_id,
            issuer=self._settings.token_issuer,
            audience=self._settings.token_audience,
            now=now,
            lifetime=_LIFETIME,
            tenants=[tenant_id],
            edge_cluster_id=self._settings.edge_cluster_id,
        )
        self._tokens[tenant_id] = now + _LIFETIME, token
        return token


def read_key(file: Path) -> dict[str, Any]:
    try:
        key: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise tokens.TokenError(
            f"cannot read this edge's key {file}: {error}. Make one with `farmiq keys new`."
        ) from error
    return key


async def _compressed(body: bytes) -> bytes:
    if len(body) <= _TOO_LONG_FOR_THE_LOOP:
        return gzip.compress(body, compresslevel=1, mtime=0)
    return await asyncio.to_thread(gzip.compress, body, 1, mtime=0)


def _json(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _details(body: Any) -> bool:
    error = body.get("error") if isinstance(body, dict) else None
    return isinstance(error, dict) and bool(error.get("details"))


def _seconds(header: str | None, *, now: datetime) -> float | None:
    """Retry-After in either of its forms: seconds, or a date."""
    if not header:
        return None
    if header.isdecimal():
        return float(header[:9])
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, (until.astimezone(UTC) - now).total_seconds())
