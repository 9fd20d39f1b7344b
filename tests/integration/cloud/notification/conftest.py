"""Notification with its database, receivers on loopback, and two companies with their people."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import psycopg
import pytest

from farmiq.cloud.identity.accounts import add_company, add_user, open_sign_in
from farmiq.cloud.notification import service
from farmiq.config import CloudSettings
from farmiq.plumbing import http, ids, sealing
from tests.conftest import Database
from tests.support.http_receiver import HttpReceiver, http_receiver
from tests.support.mail_server import MailServer, mail_server
from tests.support.until import until

HOUR = timedelta(hours=1)
SIGNING_KEY = "whsec_" + base64.b64encode(bytes(range(32))).decode()
ANN: dict[str, Any] = {"name": "Ann", "addresses": {"mail": "ann@example.com"}}


@dataclass(frozen=True)
class Site:
    """`tokens` by person: admin and viewer of hill; other, admin of dale."""

    database: Database
    settings: CloudSettings
    tokens: dict[str, str]

    def owner(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.admin_url, options="-c lock_timeout=1s") as connection:
            connection.execute("set role farmiq_service")
            cursor = connection.execute(query.encode(), args or None)
            return cursor.fetchall() if cursor.description else []

    def ahead(self, text: str) -> None:
        """Move the clock of the database."""
        with psycopg.connect(self.database.admin_url) as connection:
            connection.execute(
                "insert into test_clock (ahead) values (%s) "
                "on conflict on constraint test_clock_pkey do update set ahead = excluded.ahead",
                (text,),
            )

    def open(self, tenant_id: str = "hill", **changes: Any) -> UUID:
        """An episode of which people are to be told, as cloud-alerts-service leaves it."""
        episode: dict[str, Any] = {
            "tenant_id": tenant_id, "episode_id": ids.new(), "cause": f"rule:hot|{ids.new()}",
            "source": "rule", "rule_id": "hot", "severity": "critical", "subject": "north/1/d-010",
            "farm_id": "north", "barn_id": "1", "device_id": "d-010",
            "message": "temperature above 30 °C for 10 minutes",
            "signal": "telemetry.temperature", "opened_at": datetime.now(UTC),
            "last_at": datetime.now(UTC), "first_value": 30.5, "worst_value": 31.4,
            "last_value": 31.0, **changes,
        }  # fmt: skip
        columns = ", ".join(episode)
        values = ", ".join(f"%({name})s" for name in episode)
        with psycopg.connect(self.database.url) as connection:
            connection.execute(
                f"insert into alert_episodes ({columns}, paged_at) values ({values}, fn_now())".encode(),  # noqa: E501, S608
                episode,
            )
            self._step(connection, tenant_id, episode["episode_id"], "opened")
        found: UUID = episode["episode_id"]
        return found

    def resolve(self, episode_id: UUID, tenant_id: str = "hill") -> None:
        with psycopg.connect(self.database.url) as connection:
            connection.execute(
                "update alert_episodes set state = 'resolved', last_value = 28, "
                "resolved_at = greatest(fn_now(), opened_at) where episode_id = %s",
                (episode_id,),
            )
            self._step(connection, tenant_id, episode_id, "resolved")

    def _step(
        self, connection: psycopg.Connection, tenant_id: str, episode_id: UUID, step: str
    ) -> None:
        connection.execute(
            "insert into alert_steps (tenant_id, episode_id, step, created_at) "
            "values (%s, %s, %s, fn_now())",
            (tenant_id, episode_id, step),
        )

    def messages(self, *columns: str) -> list[tuple[Any, ...]]:
        named = ", ".join(columns or ("step", "contact_id", "channel_id", "state"))
        return self.owner(f"select {named} from alert_messages order by message_id")  # noqa: S608

    async def until_ended(self, count: int) -> list[tuple[Any, ...]]:
        """Nothing is pending, and there are so many messages."""

        def ended() -> bool:
            states = [row[0] for row in self.messages("state")]
            return len(states) >= count and "pending" not in states

        await until(ended, within_s=30)
        return self.messages()


@dataclass(frozen=True)
class Running:
    """The service in this process, and people who talk to it."""

    site: Site
    client: httpx2.AsyncClient

    async def send(
        self, method: str, path: str, body: Any = None, *, who: str = "admin", **query: Any
    ) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.site.tokens[who]}"} if who else {}
        sent: dict[str, Any] = {"json": body} if body is not None else {}
        return await self.client.request(
            method, f"/api/v1/{path}", params=query, headers=headers, **sent
        )

    async def put(self, path: str, body: Any, *, who: str = "admin", status: int = 201) -> Any:
        answer = await self.send("PUT", path, body, who=who)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def got(self, path: str, *, who: str = "viewer", **query: Any) -> Any:
        answer = await self.send("GET", path, who=who, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def mail(self, server: MailServer, **contact: Any) -> None:
        """A channel of mail, and Ann on it."""
        secrets = {"smtp_url": server.url}
        settings = {"sender": "FarmIQ <alerts@example.com>"}
        body = {"kind": "email", "settings": settings, "secrets": secrets}
        await self.put("alert-channels/mail", body)
        await self.put("alert-contacts/ann", {**ANN, **contact})

    async def hook(self, receiver: HttpReceiver, channel_id: str = "hook") -> None:
        """A webhook, and a contact of the same name on it."""
        secrets = {"url": f"{receiver.url}/in", "signing_key": SIGNING_KEY}
        await self.put(f"alert-channels/{channel_id}", {"kind": "webhook", "secrets": secrets})
        await self.put(
            f"alert-contacts/{channel_id}", {"name": "Office", "addresses": {channel_id: ""}}
        )


@pytest.fixture
def site(cloud_db: Database, tmp_path: Path) -> Iterator[Site]:
    password = "a long enough password"
    tokens = {}
    with psycopg.connect(cloud_db.admin_url) as owner:
        hill = add_company(owner, "hill", name="Hill")
        dale = add_company(owner, "dale", name="Dale")
        for name, company, role in (
            ("admin", hill, "admin"), ("viewer", hill, "viewer"), ("operator", hill, "operator"),
            ("other", dale, "admin"),
        ):  # fmt: skip
            email = f"{name}@example.com"
            add_user(owner, email, company_id=company, password=password, role=role)
            tokens[name] = open_sign_in(owner, email, lasts=timedelta(days=30))
    with psycopg.connect(cloud_db.url) as service_login:
        service_login.execute(
            "insert into farms (tenant_id, farm_id, name, timezone) "
            "values ('hill', 'north', 'North Farm', 'Asia/Bangkok')"
        )
        service_login.execute(
            "insert into barns (tenant_id, farm_id, barn_id, name) "
            "values ('hill', 'north', '1', 'Barn 1')"
        )
    key_file = tmp_path / "secrets.key"
    sealing.write_new_key(key_file)
    settings = CloudSettings.load(
        {
            "FARMIQ_CLOUD_DB_URL": cloud_db.url,
            "FARMIQ_AMQP_URL": "amqp://unused",
            "FARMIQ_EDGE_KEYS_FILE": "unused",
            "FARMIQ_SECRETS_KEY_FILE": str(key_file),
            "FARMIQ_PUBLIC_URL": "http://cloud.test",
            "FARMIQ_ALERT_PRIVATE_HOSTS": "127.0.0.1",
        }
    )
    yield Site(cloud_db, settings, tokens)
    with psycopg.connect(cloud_db.admin_url) as owner:
        owner.execute("delete from test_clock")


@asynccontextmanager
async def started(site: Site, **changes: Any) -> AsyncIterator[Running]:
    """The service with these settings changed, until the block ends."""
    settings = site.settings.model_copy(update=changes)
    server = http.HttpServer(title="cloud", version="0", actions_per_minute=100_000)
    running = asyncio.create_task(service.run(settings, server))
    transport = httpx2.ASGITransport(app=server.app)
    try:
        async with httpx2.AsyncClient(transport=transport, base_url="http://cloud.test") as client:
            await until(lambda: "notification.database" in server.checks or running.done())
            yield Running(replace(site, settings=settings), client)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def running(site: Site) -> AsyncIterator[Running]:
    async with started(site) as made:
        yield made


@pytest.fixture
async def receiver() -> AsyncIterator[HttpReceiver]:
    async with http_receiver() as made:
        yield made


@pytest.fixture
async def mailbox() -> AsyncIterator[MailServer]:
    async with mail_server() as made:
        yield made
