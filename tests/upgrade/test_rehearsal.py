"""The last release is replaced by the working tree while devices send: nothing lost or twice.

The release runs in an environment of its own (deploy/last-release, tests/support/release.py).
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from farmiq.lab.simulate import stations
from farmiq.lab.simulate.stations import Habits, SimulatedStation
from farmiq.plumbing import migrations
from farmiq.services import SQL
from tests.support import devices
from tests.support.farm import TENANT
from tests.support.until import until
from tests.support.weighing_farm import IMPATIENT, WeighingFarm
from tests.upgrade.rehearsal import NEW, OLD, Rehearsal

# Readings that have to pass in each state before the next step.
ENOUGH = 60
MANY = 1500
Record = Callable[[str, object], None]

# What the release does not know: an alert of the edge is an event since.
NEWS = """
insert into sync_outbox (id, tenant_id, event_type, occurred_at, trace_id, payload_json,
  payload_size_bytes)
select id, '{tenant}', 'edge.alert.opened', now(), 'rehearsal', p, length(p::text)
from (select gen_random_uuid() as id, jsonb_build_object('alert_id', gen_random_uuid(),
  'code', 'rehearsal', 'subject', 'rehearsal', 'severity', 'info', 'first_at', '{at}',
  'last_at', '{at}', 'count', 1, 'message', 'new', 'edge_cluster_id', 'edge-1') as p) made
