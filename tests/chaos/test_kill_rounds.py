"""SIGKILL at every declared point and at any moment, of every service and engine: nothing lost."""

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from farmiq import crash
from farmiq.farm import months
from farmiq.lab.stack import processes
from tests.chaos.rounds import ALL, UNRESOLVED, Battered
from tests.support.until import until

pytestmark = [pytest.mark.xdist_group("chaos"), pytest.mark.timeout(240)]

SERVICE_OF = {
    "ingress": "edge-ingress-gateway",
    "sync": "edge-sync-forwarder",
    "ingestion": "cloud-ingestion",
    "sink": "cloud-telemetry-service",
}
# Nothing passes here, so nothing is delivered again: such a round only must not hurt.
BESIDE = ("telemetry.in_partition_upkeep",)
BESIDE_THE_WAY = tuple(name for name in ALL if name not in SERVICE_OF.values())
# A reading needs neither images nor cameras.
UNUSED = ("mqtt-cloud", "s3")
ROOT = Path(__file__).parents[2]
Record = Callable[[str, object], None]


# Points of a command, or beside the way of what devices send: tests of their own reach those.
ELSEWHERE = {
    "quarantine.in_redrive": "tests/integration/edge/test_redrive.py",
    "context.before_commit": "tests/integration/cloud/test_edge_context.py",
    "context.after_commit": "tests/integration/cloud/test_edge_context.py",
    "edge_posting.before_commit": "tests/integration/edge/barn/test_kill.py",
    "posting.before_commit": "tests/integration/cloud/postings/test_kill.py",
    "posting.after_publish": "tests/integration/cloud/postings/test_kill.py",
    "feed.in_derivation": "tests/integration/edge/feed/test_derivation.py",
    "sync.after_archive": "tests/integration/edge/sync/test_crash.py",
    "sync.before_reap_commit": "tests/integration/edge/sync/test_crash.py",
    "consume.after_set_aside": "tests/integration/cloud/test_sinks.py",
    "dlq.after_publish": "tests/integration/cloud/test_deadletter.py",
    "dlq.after_renewal": "tests/integration/cloud/test_deadletter_job.py",
    "observations.after_claim": "tests/integration/cloud/test_observations.py",
    "observations.after_put": "tests/integration/cloud/test_observations.py",
    "bridge.after_send": "tests/integration/cloud/test_camera_bridge.py",
    **{
        point: "tests/integration/edge/alert/test_service.py"
        for point in crash.POINTS
        if point.startswith("alert.")
    },
    "alert.before_event": "tests/integration/edge/test_alert_events.py",
    "alert.after_event": "tests/integration/edge/test_alert_events.py",
    **{
        point: "tests/integration/edge/media/test_crash.py"
        for point in crash.POINTS
        if point.startswith("media.")
    },
    **{
        point: "tests/integration/cloud/analytics/test_service.py"
        for point in crash.POINTS
        if point.startswith("analytics.")
    },
    **{
        point: "tests/integration/cloud/notification/test_kill.py"
        for point in crash.POINTS
        if point.startswith("notification.")
    },
    **{
        point: "tests/integration/cloud/alerts/test_service.py"
        for point in crash.POINTS
        if point.startswith("alerts.")
    },
    **{
        point: "tests/integration/cloud/reports/test_reports.py"
        for point in crash.POINTS
        if point.startswith("reports.")
    },
    **{
        point: "tests/integration/cloud/telemetry/test_publishing.py"
        for point in crash.POINTS
        if point.startswith("buckets.")
    },
    **{
        point: "tests/integration/cloud/telemetry/test_archive.py"
        for point in crash.POINTS
        if point.startswith("history.")
    },
    **{
        point: "tests/integration/cloud/test_calendar.py"
        for point in crash.POINTS
        if point.startswith("calendar.")
    },
    **{
        point: "tests/integration/cloud/camera_gateway/test_takeover.py"
        for point in crash.POINTS
        if point.startswith("camera.")
    },
    **{
        point: "tests/integration/edge/vision/test_crash.py"
        for point in crash.POINTS
        if point.startswith("vision.")
    },
}
# Points that are only reached over what an earlier death left behind.
AFTER_A_DEATH_AT = {"sync.after_sending": "sync.after_claim"}
# By then only what the dead one had leased is left on the way.
LEASED = 10
# Points that are only reached while somebody else is slow.
WHILE_SLOW = {"sync.after_renewal": "cloud-ingestion"}


def test_rounds_are_serialised(request: pytest.FixtureRequest) -> None:
    """With workers, the group is part of the name, and a group has one worker."""
    shared = os.environ.get("PYTEST_XDIST_WORKER") is not None
    assert request.node.nodeid.endswith("@chaos") is shared


@pytest.mark.parametrize(("point", "file"), ELSEWHERE.items())
def test_a_point_off_the_way_is_hit_by_a_test_of_its_own(point: str, file: str) -> None:
    assert point in crash.POINTS
    assert f'"{point}' in (ROOT / file).read_text()


# A station has no part in these: tests/integration/device/test_kill.py takes all of its points.
ON_THE_WAY = [
    # Were the reading and what is to be sent of it not of one transaction, the cloud would lack it.
    pytest.param(point, marks=pytest.mark.req("DB-14") if point == "ingress.before_commit" else ())
    for point in crash.POINTS
    if point not in {*ELSEWHERE, *BESIDE} and not point.startswith("agent.")
]


