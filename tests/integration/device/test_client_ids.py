"""The agent's name at the broker: of its own tenant, kept over restarts, guessed by nobody."""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from farmiq.device.buffer import database, store
from farmiq.plumbing.messaging import mqtt
from tests.integration.device.conftest import Edge
from tests.integration.device.running import Running
from tests.support.until import until


async def client_ids(edge: Edge) -> set[str]:
    """Of every client that is connected to the broker now."""
    url = edge.broker.environment["FARMIQ_EDGE_BROKER_MONITOR_URL"]
    async with httpx2.AsyncClient(trust_env=False) as web:
        found: dict[str, Any] = (await web.get(f"{url}/connz")).json()
    return {str(each.get("mqtt_client")) for each in found["connections"]}


async def test_two_agents_of_one_device_id_in_two_tenants_are_connected_at_once(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    for tenant in ("t-1", "t-2"):
        await Running().begin(tasks, tmp_path / tenant, edge, AGENT_TENANT_ID=tenant)

    async def both() -> bool:
        found = await client_ids(edge)
        return all(any(one.startswith(f"{t}/d-1/agent-") for one in found) for t in ("t-1", "t-2"))

    await until(both)


async def test_agent_keeps_its_client_id_and_ends_the_session_of_the_old_version(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    async with mqtt.connected(
        edge.mqtt_url, client_id="agent-d-1", topics=["iot/ack/t-1/f-1/b-1/d-1"]
    ) as old:
        await old.until_up()
    with contextlib.closing(database.connect(tmp_path / database.FILE)) as made_before:
        made_before.execute("delete from meta where name = 'old_session_ended'")

    async def agents() -> set[str]:
        return {one for one in await client_ids(edge) if one.startswith("t-1/d-1/agent-")}

    seen = []
    for _ in range(2):
        agent = Running()
        task = await agent.begin(tasks, tmp_path, edge)
        seen.append(await until(agents))

        async def ended(book: Any = agent.book) -> bool:
            return bool(
                await book.buffer.do(
                    lambda tx: tx.execute(
                        "select 1 from meta where name = 'old_session_ended'"
                    ).fetchone()
                )
            )

        await until(ended)
        task.cancel()
        await asyncio.wait([task])
    assert seen[0] == seen[1]
    async with mqtt.connected(edge.mqtt_url, client_id="agent-d-1") as again:
        await again.until_up()
        assert again.resumed_at is None


async def test_new_buffer_has_no_session_of_an_old_version_to_end(tmp_path: Path) -> None:
    with contextlib.closing(database.connect(tmp_path / database.FILE)) as made:
        assert store.meta(made, "old_session_ended") == 1


async def test_broker_that_refuses_to_end_a_session_is_told_from_one_that_is_away(
    edge: Edge, free_port: Callable[[], int]
) -> None:
    host, port = mqtt.address(edge.mqtt_url)
    assert await mqtt.end_session(f"mqtt://nobody:wrong@{host}:{port}", "agent-d-1") is False
    assert await mqtt.end_session(f"mqtt://nobody:wrong@{host}:{free_port()}", "x") is None
