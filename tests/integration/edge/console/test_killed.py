"""edge-console as a process of its own that is killed (-9) while somebody saves a record."""

import contextlib
import signal
from collections.abc import Callable
from typing import Any

import httpx2
import psycopg
import pytest

from farmiq.plumbing import ids
from tests.conftest import Database
from tests.integration.edge.console.conftest import BROWSER, csrf, sign_in
from tests.support import edge_day, preloaded
from tests.support.edge_day import NAME, TENANT
from tests.support.until import until

POINT = "edge_posting.before_commit"


def count(database: Database, table: str) -> int:
    with psycopg.connect(database.admin_url) as owner:
        row = owner.execute(f"select count(*) from {table}".encode()).fetchone()  # noqa: S608
    return int(row[0]) if row else 0


@pytest.mark.usefixtures("day")
async def test_record_of_a_console_that_is_killed_is_stored_once_when_it_is_sent_again(
    edge_db: Database, free_port: Callable[[], int]
) -> None:
    key = edge_day.add_key(edge_db.admin_url, tenant=TENANT)
    port = free_port()
    environment = {
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_MQTT_URL": "mqtt://127.0.0.1:1",
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:1",
        "FARMIQ_EDGE_KEY_FILE": "/nowhere",
        "FARMIQ_EDGE_HTTP_PORT": str(port),
    }
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", headers=BROWSER, timeout=30
    ) as browser:

        async def is_ready() -> bool:
            with contextlib.suppress(httpx2.HTTPError):
                return (await browser.get("/readyz")).status_code == httpx2.codes.OK
            return False

        dying: Any = preloaded.run("edge-console", environment | {"FARMIQ_CRASH_AT": POINT})
        await until(is_ready)
        assert (await sign_in(browser, key=key)).status_code == httpx2.codes.SEE_OTHER
        form = {
            "csrf": csrf(await browser.get("/records/new")), "idempotency_key": str(ids.new()),
            "kind": "mortality", "place": "valley-farm/barn-1/", "value": "2",
        }  # fmt: skip
        with pytest.raises(httpx2.HTTPError):
            await browser.post("/records/new", data=form)
        assert dying.wait(timeout=60) == -signal.SIGKILL
        assert (count(edge_db, "barn_records"), count(edge_db, "posted_events")) == (0, 0)

        again: Any = preloaded.run("edge-console", environment)
        try:
            await until(is_ready)
            # The sign-in outlives the process; the browser sends what it kept.
            for _ in range(2):
                answer = await browser.post(
                    "/records/new", data=form, headers={"Accept": "application/json"}
                )
                assert answer.status_code == httpx2.codes.CREATED, answer.text
        finally:
            again.kill()
            again.wait()
    for table in ("barn_records", "posted_events"):
        assert count(edge_db, table) == 1
    with psycopg.connect(edge_db.admin_url) as owner:
        waiting = owner.execute(
            "select status from sync_outbox where event_type = 'barn.record.created'"
        ).fetchall()
        by = owner.execute(
            "select actor from audit_log where action = 'barn.record.add'"
        ).fetchall()
    assert (waiting, by) == ([("pending",)], [(NAME,)])
