"""The bridge: a complete wake of a camera also becomes readings and an image of the farm (C-87).

petri_observations, device_wake_payloads --> [bridge] --POST batch--> cloud-ingestion

Off unless CAMERA_BRIDGE_URL is set. A wake is pending until ingestion has accepted its events and
that is stored; after a crash in between they are sent again with the same ids.
"""

import asyncio
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import prometheus_client
from psycopg.rows import class_row

from farmiq import crash
from farmiq.cloud.camera.bridge import events
from farmiq.cloud.camera.bridge.events import Wake
from farmiq.config import CloudSettings
from farmiq.messages.text import storable
from farmiq.plumbing import db, http, http_client, log, tokens
from farmiq.plumbing.runtime import schedule

NAME = "cloud-camera-bridge"
ROUTE = "/api/v1/ingestion/batch"
# With all their events they are fewer than a batch may have.
MAX_WAKES = 20
TIMEOUT_S = 30.0
ACCEPTED = 202
# Ingestion rejects the events themselves with these; everything else is about the way there.
REJECTED = frozenset({400, 413, 422})

WAKES = prometheus_client.Counter(
    "farmiq_camera_bridged_total", "Wakes of cameras sent to the farm's telemetry", ["outcome"]
)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url, key_file = settings.camera_bridge_url, settings.camera_bridge_key_file
    if url is None or key_file is None:
        name = "CAMERA_BRIDGE_URL" if url is None else "CAMERA_BRIDGE_KEY_FILE"
        server.note("bridge", lambda: f"off: {name} is not set")
        await asyncio.Event().wait()
        return
    read_key(key_file)
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, min_size=0, max_size=2) as pool,
        httpx2.AsyncClient(timeout=TIMEOUT_S, verify=settings.tls.client()) as client,
    ):
        bridge = Bridge(settings, pool, client, url.rstrip("/") + ROUTE, key_file)
        server.ready("bridge.database", lambda: db.problem(pool))
        server.note("bridge", lambda: bridge.problem)
        await schedule.run_repeatedly(
            schedule.Job("bridge.send", settings.camera_bridge_s, bridge.send_all)
        )


@dataclass
class Bridge:
    """`problem` says why wakes wait. The key file is read for each round: it may be replaced."""

    settings: CloudSettings
    pool: db.Pool
    client: httpx2.AsyncClient
    url: str
    key_file: Path
    problem: str | None = field(default=None, init=False)

    async def send_all(self) -> dict[str, object]:
        """Send all pending wakes; a tenant whose batch fails waits for the next round."""
        key = read_key(self.key_file)
        waiting: set[str] = set()
        count, problem = 0, None
        while wakes := await pending_wakes(self.pool, limit=MAX_WAKES, without=waiting):
            for tenant_id, own in groupby(sorted(wakes, key=_tenant), key=_tenant):
                batch = list(own)
                if reason := await self._send(self._token(key, tenant_id), batch):
                    waiting.add(tenant_id)
                    # Anybody may read this in /readyz: it names no tenant.
                    problem = f"wakes wait (the log says of which tenant): {reason}"
                    log.get(NAME).warning("bridge.waits", tenant_id=tenant_id, reason=reason)
                else:
                    count += len(batch)
        self.problem = problem
        return {"count": count}

    async def _send(self, token: str, wakes: Sequence[Wake]) -> str | None:
        """Why the wakes have to wait; None if they are done."""
        batch = [event for wake in wakes for event in events.of(wake)]
        if batch:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            body = msgspec.json.encode({"events": batch})
            try:
                response = await http_client.send(
                    self.client, "POST", self.url, content=body, headers=headers
                )
            except http_client.FAILED as error:
                return f"{self.url} was not reached: {http_client.why(error)}"[:300]
            if response.status in REJECTED:
                return await self._isolate_rejected(token, wakes, response)
            if not _is_accepted(response):
                return f"{self.url} answers {response.status}"
        crash.here("bridge.after_send")
        await self._mark_done(wakes)
        return None

    async def _isolate_rejected(
        self, token: str, wakes: Sequence[Wake], response: http_client.Answer
    ) -> str | None:
        """Send wakes one by one to find the rejected one, and mark it as done."""
        if len(wakes) == 1:
            reason = storable(f"{response.status}: {response.body.decode(errors='replace')}")
            log.get(NAME).error("bridge.refused", tenant_id=wakes[0].tenant_id, error=reason)
            await self._mark_done(wakes, problem=reason)
            return None
        for wake in wakes:
            if problem := await self._send(token, [wake]):
                return problem
        return None

    async def _mark_done(self, wakes: Sequence[Wake], *, problem: str | None = None) -> None:
        async with db.transaction(self.pool) as tx:
            await tx.execute(
                """
                update petri_observations set bridged_at = fn_now(), bridge_problem = %s
                where observation_id = any(%s) and bridged_at is null
                """,
                (problem, [wake.observation_id for wake in wakes]),
            )
        WAKES.labels(outcome="refused" if problem else "sent").inc(len(wakes))

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
        key: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        tokens.public_part(key)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise tokens.TokenError(
            f"cannot read the bridge's key CAMERA_BRIDGE_KEY_FILE={file}: {error}. "
            "Make one with `farmiq edge enroll`."
        ) from error
    return key


async def pending_wakes(pool: db.Pool, *, limit: int, without: Collection[str]) -> list[Wake]:
    """Wakes whose image was judged, oldest first; not those of the tenants in `without`."""
    async with db.transaction(pool) as tx, tx.cursor(row_factory=class_row(Wake)) as cursor:
        await cursor.execute(
            """
            select o.observation_id, c.tenant_id, o.program_id, o.site_id, o.device_id,
              o.payload_id, o.image_id, i.image_url, o.size_bytes, o.sha256,
              case when p.clock_suspect then p.created_at else p.captured_at end as occurred_at,
              coalesce(n.numbers, '{}') || jsonb_strip_nulls(jsonb_build_object(
                'temperature', p.temperature, 'humidity', p.humidity, 'pressure', p.pressure,
                'gas_resistance', p.gas_resistance, 'battery_voltage', p.battery_voltage,
                'wifi_rssi', p.wifi_rssi)) as numbers
            from petri_observations o
            join companies c on c.company_id = o.company_id
            join device_wake_payloads p on p.payload_id = o.payload_id
            join device_images i on i.image_id = o.image_id
            left join lateral (
              select jsonb_object_agg(e.key, e.number) as numbers
              from (
                select v.key, fn_jsonb_number(v.value) as number
                from jsonb_each(case jsonb_typeof(p.telemetry_data) when 'object'
                  then p.telemetry_data else '{}' end) v
                where jsonb_typeof(v.value) = 'number') e
              where e.number is not null) n on true
            where o.bridged_at is null and o.quality is not null and c.tenant_id <> all(%s)
            order by o.created_at limit %s
            """,
            (list(without), limit),
        )
        return await cursor.fetchall()


def _is_accepted(response: http_client.Answer) -> bool:
    body = response.json()
    return response.status == ACCEPTED and isinstance(body, dict) and body.get("accepted") is True


def _tenant(wake: Wake) -> str:
    return wake.tenant_id
