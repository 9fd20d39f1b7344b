"""The pages of the edge's console: what they show, to whom, and what they do."""

import re

import httpx2
import pytest

from farmiq.edge.console import sign_ins
from farmiq.edge.devices import credentials
from farmiq.plumbing import ids
from tests.conftest import Database
from tests.integration.edge.console.conftest import SignIn, csrf, sign_in
from tests.support import databases, edge_day
from tests.support.edge_day import NAME, OTHER, PIN, TENANT, Day

PAGES = (
    "/", "/weighings", "/readings", "/readings/climate-1/temperature", "/devices", "/delivery",
    "/delivery/dead-letters", "/delivery/quarantine", "/delivery/losses",
    "/records", "/records/new",
    "/records/new?kind=treatment", "/records/new?kind=note", "/feed/intakes/new", "/feed/lots/new",
    "/today/parts", "/weighings/rows", "/readings/rows", "/devices/rows", "/devices/new", "/keys",
    "/devices/climate-2", "/devices/scale-1", "/devices/climate-2/parts", "/delivery/parts",
    "/readings/climate-1/temperature/parts?range=6h", "/weighings?day=2025-01-15",
)  # fmt: skip
SECRETS = ("secret", OTHER)


def rows(database: Database, query: str) -> list[tuple[object, ...]]:
    with databases.connected(database.admin_url) as connection:
        return connection.execute(query.encode()).fetchall()


async def test_pages_of_a_tenant_show_nothing_of_another(
    client: SignIn, edge_db: Database, day: Day
) -> None:
    key = edge_day.add_key(edge_db.admin_url, tenant=TENANT, role="admin")
    own = (f"/weighings/{day.incomplete_id}", f"/delivery/quarantine/{day.broken_id}")
    async with client(key) as browser:
        for path in (*PAGES, *own):
            page = await browser.get(path)
            assert page.status_code == 200, (path, page.text)
            assert "default-src 'self'" in page.headers["content-security-policy"]
            assert not [word for word in SECRETS if word in page.text], path
        for path in (
            f"/weighings/{day.others_session_id}",
            f"/delivery/quarantine/{day.others_id}",
            f"/?company={OTHER}",
            f"/delivery?company={OTHER}",
            "/readings/d-1/temperature",
            "/devices/d-1",
            "/devices/nothing%00",
            f"/images/{ids.new()}",
        ):
            assert (await browser.get(path)).status_code == 404, path
        page = await browser.get("/delivery/quarantine")
        for act in ("redrive", "discard"):
            form = {"csrf": csrf(page), "id": str(day.others_id)}
            answer = await browser.post(f"/delivery/quarantine/{act}", data=form)
            assert answer.status_code == 303
        # The alert is another tenant's: as if there were none.
        form = {"csrf": csrf(page), "kind": "rule.too-hot", "subject": f"{OTHER}/f-1/b-1"}
        assert (await browser.post("/alerts/close", data=form)).status_code == 404
        form = {"csrf": csrf(page), "company_id": OTHER}
        assert (await browser.post("/company", data=form)).status_code == 404
        form = {"csrf": csrf(page), "event_type": "telemetry.ingested"}
        await browser.post("/delivery/dead-letters/discard", data=form)
    assert rows(edge_db, "select count(*) from quarantine") == [(3,)]
    assert rows(
        edge_db, "select count(*) from alerts where subject ~ '^t-2' and closed_at is null"
    ) == [(1,)]
    assert rows(
        edge_db, "select tenant_id, status from sync_outbox where status <> 'pending' order by 1"
    ) == [(OTHER, "dlq"), (TENANT, "failed")]


