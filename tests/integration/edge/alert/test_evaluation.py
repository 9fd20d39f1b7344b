"""Rules on readings in a real database: alerts, what silences them, and the cloud's copy."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from psycopg.types.json import Jsonb
from pydantic import SecretStr
from typer.testing import CliRunner

from farmiq.cli import app
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.alert import evaluation, rules, store
from farmiq.edge.alert.evaluation import Evaluation
from farmiq.edge.alert.mails import Post
from farmiq.plumbing import db
from farmiq.plumbing.runtime.clock import AgeGuard
from tests.conftest import Database
from tests.integration.edge.telemetry.readings import Reading, execute, keep, rows
from tests.support.mail_server import mail_server

HEAT = "rule.default.heat.any"
OPEN = "select kind, subject, severity from alerts where closed_at is null order by 1, 2"
LOCAL = "select kind, subject from local_alerts order by 1, 2"


@pytest.fixture
async def pool(edge_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(edge_db.url, name="test") as opened:
        yield opened


@pytest.fixture
def settings(edge_db: Database, tmp_path: Path) -> EdgeSettings:
    return EdgeSettings.load(
        {
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
            "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
        }
    )


@pytest.fixture
def rounds(pool: db.Pool, settings: EdgeSettings) -> Evaluation:
    return Evaluation(pool, ZoneInfo("UTC"), Post(settings))


def hot(*minutes_ago: float, value: float = 39.5, **more: Any) -> list[Reading]:
    now = datetime.now(UTC)
    return [Reading(now - timedelta(minutes=n), value, **more) for n in minutes_ago]


async def test_deadly_heat_raises_one_alert_without_any_configuration(
    pool: db.Pool, edge_db: Database, rounds: Evaluation
) -> None:
    await keep(pool, hot(7, 4, 1))
    assert await rounds.look() == {"opened": 1, "resolved": 0}
    assert rows(edge_db, OPEN) == [(HEAT, "t-1/f-1/b-1/d-1", "critical")]
    await keep(pool, hot(0))
    assert await rounds.look() == {}
    assert rows(edge_db, "select seen_count from alerts") == [(1,)]


async def test_state_survives_a_restart_in_the_middle_of_a_duration(
    pool: db.Pool, edge_db: Database, rounds: Evaluation, settings: EdgeSettings
) -> None:
    await keep(pool, hot(6, 4))
    assert await rounds.look() == {}
    await keep(pool, hot(0.5))
    assert await Evaluation(pool, ZoneInfo("UTC"), Post(settings)).look() == {
        "opened": 1,
        "resolved": 0,
    }
    assert rows(edge_db, LOCAL) == [(HEAT, "t-1/f-1/b-1/d-1")]


async def test_readings_that_come_late_raise_nothing(
    pool: db.Pool, edge_db: Database, rounds: Evaluation
) -> None:
    await keep(pool, hot(40, 35, 30, 25))
    assert await rounds.look() == {}
    assert rows(edge_db, OPEN) == []


async def test_cool_readings_close_the_alert(
    pool: db.Pool, edge_db: Database, rounds: Evaluation
) -> None:
    await keep(pool, hot(14, 8))
    await rounds.look()
    await keep(pool, hot(6, 0.5, value=24))
    assert await rounds.look() == {"opened": 0, "resolved": 1}
    assert rows(edge_db, OPEN) == rows(edge_db, LOCAL) == []
    assert rows(edge_db, "select states from alert_series") == [({},)]


async def test_device_that_was_revoked_closes_its_alerts(
    pool: db.Pool, edge_db: Database, rounds: Evaluation
) -> None:
    await keep(pool, hot(7, 1))
    await rounds.look()
    execute(edge_db, "update devices set revoked_at = now() where device_id = 'd-1'")
    assert await rounds.look() == {"opened": 0, "resolved": 1}
    assert rows(edge_db, OPEN) == rows(edge_db, "select from alert_series") == []


async def test_silent_controller_of_the_ventilation_raises_an_alert(
    pool: db.Pool, edge_db: Database, rounds: Evaluation
) -> None:
    await keep(pool, hot(11, value=60, metric="ventilation", unit="%"))
    # It came now: the controller sends what it stored, or its clock is behind.
    assert await rounds.look() == {}
    for table in ("telemetry_latest set ingested_at", "alert_series set ingested_to"):
        execute(edge_db, f"update {table} = now() - interval '11 minutes'")
    await rounds.look()
    assert [kind for kind, *_ in rows(edge_db, OPEN)] == ["rule.default.ventilation.silent"]
    await keep(pool, hot(0, value=60, metric="ventilation", unit="%"))
    await rounds.look()
    assert rows(edge_db, OPEN) == []


async def test_silence_that_began_while_the_edge_was_off_raises_an_alert(
    pool: db.Pool, edge_db: Database, rounds: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    await keep(pool, hot(40, value=60, metric="ventilation", unit="%"))
    assert await rounds.look() == {}
    monkeypatch.setattr(rules, "SETTLING", timedelta())
    assert await rounds.look() == {"opened": 1, "resolved": 0}
    assert [kind for kind, *_ in rows(edge_db, OPEN)] == ["rule.default.ventilation.silent"]


async def test_receiver_who_is_refused_keeps_the_mail_from_nobody_else(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    """One is unknown for good, one is to be tried later; the third gets the mail once."""
    async with mail_server() as mail:
        mail.answers |= {"ann@example.com": "550 unknown", "bob@example.com": "450 later"}
        own = {
            "alert_smtp_url": SecretStr(mail.url),
            "alert_mail_from": "FarmIQ <edge@example.com>",
            "alert_mail_to": "ann@example.com,bob@example.com,cy@example.com",
        }
        post = Post(settings.model_copy(update=own))
        await keep(pool, hot(7, 4, 1))
        await Evaluation(pool, ZoneInfo("UTC"), post).look()
        for _ in range(4):
            execute(edge_db, "update alert_mails set next_at = now()")
            await post.send_due(pool, AgeGuard(pool, "test"))
        assert [to for _, to in mail.envelopes] == [["cy@example.com"]]
    ended = rows(
        edge_db,
        "select receiver, sent_at is not null, given_up_at is not null, attempts > 1, "
        "left(error, 40) from alert_mails order by receiver",
    )
    refused = "the mail server refused a receiver: "
    assert ended == [
        ("ann@example.com", False, True, False, f"{refused}550 "),
        ("bob@example.com", False, False, True, f"{refused}450 "),
        ("cy@example.com", True, False, False, None),
    ]


async def test_mail_that_fails_while_the_clock_is_ahead_is_not_given_up(
    pool: db.Pool, edge_db: Database, settings: EdgeSettings
) -> None:
    own = {
        "alert_smtp_url": SecretStr("smtp://127.0.0.1:9"),
        "alert_mail_from": "edge@example.com",
        "alert_mail_to": "ann@example.com",
    }
    post, guard = Post(settings.model_copy(update=own)), AgeGuard(pool, "test")
    await keep(pool, hot(7, 4, 1))
    await Evaluation(pool, ZoneInfo("UTC"), post).look()
    given_up = "select attempts, given_up_at is not null from alert_mails"
    await post.send_due(pool, guard)
    execute(edge_db, "insert into test_clock (ahead) values ('3 days')")
    await post.send_due(pool, guard)
    assert rows(edge_db, given_up) == [(2, False)]
    execute(edge_db, "delete from test_clock")
    execute(edge_db, "update alert_mails set created_at = created_at - interval '25 hours'")
    await post.send_due(pool, guard)
    assert rows(edge_db, given_up) == [(3, True)]


async def test_two_tenants_with_the_same_names_have_alerts_of_their_own(
    pool: db.Pool, edge_db: Database, rounds: Evaluation
) -> None:
    await keep(pool, hot(7, 1) + hot(7, 1, tenant="t-2"))
    await rounds.look()
    assert [subject for _, subject, _ in rows(edge_db, OPEN)] == [
        "t-1/f-1/b-1/d-1",
        "t-2/f-1/b-1/d-1",
    ]


async def test_rules_of_the_clouds_copy_replace_the_defaults(
    pool: db.Pool, edge_db: Database, rounds: Evaluation
) -> None:
    """A copy that has only a rule of t-1's own; t-2 has none yet and keeps the defaults."""
    own = {
        "rule_id": "warm", "signal": "telemetry.temperature", "condition": "above",
        "threshold": 22, "farm_id": "f-1", "barn_id": "b-1",
    }  # fmt: skip
    store_copy(edge_db, [own], etag="1")
    await keep(pool, hot(7, 1) + hot(7, 1, tenant="t-2"))
    await rounds.look()
    assert rows(edge_db, OPEN) == [
        (HEAT, "t-2/f-1/b-1/d-1", "critical"),
        ("rule.warm", "t-1/f-1/b-1/d-1", "warning"),
    ]
    store_copy(edge_db, [], etag="2")
    await rounds.look()
    assert [kind for kind, *_ in rows(edge_db, OPEN)] == [HEAT]


