"""`farmiq camera-gateway import`: a list of cameras and their logins, all of them or none."""

import csv
import io
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest
from typer.testing import CliRunner, Result

from farmiq.cli import app
from tests.conftest import Database
from tests.sql.camera.farm import Farm

HEADER = "tenant_id,mac,device_name,site_name,wake_schedule_cron,dialect,slot_index\n"
GOOD = (
    f"{HEADER}farm,a0:b1:c2:d3:e4:01,Device-001,Barn,0 8 * * *,standard,3\n"
    'farm,A0B1C2D3E402,"Device, 002",barn,"0 8,16 * * *",esp32cam,\n'
    "farm,a0-b1-c2-d3-e4-03,Device-003,,,,\n"
)


@pytest.fixture
def farm(cloud_db: Database) -> Iterator[Farm]:
    with Farm.connected(cloud_db) as made:
        made.site(site_name="Barn")
        yield made


@pytest.fixture(autouse=True)
def _terminal(cloud_db: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FARMIQ_CLOUD_DB_URL", cloud_db.url)
    monkeypatch.setenv("FARMIQ_STATE_DIR", str(tmp_path))


def import_(*arguments: str, text: str, code: int = 0) -> Result:
    result = CliRunner().invoke(
        app, ["camera-gateway", "import", "-", *arguments], input=text, catch_exceptions=False
    )
    assert result.exit_code == code, result.output
    return result


def registered(farm: Farm) -> int:
    found: int = farm.value("select count(*) from devices")
    return found


def test_every_camera_is_registered_and_its_login_works(farm: Farm, tmp_path: Path) -> None:
    out = tmp_path / "logins.csv"
    assert "registered 3 cameras" in import_("--out", str(out), text=GOOD).stdout
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    logins = list(csv.DictReader(io.StringIO(out.read_text(encoding="utf-8"))))
    assert [each["username"] for each in logins] == [f"A0B1C2D3E40{n}" for n in (1, 2, 3)]
    assert logins[1]["device_name"] == "Device, 002"
    kept = dict(
        farm.rows(
            "select d.mac, l.secret_bcrypt from camera_logins l join devices d using (device_id)"
        )
    )
    for each in logins:
        assert bcrypt.checkpw(each["password"].encode(), kept[each["username"]].encode())
    assert farm.rows(
        "select d.device_name, s.site_name, d.wake_schedule_cron, d.dialect, d.slot_index"
        " from devices d left join sites s using (site_id) order by d.mac"
    ) == [
        ("Device-001", "Barn", "0 8 * * *", "standard", 3),
        ("Device, 002", "Barn", "0 8,16 * * *", "esp32cam", None),
        ("Device-003", None, None, "standard", None),
    ]
    assert farm.value("select count(*) from device_assignments") == 2
    assert "never written over" in import_("--out", str(out), text=GOOD, code=2).stderr


def test_without_a_file_the_logins_are_the_output(farm: Farm) -> None:
    printed = import_(text=GOOD).stdout
    assert len(list(csv.DictReader(io.StringIO(printed)))) == registered(farm) == 3


def test_every_bad_row_is_named_by_its_line_and_nothing_is_registered(farm: Farm) -> None:
    farm.device(None, mac="A0B1C2D3E410", device_name="Taken")
    text = (
        f"{HEADER}farm,a0:b1:c2:d3:e4:01,Good,Barn,0 8 * * *,standard,1\n"
        "farm,a0:b1:c2:d3,Short,Barn,0 8 * * *,standard,0\n"
        "farm,a0:b1:c2:d3:e4:01,GOOD,Barn,,other,\n"
        "farm,,,Barn\n"
    )
    told = import_(text=text, code=1).stderr
    for line in (
        "line 3: mac 'a0:b1:c2:d3' is not a MAC address such as A0:B1:C2:D3:E4:F5",
        "line 3: slot_index '0' is not possible: Expected `int` >= 1",
        "line 4: dialect 'other' is not possible: ",
        "line 5: has 4 cells, the header 7",
        "nothing was registered",
    ):
        assert line in told
    wrong = (
        f"{HEADER}nobody,a0:b1:c2:d3:e4:01,A,,,,\n"
        "farm,a0:b1:c2:d3:e4:02,B,Shed,,,\n"
        "farm,a0:b1:c2:d3:e4:03,C,Barn,0 25 * * *,,\n"
        "farm,a0:b1:c2:d3:e4:10,D,,,,\n"
        "farm,a0:b1:c2:d3:e4:05,taken,,,,\n"
        "farm,a0:b1:c2:d3:e4:06,E,,,,\n"
    )
    problems = json.loads(import_("--json", text=wrong, code=1).stdout)["problems"]
    assert [(each["line"], each["field"], each["reason"]) for each in problems] == [
        (2, "tenant_id", "there is no company 'nobody'"),
        (3, "site_name", "farm has no site 'Shed'"),
        (
            4,
            "wake_schedule_cron",
            (
                'Field 2 of 5, the hour: "25" is not a number from 0 to 23, nor a range, step or '
                "list of them."
            ),
        ),
        (5, "mac", "is registered already, as Taken"),
        (6, "device_name", "is the name of another camera already"),
    ]
    assert registered(farm) == 1
    assert (
        "line 3: mac stands in line 2 already"
        in import_(
            text=f"{HEADER}farm,a0:b1:c2:d3:e4:01,A,,,,\nfarm,A0B1C2D3E401,B,,,,\n", code=1
        ).stderr
    )
    assert (
        "line 1: mac is missing in the header"
        in import_(text="tenant_id,device_name\nfarm,A\n", code=1).stderr
    )


def test_a_dry_run_registers_nothing(farm: Farm) -> None:
    assert "nothing is wrong" in import_("--dry-run", text=GOOD).stdout
    assert registered(farm) == 0


def test_an_address_under_which_another_companys_camera_is_heard_is_not_taken(farm: Farm) -> None:
    other = Farm.make(farm.database, farm.owner, farm.service, name="other")
    heard = other.device(None, mac="A0B1C2D3E402")
    farm.owner.execute("update devices set proven_at = now() where device_id = %s", (heard,))
    told = import_(text=GOOD, code=1).stderr
    assert "line 3: mac is heard as a camera of other: retire it there first" in told
    farm.owner.execute("update devices set proven_at = null where device_id = %s", (heard,))
    import_(text=GOOD)
    # Whoever has the login has the camera.
    assert farm.rows(
        "select count(*) from camera_logins l join devices d using (device_id)"
        " where d.mac = 'A0B1C2D3E402' and l.revoked_at is null"
    ) == [(1,)]


def test_nothing_is_registered_if_the_logins_cannot_be_written(farm: Farm, tmp_path: Path) -> None:
    told = import_("--out", str(tmp_path / "no" / "logins.csv"), text=GOOD, code=1).stderr
    assert "cannot be written" in told
    assert registered(farm) == 0


@pytest.mark.timeout(300)
def test_two_thousand_are_registered_at_once(farm: Farm) -> None:
    """How long ten thousand take stands in docs/integrate/camera-api.md."""
    rows = (f"farm,A0B1C2{n:06X},Device-{n:05},Barn,0 8 * * *,,\n" for n in range(2_000))
    printed = import_(text=HEADER + "".join(rows)).stdout
    assert len(printed.splitlines()) == 2_001
    assert registered(farm) == 2_000
