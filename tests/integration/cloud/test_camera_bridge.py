"""The bridge: a camera's wake is in the telemetry of its farm once, and only where it belongs."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import httpx2
import psycopg
import pytest
from fastapi import Request
from fastapi.responses import JSONResponse

from farmiq.cloud.camera.bridge import service
from farmiq.cloud.camera.observations import service as observations
from farmiq.cloud.edges import registry
from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.cloud.ingestion import service as ingestion
from farmiq.cloud.media import service as media
from farmiq.cloud.telemetry import service as telemetry
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, tokens
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.integration.cloud.test_observations import AT, DISH, complete
from tests.sql.camera.farm import Farm
from tests.support import preloaded
from tests.support.until import until

READINGS = "select metric_type, metric_value, farm_id, barn_id, device_id from telemetry_readings"
PASSWORD = "a long enough password"


@dataclass
class Cloud:
    """A cloud with what the bridge needs; ingestion and the consumers run after `serve`."""

    farm: Farm
    environment: dict[str, str]
    bucket: objects.Bucket
    pool: db.Pool
    tasks: asyncio.TaskGroup

    @property
    def settings(self) -> CloudSettings:
        return CloudSettings.load(self.environment)

    async def bridge(self) -> dict[str, object]:
        settings = self.settings
        assert settings.camera_bridge_url
        assert settings.camera_bridge_key_file
        async with httpx2.AsyncClient(timeout=60) as client:
            url = settings.camera_bridge_url + service.ROUTE
            key_file = settings.camera_bridge_key_file
            made = service.Bridge(settings, self.pool, client, url, key_file)
            return {**await made.send_all(), "problem": made.problem}

    async def serve(self) -> None:
        server = http.HttpServer(title="cloud", version="0")
        for each in (ingestion, telemetry, media):
            self.tasks.create_task(each.run(self.settings, server))
        port = self.settings.http_port
        self.tasks.create_task(http.serve(server, host="127.0.0.1", port=port))

        async def ready() -> bool:
            return "ingestion.bus" in server.checks and not await server.problems()

        await until(ready, within_s=90)

    def sign_in(self, tenant_id: str) -> dict[str, str]:
        owner = self.farm.owner
        company = self.farm.value(
            "select company_id from companies where tenant_id = %s", tenant_id
        )
        add_user(owner, f"p@{tenant_id}.farm", company_id=company, password=PASSWORD)
        token = open_sign_in(owner, f"p@{tenant_id}.farm", lasts=timedelta(hours=1))
        return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def farm(cloud_db: Database) -> Iterator[Farm]:
    with Farm.connected(cloud_db, at=AT) as made:
        yield made


@pytest.fixture
async def cloud(  # noqa: PLR0917 - fixtures
    farm: Farm, vhost: str, engines: dict[str, str], tmp_path: Path,
    free_port: Callable[[], int], tasks: asyncio.TaskGroup,
) -> AsyncIterator[Cloud]:  # fmt: skip
    """The bridge is enrolled for one company, as an edge is."""
    key_file, port = tmp_path / "bridge.json", str(free_port())
    key = tokens.new_key()
    tokens.write_private(key_file, key)
    environment = {
        "FARMIQ_CLOUD_DB_URL": farm.database.url,
        "FARMIQ_AMQP_URL": vhost,
        "FARMIQ_CLOUD_S3_URL": engines["FARMIQ_CLOUD_S3_URL"],
        "FARMIQ_CLOUD_HTTP_PORT": port,
        "CAMERA_BRIDGE_URL": f"http://127.0.0.1:{port}",
        "CAMERA_BRIDGE_KEY_FILE": str(key_file),
    }
    async with await psycopg.AsyncConnection.connect(farm.database.admin_url) as tx:
        code, _ = await registry.invite(
            tx, service.NAME, ["farm"], lasts=timedelta(hours=1), actor="test"
        )
        await registry.enroll(tx, code, tokens.PublicKey.read(tokens.public_part(key)))
    async with db.pool(farm.database.url, name="test") as pool:
        bucket = objects.Bucket(environment["FARMIQ_CLOUD_S3_URL"])
        yield Cloud(farm, environment, bucket, pool, tasks)


async def test_a_wake_is_in_its_farm_once_though_the_bridge_died_and_sent_it_twice(
    cloud: Cloud, free_port: Callable[[], int]
) -> None:
    farm = cloud.farm
    other = add_company(farm.owner, "t-other", name="Other")
    site = farm.site()
    device = farm.device(site, "0 * * * *")
    said = {"temperature": 21.5, "battery_voltage": "3.91", "probe": 7, "image_size": 900, "x": "y"}
    image_id, _ = await complete(farm, cloud.bucket, DISH, device, **said)
    assert await cloud.bridge() == {"count": 0, "problem": None}, "nobody has looked at it yet"
    await observations.assess_images(cloud.pool, cloud.bucket)
    waits = await cloud.bridge()
    assert (waits["count"], "was not reached" in str(waits["problem"])) == (0, True)
    await cloud.serve()

    dying = start(cloud, free_port(), crash_at="bridge.after_send")
    await until(lambda: dying.poll() is not None, within_s=90)
    assert dying.returncode == -signal.SIGKILL
    assert farm.value("select bridged_at from petri_observations") is None
    assert await cloud.bridge() == {"count": 1, "problem": None}
    assert await cloud.bridge() == {"count": 0, "problem": None}

    place = (str(farm.program), str(site), str(device))
    await until(lambda: farm.value("select count(*) from media_objects") == 1)
    await until(lambda: farm.value("select count(*) from telemetry_readings") == 3)
    assert sorted(farm.rows(READINGS)) == [
        ("battery_voltage", 3.91, *place), ("probe", 7.0, *place), ("temperature", 21.5, *place),
    ]  # fmt: skip
    assert farm.rows("select distinct reading_count from telemetry_latest") == [(1,)]
    assert farm.value("select count(*) from media_events") == 1
    assert farm.value("select count(*) from event_conflicts") == 0
    with farm.person() as ours, farm.person(other) as theirs:
        assert len(ours.execute(READINGS).fetchall()) == 3
        assert theirs.execute(READINGS).fetchall() == []
    address = f"{cloud.environment['CAMERA_BRIDGE_URL']}/api/v1/media/images/{image_id}"
    async with httpx2.AsyncClient(timeout=60) as client:
        shown = await client.get(address, headers=cloud.sign_in("farm"))
        hidden = await client.get(address, headers=cloud.sign_in("t-other"))
    assert (shown.status_code, shown.headers["content-type"]) == (200, "image/jpeg")
    assert hidden.status_code == 404


def start(cloud: Cloud, port: int, *, crash_at: str) -> "subprocess.Popen[bytes]":
    own = {"FARMIQ_CLOUD_HTTP_PORT": str(port), "FARMIQ_CRASH_AT": crash_at}
    return preloaded.run(service.NAME, {**cloud.environment, **own})


async def test_it_is_off_unless_somebody_wants_it(cloud: Cloud) -> None:
    settings = CloudSettings.load(
        {name: value for name, value in cloud.environment.items() if "BRIDGE" not in name}
    )
    server = http.HttpServer(title="cloud", version="0")
    cloud.tasks.create_task(service.run(settings, server))
    await until(lambda: server._notes)
    assert await server.notes() == {"bridge": "off: CAMERA_BRIDGE_URL is not set"}


async def test_what_ingestion_refuses_holds_up_nobody_else(cloud: Cloud) -> None:
    """A whole company waits for its key; of a batch the one wake that is to blame is noted."""
    farm = cloud.farm
    two = Farm.make(farm.database, farm.owner, farm.service, name="two")
    for each, numbers in ((farm, [{"a": 1}]), (two, [{"a": 1}, {"bad": 1}, {"a": 1}])):
        device = each.device(each.site())
        for number, said in enumerate(numbers):
            await complete(each, cloud.bucket, DISH, device, **said, number=str(number))
    await observations.assess_images(cloud.pool, cloud.bucket)
    server = http.HttpServer(title="cloud", version="0")

    async def answer(request: Request) -> JSONResponse:
        body = (await request.body()).decode()
        status = 403 if '"tenant_id":"farm"' in body else 400 if '"bad"' in body else 202
        return JSONResponse({"accepted": status == 202}, status)

    server.app.add_route(service.ROUTE, answer, methods=["POST"])
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=server.app)) as client:
        url = f"http://cloud.test{service.ROUTE}"
        key_file = Path(cloud.environment["CAMERA_BRIDGE_KEY_FILE"])
        made = service.Bridge(cloud.settings, cloud.pool, client, url, key_file)
        assert await made.send_all() == {"count": 3}
    assert made.problem == f"wakes wait (the log says of which tenant): {url} answers 403"
    assert farm.rows(
        "select company_id, bridged_at is null, left(bridge_problem, 3) from petri_observations"
        " order by created_at"
    ) == [(farm.company, True, None), *((two.company, False, why) for why in (None, "400", None))]
