"""The way to the cloud: one POST per batch, signed with a short-lived token."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from farmiq.config import EdgeSettings
from farmiq.edge.sync.verdict import Answer
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import tokens

ROUTE = "/api/v1/ingestion/batch"
_LIFETIME = timedelta(minutes=10)
_RENEW_BEFORE = timedelta(minutes=2)


class Cloud:
    def __init__(self, client: httpx2.AsyncClient, settings: EdgeSettings) -> None:
        self._client = client
        self._settings = settings
        self._key = read_key(settings.edge_key_file)
        self._tokens: dict[str, tuple[datetime, str]] = {}

    async def send(self, batch_id: str, tenant_id: str, events: list[BusEvent]) -> Answer:
        """Whatever happens on the way becomes an Answer; nothing is raised."""
        try:
            response = await self._client.post(
                self._settings.cloud_url.rstrip("/") + ROUTE,
                content=msgspec.json.encode({"batchId": batch_id, "events": events}),
                headers={
                    "Authorization": f"Bearer {self._token(tenant_id)}",
                    "Content-Type": "application/json",
                    "x-request-id": batch_id,
                },
            )
        except httpx2.HTTPError as error:
            return Answer(None, problem=f"{type(error).__name__}: {error}"[:500])
        return Answer(
            response.status_code,
            body=_json(response),
            retry_after_s=_seconds(response.headers.get("Retry-After")),
        )

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


def _json(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _seconds(header: str | None) -> float | None:
    return float(header) if header and header.isdecimal() else None