async def test_key_of_all_tenants_chooses_one_and_a_key_for_an_area_sees_that_one(
    client: SignIn, edge_db: Database, day: Day
) -> None:
    async with client(edge_day.add_key(edge_db.admin_url, role="viewer")) as browser:
        page = await browser.get("/")
        assert 'name="company_id"' in page.text
        await browser.post("/company", data={"csrf": csrf(page), "company_id": OTHER})
        assert "secret-station" in (await browser.get("/weighings")).text
        assert "station-1" in (await browser.get(f"/weighings?company={TENANT}")).text
        assert (await browser.get(f"/delivery/quarantine/{day.others_id}")).status_code == 200
        form = {"csrf": csrf(page), "id": str(day.others_id)}
        # A viewer looks and does not act.
        for path in ("/delivery/quarantine/discard", "/alerts/close", "/records/new"):
            assert (await browser.post(path, data=form)).status_code == 403
        assert (await browser.get("/records/new")).status_code == 403
    feeder = edge_day.add_key(edge_db.admin_url, "bert", tenant=TENANT, areas=["feed"])
    async with client(feeder) as browser:
        assert (await browser.get("/feed/lots/new")).status_code == 200
        today = await browser.get("/")
        assert "Devices that report" not in today.text
        assert 'href="/weighings"' not in today.text
        for path in ("/weighings", "/readings", "/devices", "/delivery", "/records/new"):
            assert (await browser.get(path)).status_code == 403
        assert "Dead" not in (await browser.get("/records")).text


async def test_sign_in_by_pin_is_limited_and_a_key_still_works(
    client: SignIn, edge_db: Database
) -> None:
    key = edge_day.add_key(edge_db.admin_url)
    async with client() as browser:
        assert (await browser.get("/devices")).headers["location"] == "/sign-in?next=%2Fdevices"
        wrong = [await sign_in(browser, name=NAME, pin="111222") for _ in range(6)]
        assert [answer.status_code for answer in wrong] == [401] * 5 + [429]
        assert (await sign_in(browser, name=NAME, pin=PIN)).status_code == 429
        answer = await sign_in(browser, key=key, next="//evil.example/")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=lax" in cookie
        page = await browser.get("/")
        assert page.status_code == 200
        # A form without the token of this sign-in changes nothing.
        assert (await browser.post("/sign-out", data={"csrf": "x"})).status_code == 403
        with databases.connected(edge_db.admin_url) as owner:
            owner.execute("update api_keys set revoked_at = now()")
        assert (await browser.get("/")).status_code == 303
    noted = rows(edge_db, "select subject, action, detail ->> 'how' from audit_log order by at")
    assert noted == [
        *[(NAME, "console.sign_in_failed", "pin")] * 5,
        (NAME, "console.sign_in", "key"),
    ]


async def test_wrong_tries_in_the_audit_log_are_bounded(client: SignIn, edge_db: Database) -> None:
    async with client() as browser:
        wrong = [await sign_in(browser, key=f"no key {n}") for n in range(12)]
    assert {answer.status_code for answer in wrong} == {401}
    noted = rows(edge_db, "select subject, count(*) from audit_log group by 1")
    assert noted == [("", 10)]


async def test_sign_in_by_pin_ends_with_sign_out(client: SignIn, edge_db: Database) -> None:
    edge_day.add_key(edge_db.admin_url)
    async with client() as browser:
        assert (await sign_in(browser, name=f" {NAME} ", pin=PIN)).status_code == 303
        token = browser.cookies[sign_ins.COOKIE]
        page = await browser.get("/")
        assert (await browser.post("/sign-out", data={"csrf": csrf(page)})).status_code == 303
        browser.cookies.set(sign_ins.COOKIE, token)
        assert (await browser.get("/")).status_code == 303
    assert rows(edge_db, "select count(*) from console_sign_ins") == [(0,)]
    assert rows(edge_db, "select actor, action from audit_log order by at") == [
        (NAME, "console.sign_in"), (NAME, "console.sign_out"),
    ]  # fmt: skip


