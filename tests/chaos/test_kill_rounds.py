"""SIGKILL at every declared point and at any moment, of every service and engine: nothing lost."""

import signal
from collections.abc import Callable

import pytest

from farmiq import crash
from farmiq.stack import processes
from tests.chaos.rounds import Battered, Result
from tests.until import until

pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(240)]

SERVICE_OF = {
    "ingress": "edge-ingress-gateway",
    "sync": "edge-sync-forwarder",
    "ingestion": "cloud-ingestion",
    "landing": "cloud-telemetry-service",
}
Record = Callable[[str, object], None]


# The others lie on no reading's way: the tests of those ways kill there.
ON_THE_WAY = [point for point in crash.POINTS if point.partition(".")[0] in SERVICE_OF]


@pytest.mark.parametrize("point", ON_THE_WAY)
async def test_death_at_a_crash_point(
    battered: Battered, point: str, record_property: Record
) -> None:
    """The service finds a backlog, dies in the middle of it, and the next one carries on."""
    farm, victim = battered.farm, SERVICE_OF[point.partition(".")[0]]

    async def die_there() -> None:
        farm.start(victim, crash_at=point)
        await until(lambda: farm.running[victim].poll() is not None, within_s=40)
        assert farm.running[victim].returncode == -signal.SIGKILL, farm.log(victim)

    async def start_again() -> None:
        farm.start(victim)

    result = await battered.round(
        f"crash {point}", fault=die_there, repair=start_again, without=victim
    )
    _accept(result, record_property)


@pytest.mark.parametrize("victim", SERVICE_OF.values())
async def test_kill_of_a_service_at_any_moment(
    battered: Battered, victim: str, record_property: Record
) -> None:
    async def kill() -> None:
        battered.farm.kill(victim)

    async def start_again() -> None:
        battered.farm.start(victim)

    result = await battered.round(f"kill {victim}", fault=kill, repair=start_again, busy=victim)
    _accept(result, record_property)


@pytest.mark.parametrize(
    ("engine", "busy"),
    [
        ("mqtt-edge", "edge-ingress-gateway"),
        ("postgres-edge", "edge-ingress-gateway"),
        ("postgres-cloud", "cloud-telemetry-service"),
        ("rabbitmq", "cloud-telemetry-service"),
    ],
)
async def test_kill_of_an_engine_on_the_way(
    battered: Battered, engine: str, busy: str, record_property: Record
) -> None:
    async def kill() -> None:
        battered.engines.kill(engine)

    async def start_again() -> None:
        battered.engines.restart(engine)

    result = await battered.round(f"kill {engine}", fault=kill, repair=start_again, busy=busy)
    _accept(result, record_property)


@pytest.mark.parametrize("engine", ["mqtt-cloud", "s3"])
async def test_kill_of_an_engine_that_nothing_uses_yet_harms_nobody(
    battered: Battered, engine: str, record_property: Record
) -> None:
    """No event is on its way there, so such a round cannot count; it only must not hurt."""

    async def kill() -> None:
        battered.engines.kill(engine)

    async def start_again() -> None:
        battered.engines.restart(engine)

    result = await battered.round(
        f"kill {engine} (unused)", fault=kill, repair=start_again, busy="cloud-telemetry-service"
    )
    record_property("fault", result.summary())
    result.check()


@pytest.mark.parametrize("victim", ["edge-telemetry-timeseries", "cloud-console"])
async def test_kill_of_a_service_beside_the_way_harms_nobody(
    battered: Battered, victim: str, record_property: Record
) -> None:
    """Nothing passes through these two; others deliver while they are dead."""

    async def kill() -> None:
        battered.farm.kill(victim)

    async def start_again() -> None:
        battered.farm.start(victim)

    result = await battered.round(
        f"kill {victim} (beside)", fault=kill, repair=start_again, busy="cloud-telemetry-service"
    )
    record_property("fault", result.summary())
    result.check()


@pytest.mark.parametrize("victim", SERVICE_OF.values())
async def test_pause_longer_than_a_lease_then_back_from_the_dead(
    battered: Battered, victim: str, record_property: Record
) -> None:
    """A zombie: stopped while others take over or give up, then going on as if nothing was."""
    process = processes.look(battered.farm.running[victim].pid)
    assert process is not None

    async def pause() -> None:
        processes.send(process, signal.SIGSTOP)

    async def resume() -> None:
        sent = battered.farm.sent().count("sent")
        await until(lambda: battered.farm.sent().count("sent") >= sent + 300, within_s=30)
        processes.send(process, signal.SIGCONT)

    result = await battered.round(f"pause {victim}", fault=pause, repair=resume, busy=victim)
    record_property("fault", result.summary())
    result.check()


def _accept(result: Result, record_property: Record) -> None:
    record_property("fault", result.summary())
    result.check()
    result.counts()
