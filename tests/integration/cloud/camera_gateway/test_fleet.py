"""The device side: logins and permissions by MAC, liveness from missed wakes, commands."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from urllib.parse import urlsplit

import pytest

from farmiq.cloud.camera import command_queue, registration
from farmiq.cloud.camera.gateway import jobs
from farmiq.plumbing import db
from farmiq.plumbing.broker import log as broker_log
from farmiq.plumbing.messaging import mqtt
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import picture
from tests.support.until import until


@pytest.fixture
async def pool(site: Site) -> AsyncIterator[db.Pool]:
    async with db.pool(site.environment["FARMIQ_CLOUD_DB_URL"], name="test") as opened:
        yield opened


async def login(pool: db.Pool, site: Site, mac: str) -> str:
    """The address with which a camera connects under its own login."""
    async with db.transaction(pool) as tx:
        secret = await registration.make_login(tx, mac, made_by="test")
    parts = urlsplit(site.environment["FARMIQ_CLOUD_MQTT_URL"])
    return f"mqtt://{mac}:{secret}@{parts.hostname}:{parts.port}"


async def connects(url: str, topics: list[str]) -> bool:
    """Whether the broker lets this login in and to these topics."""
    async with mqtt.connected(
        url, client_id="try", topics=topics, persistent_session=False
    ) as link:

        async def answered() -> bool:
            return link.problem() is None or "refused" in str(link.problem())

        await until(answered)
        return link.problem() is None


@pytest.mark.req("DB2-10")
async def test_camera_publishes_and_subscribes_on_its_own_address_only(
    site: Site, pool: db.Pool
) -> None:
    await site.gateway()
    told = jobs.BROKER_REJECTED.labels(kind=broker_log.PERMISSION)
    before = told._value.get()
    mine, other = (await site.camera()).mac, (await site.camera()).mac
    url = await login(pool, site, mine)
    spelled = ":".join(mine[at : at + 2] for at in range(0, 12, 2)).lower()

    async def admitted() -> bool:
        return await connects(url, [f"device/{mine}/ack", f"ESP32CAM/{spelled}/cmd"])

    await until(admitted)
    for foreign in (f"device/{other}/ack", "device/+/ack", "#", f"device/{mine}/data"):
        assert not await connects(url, [foreign])
    async with mqtt.connected(url, client_id="c", persistent_session=False) as link:
        await link.until_up()
        # The broker takes what a camera may not say, and hands it to nobody.
        await link.publish(f"device/{other}/status", b'{"alive":1,"pending_count":77}')
        await link.publish(f"device/{spelled}/status", b'{"alive":1,"pending_count":5}')
        await until(lambda: site.rows("select 1 from devices where pending_count = 5"))
    assert site.rows("select mac from devices where pending_count is not null") == [(mine,)]
    # Four foreign subscriptions and a publish; the gateway reads of them in the broker's log.
    await until(lambda: told._value.get() - before >= 5)


async def test_login_replaced_or_revoked_ends(site: Site, pool: db.Pool) -> None:
    await site.gateway()
    mac = (await site.camera()).mac
    first = await login(pool, site, mac)
    await until(lambda: connects(first, []))
    second = await login(pool, site, mac)
    await until(lambda: connects(second, []))
    assert not await connects(first, [])
    async with db.transaction(pool) as tx:
        await registration.revoke_login(tx, mac)

    async def gone() -> bool:
        return not await connects(second, [])

    await until(gone)
    with pytest.raises(registration.NoCameraError):
        async with db.transaction(pool) as tx:
            await registration.make_login(tx, "000000000000", made_by="test")


async def test_login_replaced_while_the_clock_is_behind_is_admitted(
    site: Site, pool: db.Pool
) -> None:
    await site.gateway()
    macs = [(await site.camera()).mac for _ in range(2)]
    for mac in macs:
        url = await login(pool, site, mac)
        await until(partial(connects, url, []))
    site.farm.at(now() - timedelta(hours=1))
    replaced = await login(pool, site, macs[0])
    await until(lambda: connects(replaced, []))


async def test_missed_wakes_raise_an_alert_that_is_resolved_later(
    site: Site, pool: db.Pool
) -> None:
    """An hour between wakes: a camera is well for as long as it misses none."""
    farm = site.farm
    farm.at("2026-03-10T08:10:00+07:00")
    device = farm.device(site.site_id, "0 * * * *")
    farm.call("fn_midnight_session_opener", site_id=site.site_id)
    farm.owner.execute("update devices set last_seen_at = fn_now()")
    for clock, state in (("09:59", "online"), ("10:05", "late"), ("12:05", "silent")):
        farm.at(f"2026-03-10T{clock}:00+07:00")
        await jobs.update_states(pool)
        assert site.rows("select state from camera_states") == [(state,)]
    ((since, missed),) = site.rows("select since, missed_wakes from camera_states")
    assert (since.hour, missed) == (2, 3)
    await jobs.update_states(pool)
    alerts = "select device_id, resolved_at is null from device_alerts"
    assert site.rows(alerts) == [(device, True)]
    farm.owner.execute("update devices set last_seen_at = fn_now()")
    await jobs.update_states(pool)
    assert site.rows("select state, missed_wakes from camera_states") == [("online", 0)]
    assert site.rows(alerts) == [(device, False)]


async def test_retained_hello_is_stored_once(site: Site) -> None:
    """Else every start of a gateway would hear from cameras that are long gone."""
    gateway, camera = await site.gateway(), await site.camera()
    hello = b'{"alive": 1, "pending_count": 3}'
    await camera.link.publish(f"device/{camera.mac}/status", hello, retain=True)
    await until(lambda: site.rows("select 1 from devices where pending_count = 3"))
    gateway.cancel()
    await asyncio.wait([gateway])
    site.farm.owner.execute("update devices set pending_count = null")
    await site.gateway()
    # Whatever was in the log before this one has been read.
    other = await site.camera()
    await other.hello(pending=1)
    await until(lambda: site.rows("select 1 from devices where pending_count = 1"))
    assert site.rows("select 1 from devices where pending_count = 3") == []


async def test_retired_camera_has_its_alert_resolved(site: Site, pool: db.Pool) -> None:
    farm = site.farm
    farm.at("2026-03-10T08:10:00+07:00")
    farm.device(site.site_id, "0 * * * *")
    farm.call("fn_midnight_session_opener", site_id=site.site_id)
    farm.owner.execute("update devices set last_seen_at = fn_now()")
    farm.at("2026-03-10T13:05:00+07:00")
    await jobs.update_states(pool)
    silent = "select count(*) from device_alerts where resolved_at is null"
    assert site.rows(silent) == [(1,)]
    farm.owner.execute("update devices set is_active = false")
    await jobs.update_states(pool)
    assert site.rows(silent) == [(0,)]


@pytest.mark.parametrize("dialect", ["standard", "esp32cam"])
async def test_commands_are_sent_when_the_camera_is_awake(
    site: Site, pool: db.Pool, dialect: str
) -> None:
    await site.gateway()
    camera = await site.camera(dialect=dialect)
    later = now() + timedelta(hours=1)
    async with db.transaction(pool) as tx:
        await command_queue.queue(tx, camera.device_id, name="capture_image", created_by="t")
        await command_queue.queue(
            tx, camera.device_id, name="next_wake", wake_at=later, created_by="t"
        )
    assert site.rows("select distinct state from camera_commands") == [("queued",)]
    await camera.hello()
    told = [await camera.listen(), await camera.listen()]
    assert [channel for channel, _ in told] == ["cmd", "cmd"]
    assert "capture_image" in told[0][1]
    assert "next_wake" in told[1][1]
    await until(lambda: site.rows("select distinct state from camera_commands") == [("done",)])


@pytest.mark.req("DB2-15", "DB2-20")
async def test_resend_of_a_person_is_requested_in_the_same_wake(
    site: Site,
) -> None:
    await site.gateway(CAMERA_TIMEOUT_SECONDS="4", CAMERA_MISSING_SECONDS="0.1")
    camera = await site.camera()
    image, at = picture(3_000), now()
    await camera.announce(image, "a.jpg", at)
    await until(lambda: site.rows("select 1 from device_images where status = 'failed'"))
    with site.farm.person() as somebody:
        somebody.execute("select fn_request_resend(image_id) from device_images")
    await camera.until_told("send_image")
    # The camera has lost its clock meanwhile: what was asked for is the same image all the same.
    await camera.announce(image, "a.jpg", "1970-01-01T00:00:07Z")
    await camera.send(image, "a.jpg")
    await camera.until_safe(image, "a.jpg")
    assert site.rows("select status, captured_at from device_images") == [("complete", at)]