@pytest.mark.usefixtures("day")
async def test_record_sent_twice_from_the_form_is_stored_once_and_waits_for_the_cloud(
    client: SignIn, edge_db: Database
) -> None:
    key = edge_day.add_key(edge_db.admin_url, tenant=TENANT)
    async with client(key) as browser:
        form = await browser.get("/records/new")
        dead = {
            "csrf": csrf(form), "idempotency_key": str(ids.new()), "kind": "mortality",
            "place": "valley-farm/barn-1/", "value": "2", "at": "", "entered_at": "",
        }  # fmt: skip
        for _ in range(2):
            answer = await browser.post("/records/new", data=dead)
            assert (answer.status_code, answer.headers["location"]) == (303, "/records?done=1")
        sent = await browser.post("/records/new", data=dead, headers={"Accept": "application/json"})
        assert (sent.status_code, sent.json()) == (201, {"page": "/records?done=1"})
        other = await browser.post("/records/new", data={**dead, "value": "3"})
        assert other.status_code == 409
        wrong = {**dead, "idempotency_key": str(ids.new()), "value": "-2", "place": "t-2/x/"}
        answer = await browser.post("/records/new", data=wrong)
        assert answer.status_code == 422
        assert "This barn has changed since: choose it again." in answer.text
        many = {**dead, "idempotency_key": str(ids.new()), "value": "20000"}
        script = {"Accept": "application/json"}
        answer = await browser.post("/records/new", data=many, headers=script)
        assert answer.status_code == 422
        assert "9998" in answer.json()["error"]["message"].replace(",", "")
        lot = {
            "csrf": csrf(form), "idempotency_key": str(ids.new()), "feed_lot_id": "L-1",
            "place": "valley-farm/barn-2/", "quantity_kg": "5000",
        }  # fmt: skip
        for _ in range(2):
            assert (await browser.post("/feed/lots/new", data=lot)).status_code == 303
        intake = {**lot, "idempotency_key": str(ids.new()), "quantity_kg": "120.5"}
        assert (await browser.post("/feed/intakes/new", data=intake)).status_code == 303
        listed = (await browser.get("/records")).text
        assert listed.count("Waits for the cloud") == 3
    assert rows(
        edge_db, "select record_type, value_number, batch_id, recorded_by_ref from barn_records"
    ) == [("mortality", 2.0, "flock-7", NAME)]
    assert rows(
        edge_db,
        "select event_type, count(*) from sync_outbox where event_type !~ 'telemetry' group by 1 "
        "order by 1",
    ) == [
        ("barn.record.created", 1), ("feed.intake.recorded", 1), ("feed.lot.received", 1),
    ]  # fmt: skip
    assert rows(edge_db, "select distinct actor from audit_log") == [(NAME,)]


async def test_redrive_from_the_page_stores_the_reading_once(
    client: SignIn, edge_db: Database, day: Day
) -> None:
    key = edge_day.add_key(edge_db.admin_url, tenant=TENANT)
    async with client(key) as browser:
        page = await browser.get(f"/delivery/quarantine/{day.readable_id}")
        form = {"csrf": csrf(page), "id": str(day.readable_id)}
        answer = await browser.post("/delivery/quarantine/redrive", data=form)
        assert answer.headers["location"] == "/delivery/quarantine?done=redriven-1-0-0"
        again = await browser.post("/delivery/quarantine/redrive", data=form)
        assert again.headers["location"] == "/delivery/quarantine?done=redriven-0-0-0"
        broken = {**form, "id": str(day.broken_id)}
        answer = await browser.post("/delivery/quarantine/redrive", data=broken)
        assert answer.headers["location"] == "/delivery/quarantine?done=redriven-0-1-0"
        assert "1 message waits in quarantine" in (await browser.get("/delivery/quarantine")).text
    assert rows(edge_db, "select metric_value from telemetry_raw") == [(21.5,)]
    assert rows(
        edge_db, "select distinct actor from audit_log where action = 'quarantine.redrive'"
    ) == [(f"key {NAME}",)]


