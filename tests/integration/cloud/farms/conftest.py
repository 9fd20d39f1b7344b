"""The API of master data with its database; two companies and people of every role."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from farmiq.cloud.farms.api import ROOT, Api
from farmiq.cloud.identity.accounts import ROLES, add_company, add_user, open_sign_in
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.plumbing import db, http
from tests.conftest import Database
from tests.support import databases

HOUR = timedelta(hours=1)


@dataclass
class Registry:
    """`tokens` by person: one of each role at hill; other, admin of dale; sue, super admin."""

    database: Database
    client: httpx2.AsyncClient
    tokens: dict[str, str]
    companies: dict[str, str]

    async def send(
        self, method: str, path: str, body: Any = None, *, who: str = "admin", **query: Any
    ) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        if isinstance(body, str):
            sent: dict[str, Any] = {"content": body}
            headers["Content-Type"] = "text/csv"
        else:
            sent = {"json": body} if body is not None else {}
        params = {name: str(value) for name, value in query.items()}
        return await self.client.request(
            method, f"{ROOT}/{path}", params=params, headers=headers, **sent
        )

    async def got(self, path: str, *, who: str = "viewer", **query: Any) -> Any:
        answer = await self.send("GET", path, who=who, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def put(self, path: str, body: Any, *, who: str = "admin", status: int = 201) -> Any:
        answer = await self.send("PUT", path, body, who=who)
        assert answer.status_code == status, answer.text
        return answer.json()

    def actions(self) -> list[tuple[Any, ...]]:
        with databases.connected(self.database.admin_url) as owner:
            owner.execute("set role farmiq_service")
            return owner.execute(
                "select actor, action, kind, key from master_data_actions order by at, action_id"
            ).fetchall()


@pytest.fixture
async def registry(cloud_db: Database) -> AsyncIterator[Registry]:
    password = "a long enough password"
    with databases.connected(cloud_db.admin_url) as owner:
        hill = add_company(owner, "hill", name="Hill")
        dale = add_company(owner, "dale", name="Dale")
        people = {role: (f"{role}@hill.farm", hill, role, False) for role in ROLES}
        people |= {
            "other": ("other@dale.farm", dale, "admin", False),
            "sue": ("sue@hill.farm", hill, "viewer", True),
        }
        tokens = {}
        for name, (email, company, role, is_super) in people.items():
            add_user(
                owner, email, company_id=company, password=password, role=role,
                super_admin=is_super,
            )  # fmt: skip
            tokens[name] = open_sign_in(owner, email, lasts=HOUR)
    server = http.HttpServer(title="cloud", version="0", actions_per_minute=100_000)
    async with (
        db.pool(cloud_db.url, name="test", max_size=4) as pool,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=server.app), base_url="http://cloud.test"
        ) as client,
    ):
        Api(SignIns(pool, lasts=HOUR)).add_to(server.app)
        yield Registry(cloud_db, client, tokens, {"hill": str(hill), "dale": str(dale)})