@pytest.mark.parametrize("point", ON_THE_WAY)
async def test_death_at_a_crash_point(
    battered: Battered, point: str, record_property: Record
) -> None:
    """The service finds a backlog, dies in the middle of it, and the next one carries on."""
    farm, victim = battered.farm, SERVICE_OF[point.partition(".")[0]]

    async def die_at(place: str) -> None:
        farm.start(victim, crash_at=place)
        await until(lambda: farm.running[victim].poll() is not None, within_s=90)
        assert farm.running[victim].returncode == -signal.SIGKILL, farm.log(victim)

    async def die_there() -> None:
        if point in AFTER_A_DEATH_AT:
            await die_at(AFTER_A_DEATH_AT[point])
        slow = processes.look(farm.running[WHILE_SLOW[point]].pid) if point in WHILE_SLOW else None
        if slow is not None:
            processes.send(slow, signal.SIGSTOP)
        await die_at(point)
        if slow is not None:
            processes.send(slow, signal.SIGCONT)

    async def start_again() -> None:
        farm.start(victim)

    result = await battered.counted_round(
        f"crash {point}",
        fault=die_there,
        repair=start_again,
        without=victim,
        least=LEASED if point in AFTER_A_DEATH_AT else UNRESOLVED,
    )
    record_property("fault", result.summary())


async def test_death_in_partition_upkeep(battered: Battered, record_property: Record) -> None:
    """Readings of a month to come wait beside it; upkeep dies while it moves them there."""
    farm, victim = battered.farm, "edge-telemetry-timeseries"
    (point,) = BESIDE
    waiting = (
        "select count(*) from telemetry_raw where tenant_id = 'waiting' "
        "and tableoid = 'telemetry_raw_default'::regclass"
    )

    async def die_there() -> None:
        month = months.add_months(datetime.now(UTC).date(), 2)
        with psycopg.connect(farm.edge_db.admin_url) as owner:
            # All at once, before intake holds one of them and waits for the other.
            owner.execute("lock table telemetry_raw in access exclusive mode")
            owner.execute(f"drop table telemetry_raw_{month:%Y_%m}".encode())
            owner.execute(
                "insert into telemetry_raw select gen_random_uuid(), 'waiting', 'f', 'b', 'd', "
                "%s::timestamp at time zone 'UTC' + n * interval '1 minute', 'm', 1, 'u', now(), "
                "true from generate_series(1, 100) n",
                (month,),
            )
        farm.start(victim, crash_at=point)
        await until(lambda: farm.running[victim].poll() is not None, within_s=90)
        assert farm.running[victim].returncode == -signal.SIGKILL, farm.log(victim)
        assert farm.edge(waiting) == [(100,)]

    async def start_again() -> None:
        farm.start(victim)
        await until(lambda: farm.edge(waiting) == [(0,)], within_s=90)
        (count,) = farm.edge("select count(*) from telemetry_raw where tenant_id = 'waiting'")
        assert count == (100,)
        with psycopg.connect(farm.edge_db.admin_url) as owner:
            owner.execute("delete from telemetry_raw where tenant_id = 'waiting'")

    result = await battered.round(
        f"crash {point}",
        fault=die_there,
        repair=start_again,
        without=victim,
        busy="cloud-telemetry-service",
    )
    record_property("fault", result.summary())
    result.check()


@pytest.mark.parametrize("victim", SERVICE_OF.values())
async def test_kill_of_a_service_at_any_moment(
    battered: Battered, victim: str, record_property: Record
) -> None:
    async def kill() -> None:
        battered.farm.kill(victim)

    async def start_again() -> None:
        battered.farm.start(victim)

    result = await battered.counted_round(
        f"kill {victim}", fault=kill, repair=start_again, busy=victim
    )
    record_property("fault", result.summary())


@pytest.mark.parametrize(
    ("engine", "busy"),
    [
        ("mqtt-edge", "edge-ingress-gateway"),
        ("postgres-edge", "edge-ingress-gateway"),
        ("postgres-cloud", "cloud-telemetry-service"),
        pytest.param("rabbitmq", "cloud-telemetry-service", marks=pytest.mark.req("RB-22")),
    ],
)
async def test_kill_of_an_engine_on_the_way(
    battered: Battered, engine: str, busy: str, record_property: Record
) -> None:
    async def kill() -> None:
        battered.engines.kill(engine)

    async def start_again() -> None:
        battered.engines.restart(engine)

    result = await battered.counted_round(
        f"kill {engine}", fault=kill, repair=start_again, busy=busy
    )
    record_property("fault", result.summary())


@pytest.mark.parametrize("victim", SERVICE_OF.values())
async def test_pause_longer_than_a_lease_then_back_from_the_dead(
    battered: Battered, victim: str, record_property: Record
) -> None:
    """A zombie: stopped while others take over or give up, then going on as if nothing was."""
    farm = battered.farm

    async def stay_away() -> None:
        sent = farm.sent().count("sent")
        await until(
            lambda: (
                farm.sent().count("sent") >= sent + 300
                or farm.running["simulator"].poll() is not None
            ),
            within_s=40,
        )

    async def go_on() -> None:
        """As the round makes it."""

    result = await battered.round(
        f"pause {victim}", fault=stay_away, repair=go_on, busy=victim, seconds=3.0
    )
    record_property("fault", result.summary())
    result.check()


async def test_kill_of_all_that_is_beside_the_way_harms_nobody(
    battered: Battered, record_property: Record
) -> None:
    """No reading passes through these, so such a round cannot count; it only must not hurt."""
    battered.services = ALL

    async def kill() -> None:
        for victim in BESIDE_THE_WAY:
            battered.farm.kill(victim)
        for engine in UNUSED:
            battered.engines.kill(engine)

    async def start_again() -> None:
        for engine in UNUSED:
            battered.engines.restart(engine)
        for victim in BESIDE_THE_WAY:
            battered.farm.start(victim)

    result = await battered.round(
        "kill all beside the way", fault=kill, repair=start_again, busy="cloud-telemetry-service"
    )
    record_property("fault", result.summary())
    result.check()
