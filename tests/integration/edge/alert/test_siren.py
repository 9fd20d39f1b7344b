"""What a siren is given, and a siren that fails."""

from pathlib import Path

import pytest

from farmiq.config import EdgeSettings, SettingsError
from farmiq.edge.alert import siren
from farmiq.edge.alert.siren import Siren, SirenError
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.alert.test_evaluation import pool
from tests.integration.edge.telemetry.readings import execute, rows

__all__ = ["pool"]  # the fixture

ENVIRONMENT = {
    "FARMIQ_EDGE_DB_URL": "postgresql://unused",
    "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
    "FARMIQ_EDGE_KEY_FILE": "key.json",
    "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
}
ALERT = {
    "kind": "rule.r", "subject": "t-1/f-1/b-1/d-1", "severity": "critical", "message": "hot",
    "opened_at": "2026-07-01T12:00:00Z",
}  # fmt: skip


def settings(**given: str) -> EdgeSettings:
    return EdgeSettings.load({**ENVIRONMENT, **given})


def command(folder: Path, text: str) -> str:
    file = folder / "relay"
    file.write_text(text)
    file.chmod(0o755)
    return str(file)


@pytest.mark.parametrize(
    "failure",
    [
        ("#!/bin/sh\nexit 3\n", "ended with 3"),
        ("#!/bin/sh\nsleep 60 &\nwait\n", "ran over"),
        ("#!/nowhere/at/all\n", "cannot be run"),
    ],
)
async def test_command_that_fails_is_tried_again_and_ends_in_time(
    pool: db.Pool,
    edge_db: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: tuple[str, str],
) -> None:
    text, why = failure
    monkeypatch.setattr(siren, "COMMAND_TIMEOUT_S", 0.3)
    driver = Siren(pool, settings(ALERT_SIREN_COMMAND=command(tmp_path, text)), None)
    with pytest.raises(SirenError, match=why):
        await driver.run_command([ALERT])
    add_alert(edge_db)
    assert await driver.look() == {"failed": 1}
    assert rows(edge_db, "select is_on, driven_at from alert_sirens") == [(True, None)]
    command(tmp_path, "#!/bin/sh\n")
    assert await driver.look() == {}
    assert rows(edge_db, "select is_on, driven_at is null from alert_sirens") == [(True, False)]


async def test_siren_whose_setting_was_removed_is_not_on_for_ever(
    pool: db.Pool, edge_db: Database
) -> None:
    add_alert(edge_db)
    execute(edge_db, "insert into alert_sirens values ('command', true), ('a/topic', true)")
    await Siren(pool, settings(), None).look()
    assert rows(edge_db, "select distinct is_on from alert_sirens") == [(False,)]


def add_alert(database: Database) -> None:
    execute(
        database,
        "insert into local_alerts values ('rule.r', 's', 't-1', 'f-1', 'b-1', 'critical', 'hot', "
        "now())",
    )
    execute(
        database,
        "insert into alerts (alert_id, kind, subject, severity, message) "
        "values (gen_random_uuid(), 'rule.r', 's', 'critical', 'hot')",
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ALERT_SMTP_URL": "http://mail"}, "a mail server is smtp"),
        ({"ALERT_SMTP_URL": "smtp://mail"}, "sender"),
        ({"ALERT_SMTP_URL": "smtp://mail", "ALERT_MAIL_FROM": "a@b.c"}, "receiver"),
        ({"ALERT_SIREN_COMMAND": " "}, "ALERT_SIREN_COMMAND"),
        ({"ALERT_SIREN_COMMAND": "relay 'open"}, "ALERT_SIREN_COMMAND"),
        ({"ALERT_SIREN_TOPIC": "a/#"}, "ALERT_SIREN_TOPIC"),
    ],
)
def test_settings_that_cannot_work_are_rejected_at_the_start(
    given: dict[str, str], why: str
) -> None:
    with pytest.raises(SettingsError, match=why):
        settings(**given)
