"""An edge's console whose broker, cloud and object store are away, and people who sign in."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.console import service
from farmiq.plumbing import http
from tests.conftest import Database
from tests.support import edge_day
from tests.support.edge_day import Day
from tests.support.until import until

AWAY = "http://user:secret@127.0.0.1:1"
BROWSER = {"Accept": "text/html"}


def settings(database: Database) -> EdgeSettings:
    return EdgeSettings.load(
        {
            "FARMIQ_EDGE_DB_URL": database.url,
            "FARMIQ_EDGE_MQTT_URL": "mqtt://gateway:secret@127.0.0.1:1",
            "FARMIQ_EDGE_S3_URL": f"{AWAY}/bucket",
            "FARMIQ_CLOUD_URL": AWAY,
            "FARMIQ_EDGE_KEY_FILE": "/nowhere",
        }
    )


@pytest.fixture
def day(edge_db: Database) -> Day:
    return edge_day.fill(edge_db.admin_url)


@pytest.fixture
async def server(edge_db: Database) -> AsyncIterator[http.HttpServer]:
    made = http.HttpServer(title="edge", version="0")
    task = asyncio.create_task(service.run(settings(edge_db), made))
    await until(lambda: "console.database" in made.checks)
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


SignIn = Callable[..., contextlib.AbstractAsyncContextManager[httpx2.AsyncClient]]


@pytest.fixture
def client(server: http.HttpServer) -> SignIn:
    """`client()` is a browser; with a key it is signed in."""

    @contextlib.asynccontextmanager
    async def opened(key: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
        transport = httpx2.ASGITransport(app=server.app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://edge", headers=BROWSER
        ) as browser:
            if key is not None:
                answer = await sign_in(browser, key=key)
                assert answer.status_code == 303, answer.text
            yield browser

    return opened


async def sign_in(browser: httpx2.AsyncClient, **fields: str) -> httpx2.Response:
    form = await browser.get("/sign-in")
    return await browser.post("/sign-in", data={"csrf": csrf(form), **fields})


def csrf(page: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page.text)
    assert found, page.text
    return found[1]
