"""Every table and every prefix of the bucket says how long it keeps what it has, and why."""

import re
from pathlib import Path

import psycopg

from farmiq.cloud import retentions
from farmiq.config import CloudSettings
from tests.conftest import Database
from tests.sql import catalog

CLOUD = Path(__file__).parents[2] / "farmiq" / "cloud"


def test_every_table_has_a_retention_or_a_reason_to_have_none(cloud_db: Database) -> None:
    settings = CloudSettings.load(
        {"FARMIQ_CLOUD_DB_URL": cloud_db.url, "FARMIQ_AMQP_URL": "amqp://nobody@127.0.0.1/x"}
    )
    with_days = {rule.table for rule in retentions.rules(settings)}
    listed = with_days | set(retentions.WITHOUT_DAYS)
    tables = set(catalog.tables(cloud_db.admin_url))
    assert tables - listed == set(), "say in farmiq/cloud/retentions.py how long these keep rows"
    assert listed - tables == set(), "there are no such tables"
    assert with_days & set(retentions.WITHOUT_DAYS) == set()
    with psycopg.connect(cloud_db.admin_url) as connection:
        for table in with_days - {"telemetry_readings"}:
            may = connection.execute(
                "select has_table_privilege('farmiq_service', %s, 'delete')", (table,)
            ).fetchone()
            assert may == (True,), f"{table}: no service may delete rows"


def test_every_prefix_of_the_bucket_is_listed() -> None:
    written = {
        match[1]
        for file in CLOUD.rglob("*.py")
        for match in re.finditer(r'"((?:camera|aside|tenants|history)/)', file.read_text())
    }
    assert written <= set(retentions.BUCKET)
