"""The bridge: a complete wake of a camera also becomes readings and an image of the farm (C-87).

petri_observations, device_wake_payloads --> [bridge] --POST batch--> cloud-ingestion

Off unless CAMERA_BRIDGE_URL is set. A wake is owed until ingestion has taken its events and that is
noted; who dies in between sends them again under the same ids, and ingestion knows them.
"""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import prometheus_client

from farmiq import crash
from farmiq.cloud.camera.bridge import events, store
from farmiq.cloud.camera.bridge.events import Wake
from farmiq.config import CloudSettings
from farmiq.messages.text import storable
from farmiq.plumbing import asking, chores, db, http, log, tokens

NAME = "cloud-camera-bridge"
ROUTE = "/api/v1/ingestion/batch"
# With all their events they are fewer than a batch may have.
MOST_WAKES = 20
TIMEOUT_S = 30.0
ACCEPTED = 202
# Ingestion says these of the events themselves; everything else is about the way there.
BLAMED = frozenset({400, 413, 422})

WAKES = prometheus_client.Counter(
    "farmiq_camera_bridged_total", "Wakes of cameras sent to the farm's telemetry", ["outcome"]
)


async def run(settings: CloudSettings, door: http.Door) -> None:
    url, key_file = settings.camera_bridge_url, settings.camera_bridge_key_file
    if url is None or key_file is None:
        lacks = "CAMERA_BRIDGE_URL" if url is None else "CAMERA_BRIDGE_KEY_FILE"
        door.note("bridge", lambda: f"off: {lacks} is not set")
        await asyncio.Event().wait()
        return
    read_key(key_file)
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, least=0, most=2) as pool,
        httpx2.AsyncClient(timeout=TIMEOUT_S, verify=settings.tls.client()) as client,
    ):
        bridge = Bridge(settings, pool, client, url.rstrip("/") + ROUTE, key_file)
        door.ready("bridge.database", lambda: db.problem(pool))
        door.note("bridge", lambda: bridge.problem)
        await chores.keep_doing(
            chores.Chore("bridge.send", settings.camera_bridge_s, bridge.send_all)
        )


@dataclass
class Bridge:
    """`problem`: why wakes wait. The key is read for each round: it may be replaced meanwhile."""

    settings: CloudSettings
    pool: db.Pool
    client: httpx2.AsyncClient
    url: str
    key_file: Path
    problem: str | None = field(default=None, init=False)

    async def send_all(self) -> dict[str, object]:
        """All that is owed. A tenant whose batch is not taken waits for the next round."""
        key = read_key(self.key_file)
        waiting: set[str] = set()
        count, problem = 0, None
        while wakes := await self._owed(waiting):
            for tenant_id, own in groupby(sorted(wakes, key=_tenant), key=_tenant):
                batch = list(own)
                if why := await self._send(self._token(key, tenant_id), batch):
                    waiting.add(tenant_id)
                    # Anybody may read this in /readyz: it names no tenant.
                    problem = f"wakes wait (the log says of which tenant): {why}"
                    log.get(NAME).warning("bridge.waits", tenant_id=tenant_id, reason=why)
                else:
                    count += len(batch)
        self.problem = problem
        return {"count": count}

    async def _owed(self, waiting: set[str]) -> list[Wake]:
        async with db.transaction(self.pool) as tx:
            return await store.owed(tx, most=MOST_WAKES, without=waiting)

    async def _send(self, token: str, wakes: Sequence[Wake]) -> str | None:
        """Why they have to wait; None if they are settled."""
        told = [event for wake in wakes for event in events.of(wake)]
        said = await self._post(token, told) if told else None
        if isinstance(said, str):
            return said
        if said is not None and said.status in BLAMED:
            return await self._blame(token, wakes, said)
        if said is not None and not _taken(said):
            return f"{self.url} answers {said.status}"
        crash.here("bridge.after_send")
        await self._settle(wakes)
        return None

    async def _blame(self, token: str, wakes: Sequence[Wake], said: asking.Said) -> str | None:
        """Which of them is refused, one by one; that one is noted and holds up nobody."""
        if len(wakes) == 1:
            why = storable(f"{said.status}: {said.body.decode(errors='replace')}")
            log.get(NAME).error("bridge.refused", tenant_id=wakes[0].tenant_id, error=why)
            await self._settle(wakes, problem=why)
            return None
        for wake in wakes:
            if waits := await self._send(token, [wake]):
                return waits
        return None

    async def _settle(self, wakes: Sequence[Wake], *, problem: str | None = None) -> None:
        async with db.transaction(self.pool) as tx:
            await store.settle(tx, [wake.observation_id for wake in wakes], problem=problem)
        WAKES.labels(outcome="refused" if problem else "sent").inc(len(wakes))

    async def _post(self, token: str, told: list[Any]) -> asking.Said | str:
        """The answer, or why there is none."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = msgspec.json.encode({"events": told})
        try:
            return await asking.ask(self.client, "POST", self.url, content=body, headers=headers)
        except asking.FAILED as error:
            return f"{self.url} was not reached: {asking.why(error)}"[:300]

    def _token(self, key: dict[str, Any], tenant_id: str) -> str:
        return tokens.sign(
            key,
            subject=NAME,
            issuer=self.settings.token_issuer,
            audience=self.settings.token_audience,
            now=datetime.now(UTC),
            tenants=[tenant_id],
            edge_cluster_id=NAME,
        )


def read_key(file: Path) -> dict[str, Any]:
    """Raises TokenError."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        tokens.public_part(found)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise tokens.TokenError(
            f"cannot read the bridge's key CAMERA_BRIDGE_KEY_FILE={file}: {error}. "
            "Make one with `farmiq edge enroll`."
        ) from error
    return found


def _taken(said: asking.Said) -> bool:
    body = said.json()
    return said.status == ACCEPTED and isinstance(body, dict) and body.get("accepted") is True


def _tenant(wake: Wake) -> str:
    return wake.tenant_id