async def test_pages_say_that_pictures_are_away_and_go_on(
    client: SignIn, edge_db: Database, day: Day
) -> None:
    with databases.connected(edge_db.admin_url) as owner:
        media_id = ids.new()
        owner.execute(
            "insert into media_objects (id, tenant_id, farm_id, barn_id, device_id, session_id, "
            "bucket, object_key, mime_type, size_bytes, sha256, captured_at, upload_status, "
            "stored_at) values (%s, %s, 'f', 'barn-1', 'scale-1', %s, 'b', 'k', 'image/jpeg', 1, "
            "%s, now(), 'stored', now())",
            (media_id, TENANT, day.incomplete_id, "0" * 64),
        )
    async with client(edge_day.add_key(edge_db.admin_url, tenant=TENANT)) as browser:
        assert f"/images/{media_id}/small" in (await browser.get("/weighings")).text
        assert (await browser.get(f"/images/{media_id}/small")).status_code == 503
    async with client(edge_day.add_key(edge_db.admin_url, "eve", tenant=OTHER)) as browser:
        assert (await browser.get(f"/images/{media_id}/small")).status_code == 404


async def test_sign_in_that_is_not_there_gets_no_stream(client: SignIn, edge_db: Database) -> None:
    async with client() as browser:
        stream: httpx2.Response = await browser.get("/live", headers={"Accept": "*/*"})
        assert stream.status_code == 401
    assert rows(edge_db, "select count(*) from console_sign_ins") == [(0,)]


async def test_device_has_a_page_with_its_readings_losses_and_commands(
    client: SignIn, edge_db: Database, day: Day
) -> None:
    del day
    async with client(edge_day.add_key(edge_db.admin_url, tenant=TENANT)) as browser:
        listed = await browser.get("/devices")
        assert 'href="/devices/climate-2"' in listed.text
        page = (await browser.get("/devices/climate-2")).text
        for words in (
            "climate-2: Offline", "its buffer was full", "Expired without an answer",
            'href="/readings/climate-2/temperature"', 'data-value="340"',
        ):  # fmt: skip
            assert words in page, words
        assert "no answer" not in (await browser.get("/devices/climate-1")).text
    async with client(
        edge_day.add_key(edge_db.admin_url, "only", "viewer", tenant=TENANT, areas=["devices"])
    ) as browser:
        page = (await browser.get("/devices/climate-2")).text
        assert "/readings/" not in page


async def test_device_that_an_admin_adds_has_the_login_that_is_shown_once(
    client: SignIn, edge_db: Database, day: Day
) -> None:
    del day
    typed = {"place": "valley-farm/barn-1", "device_id": "air-9", "kind": "sensor", "where": "door"}
    async with client(edge_day.add_key(edge_db.admin_url, "omar", tenant=TENANT)) as browser:
        assert (await browser.get("/devices/new")).status_code == 403
        form = {"csrf": csrf(await browser.get("/devices")), **typed}
        assert (await browser.post("/devices/new", data=form)).status_code == 403
    async with client(edge_day.add_key(edge_db.admin_url, tenant=TENANT, role="admin")) as browser:
        typed["csrf"] = csrf(await browser.get("/devices/new"))
        for wrong, field in (
            ({"place": "barn-1"}, "place"), ({"device_id": "a b"}, "device_id"),
            ({"kind": "station"}, "station_id"), ({"device_id": "climate-1"}, "device_id"),
        ):  # fmt: skip
            answer = await browser.post("/devices/new", data={**typed, **wrong})
            assert (answer.status_code, f'id="{field}-error"' in answer.text) == (422, True), wrong
        page = await browser.post("/devices/new", data=typed)
        shown = re.search(r'<code class="secret text">([^<]+)<', page.text)
        assert shown, page.text
        assert "iot/telemetry/valley/valley-farm/barn-1/air-9/temperature" in page.text
        assert shown[1] not in (await browser.get("/devices/air-9")).text
    ((tenant, place, hashed),) = rows(
        edge_db, "select tenant_id, place, secret_bcrypt from devices where device_id = 'air-9'"
    )
    assert (tenant, place) == (TENANT, "door")
    assert credentials.fits(shown[1], str(hashed))
    assert rows(edge_db, "select actor from audit_log where action = 'device.add'") == [
        (f"key {NAME}",)
    ]