"""
WAITING = (
    "select status, last_error_code from sync_outbox where event_type = 'edge.alert.opened' "
    "and trace_id = 'rehearsal'"
)


async def begin(rehearsal: Rehearsal) -> None:
    """The release installed by its own commands, as an operator did."""
    await rehearsal.do("migrate", version=OLD)
    await rehearsal.do("company", "add", TENANT, "--name", "Hillside Farm", version=OLD)
    devices.register_known(rehearsal.farm.edge_db.admin_url)
    for site in ("cloud", "edge"):
        await rehearsal.start(site, OLD)
        rehearsal.lead_to(site, OLD)


async def until_put_off(rehearsal: Rehearsal) -> None:
    """An event that only N knows waits at the edge for a cloud that does."""
    rehearsal.farm.edge_do(NEWS.format(tenant=TENANT, at="2026-11-18T00:00:00Z"))
    await until(lambda: rehearsal.farm.edge(WAITING) == [("pending", "CLOUD_OLDER")], within_s=180)


def check_post_is_refused(rehearsal: Rehearsal, *, by: str) -> None:
    """With a file that takes something away, which the version to come might have."""
    folder = rehearsal.farm.folder / "next"
    shutil.copytree(SQL["cloud"], folder)
    (folder / "migrations" / "9999_post_x.sql").write_text("drop table kpi_events;")
    with pytest.raises(migrations.MigrationError, match=rf"9999_post_x was not applied.*{by}"):
        migrations.apply(rehearsal.farm.cloud_db.admin_url, folder, phase="post")
    shutil.rmtree(folder)


@pytest.mark.timeout(600)
@pytest.mark.req("UP-04", "UP-05", "UP-06", "UP-07")
async def test_an_upgrade_step_by_step_under_load_loses_nothing(
    rehearsal: Rehearsal, record_property: Record
) -> None:
    await begin(rehearsal)
    with rehearsal.step("N-1 with devices of N"), rehearsal.devices(NEW):
        await rehearsal.flows(ENOUGH)
    with rehearsal.devices(OLD):
        await rehearsal.flows(ENOUGH)
        for site in ("edge", "cloud"):
            code, seen = await rehearsal.check(site, "--backup-hours", "0")
            assert code == 0, seen
            assert {each["phase"] for each in seen["steps"]} == {"pre"}
            assert any(each["revision"] is None for each in seen["running"])
        with rehearsal.step("pre"):
            await rehearsal.do("migrate", "--phase", "pre")
        with rehearsal.step("a cloud of N beside N-1, an edge of N-1"):
            await rehearsal.start("cloud", NEW)
            rehearsal.lead_to("cloud", NEW)
            await rehearsal.flows(ENOUGH)
        with rehearsal.step("the cloud's door back to N-1, the edge to N"):
            rehearsal.lead_to("cloud", OLD)
            await rehearsal.replace("edge", before=OLD, after=NEW)
            await until_put_off(rehearsal)
            await rehearsal.flows(ENOUGH)
            check_post_is_refused(rehearsal, by="a version that does not say which")
        with rehearsal.step("the cloud to N"):
            rehearsal.lead_to("cloud", NEW)
            await rehearsal.stop("cloud", OLD)
            await rehearsal.flows(ENOUGH)
            await rehearsal.do("migrate", "--phase", "post")
    with rehearsal.step("N with devices of N"), rehearsal.devices(NEW):
        await rehearsal.flows(ENOUGH)
    await rehearsal.account()
    summary = rehearsal.write_report("upgrade-rehearsal-short")
    record_property("rehearsal", summary)
    assert summary["unanswered"] == []


@contextmanager
def in_the_way(url: str) -> Iterator[None]:
    """A transaction that somebody forgot, on a table that the migrations change."""
    with psycopg.connect(url, application_name="somebody") as connection:
        connection.execute("select 1 from alerts limit 1")
        yield


async def weigh(station: SimulatedStation) -> None:
    await until(lambda: station.hears, within_s=120)
    await station.run()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.req("UP-04", "UP-05", "UP-06", "UP-07")
async def test_the_whole_procedure_with_a_way_back_and_weigh_stations(
    whole_rehearsal: Rehearsal, tmp_path: Path, last_release: Path, record_property: Record
) -> None:
    rehearsal, farm = whole_rehearsal, whole_rehearsal.farm
    rehearsal.barns = 8
    await begin(rehearsal)
    weighing = WeighingFarm(farm)
    scales = [
        SimulatedStation(
            replace(
                weighing.post(number, edge="edge N"),
                edge_url=f"http://127.0.0.1:{rehearsal.balancers['edge'].port}",
            ),
            tmp_path / f"station-{number}",
            Habits(seed=number, gap_s=1.0, stands_s=4.0, calm=True),
            settings=IMPATIENT,
            tree=tree,
        )
        for number, tree in ((1, last_release), (2, None))
    ]
    weighing.buffers += [each.buffer for each in scales]
    async with stations.running(scales[0]), stations.running(scales[1]):
        weighed = asyncio.gather(*map(weigh, scales))
        with rehearsal.devices(OLD):
            await _upgrade(rehearsal)
            for each in scales:
                each.ending = True
            await weighed
            await rehearsal.flows(MANY)
        with rehearsal.step("N with devices of N"), rehearsal.devices(NEW):
            await rehearsal.flows(MANY)
        visits = [visit for each in scales for visit in each.visits]
        assert len(visits) > 10
        await weighing.check([one for visit in visits for one in visit.sha256s], within_s=300)
    await rehearsal.account()
    summary = rehearsal.write_report("upgrade-rehearsal") | {"weighings": len(visits)}
    record_property("rehearsal", summary)
    assert summary["unanswered"] == []


async def _upgrade(rehearsal: Rehearsal) -> None:
    farm = rehearsal.farm
    with rehearsal.step("N-1"):
        await rehearsal.flows(MANY)
        code, seen = await rehearsal.check("cloud")
        assert code == 3, seen
    with rehearsal.step("backup"):
        for site in ("edge", "cloud"):
            await rehearsal.do("backup", "run", site)
            code, seen = await rehearsal.check(site)
            assert code == 0, seen
    with rehearsal.step("pre, with a transaction in the way"):
        with in_the_way(farm.edge_db.admin_url):
            migrating = asyncio.create_task(rehearsal.command("migrate", "--phase", "pre"))
            await rehearsal.flows(MANY)
            assert not migrating.done()
        done = await migrating
        assert done.returncode == 0, done.stderr
        await rehearsal.do("topology", "apply", "--phase", "pre")
    with rehearsal.step("cloud N, edge N-1"):
        await rehearsal.replace("cloud", before=OLD, after=NEW)
        await rehearsal.flows(MANY)
    with rehearsal.step("back to cloud N-1"):
        await rehearsal.replace("cloud", before=NEW, after=OLD)
        await rehearsal.flows(MANY)
    with rehearsal.step("edge N, cloud N-1"):
        await rehearsal.replace("edge", before=OLD, after=NEW)
        await until_put_off(rehearsal)
        await rehearsal.flows(MANY)
        check_post_is_refused(rehearsal, by="a version that does not say which")
    with rehearsal.step("back to edge N-1"):
        await rehearsal.replace("edge", before=NEW, after=OLD)
        await rehearsal.flows(MANY)
    with rehearsal.step("cloud N, edge N, post"):
        await rehearsal.replace("cloud", before=OLD, after=NEW)
        await rehearsal.replace("edge", before=OLD, after=NEW)
        # What only N makes, the edge of N-1 has set aside when it came back.
        await rehearsal.do("outbox", "redrive", "--all")
        await rehearsal.do("migrate", "--phase", "post")
        await rehearsal.do("topology", "apply", "--phase", "post")
        await rehearsal.flows(MANY)
