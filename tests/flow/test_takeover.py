"""Two gateways, one turn: the second takes over in seconds, a zombie stands back (C-102)."""

import signal
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from farmiq.lab.simulate.check import Findings
from farmiq.lab.stack import processes
from tests.support.farm import Farm
from tests.support.until import until

FIRST, SECOND = "edge-ingress-gateway", "second gateway"
BUSY = ("--barns", "4", "--interval", "0.1", "--steady", "--seconds", "10")


@pytest.fixture
async def farm(idle_farm: Farm, free_port: Callable[[], int]) -> Farm:
    """Two gateways and nothing else; the first is active."""
    idle_farm.environment["INGRESS_LEASE_SECONDS"] = "5"
    idle_farm.ports[SECOND] = free_port()
    idle_farm.start(FIRST)
    await idle_farm.until_ready(FIRST)
    idle_farm.start(FIRST, called=SECOND)
    await idle_farm.until_ready(SECOND)
    await until(lambda: is_standby(idle_farm, SECOND))
    return idle_farm


def readiness(farm: Farm, name: str) -> tuple[int, dict[str, Any]]:
    answer = httpx2.get(f"{farm.url(name)}/readyz", timeout=30)
    return answer.status_code, answer.json()


def is_standby(farm: Farm, name: str) -> bool:
    status, body = readiness(farm, name)
    return status == 200 and "standby" in body.get("notes", {}).get("ingress", "")


def is_active(farm: Farm, name: str) -> bool:
    status, body = readiness(farm, name)
    return status == 200 and "notes" not in body


def turns(farm: Farm) -> int:
    ((fence,),) = farm.edge("select fence from leases")
    return int(fence)


async def until_sent(farm: Farm, count: int) -> None:
    """So many, or as many as there will be."""
    await until(
        lambda: farm.sent().count("sent") >= count or farm.running["simulator"].poll() is not None
    )


async def clean(farm: Farm, simulator: Any) -> Findings:
    """Everything that was acknowledged is stored, once."""
    assert simulator.wait(timeout=90) == 0, farm.log("simulator")
    await until(lambda: not farm.findings()[0].lost, within_s=60)
    edge, _ = farm.findings()
    assert (edge.lost, edge.twice, edge.invented, edge.changed) == ((), (), (), ())
    assert edge.sent > 300
    return edge


async def test_the_second_takes_over_when_the_first_is_killed(farm: Farm) -> None:
    simulator = farm.simulate(*BUSY)
    await until_sent(farm, 200)
    farm.kill(FIRST)
    await until(lambda: is_active(farm, SECOND))
    await clean(farm, simulator)
    assert turns(farm) == 2


async def test_a_zombie_takes_nothing_and_stands_by(farm: Farm) -> None:
    simulator = farm.simulate(*BUSY)
    await until_sent(farm, 200)
    zombie = processes.look(farm.running[FIRST].pid)
    assert zombie is not None
    processes.send(zombie, signal.SIGSTOP)
    await until(lambda: is_active(farm, SECOND))
    await until_sent(farm, farm.sent().count("sent") + 100)
    processes.send(zombie, signal.SIGCONT)
    await until(lambda: is_standby(farm, FIRST))
    assert is_active(farm, SECOND)
    await clean(farm, simulator)
    assert is_standby(farm, FIRST)
    assert turns(farm) == 2


async def test_a_first_that_is_told_to_stop_hands_over_and_may_come_back_as_standby(
    farm: Farm,
) -> None:
    simulator = farm.simulate(*BUSY)
    await until_sent(farm, 200)
    farm.stop_one(FIRST)
    assert farm.running[FIRST].returncode == 0
    await until(lambda: is_active(farm, SECOND))
    farm.start(FIRST)
    await farm.until_ready(FIRST)
    await until(lambda: is_standby(farm, FIRST))
    await clean(farm, simulator)
    assert turns(farm) == 2
