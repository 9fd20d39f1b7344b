"""Fetch the cloud's master data for this edge and store the last copy of it (C-114).

A copy is replaced in one transaction, as it came or not at all. While the cloud is away, says no,
or sends what cannot be read, the edge works with the copy that it has.
"""

import asyncio
import random
from collections.abc import Sequence

import msgspec
from prometheus_client import Counter
from psycopg.types.json import Jsonb

from farmiq import crash
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.rules import CloudResponse
from farmiq.messages.context import EdgeContext, TenantContext
from farmiq.plumbing import db, log

NEW, AS_BEFORE = 200, 304
# Edges that started together, after a power cut, must not ask together.
JITTER = 0.2

FETCHES = Counter(
    "farmiq_sync_context_total", "Requests of this edge for the cloud's master data", ["outcome"]
)


async def fetch(pool: db.Pool, cloud: Cloud, *, every_s: float) -> dict[str, object]:
    """Fetch once for each tenant of the devices, then wait until the next round is due."""
    changed = 0
    async with pool.connection() as connection:
        rows = await db.fetch_all(
            connection,
            """
            select d.tenant_id, array_agg(distinct d.farm_id order by d.farm_id), min(c.etag)
            from devices d left join cloud_contexts c using (tenant_id)
            where d.revoked_at is null group by d.tenant_id order by d.tenant_id
            """,
        )
    for tenant_id, farms, etag in rows:
        response = await cloud.fetch_context(tenant_id, farms, etag=etag)
        outcome = await _settle(pool, tenant_id, response)
        FETCHES.labels(outcome=outcome).inc()
        changed += outcome == "changed"
    await asyncio.sleep(every_s * random.uniform(1 - JITTER, 1 + JITTER))  # noqa: S311
    return {"changed": changed}


async def _settle(pool: db.Pool, tenant_id: str, response: CloudResponse) -> str:
    """What came of a request: changed, as_before, away or unusable."""
    if response.status == AS_BEFORE:
        async with db.transaction(pool) as tx:
            await tx.execute(
                "update cloud_contexts set checked_at = fn_now() where tenant_id = %s",
                (tenant_id,),
            )
        return "as_before"
    if response.status != NEW:
        return "away"
    try:
        received = msgspec.convert(response.body, EdgeContext)
    except msgspec.ValidationError as error:
        log.get("context").warning("sync.context_unusable", tenant_id=tenant_id, error=str(error))
        return "unusable"
    own = next((tenant for tenant in received.tenants if tenant.tenant_id == tenant_id), None)
    if own is None or response.etag is None:
        return "unusable"
    async with db.transaction(pool) as tx:
        await store(tx, own, etag=response.etag)
        crash.here("context.before_commit")
    crash.here("context.after_commit")
    return "changed"


async def store(tx: db.Connection, context: TenantContext, *, etag: str) -> None:
    """Replace the tenant's copy. Farms whose zone changes get their days made again."""
    tenant_id = context.tenant_id
    # Another forwarder of this edge waits here until we have committed.
    await tx.execute(
        """
        insert into cloud_contexts (tenant_id, etag, content, changed_at, checked_at)
        values (%s, %s, %s, fn_now(), fn_now())
        on conflict on constraint cloud_contexts_pkey do update set etag = excluded.etag,
          content = excluded.content, changed_at = excluded.changed_at,
          checked_at = excluded.checked_at
        """,
        (tenant_id, etag, Jsonb(msgspec.to_builtins(context))),
    )
    before = await _zones(tx, tenant_id)
    await tx.execute("delete from cloud_farms where tenant_id = %s", (tenant_id,))
    await tx.execute(
        """
        insert into cloud_farms (tenant_id, farm_id, name, timezone)
        select %s, f.farm_id, f.name, z.name
        from unnest(%s::text[], %s::text[], %s::text[]) f(farm_id, name, timezone)
          left join pg_timezone_names z on z.name = f.timezone
        on conflict do nothing
        """,
        (tenant_id, *db.columns(context.farms, "farm_id", "name", "timezone")),
    )
    await tx.execute("delete from cloud_batches where tenant_id = %s", (tenant_id,))
    await tx.execute(
        """
        insert into cloud_batches (tenant_id, batch_id, farm_id, barn_id, placed_on, closed_on,
          placed_count)
        select %s, b.*
        from unnest(%s::text[], %s::text[], %s::text[], %s::date[], %s::date[], %s::int[]) b
        on conflict do nothing
        """,
        (
            tenant_id,
            *db.columns(
                context.batches, "batch_id", "farm_id", "barn_id", "placed_on", "closed_on",
                "placed_count",
            ),
        ),
    )  # fmt: skip
    if await _zones(tx, tenant_id) != before:
        # Devices move between farms: every series of the tenant may have days there.
        await tx.execute(
            "insert into telemetry_rezoned select tenant_id, device_id, metric_type "
            "from telemetry_latest where tenant_id = %s on conflict do nothing",
            (tenant_id,),
        )


async def _zones(tx: db.Connection, tenant_id: str) -> Sequence[tuple[str, str]]:
    rows = await db.fetch_all(
        tx,
        "select farm_id, timezone from farm_zones where tenant_id = %s order by farm_id",
        tenant_id,
    )
    return [(farm_id, timezone) for farm_id, timezone in rows]
