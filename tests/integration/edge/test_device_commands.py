"""`farmiq device …` at a terminal, against a real database."""

import json
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from farmiq.cli import app
from tests.conftest import Database
from tests.support import databases

HEADER = "tenant_id,farm_id,barn_id,device_id,station_id,kind\n"


@pytest.fixture
def farmiq(edge_db: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "Terminal":
    monkeypatch.setenv("FARMIQ_EDGE_DB_URL", edge_db.url)
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path))
    return Terminal(edge_db)


class Terminal:
    def __init__(self, database: Database) -> None:
        self._database = database

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> Result:
        result = CliRunner().invoke(app, ["device", *arguments], input=stdin)
        assert result.exit_code == code, result.output
        return result

    def rows(self, query: str) -> list[tuple[object, ...]]:
        with databases.connected(self._database.admin_url) as connection:
            return connection.execute(query.encode()).fetchall()


def test_a_device_is_added_and_its_login_is_printed_once(farmiq: Terminal) -> None:
    text = farmiq(
        "add", "t-1", "f-1", "b-1", "scale.7", "--kind", "station", "--station", "s"
    ).stdout
    assert "user       t-1/scale.7\n" in text
    assert "publish    iot/weighvision/t-1/f-1/b-1/s/session/+/+" in text
    assert "mosquitto_pub -h broker -p 1883 -q 1 -u 't-1/scale.7'" in text
    password = text.partition("password   ")[2].partition("\n")[0]
    assert f"url        mqtt://t-1%2Fscale.7:{password}@broker:1883\n" in text
    shown = farmiq("show", "t-1", "scale.7").stdout
    assert "never seen" in shown
    assert password not in shown + json.dumps(farmiq.rows("select * from devices"), default=str)
    assert farmiq.rows("select action, subject from audit_log where actor like 'cli%'") == [
        ("device.add", "t-1/scale.7")
    ]


def test_mistakes_are_told_in_words(farmiq: Terminal) -> None:
    assert "device_id" in farmiq("add", "t", "f", "b", "a/b", "--kind", "x", code=2).stderr
    assert "registered already" in farmiq("add", "t-1", "f-1", "b-1", "d-1", code=1).stderr
    assert "is known" in farmiq("show", "t-1", "nobody", code=1).stderr
    assert "is registered" in farmiq("revoke", "t-1", "nobody", code=1).stderr
    assert "is registered" in farmiq("rotate", "t-1", "nobody", code=1).stderr
    assert "not JSON" in farmiq("command", "t-1", "d-1", "x", "--args", "{", code=2).stderr
    assert "name" in farmiq("command", "t-1", "d-1", "#", code=2).stderr
    assert "is registered" in farmiq("command", "t-1", "nobody", "ping", code=1).stderr
    assert "nats or mosquitto" in farmiq("permissions", "--broker", "emqx", code=2).stderr


def test_a_device_is_listed_rotated_and_revoked(farmiq: Terminal) -> None:
    first = json.loads(farmiq("add", "t-n", "f-1", "b-1", "n-1", "--json").stdout)
    second = json.loads(farmiq("rotate", "t-n", "n-1", "--json").stdout)
    assert (first["user"], first["password"] != second["password"]) == ("t-n/n-1", True)
    assert first["token"].startswith("fiqd_")
    assert first["token"] != second["token"]
    listed = json.loads(farmiq("ls", "--tenant", "t-n", "--json").stdout)
    assert [each["device_id"] for each in listed] == ["n-1"]
    farmiq("revoke", "t-n", "n-1")
    assert "n-1" in farmiq("ls", "--state", "revoked").stdout
    with databases.connected(farmiq._database.admin_url) as connection:
        connection.execute(
            "insert into device_state (tenant_id, device_id, state, since, last_seen_at) "
            "values ('t-1', 'd-1', 'late', now(), now())"
        )
    assert "late " in farmiq("ls", "--tenant", "t-1", code=3).stdout


def test_a_list_is_imported_with_logins_in_a_private_file(farmiq: Terminal, tmp_path: Path) -> None:
    list_, out = tmp_path / "devices.csv", tmp_path / "logins.json"
    list_.write_text(HEADER + "t-1,f-1,b-1,i-1,,\nt-1,f-1,b-1,i-2,s-2,station\n")
    assert "nothing is wrong" in farmiq("import", str(list_), "--dry-run").stdout
    assert farmiq.rows("select count(*) from devices where device_id like 'i-%'") == [(0,)]
    assert "registered 2 devices" in farmiq("import", str(list_), "--out", str(out)).stdout
    assert out.stat().st_mode & 0o777 == 0o600
    logins = json.loads(out.read_text())["devices"]
    assert [(each["device_id"], len(each["publish"])) for each in logins] == [
        ("i-1", 3),
        ("i-2", 4),
    ]
    assert "never written over" in farmiq("import", str(list_), "--out", str(out), code=2).stderr