def store_copy(database: Database, rules: list[dict[str, Any]], *, etag: str, **more: Any) -> None:
    content = {
        "tenant_id": "t-1", "farms": [], "barns": [], "batches": [], "breed_standards": [],
        "alert_rules": rules, **more,
    }  # fmt: skip
    execute(
        database,
        "insert into cloud_contexts values ('t-1', %s, %s, now(), now()) on conflict on constraint "
        "cloud_contexts_pkey do update set etag = excluded.etag, content = excluded.content",
        etag,
        Jsonb(content),
    )


async def test_clock_that_was_ahead_and_is_set_right_hides_nothing(
    pool: db.Pool, edge_db: Database, rounds: Evaluation
) -> None:
    await keep(pool, hot(-120, value=24))
    await rounds.look()
    assert await rounds.look() == {}
    await keep(pool, hot(0, value=24))
    await rounds.look()
    assert rows(edge_db, "select last_value, read_to <= now() from alert_series") == [(24, True)]
    await keep(pool, hot(0, value=25))
    await rounds.look()
    assert rows(edge_db, "select last_value from alert_series") == [(25,)]


async def test_many_readings_are_read_in_parts(
    pool: db.Pool, rounds: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "MAX_OF_SERIES", 7)
    await keep(pool, hot(*(n / 10 for n in range(80, 0, -1))))
    assert await rounds.look() == {"opened": 1, "resolved": 0}


