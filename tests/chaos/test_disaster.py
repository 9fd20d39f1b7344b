"""The machine in the barn burns under load; a new one goes on from the backup."""

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from farmiq.lab.simulate import stations
from farmiq.lab.simulate.stations import Habits, SimulatedStation
from farmiq.lab.stack import processes
from farmiq.plumbing.storage.objects import Bucket
from tests.chaos.conftest import Weighing
from tests.support.farm import Farm
from tests.support.until import until
from tests.support.weighing_farm import IMPATIENT

LOST_S = 60.0  # what may be lost of what the edge alone had


@pytest.mark.long
@pytest.mark.timeout(500)
@pytest.mark.xdist_group("chaos")
@pytest.mark.req("BK-04", "BK-05", "BK-06", "BK-11")
async def test_edge_whose_disk_is_gone_goes_on_from_its_backup(
    weighing: Weighing, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Lost: at most a minute of what nobody else had. The cloud was away before: that is much."""
    farm, account = weighing.farm, weighing.account
    farm.environment |= {
        "FARMIQ_BACKUP_URL": f"file://{tmp_path}/elsewhere",
        "FARMIQ_BACKUP_KEY_FILE": str(tmp_path / "backup.key"),
        "FARMIQ_BACKUP_SPOOL": str(tmp_path / "spool"),
        "BACKUP_WAL_SECONDS": "5",
    }
    _run(farm, "backup", "key", str(tmp_path / "backup.key"))
    await weighing.start("cloud", "edge")
    station = SimulatedStation(
        account.post(1),
        tmp_path / "station-1",
        Habits(seed=1, gap_s=1.0, stands_s=4.0, calm=True),
        settings=IMPATIENT,
    )
    account.buffers.append(station.buffer)
    farm.simulate("--barns", "4", "--interval", "0.2", "--steady")
    farm.start_command("backup", "backup", "stream", "edge")
    async with stations.running(station):
        weighed = asyncio.create_task(station.run(visits=8))
        await until(lambda: _covered(farm), within_s=120)
        await until(lambda: len(station.visits) >= 2, within_s=60)
        farm.kill("cloud")
        alone_from = datetime.now(UTC)
        await until(lambda: len(station.visits) >= 6, within_s=90)
        await until(lambda: _covered(farm) > alone_from, within_s=60)
        await until(lambda: _has_copied(farm, account.announced()), within_s=60)

        burnt_at = await _burn(weighing)
        began = time.monotonic()
        data = (weighing.engines.root / "postgres-edge" / "data").resolve()
        restored = _run(
            farm,
            *("restore", "edge", "--into", str(data.with_name("restored"))),
            *("--bucket-url", farm.environment["FARMIQ_EDGE_S3_URL"]),
        )
        shutil.move(str(restored["data"]), data)
        # With a login each, devices are let in by the edge, after it has made its log. The shared
        # one of this test would let them in before.
        farm.running["simulator"].send_signal(signal.SIGSTOP)
        for engine in ("postgres-edge", "mqtt-edge"):
            await asyncio.to_thread(weighing.engines.restart, engine)
        await weighing.start("edge")
        farm.running["simulator"].send_signal(signal.SIGCONT)
        ready_s = time.monotonic() - began
        assert restored["stations"] == 1
        await weighing.start("cloud")
        await weighed
        farm.stop_one("simulator")
        # Every event and every picture of the station, byte for byte, at both sites.
        await account.check(each for visit in station.visits for each in visit.sha256s)
    await until(lambda: _has_all_of_the_edge(farm), within_s=90)
    edge, cloud = farm.findings()
    lost = sorted(_made_at(event_id) for event_id in {*edge.lost, *cloud.lost})
    for found in (edge, cloud):
        assert (found.twice, found.changed, found.invented) == ((), (), ())
    assert set(edge.lost) >= set(cloud.lost)
    alone_s = (burnt_at - lost[0]).total_seconds() if lost else 0.0
    record_property(
        "fault",
        {
            "kind": f"edge's disk gone, {alone_s:.0f} s of it lost",
            "events": edge.sent,
            "lost": len(lost),
            "twice": 0,
            "recovery_s": ready_s,
        },
    )
    assert alone_s <= LOST_S
    assert all(at < burnt_at for at in lost)


def _has_all_of_the_edge(farm: Farm) -> bool:
    """The cloud has stored what the edge has."""
    (edge,) = farm.edge("select count(*) from telemetry_raw")
    (cloud,) = farm.cloud("select count(*) from telemetry_readings")
    waiting = farm.edge("select from sync_outbox where status <> 'acked' limit 1")
    return not waiting and cloud >= edge


async def _burn(weighing: Weighing) -> datetime:
    """Database, broker and images of the running edge are gone; returns when nothing answers."""
    farm = weighing.farm
    farm.kill("edge")
    backup = processes.look(farm.running["backup"].pid)
    assert backup is not None
    processes.kill_family(backup)
    farm.running["backup"].wait()
    for engine in ("postgres-edge", "mqtt-edge"):
        weighing.engines.kill(engine)
    burnt_at = datetime.now(UTC)
    shutil.rmtree((weighing.engines.root / "postgres-edge" / "data").resolve())
    shutil.rmtree(weighing.engines.root / "mqtt-edge")
    bucket = Bucket(farm.environment["FARMIQ_EDGE_S3_URL"])
    for key, _ in await bucket.page("", after=""):
        await bucket.delete(key)
    return burnt_at


def _run(farm: Farm, *words: str) -> dict[str, object]:
    done = farm.cli(*words, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


def _covered(farm: Farm) -> datetime:
    """Up to when the backup has everything."""
    done = farm.cli("backup", "list", "edge", "--json")
    until_at = json.loads(done.stdout)["covered_until"] if done.returncode == 0 else None
    return datetime.fromisoformat(until_at) if until_at else datetime.min.replace(tzinfo=UTC)


def _has_copied(farm: Farm, announced: dict[str, str]) -> bool:
    """Every picture that the station announced so far is in the backup."""
    folder = Path(farm.environment["FARMIQ_BACKUP_URL"].removeprefix("file://"))
    return {path.name for path in (folder / "edge" / "objects").glob("*")} >= {*announced.values()}


def _made_at(event_id: str) -> datetime:
    """When a simulated sensor made its event: its ids are UUIDs of version 7."""
    return datetime.fromtimestamp((UUID(event_id).int >> 80) / 1000, UTC)