async def test_key_that_an_admin_adds_is_shown_once_and_ends_when_it_is_revoked(
    client: SignIn, edge_db: Database, day: Day
) -> None:
    del day
    elsewhere = edge_day.add_key(edge_db.admin_url, "of-another-tenant", "admin", tenant="hill")
    for name, role, areas in (("omar", "operator", None), ("feeder", "admin", ["feed"])):
        key = edge_day.add_key(edge_db.admin_url, name, role, tenant=TENANT, areas=areas)
        async with client(key) as browser:
            assert (await browser.get("/keys")).status_code == 403
    async with client(edge_day.add_key(edge_db.admin_url, tenant=TENANT, role="admin")) as browser:
        page = await browser.get("/keys")
        assert "of-another-tenant" not in page.text
        typed = {"csrf": csrf(page), "name": "office", "role": "viewer", "area.feed": "yes"}
        for wrong, field in (({"name": ""}, "name"), ({"name": "omar"}, "name")):
            answer = await browser.post("/keys", data={**typed, **wrong})
            assert (answer.status_code, f'id="{field}-error"' in answer.text) == (422, True), wrong
        made = await browser.post("/keys", data=typed)
        shown = re.search(r'<code class="secret text">([^<]+)<', made.text)
        assert shown, made.text
        assert shown[1] not in (await browser.get("/keys")).text
        async with client(shown[1]) as office:
            assert (await office.get("/records")).status_code == 200
            assert (await office.get("/readings")).status_code == 403
            for name, status in (
                ("of-another-tenant", 404),
                ("no\0name", 404),
                (NAME, 409),
                ("office", 303),
            ):
                form = {"csrf": typed["csrf"], "name": name}
                assert (await browser.post("/keys/revoke", data=form)).status_code == status, name
            assert (await office.get("/records")).status_code == 303, "it has to sign in again"
    async with client(elsewhere) as browser:
        assert (await browser.get("/keys")).status_code == 200
    assert rows(
        edge_db,
        "select actor, action, subject from audit_log where action like 'key.%%' order by at",
    ) == [(f"key {NAME}", "key.add", "office"), (f"key {NAME}", "key.revoke", "office")]


async def test_correction_names_what_it_replaces_which_no_longer_counts(
    client: SignIn, edge_db: Database, day: Day
) -> None:
    del day
    record_id, intake_id = edge_day.add_entries(edge_db.admin_url)
    async with client(edge_day.add_key(edge_db.admin_url, tenant=TENANT)) as browser:
        assert f"/records/new?replaces={record_id}" in (await browser.get("/records")).text
        for path, replaces, fields, shown in (
            ("/records/new", record_id, {"kind": "mortality", "value": "3"}, 'value="4"'),
            ("/feed/intakes/new", intake_id, {"quantity_kg": "310"}, 'value="320"'),
        ):
            form = await browser.get(f"{path}?replaces={replaces}")
            assert f'name="replaces" value="{replaces}"' in form.text
            assert shown in form.text
            assert "Correct" in form.text
            typed = {
                "csrf": csrf(form), "place": "valley-farm/barn-1/", "idempotency_key": f"k{path}",
                "replaces": replaces, **fields,
            }  # fmt: skip
            assert (await browser.post(path, data=typed)).status_code == 303
            # Somebody else corrects the same: the form stays, and says what is wrong.
            again = await browser.post(path, data={**typed, "idempotency_key": f"other{path}"})
            assert again.status_code == 409, again.text
            assert f'value="{replaces}"' in again.text
            assert (await browser.get(f"{path}?replaces=nothing")).status_code == 404
        listed = (await browser.get("/records")).text
        assert listed.count("Corrected, no longer counts") == 2
        assert f"replaces={record_id}" not in listed
    assert rows(edge_db, "select value_number from barn_records where replaces is not null") == [
        (3.0,)
    ]
    assert rows(edge_db, "select replaces is not null from posted_events") == [(True,), (True,)]
    viewer = edge_day.add_key(edge_db.admin_url, "visitor", "viewer", tenant=TENANT)
    async with client(viewer) as browser:
        assert "replaces=" not in (await browser.get("/records")).text
        assert (await browser.get(f"/records/new?replaces={record_id}")).status_code == 403
