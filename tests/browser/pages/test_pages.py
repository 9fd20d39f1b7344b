"""Each page of both consoles in one visit: figures, look, layout, errors, what it loads.

Afterwards every page once more with stored text that tries to break it. A route that answers HTML
and stands in no table here fails, so that there is no page without.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from playwright.sync_api import Browser, Page

from farmiq.ui import words
from tests.browser import (
    barns,
    cameras,
    deliveries,
    dishes,
    edges,
    flocks,
    person,
    running_farm,
    scales,
    troubles,
)
from tests.browser.cameras import Shots
from tests.browser.look import WIDE
from tests.browser.pages import (
    counted_batches,
    counted_cameras,
    counted_edge,
    counted_farm,
    counted_office,
    hostile,
)
from tests.browser.pages.recount import Recount
from tests.browser.pages.visit import Visitor
from tests.browser.served import Served
from tests.browser.served_edge import ServedEdge
from tests.support import databases, edge_day

# Each is half a minute of a core, which is long on a machine that has other work.
pytestmark = pytest.mark.timeout(600)

# The addresses of each farm below, by the name of their pictures; braces hold its ids.
Pages = Mapping[str, str]
FIRST_RUN: Pages = {
    "sign-in": "/sign-in", "today": "/", "telemetry": "/telemetry", "sites": "/sites",
    "offline": "/offline",
    "weighings": "/weighings", "batches": "/batches", "feed": "/feed", "alerts": "/alerts",
    "delivery": "/delivery", "devices": "/devices", "programs": "/programs", "reports": "/reports",
}  # fmt: skip
FARM: Pages = {
    "today": "/", "telemetry": "/telemetry",
    "sensor": "/telemetry/hot-01/temperature?{span}",
    "compare": "/telemetry/compare?s=hot-01/temperature&s=climate-01/humidity&{span}",
    "devices": "/devices", "device": "/devices/sensor/hot-01",
    "weighings": "/weighings?day={day}", "weighing": "/weighings/{weighing}",
}  # fmt: skip
FLOCK: Pages = {
    "batches": "/batches", "batch": "/batches/{good}", "batch-behind": "/batches/{behind}",
    "batch-form": "/batches/new", "batch-edit": "/batches/{good}/edit",
    "barn-form": "/batches/barns/new", "feed": "/feed", "entries": "/records",
    "entries-intakes": "/records?of=intakes",
    "record-form": "/records/new?kind=treatment&batch={behind}",
    "record-correction": "/records/new?replaces={record}",
    "intake-form": "/feed/intakes/new?replaces={intake}", "lot-form": "/feed/lots/new",
    "reports": "/reports",
    "farms": "/settings/farms", "farm-form": "/settings/farms/farms/new",
    "farm-edit": "/settings/farms/farms/{farm}",
    "farm-barn-form": "/settings/farms/barns/new?farm_id={farm}",
    "farm-barn-edit": "/settings/farms/barns/{farm}/{barn}",
    "product-form": "/settings/farms/products/new",
    "product-edit": "/settings/farms/products/{product}",
}  # fmt: skip
OFFICE: Pages = {
    "alerts": "/alerts", "alerts-acknowledged": "/alerts?state=acknowledged",
    "alerts-resolved": "/alerts?state=resolved", "alert": "/alerts/{hot}",
    "alert-silent": "/alerts/{silent}", "alert-rules": "/alerts/rules",
    "alert-rule": "/alerts/rules/default.heat.any", "alert-rule-new": "/alerts/rules/new",
    "alert-windows": "/alerts/windows", "delivery": "/delivery",
    "delivery-edge": "/delivery/edges/barn-good", "delivery-edge-ill": "/delivery/edges/barn-ill",
    "dead-letters": "/delivery/dead-letters", "order": "/delivery/dead-letters/orders/{order}",
    "notifications": "/settings/notifications",
    "contact": "/settings/notifications/contacts/ann",
    "contact-new": "/settings/notifications/contacts/new",
    "channel": "/settings/notifications/channels/mail",
    "channel-new": "/settings/notifications/channels/new?kind=webhook",
    "settings": "/settings", "people": "/settings/people", "settings-edges": "/settings/edges",
    "retention": "/settings/retention", "audit": "/settings/audit", "about": "/settings/about",
    "account": "/settings/account", "design": "/design",
}  # fmt: skip
SUPER_ADMIN: Pages = {"companies": "/settings/companies"}
CAMERAS: Pages = {
    "sites": "/sites", "site": "/sites/{site}?camera={busy}", "image": "/sites/images/{image}",
    "schedule": "/sites/{site}/cameras/{busy}/schedule?cron=0 */2 * * *",
    "camera": "/devices/camera/{busy}", "devices-cameras": "/devices",
    "programs": "/programs", "program": "/programs/{program}",
}  # fmt: skip
DISHES: Pages = {"dishes": "/sites/{site}/dishes"}
EDGE: Pages = {
    "today": "/", "weighings": "/weighings", "weighing": "/weighings/{weighing}",
    "readings": "/readings", "sensor": "/readings/climate-1/temperature",
    "devices": "/devices", "device": "/devices/climate-2", "station": "/devices/scale-1",
    "device-form": "/devices/new",
    "delivery": "/delivery", "dead-letters": "/delivery/dead-letters",
    "quarantine": "/delivery/quarantine", "rejected": "/delivery/quarantine/{broken}",
    "losses": "/delivery/losses", "records": "/records", "records-all": "/records?of=all",
    "record": "/records/new?kind=treatment",
    "record-correction": "/records/new?replaces={record}",
    "intake-correction": "/feed/intakes/new?replaces={intake}", "lot": "/feed/lots/new",
    "keys": "/keys", "offline": "/offline",
}  # fmt: skip
# Routes without a page: files, streams, exports; the second step of signing in, which the journey
# of second factors looks at.
NO_PAGES = {
    "/live", "/service-worker.js", "/manifest.webmanifest", "/static/{digest}/{name:path}",
    "/reports/report.pdf", "/reports/sent/{report_id}.pdf", "/settings/about/diagnostics",
    "/sites/images/{image_id}/file", "/sites/images/{image_id}/thumbnail",
    "/telemetry/{device_id}/{metric_type}.csv", "/telemetry/{device_id}/{metric_type}.parquet",
    "/images/{media_id}", "/images/{media_id}/small",
    "/sites/{site_id}/dishes/{device_id}/time-lapse.webp",
    "/sites/{site_id}/dishes/{device_id}/time-lapse.mp4",
    "/sign-in/code", "/settings/account/second-factor/setup",
}  # fmt: skip
# What live updates fetch again: the same macros as the page, whose visit fetches them.
PARTS = ("/rows", "/parts", "/now")
PARTS_WHOLE = ("/today", "/readings")


def pages_without_a_visit(app: FastAPI | None, *tables: Pages) -> list[str]:
    """Routes for people that no address of the tables leads to."""
    assert app is not None
    routes = [
        route
        for route in app.routes
        if isinstance(route, APIRoute)
        and not route.include_in_schema
        and "GET" in (route.methods or ())
    ]
    visited = set()
    for address in (address for table in tables for address in table.values()):
        path = address.partition("?")[0]
        visited.add(next(route.path for route in routes if route.path_regex.match(path)))
    return [
        route.path
        for route in routes
        if route.path not in visited
        and route.path not in NO_PAGES
        and not route.path.endswith(PARTS)
        and not route.path.startswith(("/api/", "/healthz", "/readyz"))
    ]


@pytest.fixture
def visitor(browser: Browser, console: Served, *, pictures: bool) -> Iterator[Visitor]:
    context = browser.new_context(
        viewport={"width": WIDE, "height": 800},
        service_workers="block",
        device_scale_factor=2 if pictures else 1,
    )
    yield Visitor(context, console, pictures=pictures)
    context.close()


def go_through(
    visitor: Visitor, pages: Pages, recount: Recount, *, change: Callable[[], None] | None = None,
    prefix: str = "", **found: Any,
) -> list[str]:  # fmt: skip
    """See all of them; their addresses."""
    addresses = {name: address.format(**found) for name, address in pages.items()}
    for name, address in addresses.items():
        visitor.see(address, f"{prefix}{name}", recount=recount, change=change)
    return list(addresses.values())


def with_hostile_text(visitor: Visitor, addresses: list[str], admin_url: str) -> None:
    """The same pages again, on a phone, when everything written down tries to break them."""
    changed = hostile.poison(admin_url)
    assert len(changed) >= 6, changed
    for address in addresses:
        visitor.glance(address)


def as_admin(page: Page, console: Served, admin_url: str) -> None:
    deliveries.everybody(admin_url)
    person.sign_in(page, console, email=deliveries.email("admin"))


def test_first_run(console: Served, visitor: Visitor, cloud_db: Any) -> None:
    without = pages_without_a_visit(
        console.app, FIRST_RUN, FARM, FLOCK, OFFICE, SUPER_ADMIN, CAMERAS, DISHES
    )
    assert set(without) <= set(PARTS_WHOLE), f"no visit in {__name__} leads to: {without}"
    as_admin(visitor.page, console, cloud_db.admin_url)
    with databases.connected(cloud_db.admin_url) as connection:
        recount = Recount(
            connection, dict.fromkeys(NOTHING_YET, "select 0"), counted_office.QUERIES
        )
        go_through(visitor, FIRST_RUN, recount, prefix="first-")
    visitor.check()


# Figures of a company that has nothing yet.
NOTHING_YET = (
    "today.problems", "telemetry.problems", "sites.attention", "weighings.total", "alert.open",
    "alert.count", "devices.problems", "devices.matching", "programs.total", "batches.running",
    "batches.problems", "feed.silos", "feed.problems", "delivery.dead_letters",
)  # fmt: skip


def test_farm(console: Served, visitor: Visitor, cloud_db: Any, cloud_s3: str) -> None:
    """Today, telemetry, devices and weighings of a farm that runs."""
    url, admin_url = cloud_db.url, cloud_db.admin_url
    running_farm.register(url)
    running_farm.edge(url)
    barns.a_whole_farm(url)
    hot = barns.Sensor("hot-01", "temperature", "°C", 27.4, 1.6)
    running_farm.hours(url, hot, count=30, gap=(600, 420))
    running_farm.alert(url, barns.TEMPERATURE, "temperature above 38 °C for 5 minutes")
    told = scales.a_day(url, admin_url, cloud_s3)
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    span = f"from={words.utc(now - timedelta(hours=20))}&to={words.utc(now)}"
    as_admin(visitor.page, console, admin_url)
    with databases.connected(admin_url, autocommit=True) as connection:
        connection.execute("set row_security = off")
        addresses = go_through(
            visitor, FARM, Recount(connection, counted_farm.QUERIES), span=span,
            day=scales.day_of(told[0]), weighing=told[31].session_id,
            change=lambda: barns.report_now(url, barns.HUMIDITY, 63.5),
        )  # fmt: skip
    with_hostile_text(visitor, addresses, admin_url)
    visitor.check()


def test_flock(console: Served, visitor: Visitor, cloud_db: Any) -> None:
    """Batches, feed, what people enter, reports, and the master data of the farm."""
    url, admin_url = cloud_db.url, cloud_db.admin_url
    life = flocks.a_farm(url, admin_url)
    good, behind = (flock.batch_id for flock in life.flocks)
    as_admin(visitor.page, console, admin_url)
    with databases.connected(admin_url, autocommit=True) as connection:
        ((record, intake, product),) = connection.execute(
            "select (select record_id from barn_events where record_type = 'mortality' limit 1), "
            "(select event_id from feed_events where event_type = 'feed.intake.recorded' limit 1), "
            "(select feed_product_id from feed_products limit 1)"
        ).fetchall()
        addresses = go_through(
            visitor, FLOCK, Recount(connection, otherwise=counted_batches.otherwise(life)),
            good=good, behind=behind, record=record, intake=intake, product=product,
            farm=life.farm_id, barn=life.flocks[0].barn_id,
        )  # fmt: skip
    with_hostile_text(visitor, addresses, admin_url)
    visitor.check()


def test_office(console: Served, visitor: Visitor, cloud_db: Any) -> None:
    """Alerts, delivery, notifications and settings; those of a super admin at the end."""
    admin_url = cloud_db.admin_url
    as_admin(visitor.page, console, admin_url)
    deliveries.three_edges(admin_url)
    deliveries.letters_on_pages(admin_url)
    troubles.add_people(admin_url)
    names = troubles.a_bad_day(cloud_db.url, admin_url)
    order = troubles.also(admin_url, names)
    with databases.connected(admin_url, autocommit=True) as connection:
        connection.execute("set row_security = off")
        recount = Recount(connection, counted_office.QUERIES)
        addresses = go_through(
            visitor, OFFICE, recount, order=order, hot=names["hot"], silent=names["silent"]
        )
        visitor.page.context.clear_cookies()
        person.sign_in(visitor.page, console, email=deliveries.ROOT)
        addresses += go_through(visitor, SUPER_ADMIN, recount)
    with_hostile_text(visitor, addresses, admin_url)
    visitor.check()


def test_cameras(console: Served, visitor: Visitor, shots: Shots) -> None:
    """Sites, their cameras and programs, on an afternoon of cameras."""
    barn = cameras.a_fortnight(shots)
    person.sign_in(visitor.page, console, email=cameras.TECHNICIAN)
    owner = shots.farm.owner
    ((image, program),) = owner.execute(
        "select (select image_id from device_images where status = 'complete' and device_id = %s "
        "order by captured_at desc limit 1), (select program_id from pilot_programs)",
        (barn.busy,),
    ).fetchall()
    addresses = go_through(
        visitor, CAMERAS, Recount(owner, counted_cameras.QUERIES), site=barn.site, busy=barn.busy,
        image=image, program=program,
    )  # fmt: skip
    with_hostile_text(visitor, addresses, shots.farm.database.admin_url)
    visitor.check()


def test_dishes(console: Served, visitor: Visitor, shots: Shots) -> None:
    """A site whose cameras look at dishes."""
    site, _camera = dishes.grown(shots)
    person.sign_in(visitor.page, console, email=cameras.TECHNICIAN)
    recount = Recount(shots.farm.owner, counted_cameras.QUERIES)
    addresses = go_through(visitor, DISHES, recount, site=site)
    with_hostile_text(visitor, addresses, shots.farm.database.admin_url)
    visitor.check()


def test_edge(
    edge: ServedEdge, edge_db: Any, browser: Browser, engines: dict[str, str], *, pictures: bool
) -> None:
    without = pages_without_a_visit(edge.app, EDGE, {"sign-in": "/sign-in"})
    assert not without, f"no visit in {__name__} leads to: {without}"
    admin_url = edge_db.admin_url
    edge_day.add_key(admin_url, tenant=edge_day.TENANT, role="admin")
    day = edge_day.fill(admin_url)
    edges.show_pictures(admin_url, engines["FARMIQ_EDGE_S3_URL"], day)
    context = browser.new_context(
        viewport={"width": WIDE, "height": 800},
        service_workers="block",
        device_scale_factor=2 if pictures else 1,
    )
    visitor = Visitor(context, edge, pictures=pictures)
    with databases.connected(admin_url, autocommit=True) as connection:
        recount = Recount(connection, counted_edge.QUERIES)
        go_through(visitor, {"sign-in": "/sign-in"}, recount, prefix="edge-")
        edges.sign_in(visitor.page, edge)
        record, intake = edge_day.add_entries(admin_url)
        addresses = go_through(
            visitor, EDGE, recount, prefix="edge-", weighing=day.incomplete_id,
            broken=day.broken_id, record=record, intake=intake,
        )  # fmt: skip
    with_hostile_text(visitor, addresses, admin_url)
    visitor.check()
    context.close()
