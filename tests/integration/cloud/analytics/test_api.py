"""Figures over HTTP and on the command line: page by page, of one's own company only."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from farmiq import cli
from farmiq.cloud.analytics.api import Api
from farmiq.cloud.identity.accounts import add_user, open_sign_in
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.plumbing import http, parquet
from tests.integration.cloud.analytics.conftest import Analytics, at, on
from tests.support import databases

HOUR = timedelta(hours=1)


@dataclass
class Reader:
    client: httpx2.AsyncClient
    tokens: dict[str, str]

    async def get(self, path: str, who: str = "ann", **query: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.tokens[who]}"} if who else {}
        params = {name.rstrip("_"): str(value) for name, value in query.items()}
        return await self.client.get(f"/api/v1/{path}", params=params, headers=headers)


@pytest.fixture
async def reader(analytics: Analytics) -> AsyncIterator[Reader]:
    """Ann of t-001 and bea of t-002; t-001 has a batch with three days of figures."""
    farm = analytics
    farm.farm()
    farm.batch()
    for minute, weight_kg in enumerate((1.0, 1.01, 0.99, 1.02, 0.98, 9.0)):
        await farm.send(*farm.weighing(at(1, 8, minute), weight_kg))
    await farm.send(*farm.weighing(at(2), 1.1), farm.record(at(3), "mortality", 10))
    await farm.settle()
    tokens = {}
    with databases.connected(farm.site.database.admin_url) as owner:
        for name, tenant_id in (("ann", "t-001"), ("bea", "t-002")):
            company = owner.execute(
                "select company_id from companies where tenant_id = %s", (tenant_id,)
            ).fetchone()
            assert company is not None
            add_user(
                owner, f"{name}@x.farm", company_id=company[0], password="long enough 1",
                role="viewer",
            )  # fmt: skip
            tokens[name] = open_sign_in(owner, f"{name}@x.farm", lasts=HOUR)
    server = http.HttpServer(title="cloud", version="0")
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://cloud.test") as client:
        Api(SignIns(farm.pool, lasts=HOUR)).add_to(server.app)
        yield Reader(client, tokens)


async def test_figures_come_page_by_page_and_filtered(reader: Reader, analytics: Analytics) -> None:
    page: dict[str, Any] = {"next_cursor": ""}
    seen = []
    while page["next_cursor"] is not None:
        answer = await reader.get("kpis", limit=4, cursor=page["next_cursor"])
        assert answer.status_code == 200, answer.text
        page = answer.json()
        seen += [(row["kpi_date"], row["kpi_type"]) for row in page["kpis"]]
    figures = analytics.figures()
    assert seen == sorted(figures, key=lambda key: (-int(key[0].replace("-", "")), key[1]))
    rows = (await reader.get("kpis", batch="b", type_="weight_mean", to=on(1))).json()["kpis"]
    assert [(row["kpi_date"], row["value"]) for row in rows] == [(on(1), pytest.approx(1.0))]
    table = (await reader.get("kpis", format="csv", from_=on(3))).text.splitlines()
    assert table[0].startswith("kpi_date,farm_id,barn_id,batch_id,kpi_type,value")
    assert len(table) == 4
    file = await reader.get("kpis", format="parquet", from_=on(3))
    assert file.headers["content-type"] == "application/vnd.apache.parquet"
    rows = parquet.read_all(file.content).to_pylist()
    assert [",".join(rows[0])] == table[:1]
    assert [row["kpi_type"] for row in rows] == [line.split(",")[4] for line in table[1:]]
    # Columns have the types of the answer in JSON, in a file without a row too.
    none = await reader.get("kpis", format="parquet", from_=on(20))
    schema = parquet.read_all(none.content).schema
    assert schema == parquet.read_all(file.content).schema
    assert [str(schema.field(name).type) for name in ("kpi_date", "value", "revision")] == [
        "date32[day]", "double", "int64",
    ]  # fmt: skip


async def test_summary_has_the_animals_and_the_latest_figures(reader: Reader) -> None:
    found = (await reader.get("batches/b/summary")).json()
    assert (found["head_count"], found["dead"], found["outlier_count"]) == (990, 10, 1)
    assert found["safe_to_sell_from"] is None
    latest = {figure["kpi_type"]: figure for figure in found["figures"]}
    assert (latest["weight_mean"]["kpi_date"], latest["mortality_pct"]["value"]) == (on(2), 1.0)


async def test_weighings_of_a_day_name_their_sessions_and_outliers(reader: Reader) -> None:
    page = (await reader.get("batches/b/weighings", limit=1)).json()
    assert [day["kpi_date"] for day in page["days"]] == [on(2)]
    page = (await reader.get("batches/b/weighings", cursor=page["next_cursor"])).json()
    (day,) = page["days"]
    assert (day["kpi_date"], day["weighed_count"], day["outlier_count"]) == (on(1), 5, 1)
    assert [w["weight_kg"] for w in day["weighings"] if w["is_outlier"]] == [9.0]
    assert len({w["session_id"] for w in day["weighings"]}) == 6
    assert page["next_cursor"] is None


@pytest.mark.parametrize("path", ["batches/b/summary", "batches/b/weighings"])
async def test_batch_of_another_company_is_not_found(reader: Reader, path: str) -> None:
    assert (await reader.get(path, who="bea")).status_code == 404
    assert (await reader.get(path.replace("/b/", "/none/"))).status_code == 404
    assert (await reader.get(path, who="")).status_code == 401
    assert (await reader.get("kpis", who="bea")).json() == {"kpis": [], "next_cursor": None}


@pytest.mark.parametrize(
    "query",
    [{"type_": "weight"}, {"from_": "2026-02-30"}, {"from_": on(2), "to": on(1)}, {"limit": 0},
     {"cursor": "x"}, {"unknown": 1}],
)  # fmt: skip
async def test_question_that_is_not_valid_is_answered_with_the_reason(
    reader: Reader, query: dict[str, Any]
) -> None:
    answer = await reader.get("kpis", **query)
    assert answer.status_code == 400
    assert answer.json()["error"]["details"]


@pytest.mark.usefixtures("reader")
def test_command_lists_and_shows_figures(
    analytics: Analytics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FARMIQ_CLOUD_DB_URL", analytics.site.database.url)
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path / "no stack"))

    def run(*words: str) -> str:
        done = CliRunner().invoke(cli.app, ["kpi", *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    listed = json.loads(run("ls", "--tenant", "t-001", "--type", "head_count", "--json"))
    assert [row["value"] for row in listed["kpis"]] == [990, 1000, 1000]
    assert "weight_mean" in run("ls", "--tenant", "t-001")
    shown = json.loads(run("show", "b", "--tenant", "t-001", "--json"))
    assert shown["head_count"] == 990
    assert "mortality_pct" in run("show", "b", "--tenant", "t-001")
    wrong = CliRunner().invoke(cli.app, ["kpi", "show", "none", "--tenant", "t-001"])
    assert (wrong.exit_code, wrong.stdout) == (1, "")
    wrong = CliRunner().invoke(cli.app, ["kpi", "ls", "--tenant", "t-001", "--type", "x"])
    assert wrong.exit_code == 2
