"""A cloud-camera-accounts with its database; two companies and people of every role."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest

from farmiq.cloud.camera.accounts.api import ROOT, Api
from farmiq.cloud.identity.accounts import ROLES, add_company, add_user, open_sign_in
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.plumbing import db, http
from farmiq.plumbing.images.gallery import Gallery
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.support import databases
from tests.support.camera_days import Days

HOUR = timedelta(hours=1)


@dataclass
class Accounts:
    """`tokens` by person: viewer, operator, technician, admin of one; other of two; sue may all."""

    database: Database
    client: httpx2.AsyncClient
    one: UUID
    two: UUID
    tokens: dict[str, str]
    bucket: objects.Bucket

    @contextmanager
    def days(self, company_id: UUID | None = None) -> Iterator[Days]:
        with databases.connected(self.database.admin_url) as connection:
            yield Days(connection, company_id or self.one)

    async def get(self, path: str, *, who: str = "viewer", **query: Any) -> httpx2.Response:
        return await self.send("GET", path, who=who, **query)

    async def send(
        self, method: str, path: str, body: Any = None, *, who: str = "admin", **query: Any
    ) -> httpx2.Response:
        params = {name.rstrip("_"): str(value) for name, value in query.items()}
        return await self.client.request(
            method,
            f"{ROOT}/{path}",
            json=body if method != "GET" else None,
            params=params,
            headers={"Authorization": f"Bearer {self.tokens[who]}"} if who else {},
        )

    async def got(self, path: str, *, who: str = "viewer", **query: Any) -> Any:
        answer = await self.get(path, who=who, **query)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        return answer.json()

    async def done(
        self, method: str, path: str, body: Any = None, *, who: str = "admin", **query: Any
    ) -> Any:
        answer = await self.send(method, path, {} if body is None else body, who=who, **query)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()


@pytest.fixture
async def accounts(cloud_db: Database, engines: dict[str, str]) -> AsyncIterator[Accounts]:
    password = "a long enough password"
    with databases.connected(cloud_db.admin_url) as connection:
        one = add_company(connection, "t-one", name="One")
        two = add_company(connection, "t-two", name="Two")
        for role in ROLES:
            add_user(connection, f"{role}@one.farm", company_id=one, password=password, role=role)
        add_user(connection, "other@two.farm", company_id=two, password=password, role="admin")
        add_user(connection, "sue@one.farm", company_id=one, password=password, super_admin=True)
        people = {
            **{role: f"{role}@one.farm" for role in ROLES},
            "other": "other@two.farm",
            "sue": "sue@one.farm",
        }
        tokens = {
            name: open_sign_in(connection, email, lasts=HOUR) for name, email in people.items()
        }
    server = http.HttpServer(title="cloud", version="0", actions_per_minute=100_000)
    async with (
        db.pool(cloud_db.url, name="test", max_size=6) as pool,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=server.app), base_url="http://cloud.test"
        ) as client,
    ):
        bucket = objects.Bucket(engines["FARMIQ_CLOUD_S3_URL"])
        Api(SignIns(pool, lasts=HOUR), Gallery(bucket, site="cloud")).add_to(server.app)
        yield Accounts(cloud_db, client, one, two, tokens, bucket)