async def sounding(pool: db.Pool) -> list[str]:
    """The devices for which the siren sounds."""
    async with db.transaction(pool) as tx:
        return [row["subject"] for row in await store.sounding(tx, ("critical",))]


async def test_siren_sounds_until_it_is_silenced_or_the_alert_is_closed(
    pool: db.Pool, edge_db: Database, rounds: Evaluation, tmp_path: Path
) -> None:
    await keep(pool, hot(7, 1) + hot(7, 1, device="d-2"))
    await rounds.look()
    first, second = "t-1/f-1/b-1/d-1", "t-1/f-1/b-1/d-2"
    assert await sounding(pool) == [first, second]
    async with db.transaction(pool) as tx:
        await alerts.close_chosen(tx, alerts.Filter(HEAT, first, exact=True), by="ann")
    assert await sounding(pool) == [second]
    environment = {"FARMIQ_EDGE_DB_URL": edge_db.url, "FARMIQ_STATE_DIR": str(tmp_path)}
    silence = partial(CliRunner().invoke, app, ["alert", "silence", "--json"], env=environment)
    typed = await asyncio.to_thread(silence)
    assert typed.exit_code == 0, typed.output
    assert json.loads(typed.stdout)["count"] == 2
    assert await sounding(pool) == []
    assert (await asyncio.to_thread(silence)).exit_code == 1
    assert [kind for kind, *_ in rows(edge_db, OPEN)] == [HEAT]
    # Neither is raised again while the barn is hot.
    await keep(pool, hot(0) + hot(0, device="d-2"))
    assert await rounds.look() == {}
    assert rows(edge_db, "select action from audit_log where action = 'alert.silence'") == [
        ("alert.silence",)
    ]


WARM = {
    "rule_id": "warm", "signal": "telemetry.temperature", "condition": "above", "threshold": 30,
    "clear_for_s": 0, "severity": "critical",
}  # fmt: skip
HEADLINES = "select headline from alert_mails order by created_at, mail_id"


