"""The demo's farm, run as `make smoke` does, then stopped: every figure of every page by SQL.

What services made of what devices sent is looked at here, not rows that a test wrote.
"""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from farmiq.lab import stack
from farmiq.lab.demo import provision, run
from farmiq.lab.demo.run import Farm
from farmiq.lab.simulate.life import files
from farmiq.ui import words
from tests.browser import person
from tests.browser.look import WIDE
from tests.browser.pages import (
    counted_batches,
    counted_cameras,
    counted_demo,
    counted_edge,
    counted_farm,
    counted_office,
)
from tests.browser.pages.recount import Counted, Recount
from tests.browser.pages.visit import Visitor
from tests.browser.served import Served
from tests.browser.served_edge import ServedEdge
from tests.support import databases
from tests.support.until import until

SECONDS = 45.0
TENANT = provision.TENANT_ID
# What of the pages there is to see; braces hold ids of the demo's farm.
CLOUD = {
    "today": "/", "telemetry": "/telemetry",
    "sensor": "/telemetry/barn-3-climate/temperature?{span}",
    "compare": "/telemetry/compare?s=barn-1-climate/temperature&s=barn-2-climate/humidity&{span}",
    "devices": "/devices", "device": "/devices/sensor/barn-1-climate",
    "station": "/devices/station/barn-1-station", "weighings": "/weighings",
    "weighing": "/weighings/{weighing}", "batches": "/batches", "batch": "/batches/{batch}",
    "feed": "/feed", "entries": "/records", "entries-intakes": "/records?of=intakes",
    "reports": "/reports", "farms": "/settings/farms", "alerts": "/alerts",
    "alerts-resolved": "/alerts?state=resolved", "alert": "/alerts/{alert}",
    "alert-rules": "/alerts/rules", "delivery": "/delivery",
    "delivery-edge": "/delivery/edges/edge-demo", "notifications": "/settings/notifications",
    "people": "/settings/people", "settings-edges": "/settings/edges",
    "retention": "/settings/retention", "audit": "/settings/audit", "sites": "/sites",
    "site": "/sites/{site}", "camera": "/devices/camera/{camera}", "programs": "/programs",
    "program": "/programs/{program}", "dishes": "/sites/{site}/dishes",
    "image": "/sites/images/{image}", "dead-letters": "/delivery/dead-letters",
    "schedule": "/sites/{site}/cameras/{camera}/schedule?cron=0 */2 * * *",
    "alert-windows": "/alerts/windows", "about": "/settings/about",
}  # fmt: skip
EDGE = {
    "today": "/", "weighings": "/weighings", "weighing": "/weighings/{weighing}",
    "readings": "/readings", "sensor": "/readings/barn-1-climate/temperature",
    "devices": "/devices", "device": "/devices/barn-1-climate",
    "station": "/devices/barn-1-station", "delivery": "/delivery", "records": "/records",
    "records-all": "/records?of=all", "keys": "/keys", "dead-letters": "/delivery/dead-letters",
    "quarantine": "/delivery/quarantine", "losses": "/delivery/losses",
}  # fmt: skip
# Whatever a person would look at is there: estimates, days of figures, images of cameras.
IS_THERE = """
select exists (select from inference_events where payload ->> 'low_kg' is not null)
  and exists (select from device_images where status = 'complete')
"""
# The cloud knows each sensor's pace, the edge its minutes and its heartbeats.
ALL_LATE = "select max(occurred_at) < now() - interval '{} seconds' from telemetry_latest"
ON_ITS_WAY = """
select (select count(*) from telemetry_dirty) + (select count(*) from analytics_pending)
  + (select count(*) from analytics_dirty_days)
"""


async def live(engines: stack.Stack) -> provision.Site:
    """The demo, until all is there that it shows; then its senders stop, and at last everything."""
    async with run.running(
        engines, barns=4, interval_s=1.0, seconds=None, say=lambda _: None
    ) as farm:
        cloud_url = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
        assert farm.history is not None
        await farm.history.post(lambda _: None)
        await until(lambda: _value(cloud_url, IS_THERE), within_s=900)
        for name in ("simulator", "stations", "cameras"):
            farm.children[name].process.terminate()
            await asyncio.to_thread(farm.children[name].process.wait)
        await until(lambda: _is_still(farm, engines.environment), within_s=200)
    # From now on nothing changes but the age of what is there.
    await until(lambda: _value(cloud_url, ALL_LATE.format(25)), within_s=60)
    edge_url = engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"]
    await until(lambda: _value(edge_url, ALL_LATE.format(125)), within_s=180)
    return farm.site


async def _is_still(farm: Farm, environment: Mapping[str, str]) -> bool:
    figures = await farm.observer.look()
    return (
        figures.edge is not None
        and figures.edge.outbox_waiting == 0
        and figures.queue_waiting == 0
        and _value(environment["FARMIQ_CLOUD_DB_ADMIN_URL"], ON_ITS_WAY) == 0
    )


