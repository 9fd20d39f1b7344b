"""A clock that jumps ahead by days and back deletes nothing and blocks nobody."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from farmiq.cloud.camera.gateway import jobs as camera_jobs
from farmiq.cloud.identity import accounts
from farmiq.cloud.identity.sign_in import SignIns as CloudSignIns
from farmiq.cloud.identity.store import Client
from farmiq.config import EdgeSettings
from farmiq.edge import api_keys
from farmiq.edge.console.sign_ins import SignIns as EdgeSignIns
from farmiq.edge.devices import broker as device_broker
from farmiq.edge.ingress import jobs
from farmiq.plumbing import db, ids, retention
from farmiq.plumbing.backup.database import BackupError, Base, Programs, bases
from farmiq.plumbing.backup.repository import Folder, Repository
from farmiq.plumbing.backup.site import Site
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime import clock, lease
from tests.conftest import Database
from tests.support import databases

DAYS = "3 days"


def move(database: Database, ahead: str) -> None:
    with databases.connected(database.admin_url) as owner:
        owner.execute(
            "insert into test_clock (ahead) values (%s) "
            "on conflict on constraint test_clock_pkey do update set ahead = excluded.ahead",
            (ahead,),
        )


def count(database: Database, table: str) -> int:
    with databases.connected(database.admin_url) as owner:
        row = owner.execute(
            sql.SQL("select count(*) from {}").format(sql.Identifier(table))
        ).fetchone()
        return int(row[0]) if row else 0


@pytest.mark.parametrize("site", ["edge", "cloud"])
async def test_ids_are_not_forgotten_while_the_clock_is_ahead(
    site: str, request: pytest.FixtureRequest, free_port: Callable[[], int]
) -> None:
    database: Database = request.getfixturevalue(f"{site}_db")
    table = "ingress_dedupe" if site == "edge" else "ingestion_dedupe"
    with databases.connected(database.admin_url) as owner:
        _remember_one(owner, site)
    async with db.pool(database.url, name="test") as pool:

        def job() -> clock.Do:
            if site == "edge":
                return _edge_chore(pool, database, free_port())
            what = Retention("ingestion_dedupe", "received_at", 2)
            return retention.job(pool, what, name="test").do

        forget = job()
        await forget()
        move(database, "30 days")
        await forget()
        assert count(database, table) == 1
        # A service that starts while the clock is ahead knows no better than what was kept.
        await job()()
        assert count(database, table) == 1
        move(database, "0")
        await forget()
        assert count(database, table) == 1


def _edge_chore(pool: db.Pool, database: Database, port: int) -> clock.Do:
    settings = EdgeSettings.load(
        {
            "FARMIQ_EDGE_DB_URL": database.url,
            "FARMIQ_EDGE_MQTT_URL": f"mqtt://127.0.0.1:{port}",
            "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{port}",
            "FARMIQ_EDGE_KEY_FILE": "unused.json",
        }
    )
    todo = jobs.jobs_of(pool, settings, is_active=lambda: True)
    return next(each.do for each in todo if each.name == "ingress.dedupe")


def _remember_one(owner: "psycopg.Connection", site: str) -> None:
    if site == "edge":
        owner.execute(
            "insert into ingress_dedupe (tenant_id, event_id, content_hash) values ('t-1', %s, %s)",
            (ids.new(), b"x" * 32),
        )
    else:
        owner.execute(
            "insert into ingestion_dedupe "
            "(tenant_id, event_id, event_type, content_hash, batch_id) "
            "values ('t-1', %s, 'telemetry.ingested', %s, 'b-1')",
            (ids.new(), b"x" * 32),
        )


@pytest.mark.parametrize("site", ["edge", "cloud"])
async def test_backups_are_not_pruned_while_the_clock_is_ahead(
    site: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    database: Database = request.getfixturevalue(f"{site}_db")
    copies = Repository(Folder(tmp_path / "copies"), [b"k" * 32])
    copies.prepare(is_first=True)
    for days in range(40):
        _add_base(copies, datetime.now(UTC) - timedelta(days=days))
    backed_up = Site(
        repository=copies, url=database.admin_url, bucket=None, files=(),
        programs=Programs(None), spool=tmp_path,
    )  # fmt: skip
    async with db.pool(database.url, name="test") as pool:
        await clock.AgeGuard(pool, "test").look()
    move(database, "60 days")
    with pytest.raises(BackupError, match="nothing is deleted"):
        backed_up.prune(days=30, at_least=2)
    assert len(bases(copies)) == 40
    move(database, "0")
    # A restore to 30 days ago begins with the base before.
    assert backed_up.prune(days=30, at_least=2)["bases"] == 9


def _add_base(copies: Repository, at: datetime) -> None:
    base = Base(
        id=f"{at:%Y%m%dT%H%M%SZ}", started_at=at, ended_at=at, first_wal="0" * 24,
        last_wal="0" * 24, size_bytes=1, sha256="", server_version="18", system_id="1",
    )  # fmt: skip
    copies.write_document(f"base/{base.id}/about.json", base)


async def test_nobody_is_signed_out_of_the_cloud_by_a_clock_that_was_ahead(
    cloud_db: Database,
) -> None:
    with databases.connected(cloud_db.admin_url) as owner:
        company = accounts.add_company(owner, "t-1", name="One")
        for name in ("ann", "bob"):
            accounts.add_user(owner, f"{name}@x.farm", company_id=company, password="long enough 1")
        accounts.open_sign_in(owner, "ann@x.farm", lasts=timedelta(days=1))
    async with db.pool(cloud_db.url, name="test") as pool:
        sign_ins = CloudSignIns(pool, lasts=timedelta(days=1))
        await _sign_nobody_out(
            cloud_db,
            "sign_ins",
            lambda: sign_ins.sign_in(
                "bob@x.farm", "long enough 1", client=Client("127.0.0.1"), browser=None
            ),
            sign_ins.purge_job().do,
        )


async def test_nobody_is_signed_out_of_the_edge_by_a_clock_that_was_ahead(
    edge_db: Database,
) -> None:
    key = api_keys.new_key()
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute(
            "insert into api_keys (api_key_id, name, role, key_sha256) "
            "values (%s, 'office', 'viewer', %s)",
            (ids.new(), api_keys.digest(key)),
        )
    async with db.pool(edge_db.url, name="test") as pool:
        sign_ins = EdgeSignIns(pool, timedelta(days=1))
        await sign_ins.with_key(key, network="127.0.0.1")
        await _sign_nobody_out(
            edge_db,
            "console_sign_ins",
            lambda: sign_ins.with_key(key, network="127.0.0.1"),
            sign_ins.purge_job().do,
        )


async def _sign_nobody_out(
    database: Database, table: str, sign_in: Callable[[], Awaitable[object]], purge: clock.Do
) -> None:
    """One is signed in; another signs in while the clock is ahead."""
    await purge()
    move(database, "60 days")
    await sign_in()
    await purge()
    assert count(database, table) == 2
    move(database, "0")
    with databases.connected(database.admin_url) as owner:
        owner.execute(
            sql.SQL(
                "update {} set expires_at = fn_now() where expires_at < now() + '2 days'"
            ).format(sql.Identifier(table))
        )
    await purge()
    assert count(database, table) == 1


async def test_a_lease_taken_while_the_clock_was_ahead_blocks_nobody(edge_db: Database) -> None:
    async with db.pool(edge_db.url, name="test") as pool:
        async with db.transaction(pool) as tx:
            assert await lease.take(tx, "gateway", "first:1", lasts_s=5) is not None
            assert await lease.take(tx, "gateway", "second:2", lasts_s=5) is None
        move(edge_db, DAYS)
        async with db.transaction(pool) as tx:
            assert await lease.take(tx, "gateway", "first:1", lasts_s=5) is not None
        move(edge_db, "0")
        async with db.transaction(pool) as tx:
            assert await lease.take(tx, "gateway", "second:2", lasts_s=5) is not None


async def test_a_pause_set_while_the_clock_was_ahead_is_over_when_it_is_back(
    edge_db: Database,
) -> None:
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute(
            "insert into device_pauses (tenant_id, device_id, until_at, in_a_row) "
            "values ('t-1', 'd-1', fn_now() + interval '3 days', 1), "
            "('t-1', 'd-2', fn_now() + interval '30 s', 1)"
        )
    async with db.pool(edge_db.url, name="test") as pool:
        await device_broker.close_flood_alerts(pool)
    with databases.connected(edge_db.admin_url) as owner:
        rows = owner.execute(
            "select device_id from device_pauses where until_at > fn_now()"
        ).fetchall()
    assert rows == [("d-2",)]


async def test_steps_and_pauses_of_cameras_put_off_by_a_clock_ahead_are_due_now(
    cloud_db: Database,
) -> None:
    rows = {"soon": "30 s", "ahead": "3 days"}
    with databases.connected(cloud_db.admin_url) as owner:
        company = accounts.add_company(owner, "t-1", name="One")
        for number, (name, wait) in enumerate(rows.items()):
            camera = ids.new()
            owner.execute(
                "insert into devices (device_id, company_id, mac, device_name) "
                "values (%s, %s, %s, %s)",
                (camera, company, f"A0B1C2D3E4F{number}", name),
            )
            owner.execute(
                "insert into camera_logins (device_id, company_id, secret_bcrypt, made_by, "
                "made_at, paused_until) values (%s, %s, 'x', 'test', fn_now(), "
                "fn_now() + %s::interval)",
                (camera, company, wait),
            )
            owner.execute(
                "insert into camera_transfers (transfer_id, company_id, device_id, image_name, "
                "dialect, spelling, state, opened_at, heard_at, due_at) values (%s, %s, %s, %s, "
                "'standard', 'x', 'receiving', fn_now(), fn_now(), fn_now() + %s::interval)",
                (ids.new(), company, camera, name, wait),
            )
    async with db.pool(cloud_db.url, name="test") as pool:
        assert await camera_jobs.reset_far_future(pool, max_ahead_s=600) == {"count": 2}
        assert await camera_jobs.reset_far_future(pool, max_ahead_s=600) == {"count": 0}
    with databases.connected(cloud_db.admin_url) as owner:
        waiting = owner.execute(
            "select image_name from camera_transfers where due_at > fn_now() union all "
            "select device_name from camera_logins join devices using (device_id) "
            "where paused_until > fn_now()"
        ).fetchall()
    assert waiting == [("soon",), ("soon",)]
