"""One's own account on a real console and database: password, second factor, sessions, language."""

import asyncio
import base64
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import argon2
import httpx2
import pytest
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.cloud.console import service
from farmiq.cloud.identity import accounts, passwords, second_factor, session, store
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, sealing
from tests.conftest import Database
from tests.support import databases
from tests.support.until import until

ANN, BO, CY, PASSWORD = "ann@hill.farm", "bo@hill.farm", "cy@dale.farm", "correct horse"
HTML = {"accept": "text/html"}
ACCOUNT = "/settings/account"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a hash cost little."""
    cheap = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "hasher", cheap)
    passwords.dummy_hash.cache_clear()
    yield
    passwords.dummy_hash.cache_clear()


@dataclass
class Site:
    database: Database
    url: str
    key_file: Path
    browsers: list["Browser"] = field(default_factory=list)

    def browser(self, agent: str = "Firefox/145 (Android 15)") -> "Browser":
        client = httpx2.AsyncClient(
            base_url=self.url, timeout=60, headers={**HTML, "user-agent": agent}
        )
        self.browsers.append(Browser(self, client))
        return self.browsers[-1]

    def owner(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        with databases.connected(self.database.admin_url) as connection:
            cursor = connection.execute(query.encode(), args or None)
            return cursor.fetchall() if cursor.description else []

    def actions(self, email: str = ANN) -> list[str]:
        rows = self.owner(
            "select action from user_actions where email = %s order by action_id", email
        )
        # Who signs in and out has tests of its own.
        return [row[0] for row in rows if row[0] != "add" and not row[0].startswith("sign_")]


@dataclass
class Browser:
    site: Site
    client: httpx2.AsyncClient
    secret: bytes = b""
    codes: list[str] = field(default_factory=list)
    # A code is good once: the next one is of the step after it.
    used_step: int = 0

    async def csrf(self, page: str) -> str:
        answer = await self.client.get(page)
        found = re.search(r'name="csrf" value="([^"]+)"', answer.text)
        assert found, (answer.status_code, answer.text[:500])
        return found[1]

    async def sign_in(self, email: str = ANN, password: str = PASSWORD) -> httpx2.Response:
        csrf = await self.csrf("/sign-in")
        data = {"email": email, "password": password, "csrf": csrf}
        return await self.client.post("/sign-in", data=data)

    async def enter(self, code: str) -> httpx2.Response:
        csrf = await self.csrf("/sign-in/code")
        return await self.client.post("/sign-in/code", data={"code": code, "csrf": csrf})

    async def post(self, path: str, **data: str) -> httpx2.Response:
        csrf = await self.csrf(ACCOUNT)
        return await self.client.post(f"{ACCOUNT}/{path}", data={**data, "csrf": csrf})

    def code(self) -> str:
        self.used_step = max(int(time.time()) // 30, self.used_step + 1)
        return second_factor.code(self.secret, self.used_step)

    async def turn_on(self) -> None:
        answer = await self.post("second-factor", password=PASSWORD)
        assert answer.headers.get("location") == f"{ACCOUNT}/second-factor/setup", answer.text
        page = (await self.client.get(f"{ACCOUNT}/second-factor/setup")).text
        shown = re.search(r'id="secret">([^<]+)<', page)
        assert shown
        self.secret = _base32(shown[1])
        answer = await self.post("second-factor/setup", code=self.code())
        assert answer.status_code == 200, answer.text
        self.codes = re.findall(r"<li><code>([^<]+)</code>", answer.text)

    async def is_in(self) -> bool:
        return (await self.client.get("/reports")).status_code == 200


def _base32(text: str) -> bytes:
    letters = text.replace(" ", "")
    return base64.b32decode(letters + "=" * (-len(letters) % 8))


@pytest.fixture
async def site(
    cloud_db: Database,
    free_port: Callable[[], int],
    tasks: asyncio.TaskGroup,
    tmp_path: Path,
    quick: None,  # noqa: ARG001 - before there are passwords
) -> AsyncIterator[Site]:
    with databases.connected(cloud_db.admin_url) as connection:
        hill = accounts.add_company(connection, "hill", name="Hill")
        dale = accounts.add_company(connection, "dale", name="Dale")
        for email, company, role in (
            (ANN, hill, "admin"), (BO, hill, "viewer"), (CY, dale, "admin"),
        ):  # fmt: skip
            accounts.add_user(connection, email, company_id=company, password=PASSWORD, role=role)
    key_file = tmp_path / "secrets.key"
    sealing.write_new_key(key_file)
    settings = CloudSettings.load(
        {
            "FARMIQ_CLOUD_DB_URL": cloud_db.url,
            "FARMIQ_AMQP_URL": "amqp://unused",
            "FARMIQ_SECRETS_KEY_FILE": str(key_file),
        }
    )
    server, port = http.HttpServer("farmiq-cloud", "test"), free_port()
    tasks.create_task(service.run(settings, server))
    tasks.create_task(http.serve(server, host="127.0.0.1", port=port))
    made = Site(cloud_db, f"http://127.0.0.1:{port}", key_file)

    async def answers() -> bool:
        try:
            return (await made.browser().client.get("/readyz")).is_success
        except httpx2.TransportError:
            return False

    await until(answers, within_s=30)
    yield made
    for browser in made.browsers:
        await browser.client.aclose()


async def test_new_password_needs_the_current_one_and_ends_other_sessions(site: Site) -> None:
    here, there = site.browser(), site.browser()
    for browser in (here, there):
        assert (await browser.sign_in()).headers["location"] == "/"
    before = here.client.cookies["farmiq_sign_in"]

    wrong = await here.post("password", current="no", new="new password", again="new password")
    unequal = await here.post("password", current=PASSWORD, new="new password", again="another")
    short = await here.post("password", current=PASSWORD, new="short", again="short")
    assert [answer.status_code for answer in (wrong, unequal, short)] == [422, 422, 422]
    assert "This is not your password" in wrong.text
    changed = await here.post(
        "password", current=PASSWORD, new="new password", again="new password"
    )

    assert changed.headers["location"] == f"{ACCOUNT}?done=password"
    assert here.client.cookies["farmiq_sign_in"] != before
    assert await here.is_in()
    assert not await there.is_in()
    assert (await there.sign_in()).status_code == 401
    assert (await there.sign_in(password="new password")).status_code == 303
    assert site.actions() == ["password"]


async def test_second_factor_is_asked_for_and_each_code_is_good_once(site: Site) -> None:
    here, there = site.browser(), site.browser()
    await here.sign_in()
    await there.sign_in()
    await here.turn_on()

    assert len(here.codes) == 10
    assert await here.is_in()
    # It was opened with the password alone.
    assert not await there.is_in()
    assert (await there.sign_in()).headers["location"] == "/sign-in/code"
    assert not await there.is_in()
    assert (await there.enter("000000")).status_code == 401
    code = here.code()
    assert (await there.enter(code)).headers["location"] == "/"
    assert await there.is_in()
    third = site.browser()
    await third.sign_in()
    assert (await third.enter(code)).status_code == 401
    assert (await third.enter(here.codes[0].upper())).status_code == 303
    fourth = site.browser()
    await fourth.sign_in()
    assert (await fourth.enter(here.codes[0])).status_code == 401
    assert site.actions() == ["second_factor_on", "recovery_code_used"]
    noted = site.owner(
        "select action, detail from user_actions where action ~ '^sign_' order by action_id"
    )
    assert [(action, detail.partition(" ")[0]) for action, detail in noted] == [
        ("sign_in", "password"), ("sign_in", "password"), ("sign_in_failed", "code"),
        ("sign_in", "code"), ("sign_in_failed", "code"), ("sign_in", "recovery_code"),
        ("sign_in_failed", "code"),
    ]  # fmt: skip
    (row,) = site.owner("select secret, recovery_hashes::text from second_factors")
    assert here.secret not in bytes(row[0])
    assert here.codes[1] not in row[1]


async def test_guessed_codes_are_bounded_and_a_right_one_waits(site: Site) -> None:
    here, thief = site.browser(), site.browser()
    await here.sign_in()
    await here.turn_on()
    await thief.sign_in()

    answers = [await thief.enter(f"{n:06}") for n in range(6)]

    assert [answer.status_code for answer in answers] == [401] * 5 + [429]
    assert int(answers[-1].headers["retry-after"]) > 60
    assert await here.is_in()


async def test_second_factor_is_turned_off_with_a_code_only(site: Site) -> None:
    here = site.browser()
    await here.sign_in()
    await here.turn_on()

    assert (await here.post("second-factor/remove", code="123456")).status_code == 422
    renewed = await here.post("second-factor/codes", code=here.code())
    codes = re.findall(r"<li><code>([^<]+)</code>", renewed.text)
    assert len(codes) == 10
    assert not set(codes) & set(here.codes)
    off = await here.post("second-factor/remove", code=codes[3])
    assert off.headers["location"] == f"{ACCOUNT}?done=second-factor-off"
    assert (await site.browser().sign_in()).headers["location"] == "/"


async def test_whoever_needs_a_second_factor_gets_no_further_without(site: Site) -> None:
    ann, bo = site.browser(), site.browser()
    await ann.sign_in()
    await bo.sign_in(BO)
    assert (await bo.post("second-factor-rule", role="viewer")).status_code == 403
    assert (await ann.post("second-factor-rule", role="super_admin")).status_code == 422
    assert (await ann.post("second-factor-rule", role="admin")).status_code == 303

    assert await bo.is_in()
    led = await ann.client.get("/reports")
    assert (led.status_code, led.headers["location"]) == (303, ACCOUNT)
    token = ann.client.cookies["farmiq_sign_in"]
    asked = await site.browser().client.get(
        "/api/v1/telemetry/latest",
        headers={"authorization": f"Bearer {token}", "accept": "application/json"},
    )
    assert asked.status_code == 403
    assert "second factor" in asked.json()["error"]["message"]
    await ann.turn_on()
    assert await ann.is_in()
    # Another company has rules of its own.
    cy = site.browser()
    await cy.sign_in(CY)
    assert await cy.is_in()


async def test_whoever_has_the_password_of_an_admin_chooses_another_one_first(site: Site) -> None:
    site.owner("update users set must_change_password = true where email = %s", BO)
    bo = site.browser()
    await bo.sign_in(BO)

    led = await bo.client.get("/reports")
    assert (led.status_code, led.headers["location"]) == (303, ACCOUNT)
    assert "choose one of your own" in (await bo.client.get(ACCOUNT)).text
    await bo.post("password", current=PASSWORD, new="my own password", again="my own password")
    assert await bo.is_in()
    assert site.owner("select must_change_password from users where email = %s", BO) == [(False,)]


async def test_sessions_are_listed_with_their_device_and_ended_one_by_one(site: Site) -> None:
    here = site.browser("Mozilla/5.0 (X11; Linux) Chrome/142.0 Safari/537.36")
    phone, other = site.browser(), site.browser()
    for browser in (here, phone):
        await browser.sign_in()
    await other.sign_in(BO)
    page = (await here.client.get(ACCOUNT)).text

    assert page.count("End it now") == 1
    assert "Chrome on Linux" in page
    assert "Firefox on Android" in page
    (end,) = re.findall(r"sessions/([0-9a-f-]{36})/end", page)
    assert (await other.post(f"sessions/{end}/end")).status_code == 404
    assert (await here.post(f"sessions/{end}/end")).status_code == 303
    assert not await phone.is_in()
    await phone.sign_in()
    assert (await here.post("sessions/end-others")).status_code == 303
    assert [await browser.is_in() for browser in (here, phone, other)] == [True, False, True]
    assert site.actions() == ["end_session", "end_other_sessions"]


async def test_language_is_kept_with_the_person_and_forms_of_others_are_refused(
    site: Site,
) -> None:
    here = site.browser()
    await here.sign_in()

    assert (await here.post("language", language="xx")).status_code == 422
    assert (await here.post("language", language="de")).status_code == 303
    forged = await here.client.post(f"{ACCOUNT}/language", data={"language": "en", "csrf": "x"})
    assert forged.status_code == 403
    assert 'lang="de"' in (await here.client.get(ACCOUNT)).text
    there = site.browser()
    await there.sign_in()
    assert 'lang="de"' in (await there.client.get(ACCOUNT)).text
    assert site.owner("select language from users where email = %s", ANN) == [("de",)]


async def test_signing_in_again_ends_the_sign_in_that_the_browser_had(site: Site) -> None:
    here = site.browser()
    await here.sign_in()
    old = here.client.cookies["farmiq_sign_in"]
    again = site.browser()
    csrf = await again.csrf("/sign-in")
    again.client.cookies.set("farmiq_sign_in", old)
    answer = await again.client.post(
        "/sign-in", data={"email": ANN, "password": PASSWORD, "csrf": csrf}
    )

    assert not await here.is_in()
    assert answer.cookies["farmiq_sign_in"] != old
    (given,) = [
        value for value in answer.headers.get_list("set-cookie") if "farmiq_sign_in=" in value
    ]
    assert "HttpOnly" in given
    assert "SameSite=lax" in given


async def test_lost_second_factor_is_reset_by_an_admin_of_the_company_or_by_command(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    bo = site.browser()
    await bo.sign_in(BO)
    await bo.turn_on()
    ((bo_id,),) = site.owner("select user_id from users where email = %s", BO)
    pages: dict[str, list[str]] = {}
    async with db.pool(site.database.url, name="test", max_size=2) as pool:
        for email in (CY, BO, ANN):
            with databases.connected(site.database.admin_url) as connection:
                token = accounts.open_sign_in(connection, email, lasts=timedelta(hours=1))
            try:
                async with session.as_person(pool, token) as tx:
                    await tx.execute("select fn_reset_person_second_factor(%s)", (bo_id,))
                pages[email] = ["done"]
            except Exception as error:  # noqa: BLE001 - compared below
                pages[email] = [db.first_line(error)]
    assert pages == {
        CY: ["there is no such person"],
        BO: ["only admins change people"],
        ANN: ["done"],
    }
    assert not await bo.is_in()
    assert (await bo.sign_in(BO)).headers["location"] == "/"
    await bo.turn_on()
    monkeypatch.setenv("FARMIQ_CLOUD_DB_ADMIN_URL", site.database.admin_url)
    result = await asyncio.to_thread(CliRunner().invoke, app, ["user", "totp-reset", BO, "--yes"])
    assert result.exit_code == 0, result.output
    again = await asyncio.to_thread(CliRunner().invoke, app, ["user", "totp-reset", BO, "--yes"])
    assert again.exit_code == 1
    assert site.actions(BO) == [
        "second_factor_on", "reset_second_factor", "second_factor_on", "reset_second_factor",
    ]  # fmt: skip


async def test_server_without_its_key_lets_nobody_with_a_second_factor_in(site: Site) -> None:
    here = site.browser()
    await here.sign_in()
    await here.turn_on()
    async with db.pool(site.database.url, name="test", max_size=2) as pool:
        blind = SignIns(pool, lasts=timedelta(hours=1))
        client = store.Client("198.51.100.0/24")
        with pytest.raises(Exception, match="FARMIQ_SECRETS_KEY_FILE"):
            await blind.sign_in(ANN, PASSWORD, client=client, browser=None)
