"""Strangers at the sign-in: they can lock out neither a person nor the person's browser."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import argon2
import httpx2
import pytest

from farmiq.cloud.console import service
from farmiq.cloud.identity import accounts, passwords
from farmiq.cloud.identity.checks import Checks
from farmiq.config import CloudSettings
from farmiq.plumbing import http
from tests.conftest import Database
from tests.support import databases
from tests.support.until import until

ANNA, PASSWORD = "anna@example.com", "correct horse"
HOME, OUTSIDE = "198.51.100.7", "203.0.113.5"


class Browser:
    """One browser, with its cookies, as a proxy of ours passes its requests on."""

    def __init__(self, url: str, address: str) -> None:
        self.client = httpx2.AsyncClient(
            base_url=url, timeout=60, headers={"x-forwarded-for": address}
        )

    async def sign_in(self, email: str = ANNA, password: str = PASSWORD) -> int:
        self.client.cookies.delete("farmiq_sign_in")
        form = (await self.client.get("/sign-in", headers={"accept": "text/html"})).text
        (csrf,) = re.findall(r'name="csrf" value="([^"]+)"', form)
        answer = await self.client.post(
            "/sign-in", data={"email": email, "password": password, "csrf": csrf}
        )
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) > 0
        return answer.status_code

    async def sign_out(self) -> int:
        page = (await self.client.get("/settings/account", headers={"accept": "text/html"})).text
        (csrf, *_) = re.findall(r'name="csrf" value="([^"]+)"', page)
        return (await self.client.post("/sign-out", data={"csrf": csrf})).status_code


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a hash cost little: how many there are is what these tests are about."""
    cheap = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "hasher", cheap)
    passwords.dummy_hash.cache_clear()
    yield
    passwords.dummy_hash.cache_clear()


@pytest.fixture
async def browser(
    cloud_db: Database,
    free_port: Callable[[], int],
    tasks: asyncio.TaskGroup,
    quick: None,  # noqa: ARG001 - before there are passwords
) -> AsyncIterator[Callable[[str], Browser]]:
    with databases.connected(cloud_db.admin_url) as connection:
        company = accounts.add_company(connection, "tenant-a", name="A")
        accounts.add_user(connection, ANNA, company_id=company, password=PASSWORD)
    settings = CloudSettings.load(
        {"FARMIQ_CLOUD_DB_URL": cloud_db.url, "FARMIQ_AMQP_URL": "amqp://unused"}
    )
    server, port = http.HttpServer("farmiq-cloud", "test"), free_port()
    tasks.create_task(service.run(settings, server))
    tasks.create_task(http.serve(server, host="127.0.0.1", port=port))
    opened: list[Browser] = []

    def new(address: str) -> Browser:
        opened.append(Browser(f"http://127.0.0.1:{port}", address))
        return opened[-1]

    async def answers() -> bool:
        try:
            return (await new(HOME).client.get("/readyz")).is_success
        except httpx2.TransportError:
            return False

    await until(answers)
    yield new
    for each in opened:
        await each.client.aclose()


async def test_wrong_tries_of_strangers_lock_out_neither_her_browser_nor_her_network(
    browser: Callable[[str], Browser],
) -> None:
    hers = browser(OUTSIDE)
    assert await hers.sign_in() == 303
    stranger = browser(OUTSIDE)
    assert [await stranger.sign_in(password="wrong password") for _ in range(6)] == [401] * 5 + [
        429
    ]

    assert await stranger.sign_in() == 429, "right or wrong, that network has used up its tries"
    assert await hers.sign_in() == 303, "her browser is known, in the same network"
    assert await browser(HOME).sign_in() == 303, "a new browser, in another network"


async def test_tries_of_a_known_browser_are_bounded_too(browser: Callable[[str], Browser]) -> None:
    hers = browser(HOME)
    assert await hers.sign_in() == 303
    tries = [await hers.sign_in(password="wrong password") for _ in range(16)]

    assert tries == [401] * 15 + [429], "ten as itself, then five as a stranger"


async def test_flood_of_sign_ins_is_refused_at_once_and_another_network_gets_through(
    browser: Callable[[str], Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    all_came = threading.Event()
    matches = passwords.matches

    def slow(password_hash: str | None, password: str) -> bool:
        all_came.wait(150)
        return matches(password_hash, password)

    monkeypatch.setattr(passwords, "matches", slow)
    flood = [
        asyncio.create_task(browser(OUTSIDE).sign_in(email=f"{number}@example.com"))
        for number in range(40)
    ]
    try:
        await until(lambda: sum(task.done() for task in flood) >= 40 - 4 - Checks().workers)
        assert {task.result() for task in flood if task.done()} == {429}
        honest = asyncio.create_task(browser(HOME).sign_in())
    finally:
        all_came.set()

    assert await honest == 303
    assert set(await asyncio.gather(*flood)) == {401, 429}


async def test_sign_ins_sign_outs_and_a_bounded_number_of_wrong_tries_are_in_the_audit_log(
    browser: Callable[[str], Browser], cloud_db: Database
) -> None:
    for network in ("203.0.113", "192.0.2", "192.0.3"):
        stranger = browser(f"{network}.5")
        tries = [await stranger.sign_in(password="wrong password") for _ in range(5)]
        assert tries == [401] * 5
        assert await stranger.sign_in(email="nobody@example.com") == 401
    hers = browser(HOME)
    assert await hers.sign_in() == 303
    assert await hers.sign_out() == 303

    with databases.connected(cloud_db.admin_url) as connection:
        noted = connection.execute(
            "select actor, action, email, detail from user_actions where action ~ '^sign_' "
            "order by action_id"
        ).fetchall()
    assert [row[1:] for row in noted] == [
        *[("sign_in_failed", ANNA, "password 203.0.113.0/24")] * 5,
        *[("sign_in_failed", ANNA, "password 192.0.2.0/24")] * 5,
        ("sign_in", ANNA, "password 198.51.100.0/24"),
        ("sign_out", ANNA, ""),
    ]
    assert {row[0] for row in noted} == {ANNA}
