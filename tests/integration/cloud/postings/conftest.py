"""Two companies with a farm each, their people, and the services of barn records and feed."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq.cloud.barn import service as barn_service
from farmiq.cloud.feed import service as feed_service
from farmiq.cloud.identity.accounts import add_user, open_sign_in
from farmiq.plumbing import http, ids
from tests.integration.cloud.conftest import CloudSite
from tests.support.until import until

PEOPLE = {"ann": ("t-001", "operator"), "vic": ("t-001", "viewer"), "bob": ("t-002", "operator")}
PLACE = {"farm_id": "hill", "barn_id": "b-1"}
BARN, LOTS, INTAKES, STOCK = "barn/records", "feed/lots", "feed/intakes", "feed/stock"


def seed(cloud: CloudSite) -> dict[str, str]:
    """A farm in Bangkok with two barns and a batch for each company; returns people's tokens."""
    with psycopg.connect(cloud.database.admin_url) as owner:
        for name, (tenant, role) in PEOPLE.items():
            company = owner.execute(
                "select company_id from companies where tenant_id = %s", (tenant,)
            ).fetchone()
            assert company is not None
            add_user(
                owner, f"{name}@{tenant}.farm", company_id=company[0], password="long enough 1",
                role=role,
            )  # fmt: skip
        owner.execute("set role farmiq_service")
        for tenant, farm, barn, batch in (
            ("t-001", "hill", "b-1", "flock-1"), ("t-001", "hill", "b-2", "flock-2"),
            ("t-002", "dale", "b-9", "flock-9"),
        ):  # fmt: skip
            owner.execute(
                "insert into farms values (%s, %s, %s, 'Asia/Bangkok') on conflict do nothing",
                (tenant, farm, farm),
            )
            owner.execute("insert into barns values (%s, %s, %s, %s)", (tenant, farm, barn, barn))
            owner.execute(
                "insert into batches (tenant_id, batch_id, farm_id, barn_id, species, "
                "placed_count, placed_on) values (%s, %s, %s, %s, 'broiler', 1000, '2026-01-01')",
                (tenant, batch, farm, barn),
            )
        owner.execute("insert into feed_products values ('t-001', 'grower', 'Grower')")
        owner.execute("reset role")
        return {
            name: open_sign_in(owner, f"{name}@{tenant}.farm", lasts=timedelta(hours=1))
            for name, (tenant, _) in PEOPLE.items()
        }


@dataclass
class Cloud:
    """The services' HTTP API, as people call it."""

    site: CloudSite
    client: httpx2.AsyncClient
    tokens: dict[str, str]

    async def post(
        self, path: str, body: Any, *, who: str = "ann", key: str | None = None
    ) -> httpx2.Response:
        headers = {**self._headers(who), "Idempotency-Key": key or str(ids.new())}
        return await self.client.post(f"/api/v1/{path}", json=body, headers=headers)

    async def entered(self, path: str, **body: Any) -> dict[str, Any]:
        response = await self.post(path, {**PLACE, **body})
        assert response.status_code == 201, response.text
        answer: dict[str, Any] = response.json()
        return answer

    async def get(self, path: str, *, who: str = "ann", **query: Any) -> Any:
        response = await self.client.get(
            f"/api/v1/{path}", params=query, headers=self._headers(who)
        )
        assert response.status_code == 200, response.text
        return response.json()

    def count(self, table: str) -> int:
        return int(self.site.rows(f"select count(*) from {table}")[0][0])  # noqa: S608

    def _headers(self, who: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[who]}"}


def _is_ours(route: Any) -> bool:
    return str(route.path).startswith(("/api/v1/barn", "/api/v1/feed"))


@pytest.fixture
async def api(cloud: CloudSite, tasks: asyncio.TaskGroup) -> AsyncIterator[Cloud]:
    tokens = seed(cloud)
    server = http.HttpServer(title="cloud", version="0", actions_per_minute=100_000)
    for service in (barn_service, feed_service):
        tasks.create_task(service.run(cloud.settings, server))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=server.app), base_url="http://cloud.test"
    ) as client:
        await until(lambda: len([route for route in server.app.routes if _is_ours(route)]) == 7)
        yield Cloud(cloud, client, tokens)
