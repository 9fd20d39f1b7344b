"""A forwarder that dies where no event passes: the kill rounds of tests/chaos do the rest."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from farmiq.config import EdgeSettings
from tests.conftest import Database
from tests.integration.edge.sync.owed import force, owe_many, rows
from tests.support import preloaded
from tests.support.until import until


def start(
    database: Database, settings: EdgeSettings, port: int, *, crash_at: str = ""
) -> "subprocess.Popen[bytes]":
    environment = {
        "FARMIQ_EDGE_DB_URL": database.url,
        "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
        "FARMIQ_EDGE_KEY_FILE": str(settings.edge_key_file),
        "OUTBOX_ARCHIVE_DIR": str(settings.outbox_archive()),
        "FARMIQ_EDGE_HTTP_PORT": str(port),
        "FARMIQ_CRASH_AT": crash_at,
    }
    return preloaded.run("edge-sync-forwarder", environment)


def archives(settings: EdgeSettings) -> list[Path]:
    return sorted(settings.outbox_archive().glob("outbox-*.jsonl.gz"))


async def test_death_after_an_archive_is_written_loses_nothing(
    edge_db: Database, settings: EdgeSettings, free_port: Callable[[], int]
) -> None:
    """The rows are in the file and still in the outbox; the next one writes them again."""
    owe_many(edge_db, 7, status="dlq")
    force(edge_db, "update sync_outbox set updated_at = now() - interval '31 days'")
    dying = start(edge_db, settings, free_port(), crash_at="sync.after_archive")
    await until(lambda: dying.poll() is not None, within_s=60)
    assert dying.returncode == -signal.SIGKILL
    assert rows(edge_db, "select count(*) from sync_outbox") == [(7,)]
    assert len(archives(settings)) == 1
    assert rows(edge_db, "select count(*) from sync_archives") == [(0,)]

    living = start(edge_db, settings, free_port())
    try:
        await until(
            lambda: rows(edge_db, "select count(*) from sync_outbox") == [(0,)], within_s=60
        )
    finally:
        living.terminate()
        living.wait(timeout=20)
    assert len(archives(settings)) == 2
    noted = rows(edge_db, "select file_name, row_count from sync_archives")
    assert noted == [(archives(settings)[1].name, 7)] or noted == [(archives(settings)[0].name, 7)]


async def test_crash_while_releasing_expired_leases_leaves_them_to_the_next_run(
    edge_db: Database, settings: EdgeSettings, free_port: Callable[[], int]
) -> None:
    owe_many(edge_db, 7)
    force(edge_db, "update sync_outbox set status = 'sending', claimed_by = 'gone', "
          "claimed_at = now(), lease_expires_at = now() - interval '1 s'")  # fmt: skip
    held = "select distinct status, claimed_by, attempt_count from sync_outbox"
    dying = start(edge_db, settings, free_port(), crash_at="sync.before_reap_commit")
    await until(lambda: dying.poll() is not None, within_s=60)
    assert dying.returncode == -signal.SIGKILL
    assert rows(edge_db, held) == [("sending", "gone", 0)]

    living = start(edge_db, settings, free_port())
    try:
        freed = "select count(*) from sync_outbox where status <> 'sending' and attempt_count = 1"
        await until(lambda: rows(edge_db, freed) == [(7,)], within_s=60)
    finally:
        living.terminate()
        living.wait(timeout=20)