def test_a_list_with_mistakes_registers_nobody_and_tells_every_line(
    farmiq: Terminal, tmp_path: Path
) -> None:
    text = HEADER + "t-1,f-1,b-1,i-1,,\nt-1,f-1,b-1,d 2,,\nt-1,f-1,b-1,i-1,,\n"
    told = farmiq("import", "-", code=1, stdin=text).stderr
    assert "line 3: device_id" in told
    assert "line 4: device_id 'i-1' stands in line 2 already" in told
    taken = HEADER + "t-1,f-1,b-1,i-1,,\nt-1,f-1,b-1,d-1,,\n"
    answer = json.loads(farmiq("import", "-", "--json", code=1, stdin=taken).stdout)
    assert [each["line"] for each in answer["problems"]] == [3]
    assert farmiq.rows("select count(*) from devices where device_id = 'i-1'") == [(0,)]
    odd = tmp_path / "odd.csv"
    odd.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in farmiq("import", str(odd), code=2).stderr
    assert list(tmp_path.glob("*.json")) == []


def test_logins_that_cannot_be_written_down_are_not_made(farmiq: Terminal, tmp_path: Path) -> None:
    list_ = tmp_path / "devices.csv"
    list_.write_text(HEADER + "t-1,f-1,b-1,i-1,,\n")
    nowhere = tmp_path / "no" / "where.json"
    result = CliRunner().invoke(app, ["device", "import", str(list_), "--out", str(nowhere)])
    assert result.exit_code == 1
    assert farmiq.rows("select count(*) from devices where device_id = 'i-1'") == [(0,)]


def test_a_command_is_queued_and_waited_for(farmiq: Terminal) -> None:
    assert " queued" in farmiq("command", "t-1", "d-1", "ping").stdout
    with psycopg.connect(farmiq._database.admin_url, autocommit=True) as connection:
        connection.execute(
            "create function said() returns trigger language plpgsql as $$ begin "
            "new.state := new.args->>'state'; new.message := 'by the test'; return new; end $$"
        )
        connection.execute(
            "create trigger said before insert on device_commands for each row "
            "execute function said()"
        )
    for state, code in (("applied", 0), ("failed", 1), ("expired", 3)):
        arguments = json.dumps({"state": state})
        told = farmiq("command", "t-1", "d-1", "x", "--args", arguments, "--wait", code=code)
        assert f"{state}: by the test" in told.stdout


def test_permissions_are_printed_for_both_brokers(farmiq: Terminal) -> None:
    assert '{ user: "t-1/d-1", password: "$2a$' in farmiq("permissions").stdout
    assert "user t-1/d-1\ntopic write iot/telemetry/t-1/f-1/b-1/d-1/+" in farmiq(
        "permissions", "--broker", "mosquitto"
    ).stdout  # fmt: skip
    passwords = farmiq("permissions", "--broker", "mosquitto", "--passwords").stdout
    assert "t-1/d-1:$7$101$" in passwords


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("device", "revoke", "t-1", "d-1"), {"revoked": {"tenant_id": "t-1", "device_id": "d-1"}}),
        (("key", "revoke", "office"), {"revoked": {"name": "office"}}),
        (
            ("alert", "close", "k", "s"),
            {"closed": {"kind": "k", "subject": "s"}, "count": 1, "dry_run": False},
        ),
        (("metric", "set", "water", "--sync", "agg"), {"metric_type": "water", "sync": "agg"}),
        (
            ("farm", "set", "t-1", "f-1", "--timezone", "Asia/Bangkok"),
            {"tenant_id": "t-1", "farm_id": "f-1", "timezone": "Asia/Bangkok", "changed": True},
        ),
    ],
)
def test_what_was_done_is_told_to_scripts(
    edge_db: Database, tmp_path: Path, arguments: tuple[str, ...], said: dict[str, object]
) -> None:
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute(
            "insert into api_keys (api_key_id, name, role, key_sha256) "
            "values (gen_random_uuid(), 'office', 'viewer', '')"
        )
        owner.execute(
            "insert into alerts (alert_id, kind, subject, severity, message) "
            "values (gen_random_uuid(), 'k', 's', 'info', '')"
        )
    env = {
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_DB_ADMIN_URL": edge_db.admin_url,
        "FARMIQ_STATE_DIR": str(tmp_path),
    }
    result = CliRunner().invoke(app, [*arguments, "--json"], env=env)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == said


def test_key_for_the_callout_is_made_once_and_its_public_half_printed(
    farmiq: Terminal, tmp_path: Path
) -> None:
    file = tmp_path / "callout.nk"
    told = farmiq("callout", str(file)).stdout
    assert 'account: SYS, auth_users: ["callout", "gateway", "keeper"]' in told
    assert file.stat().st_mode & 0o777 == 0o600
    assert farmiq("callout", str(file)).stdout == told
    assert file.read_text() not in told
    file.write_text("SAnothing")
    assert "no key" in farmiq("callout", str(file), code=2).stderr
