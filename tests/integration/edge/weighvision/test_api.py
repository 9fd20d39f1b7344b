"""The edge's answers about weigh sessions: over HTTP and on the command line."""

import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner, Result

from farmiq.cli import app
from farmiq.edge import api_keys
from farmiq.edge.ingress import handlers
from farmiq.edge.weighvision import jobs
from farmiq.edge.weighvision.api import Api
from farmiq.plumbing import db, http, ids
from tests.conftest import Database
from tests.integration.edge.test_quarantine import ahead
from tests.integration.edge.weighvision.conftest import NEIGHBOUR, Weighing, upload
from tests.support import databases

PATH = "/api/v1/weighvision/sessions"


@pytest.fixture
async def api(pool: db.Pool, stations: Database) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with a viewer's key."""
    key = api_keys.new_key()
    with databases.connected(stations.admin_url) as connection:
        connection.execute(
            "insert into api_keys (api_key_id, name, role, key_sha256) values (%s,'v','viewer',%s)",
            (ids.new(), api_keys.digest(key)),
        )
    server = http.HttpServer(title="test", version="0")
    Api(pool, timezone="UTC").add_to(server.app)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=server.app),
        base_url="http://edge",
        headers={"Authorization": f"Bearer {key}"},
    ) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _the_edge(stations: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FARMIQ_EDGE_DB_URL", stations.url)
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path / "no stack"))


def farmiq(*words: str) -> Result:
    # A thread has no loop of its own yet: the command begins one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: CliRunner().invoke(app, words)).result()


async def test_get_session_returns_events_weights_and_images(
    pool: db.Pool, stations: Database, api: httpx2.AsyncClient
) -> None:
    one = Weighing()
    image, waited_for = upload(stations, one), ids.new()
    await handlers.commit(
        pool,
        [
            one.created(initial_weight_kg=80),
            one.captured(image),
            one.weight(80.5),
            one.captured(waited_for),
            one.finalized(2),
        ],
    )
    found = (await api.get(f"{PATH}/{one.session_id}")).json()
    assert (found["state"], found["valid"], found["missing"]) == ("finalized", True, [])
    assert (found["initial_weight_kg"], found["final_weight_kg"]) == (80, 80.5)
    assert [each["event_type"].split(".", 1)[1] for each in found["events"]] == [
        "session.created", "image.captured", "weight.recorded", "image.captured",
        "session.finalized",
    ]  # fmt: skip
    assert [each["weight_kg"] for each in found["weights"]] == [80.5]
    assert {each["media_id"]: each["bound"] for each in found["images"]} == {
        str(image): True,
        str(waited_for): False,
    }


async def test_sessions_are_listed_by_state_station_and_page(
    pool: db.Pool, stations: Database, api: httpx2.AsyncClient
) -> None:
    whole, lacking, given_up = Weighing(), Weighing(), Weighing()
    beside = Weighing(place=NEIGHBOUR)
    image = upload(stations, whole)
    await handlers.commit(
        pool, [whole.created(), whole.weight(), whole.captured(image), whole.finalized()]
    )
    await handlers.commit(
        pool, [lacking.created(), lacking.weight(), given_up.cancelled(), beside.cancelled()]
    )
    ahead(stations, minutes=11)
    await jobs.flag_incomplete(pool, patience_s=600)

    async def listed(**asked: str) -> set[str]:
        found = (await api.get(PATH, params=asked)).json()
        return {each["session_id"] for each in found["sessions"]}

    assert await listed(state="incomplete") == {str(lacking.session_id)}
    assert await listed(state="finalized") == {str(whole.session_id)}
    assert await listed(state="created") == set()
    assert await listed(station="st-2") == {str(beside.session_id)}
    seen: list[str] = []
    asked = {"limit": "1"}
    while True:
        page = (await api.get(PATH, params=asked)).json()
        seen += [each["session_id"] for each in page["sessions"]]
        if page["next_cursor"] is None:
            break
        asked["cursor"] = page["next_cursor"]
    assert len(seen) == len(set(seen)) == 4


