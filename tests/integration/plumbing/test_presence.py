"""Processes say on their database which code they are."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest

from farmiq.plumbing import db, presence
from farmiq.plumbing.presence import Code
from tests.conftest import Database
from tests.support import preloaded
from tests.support.until import until


def look(database: Database) -> list[Code]:
    with psycopg.connect(database.admin_url) as connection:
        return presence.running(connection)


@pytest.mark.parametrize("site", ["edge", "cloud"])
async def test_a_process_is_known_until_it_ends(
    site: str, edge_db: Database, cloud_db: Database, tasks: asyncio.TaskGroup
) -> None:
    database = {"edge": edge_db, "cloud": cloud_db}[site]
    names = [f"{site}-console", f"{site}-other"]
    staying = tasks.create_task(
        presence.stay(database.url, services=names, version="7.1", revision="0300")
    )
    await until(lambda: look(database))
    (code,) = look(database)
    assert (code.services, code.version, code.revision) == (tuple(names), "7.1", "0300")
    assert code.knows("0300_post_x")
    assert not code.knows("0301_post_x")
    staying.cancel()
    await until(lambda: not look(database))


async def test_one_that_was_killed_is_forgotten(edge_db: Database) -> None:
    with psycopg.connect(edge_db.admin_url) as connection:
        connection.execute(
            "insert into processes (process_id, services, host, pid, version, revision, seen_at) "
            "values (gen_random_uuid(), '{edge-console}', 'h', 1, '7.1', '0300', "
            "now() - %s * interval '1 second')",
            (presence.GONE_AFTER_S + 1,),
        )
    assert look(edge_db) == []


async def test_sessions_have_the_revision_in_their_names(
    edge_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db, "_revisions", {})
    async with db.pool(edge_db.url, name="edge-a") as old:
        await old.wait()
        db.say_revision("edge", "0300")
        async with db.pool(edge_db.url, name="edge-b") as new:
            await new.wait()
            assert look(edge_db) == [Code(("edge-a",), None), Code(("edge-b",), "0300")]


async def test_a_service_that_is_run_says_so_and_leaves(
    edge_db: Database, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    name = "edge-barn-records"
    process = preloaded.run(
        name,
        {
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_EDGE_MQTT_URL": "mqtt://127.0.0.1:9",
            "FARMIQ_EDGE_HTTP_PORT": str(free_port()),
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        },
    )
    try:
        await until(lambda: any(code.where for code in look(edge_db)), within_s=60)
        assert {code.services for code in look(edge_db)} == {(name,)}
    finally:
        process.terminate()
        process.wait(timeout=60)
    await until(partial(_is_gone, edge_db))


def _is_gone(database: Database) -> bool:
    return not look(database)
