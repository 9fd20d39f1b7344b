"""Programs, sites and cameras: made, changed, listed; by whom; and what is refused."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from farmiq.cloud.camera import registration
from farmiq.cloud.camera.accounts.api import ROOT
from farmiq.cloud.camera.gateway import camera_store
from farmiq.plumbing import db
from tests.integration.cloud.camera.conftest import Accounts
from tests.support import databases


async def made(accounts: Accounts) -> tuple[str, str, str]:
    program = await accounts.done(
        "POST", "programs", {"program_name": "Trial", "program_type": "experimental"}
    )
    site = await accounts.done(
        "POST",
        "sites",
        {"program_id": program["program_id"], "site_name": "Barn", "timezone": "Asia/Bangkok"},
    )
    camera = await accounts.done(
        "POST",
        "devices",
        {
            "mac": "a0:b1:c2:d3:e4:f5",
            "device_name": "Device-001",
            "site_id": site["site_id"],
            "wake_schedule_cron": "0 8,16 * * *",
        },
    )
    return program["program_id"], site["site_id"], camera["device_id"]


async def test_a_company_gets_a_program_a_site_and_a_camera(accounts: Accounts) -> None:
    program, site, camera = await made(accounts)
    assert (await accounts.got(f"programs/{program}"))["program_type"] == "experimental"
    found = await accounts.got(f"sites/{site}")
    assert (found["timezone"], found["program_name"], found["is_active"]) == (
        "Asia/Bangkok", "Trial", True,
    )  # fmt: skip
    found = await accounts.got(f"devices/{camera}")
    assert (found["mac"], found["site_name"], found["dialect"]) == (
        "A0B1C2D3E4F5", "Barn", "standard",
    )  # fmt: skip
    assert [row["device_id"] for row in (await accounts.got("devices", site=site))["devices"]] == [
        camera
    ]
    assert (await accounts.got("devices", mac="A0-B1-C2-D3-E4-F5"))["devices"]
    assert (await accounts.got("devices", active="false"))["devices"] == []
    assert (await accounts.got("sites", program=program))["sites"]
    assert (await accounts.got("programs", type="control"))["programs"] == []
    await accounts.done("PATCH", f"devices/{camera}", {"device_name": "Device-002"})
    with databases.connected(accounts.database.admin_url) as connection:
        noted = connection.execute(
            "select actor, action, kind, key from master_data_actions order by action_id"
        ).fetchall()
    assert [row[1:] for row in noted] == [
        ("add", "pilot_programs", "Trial"), ("add", "sites", "Barn"),
        ("add", "devices", "Device-001"), ("change", "devices", "Device-002"),
    ]  # fmt: skip
    assert {row[0] for row in noted} == {"admin@one.farm"}


async def test_patch_keeps_absent_fields_and_clears_null_ones(accounts: Accounts) -> None:
    program, site, camera = await made(accounts)
    renamed = await accounts.done("PATCH", f"programs/{program}", {"is_active": False})
    assert (renamed["program_name"], renamed["is_active"]) == ("Trial", False)
    moved = await accounts.done("PATCH", f"sites/{site}", {"timezone": "America/New_York"})
    assert (moved["site_name"], moved["timezone"]) == ("Barn", "America/New_York")
    loose = await accounts.done("PATCH", f"devices/{camera}", {"site_id": None, "slot_index": 3})
    assert (loose["site_id"], loose["slot_index"], loose["device_name"]) == (None, 3, "Device-001")
    assert await accounts.done("PATCH", f"devices/{camera}", {}) == loose


async def test_a_retired_camera_leaves_its_mac_to_another(accounts: Accounts) -> None:
    _, _, camera = await made(accounts)
    again = {"mac": "A0B1C2D3E4F5", "device_name": "Device-002"}
    taken = await accounts.send("POST", "devices", again)
    assert (taken.status_code, "MAC address" in taken.text) == (409, True)
    for _ in range(2):
        assert (await accounts.done("POST", f"devices/{camera}/retire"))["is_active"] is False
    assert (await accounts.send("POST", "devices", again)).status_code == 201
    back = await accounts.send("PATCH", f"devices/{camera}", {"is_active": True})
    assert back.status_code == 409


MAC = "A0B1C2D3E4F5"
CLAIM = {"mac": MAC, "device_name": "Device-001"}


@pytest.fixture
async def pool(accounts: Accounts) -> AsyncIterator[db.Pool]:
    async with db.pool(accounts.database.url, name="test") as opened:
        yield opened


async def in_charge(pool: db.Pool) -> str | None:
    """The camera whose messages are taken under this address."""
    async with db.transaction(pool) as tx:
        found = (await camera_store.by_mac(tx, [MAC])).get(MAC)
    return None if found is None else str(found.device_id)


async def speaks(pool: db.Pool) -> None:
    async with db.transaction(pool) as tx:
        camera = (await camera_store.by_mac(tx, [MAC]))[MAC]
        await camera_store.note_heard(tx, [(camera, MAC)])


async def give_login(pool: db.Pool, **more: Any) -> None:
    async with db.transaction(pool) as tx:
        await registration.make_login(tx, MAC, made_by="test", **more)


async def test_an_address_that_another_company_claimed_is_registered_as_if_it_were_free(
    accounts: Accounts, pool: db.Pool
) -> None:
    squatter = await accounts.send("POST", "devices", CLAIM, who="other")
    owner = await accounts.send("POST", "devices", CLAIM)
    assert (squatter.status_code, owner.status_code) == (201, 201)
    assert {**squatter.json(), **dict.fromkeys(("device_id", "created_at"))} == {
        **owner.json(), **dict.fromkeys(("device_id", "created_at")),
    }  # fmt: skip
    mine, theirs = owner.json()["device_id"], squatter.json()["device_id"]
    # Nobody knows yet whose it is: no company gets its images, and who runs the platform decides.
    assert await in_charge(pool) is None
    with pytest.raises(
        registration.NoCameraError, match=r"t-one, t-two have registered .* --company"
    ):
        await give_login(pool)
    await give_login(pool, tenant_id="t-two")
    assert await in_charge(pool) == theirs
    await give_login(pool, tenant_id="t-one")
    assert await in_charge(pool) == mine
    await speaks(pool)
    assert (await accounts.got(f"devices/{mine}"))["proven_at"]
    assert (await accounts.got(f"devices/{theirs}", who="other"))["proven_at"] is None
    with databases.connected(accounts.database.admin_url) as owner_:
        good = owner_.execute("select device_id::text from camera_logins where revoked_at is null")
        assert good.fetchall() == [(mine,)]


async def test_a_claim_of_a_camera_that_is_heard_changes_nothing_for_its_company(
    accounts: Accounts, pool: db.Pool
) -> None:
    mine = (await accounts.done("POST", "devices", CLAIM))["device_id"]
    await speaks(pool)
    theirs = (await accounts.done("POST", "devices", CLAIM, who="other"))["device_id"]
    assert await in_charge(pool) == mine
    await give_login(pool)
    with pytest.raises(registration.NoCameraError, match="heard as a camera of t-one"):
        await give_login(pool, tenant_id="t-two")
    assert await in_charge(pool) == mine
    # Sold: retired there, or moved by who runs the platform.
    await give_login(pool, tenant_id="t-two", move=True)
    assert await in_charge(pool) == theirs
    await give_login(pool, tenant_id="t-one")
    await speaks(pool)
    await accounts.done("POST", f"devices/{mine}/retire")
    assert await in_charge(pool) == theirs
    await speaks(pool)
    back = await accounts.send("PATCH", f"devices/{mine}", {"is_active": True})
    assert back.status_code == 200, "an answer that says nothing of the other company"
    assert await in_charge(pool) == theirs


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("programs", {"program_name": "", "program_type": "control"}, "program_name"),
        ("programs", {"program_name": "a\u0000", "program_type": "control"}, "program_name"),
        ("programs", {"program_name": "x", "program_type": "other"}, "program_type"),
        ("programs", {"program_name": "x", "program_type": "control", "colour": 1}, "colour"),
        ("sites", {"site_name": "x", "timezone": "UTC", "program_id": str(uuid4())}, "program_id"),
        ("devices", {"device_name": "x", "mac": "a0b1c2d3e4fg"}, "mac"),
        ("devices", {"device_name": "x", "mac": "a0:b1c2d3e4f5"}, "mac"),
        ("devices", {"device_name": "x", "mac": "a0b1c2d3e4f5", "site_id": str(UUID(int=7))},
         "site_id"),
        ("devices", {"device_name": "x", "mac": "a0b1c2d3e4f5", "wake_schedule_cron": "8 o'clock"},
         "wake_schedule_cron"),
        ("devices", {"device_name": "x", "mac": "a0b1c2d3e4f5", "slot_index": 0}, "slot_index"),
    ],
)  # fmt: skip
async def test_a_bad_order_is_refused_and_says_where(
    accounts: Accounts, path: str, body: dict[str, Any], field: str
) -> None:
    answer = await accounts.send("POST", path, body)
    assert answer.status_code == 400, answer.text
    assert field in str(answer.json()["error"]["details"])


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        ("programs", {"program_name": "", "program_type": "x"}, {"program_name", "program_type"}),
        ("programs", {"colour": 1}, {"program_name", "program_type", "colour"}),
        ("programs", [], {"body"}),
        ("devices", {"device_name": 1, "mac": "x", "slot_index": 0, "firmware": ""},
         {"device_name", "mac", "slot_index", "firmware"}),
    ],
)  # fmt: skip
async def test_all_that_is_wrong_with_an_order_is_said_at_once(
    accounts: Accounts, path: str, body: Any, fields: set[str]
) -> None:
    answer = await accounts.send("POST", path, body)
    assert answer.status_code == 400
    assert {each["field"] for each in answer.json()["error"]["details"]} == fields


@pytest.mark.parametrize(("meetings", "code"), [(0, 200), (3, 200), (99, 503)])
@pytest.mark.parametrize("state", ["40P01", "40001"])
async def test_who_meets_another_is_tried_again(
    accounts: Accounts, meetings: int, code: int, state: str
) -> None:
    _, _, camera = await made(accounts)
    with databases.connected(accounts.database.admin_url) as owner:
        owner.execute(
            f"""
            create sequence met;
            create function meet() returns trigger language plpgsql security definer as $$
            begin
              if nextval('met') <= {meetings} then
                raise exception 'met' using errcode = '{state}';
              end if;
              return new;
            end $$;
            create trigger meet before update on devices for each row execute function meet();
            """.encode()
        )
    answer = await accounts.send("PATCH", f"devices/{camera}", {"device_name": "Renamed"})
    assert answer.status_code == code
    found = (await accounts.got(f"devices/{camera}"))["device_name"]
    assert found == ("Renamed" if code == 200 else "Device-001")


async def test_names_differ_by_more_than_case(accounts: Accounts) -> None:
    program, _, _ = await made(accounts)
    for path, body, kind in (
        ("programs", {"program_name": "TRIAL", "program_type": "control"}, "program"),
        ("sites", {"program_id": program, "site_name": "barn", "timezone": "UTC"}, "site"),
        ("devices", {"mac": "0" * 12, "device_name": "device-001"}, "camera"),
    ):
        answer = await accounts.send("POST", path, body)
        assert answer.status_code == 409
        assert f"a {kind} of this company has that name" in answer.text


async def test_no_such_time_zone_and_a_name_twice(accounts: Accounts) -> None:
    program, site, _ = await made(accounts)
    wrong = await accounts.send("PATCH", f"sites/{site}", {"timezone": "Asia/Bangkokk"})
    assert (wrong.status_code, "Asia/Bangkokk" in wrong.text) == (400, True)
    twin = {"program_id": program, "site_name": "Barn", "timezone": "UTC"}
    assert (await accounts.send("POST", "sites", twin)).status_code == 409


async def test_who_may_do_what(accounts: Accounts) -> None:
    program, site, camera = await made(accounts)
    orders = [
        ("POST", "programs", {"program_name": "P", "program_type": "control"}, "admin"),
        ("PATCH", f"programs/{program}", {}, "admin"),
        ("POST", "sites", {"program_id": program, "site_name": "S", "timezone": "UTC"}, "admin"),
        ("PATCH", f"sites/{site}", {}, "admin"),
        ("POST", "devices", {"mac": "0" * 12, "device_name": "D"}, "technician"),
        ("PATCH", f"devices/{camera}", {}, "technician"),
        ("POST", f"devices/{camera}/retire", {}, "technician"),
    ]
    for method, path, body, least in orders:
        for who in ("viewer", "operator", "technician"):
            if who == least:
                break
            answer = await accounts.send(method, path, body, who=who)
            assert answer.status_code == 403, (method, path, who)
        assert (await accounts.send(method, path, body, who=least)).status_code < 300, path


@pytest.mark.req("DB2-09")
async def test_what_another_company_has_is_not_there(accounts: Accounts) -> None:
    program, site, camera = await made(accounts)
    for path in (f"programs/{program}", f"sites/{site}", f"devices/{camera}"):
        assert (await accounts.get(path, who="other")).status_code == 404
        assert (await accounts.send("PATCH", path, {}, who="other")).status_code == 404
        assert (await accounts.get(path, who="sue", company=accounts.two)).status_code == 404
        assert (await accounts.get(path, who="sue")).status_code == 200
    theirs = {"program_id": program, "site_name": "S", "timezone": "UTC"}
    assert (await accounts.send("POST", "sites", theirs, who="other")).status_code == 400
    mine = {"mac": "0" * 12, "device_name": "D", "site_id": site}
    assert (await accounts.send("POST", "devices", mine, who="other")).status_code == 400
    for kind in ("programs", "sites", "devices"):
        assert (await accounts.got(kind, who="other"))[kind] == []
    assert (await accounts.get("sites", who="other", company=accounts.one)).status_code == 404


async def test_a_super_admin_writes_into_the_company_that_they_look_at(accounts: Accounts) -> None:
    made_ = await accounts.done(
        "POST",
        "programs",
        {"program_name": "P", "program_type": "control"},
        who="sue",
        company=accounts.two,
    )
    assert (await accounts.got(f"programs/{made_['program_id']}", who="other"))["program_name"]
    assert (await accounts.get(f"programs/{made_['program_id']}")).status_code == 404


async def test_the_companies_to_choose_from(accounts: Accounts) -> None:
    found = (await accounts.got("companies", who="sue", company=accounts.two))["companies"]
    assert [(each["name"], each["active"]) for each in found] == [("One", False), ("Two", True)]
    assert [each["name"] for each in (await accounts.got("companies"))["companies"]] == ["One"]


async def test_pages_follow_each_other_and_none_is_lost(accounts: Accounts) -> None:
    with accounts.days() as days:
        for number in range(7):
            days.program(f"P{number}")
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 3}
    while True:
        page = await accounts.got("programs", **query)
        seen += [each["program_name"] for each in page["programs"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert sorted(seen) == [f"P{number}" for number in range(7)]


async def test_who_is_not_signed_in_is_asked_to(accounts: Accounts) -> None:
    assert (await accounts.get("programs", who="")).status_code == 401
    cookie = {"Cookie": f"farmiq_sign_in={accounts.tokens['viewer']}"}
    answer = await accounts.client.get(f"{ROOT}/programs", headers=cookie)
    assert answer.status_code == 200


async def test_a_body_is_json_and_small(accounts: Accounts) -> None:
    admin = {"Authorization": f"Bearer {accounts.tokens['admin']}"}
    url = f"{ROOT}/programs"
    form = await accounts.client.post(url, data={"program_name": "x"}, headers=admin)
    assert form.status_code == 415
    json = {**admin, "Content-Type": "application/json"}
    for raw, status in ((b"{", 400), (b" " * 20_000, 413), (b"", 400), (b'"\xff"', 400)):
        assert (await accounts.client.post(url, content=raw, headers=json)).status_code == status


async def test_a_bad_question_is_refused_and_says_where(accounts: Accounts) -> None:
    answer = await accounts.get(
        "sessions", site="x", status="open", from_="2026-02-30", limit=0, cursor="?", colour="red",
        company="x",
    )  # fmt: skip
    assert answer.status_code == 400
    fields = {each["field"] for each in answer.json()["error"]["details"]}
    assert fields == {"site", "status", "from", "limit", "cursor", "colour", "company"}
    backwards = await accounts.get("sessions", from_="2026-02-02", to="2026-02-01")
    assert backwards.status_code == 400