async def test_filter_by_day_uses_the_farms_zone(
    pool: db.Pool, stations: Database, api: httpx2.AsyncClient
) -> None:
    """23:30 of the 14th in UTC is 06:30 of the 15th in Bangkok."""
    one = Weighing(at=datetime(2026, 11, 14, 23, 30, tzinfo=UTC))
    await handlers.commit(pool, [one.created()])

    async def on(day: str) -> int:
        return len((await api.get(PATH, params={"day": day})).json()["sessions"])

    assert [await on("2026-11-14"), await on("2026-11-15")] == [1, 0]
    with databases.connected(stations.admin_url) as owner:
        owner.execute("insert into farms values ('t-1', 'f-1', 'Asia/Bangkok')")
    assert [await on("2026-11-14"), await on("2026-11-15")] == [0, 1]


async def test_sessions_as_csv_have_all_columns(pool: db.Pool, api: httpx2.AsyncClient) -> None:
    await handlers.commit(pool, [Weighing().weight(80.5), Weighing().weight(81)])
    answer = await api.get(PATH, params={"format": "csv", "limit": "1"})
    head, *lines = answer.text.splitlines()
    assert head.startswith("session_id,tenant_id,farm_id")
    assert len(lines) == 1
    assert 'rel="next"' in answer.headers["link"]


@pytest.mark.parametrize(
    "asked",
    [
        {"state": "lost"},
        {"day": "yesterday"},
        {"day": "0001-01-01"},
        {"cursor": "x"},
        {"who": "me"},
    ],
)
async def test_invalid_query_is_answered_with_the_reason(
    api: httpx2.AsyncClient, asked: dict[str, str]
) -> None:
    answer = await api.get(PATH, params=asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["details"][0]["field"] in asked


async def test_unknown_session_and_missing_key_are_rejected(api: httpx2.AsyncClient) -> None:
    assert (await api.get(f"{PATH}/{ids.new()}")).status_code == 404
    assert (await api.get(f"{PATH}/7")).status_code == 404
    stranger = {"Authorization": "Bearer nobody"}
    assert (await api.get(PATH, headers=stranger)).status_code == 401


async def test_command_line_lists_and_shows_sessions(pool: db.Pool, stations: Database) -> None:
    assert "nothing" in farmiq("weighings", "ls").stdout
    one = Weighing()
    await handlers.commit(pool, [one.created(), one.weight(80.5)])
    assert farmiq("weighings", "ls").exit_code == 0
    ahead(stations, minutes=11)
    await jobs.flag_incomplete(pool, patience_s=600)
    listed = farmiq("weighings", "ls", "--state", "incomplete")
    assert (listed.exit_code, "(image; finalized)" in listed.stdout) == (3, True)
    day = f"{one.at + timedelta(seconds=1):%Y-%m-%d}"
    found = json.loads(farmiq("weighings", "ls", "--day", day, "--json").stdout)
    assert [each["session_id"] for each in found["sessions"]] == [str(one.session_id)]
    shown = farmiq("weighings", "show", str(one.session_id))
    assert (shown.exit_code, "missing: image, finalized" in shown.stdout) == (3, True)
    full = json.loads(farmiq("weighings", "show", str(one.session_id), "--json").stdout)
    assert full["missing"] == ["image", "finalized"]


@pytest.mark.parametrize(
    ("words", "code"),
    [(("show", "7"), 2), (("show", str(ids.new())), 1), (("ls", "--state", "lost"), 2)],
)
def test_command_line_says_what_cannot_be_shown(words: tuple[str, ...], code: int) -> None:
    result = farmiq("weighings", *words)
    assert (result.exit_code, result.stdout) == (code, "")
    assert "Traceback" not in result.stderr