@pytest.fixture
def mailing(pool: db.Pool, settings: EdgeSettings) -> Evaluation:
    """Writes mails to one person; nobody sends them."""
    own = {
        "alert_smtp_url": SecretStr("smtp://127.0.0.1:9"),
        "alert_mail_from": "edge@example.com",
        "alert_mail_to": "ann@example.com",
    }
    return Evaluation(pool, ZoneInfo("UTC"), Post(settings.model_copy(update=own)))


def headlines(database: Database) -> list[str]:
    """The first word of each mail."""
    return [headline.split()[0] for (headline,) in rows(database, HEADLINES)]


async def test_what_people_look_after_in_the_cloud_is_silent_until_it_opens_again(
    pool: db.Pool, edge_db: Database, rounds: Evaluation
) -> None:
    at = datetime.now(UTC)
    silence = {
        "rule_id": "warm", "farm_id": "f-1", "barn_id": "b-1", "device_id": "d-1",
        "at": at.isoformat(),
    }  # fmt: skip
    await keep(pool, hot(3) + hot(3, device="d-2"))
    store_copy(edge_db, [WARM], etag="1")
    await rounds.look()
    first, second = "t-1/f-1/b-1/d-1", "t-1/f-1/b-1/d-2"
    assert await sounding(pool) == [first, second]
    store_copy(edge_db, [WARM], etag="2", alert_silences=[silence])
    await rounds.look()
    assert await sounding(pool) == [second]
    assert rows(edge_db, "select silenced_by from local_alerts order by subject") == [
        ("cloud",), (None,),
    ]  # fmt: skip
    # It is over, and hot again, while the cloud cannot be reached: nobody looks after that.
    await keep(pool, hot(1, value=20))
    await rounds.look()
    await keep(pool, hot(-0.1))
    await rounds.look()
    assert await sounding(pool) == [second, first]


async def test_maintenance_holds_the_siren_and_mails_until_its_end(
    pool: db.Pool, edge_db: Database, mailing: Evaluation
) -> None:
    at = datetime.now(UTC)
    window = {
        "begin_at": (at - timedelta(hours=1)).isoformat(),
        "end_at": (at + timedelta(hours=1)).isoformat(),
        "farm_id": "f-1", "barn_id": "b-1", "device_id": None, "rule_id": None,
    }  # fmt: skip
    store_copy(edge_db, [WARM], etag="1", alert_windows=[window])
    await keep(pool, hot(3) + hot(3, device="d-2") + hot(3, device="d-3", barn="b-2"))
    assert await mailing.look() == {"opened": 3, "resolved": 0}
    assert await sounding(pool) == ["t-1/f-1/b-2/d-3"]
    assert headlines(edge_db) == ["critical:"]
    # Of what is over by then nobody hears.
    await keep(pool, hot(1, value=20, device="d-2"))
    await mailing.look()
    assert headlines(edge_db) == ["critical:"]
    execute(edge_db, "insert into test_clock (ahead) values ('61 minutes')")
    await mailing.look()
    assert sorted(await sounding(pool)) == ["t-1/f-1/b-1/d-1", "t-1/f-1/b-2/d-3"]
    assert headlines(edge_db) == ["critical:", "critical:"]
    await mailing.look()
    assert headlines(edge_db) == ["critical:", "critical:"]


async def test_another_severity_of_a_rule_is_that_of_what_it_has_open(
    pool: db.Pool, edge_db: Database, mailing: Evaluation
) -> None:
    store_copy(edge_db, [WARM | {"severity": "info"}], etag="1")
    await keep(pool, hot(3))
    await mailing.look()
    assert (await sounding(pool), headlines(edge_db)) == ([], [])
    store_copy(edge_db, [WARM], etag="2")
    await mailing.look()
    assert await sounding(pool) == ["t-1/f-1/b-1/d-1"]
    assert headlines(edge_db) == ["critical:"]
    assert rows(edge_db, "select severity, seen_count from alerts") == [("critical", 1)]
    store_copy(edge_db, [WARM | {"severity": "warning"}], etag="3")
    await mailing.look()
    assert await sounding(pool) == []
    await keep(pool, hot(0, value=20))
    await mailing.look()
    assert headlines(edge_db) == ["critical:", "resolved:"]