def _value(url: str, query: str) -> Any:
    with databases.connected(url) as connection:
        ((value,),) = connection.execute(query.encode()).fetchall()
    return value


@contextmanager
def visiting(browser: Browser, served: Served) -> Iterator[Visitor]:
    served.start()
    context = browser.new_context(viewport={"width": WIDE, "height": 800}, service_workers="block")
    try:
        yield Visitor(context, served, pictures=False)
    finally:
        context.close()
        served.stop()


def of_demo(*known: Mapping[str, Counted]) -> dict[str, Counted]:
    """The queries of the pages' tests, with the demo's tenant for theirs, and its pace.

    Its sensors send every second: in the cloud one is late after twice the shortest interval.
    """

    def adapted(query: Counted) -> Counted:
        if not isinstance(query, str):
            return query
        late, soon = "now() - interval '10 minutes'", "now() - interval '20 seconds'"
        query = query.replace(f"occurred_at < {late}", f"occurred_at < {soon}")
        return query.replace("tenant-a", TENANT).replace("valley", TENANT)

    return {name: adapted(query) for queries in known for name, query in queries.items()}


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_every_figure_of_the_demo_is_counted_again(tmp_path: Path, browser: Browser) -> None:
    # The browser's own loop runs in this thread.
    with (
        stack.start(tmp_path / "demo", say=lambda _: None, shared_login=False) as engines,
        ThreadPoolExecutor(1) as thread,
    ):
        site = thread.submit(asyncio.run, live(engines)).result()
        wrong = [*see_cloud(browser, engines, site), *see_edge(browser, engines, site)]
    assert not wrong, f"{len(wrong)} problems:\n" + "\n".join(wrong)


def see_cloud(browser: Browser, engines: stack.Stack, site: provision.Site) -> list[str]:
    environment = {**engines.environment, **site.environment}
    admin_url = environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
    life = files.read(engines.root / provision.LIFE_FILE)
    served = Served(
        environment["FARMIQ_CLOUD_DB_URL"], FARMIQ_CLOUD_S3_URL=environment["FARMIQ_CLOUD_S3_URL"]
    )
    with (
        visiting(browser, served) as visitor,
        databases.connected(admin_url, autocommit=True) as connection,
    ):
        connection.execute("set row_security = off")
        ((weighing, alert, place, camera, program, image),) = connection.execute(
            """
            select (select session_id from inference_events
                where payload ->> 'low_kg' is not null limit 1),
              (select episode_id from alert_episodes where state = 'active' limit 1),
              d.site_id, d.device_id, s.program_id, i.image_id
            from devices d join sites s using (site_id) join device_images i using (device_id)
            where i.status = 'complete' limit 1
            """
        ).fetchall()
        now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
        span = f"from={words.utc(now - timedelta(hours=20))}&to={words.utc(now)}"
        person.sign_in(visitor.page, served, email=site.email, password=site.password)
        recount = Recount(
            connection,
            of_demo(
                counted_cameras.QUERIES, counted_office.QUERIES, counted_farm.QUERIES,
                counted_demo.CLOUD,
            ),
            otherwise=counted_batches.otherwise(life),
        )  # fmt: skip
        for name, address in CLOUD.items():
            found = address.format(
                weighing=weighing, alert=alert, site=place, camera=camera, program=program,
                image=image, batch=life.flocks[0].batch_id, span=span,
            )  # fmt: skip
            visitor.see(found, f"demo-{name}", recount=recount)
        return visitor.wrong


def see_edge(browser: Browser, engines: stack.Stack, site: provision.Site) -> list[str]:
    environment = {**engines.environment, **site.environment}
    served = ServedEdge(
        environment["FARMIQ_EDGE_DB_URL"], FARMIQ_EDGE_S3_URL=environment["FARMIQ_EDGE_S3_URL"]
    )
    with (
        visiting(browser, served) as visitor,
        databases.connected(environment["FARMIQ_EDGE_DB_ADMIN_URL"], autocommit=True) as connection,
    ):
        ((weighing,),) = connection.execute(
            "select session_id from inference_results where low_kg is not null limit 1"
        ).fetchall()
        visitor.page.goto(served.url)
        visitor.page.get_by_label("Name").fill(provision.OPERATOR)
        visitor.page.get_by_label("PIN").fill(site.pin)
        with visitor.page.expect_response(lambda found: found.request.method == "POST"):
            visitor.page.get_by_role("button", name="Sign in", exact=True).click()
        recount = Recount(connection, of_demo(counted_edge.QUERIES, counted_demo.EDGE))
        for name, address in EDGE.items():
            visitor.see(address.format(weighing=weighing), f"demo-edge-{name}", recount=recount)
        return visitor.wrong
