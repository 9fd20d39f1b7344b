"""Animals are weighed while all that is on their way is killed; both sites have each once."""

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest

from farmiq.lab import stack
from farmiq.lab.demo import run as demo
from farmiq.lab.simulate.stations import read_all
from farmiq.plumbing.storage.objects import Bucket
from tests.support.engines import state_dir
from tests.support.until import until

ROWS = {
    "EDGE": "select object_key, sha256 from media_objects where upload_status = 'stored'",
    "CLOUD": "select object_key, sha256 from media_objects where stored_at is not null",
}


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("chaos")
@pytest.mark.req("WV-01", "WV-18", "WV-35")
async def test_station_broker_edge_and_cloud_are_killed_and_no_animal_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "stack"
    with stack.start(root, downloads=state_dir() / "engines", shared_login=False) as engines:
        async with demo.running(
            engines, barns=2, interval_s=2.0, seconds=70, say=lambda _: None
        ) as farm:

            async def weighings(count: int) -> bool:
                edge = (await farm.observer.look()).edge
                return edge is not None and edge.weighed >= count

            await until(lambda: weighings(2), within_s=90)
            await asyncio.to_thread(engines.kill, "mqtt-edge")
            await _visits(root, 6)
            await asyncio.to_thread(engines.restart, "mqtt-edge")
            _kill(farm.children["edge"])
            await _visits(root, 9)
            _kill(farm.children["cloud"])
            stations = farm.children["stations"].process
            assert await asyncio.to_thread(stations.wait, 150) == 0

            async def clean() -> bool:
                return all(each.clean for each in await farm.observer.weighings())

            await until(clean, within_s=90)
            edge, cloud = await farm.observer.weighings()
            visits = read_all(root / "stations")
        given = {each for visit in visits for each in visit.sha256s}
        for site, query in ROWS.items():
            found = await _bytes(engines.environment, site, query)
            assert {sha256 for sha256, _ in found} <= given
            assert all(sha256 == of_bytes for sha256, of_bytes in found)
            assert len(found) == len({sha256 for sha256, _ in found})
    assert edge.sent >= 5
    with capsys.disabled():
        print(f"\n{edge.sent} due, {edge.stored} and {cloud.stored} weighed, {len(found)} pictures")  # noqa: T201
    stack.remove(root)


def _kill(child: demo.Child) -> None:
    """SIGKILL, by pid; and started again at once."""
    child.process.kill()
    child.process.wait()
    child.start_again()


async def _visits(root: Path, count: int) -> None:
    await until(lambda: len(read_all(root / "stations")) >= count, within_s=90)


async def _bytes(environment: Mapping[str, str], site: str, query: str) -> list[tuple[str, str]]:
    """(sha256 of the row, sha256 of the bytes in the bucket) of every picture."""
    bucket = Bucket(environment[f"FARMIQ_{site}_S3_URL"])
    async with await psycopg.AsyncConnection.connect(
        environment[f"FARMIQ_{site}_DB_ADMIN_URL"]
    ) as connection:
        rows = await (await connection.execute(query)).fetchall()
    return [
        (sha256, hashlib.sha256(await bucket.get(object_key)).hexdigest())
        for object_key, sha256 in rows
    ]
