"""Master data over HTTP: added, changed, listed, removed, imported; by whom; what is refused."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integration.cloud.farms.conftest import Registry

FARM = {"name": "North", "timezone": "Asia/Bangkok"}
BARN = {"name": "Barn 1", "capacity": 20000, "area_m2": 1200.5}
BATCH: dict[str, Any] = {
    "farm_id": "n", "barn_id": "1", "species": "broiler", "placed_count": 100,
    "placed_on": "2026-05-01", "target_weight_kg": 2.4,
}  # fmt: skip
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "feed_products": ("feed-products/starter", {"name": "Starter", "dry_matter_pct": 88}),
    "metrics": (
        "metrics/temperature",
        {"label": "Temperature", "unit": "C", "conversions": {"F": [0.5556, -17.78]}},
    ),
    "breed_standards": (
        "breed-standards/broiler/example/mixed/7",
        {"weight_kg": 0.2, "source": "an example"},
    ),
}


async def farm(registry: Registry) -> None:
    await registry.put("farms/n", FARM)
    await registry.put("barns/n/1", BARN)


async def test_put_adds_changes_and_repeats_without_effect(registry: Registry) -> None:
    await farm(registry)
    added = await registry.put("batches/a", BATCH, who="operator")
    assert added == await registry.got("batches/a")
    assert (added["status"], added["sex"], added["age_at_placing_days"]) == (
        "active",
        "mixed",
        None,
    )
    assert await registry.put("batches/a", BATCH, who="operator", status=200) == added
    closed = await registry.put("batches/a", {**BATCH, "closed_on": "2026-06-05"}, status=200)
    assert (closed["closed_on"], closed["status"]) == ("2026-06-05", "closed")
    assert registry.actions() == [
        ("admin@hill.farm", "add", "farms", "n"),
        ("admin@hill.farm", "add", "barns", "n 1"),
        ("operator@hill.farm", "add", "batches", "a"),
        ("admin@hill.farm", "change", "batches", "a"),
    ]


@pytest.mark.parametrize(
    ("path", "values", "change"),
    [
        ("farms/n", FARM, {"name": "Hill", "timezone": "Europe/Berlin"}),
        ("barns/n/1", BARN, {"name": "Old barn", "capacity": 500, "area_m2": None}),
        (*OTHERS["feed_products"], {"name": "Grower", "dry_matter_pct": None}),
    ],
)
async def test_farm_barn_and_feed_product_are_changed_by_the_same_request(
    registry: Registry, path: str, values: dict[str, Any], change: dict[str, Any]
) -> None:
    await farm(registry)
    await registry.send("PUT", path, values)
    changed = await registry.put(path, {**values, **change}, status=200)
    assert {name: changed[name] for name in change} == change
    assert await registry.got(path) == changed
    assert registry.actions()[-1][:2] == ("admin@hill.farm", "change")


@pytest.mark.parametrize("kind", OTHERS)
async def test_row_of_every_kind_is_added_listed_and_removed(registry: Registry, kind: str) -> None:
    path, values = OTHERS[kind]
    root = path.partition("/")[0]
    added = await registry.put(path, values)
    assert {name: added[name] for name in values} == values
    assert (await registry.got(root)) == {kind: [added], "next_cursor": None}
    assert (await registry.send("DELETE", path)).status_code == 204
    assert (await registry.send("DELETE", path)).status_code == 404
    assert (await registry.got(root))[kind] == []
    assert [row[1] for row in registry.actions()] == ["add", "remove"]


async def test_status_follows_from_the_farms_own_day(registry: Registry) -> None:
    await farm(registry)
    today = (datetime.now(UTC) + timedelta(hours=7)).date()
    day = timedelta(days=1)
    spans = {
        "gone": (today - 40 * day, today - 2 * day),
        "here": (today - day, today),
        "soon": (today + day, None),
    }
    for name, (placed_on, closed_on) in spans.items():
        body = {**BATCH, "placed_on": str(placed_on), "closed_on": closed_on and str(closed_on)}
        await registry.put(f"batches/{name}", body)
    listed = (await registry.got("batches"))["batches"]
    assert {row["batch_id"]: row["status"] for row in listed} == {
        "gone": "closed", "here": "active", "soon": "planned",
    }  # fmt: skip
    active = (await registry.got("batches", status="active"))["batches"]
    assert [row["batch_id"] for row in active] == ["here"]
    there = (await registry.got("batches", on=today - 2 * day))["batches"]
    assert [row["batch_id"] for row in there] == ["gone"]


async def test_list_comes_page_by_page_and_filtered(registry: Registry) -> None:
    await farm(registry)
    await registry.put("farms/s", FARM)
    for name in "12345":
        await registry.put(f"barns/s/{name}", BARN)
    seen, cursor = [], ""
    while True:
        page = await registry.got("barns", farm="s", limit=2, cursor=cursor)
        seen += [row["barn_id"] for row in page["barns"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == list("12345")
    wrong = await registry.send("GET", "barns", cursor="nonsense")
    assert wrong.status_code == 400


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"placed_count": 0}, "placed_count"),
        ({"placed_count": -5}, "placed_count"),
        ({"placed_on": "soon"}, "placed_on"),
        ({"placed_on": "9999-01-01"}, "body"),
        ({"closed_on": "2026-04-30"}, "body"),
        ({"target_weight_kg": -1}, "target_weight_kg"),
        ({"sex": "hen"}, "sex"),
        ({"head_count": 3}, "head_count"),
    ],
)
async def test_batch_that_cannot_be_is_refused_by_field(
    registry: Registry, change: dict[str, Any], field: str
) -> None:
    await farm(registry)
    answer = await registry.send("PUT", "batches/a", {**BATCH, **change})
    assert answer.status_code == 400, answer.text
    assert field in [detail["field"] for detail in answer.json()["error"]["details"]]
    assert (await registry.got("batches"))["batches"] == []


async def test_batch_in_a_barn_that_is_not_there_is_not_found(registry: Registry) -> None:
    await farm(registry)
    for change, field in (({"barn_id": "nowhere"}, "barn_id"), ({"farm_id": "x"}, "farm_id")):
        answer = await registry.send("PUT", "batches/a", {**BATCH, **change})
        fields = [detail["field"] for detail in answer.json()["error"]["details"]]
        assert (answer.status_code, fields[0] in {field, "barn_id"}) == (404, True)
    barn = await registry.send("PUT", "barns/x/1", {"name": "Barn"})
    assert barn.status_code == 404, barn.text
    assert (await registry.got("batches"))["batches"] == []


async def test_batches_that_overlap_in_a_barn_conflict(registry: Registry) -> None:
    await farm(registry)
    await registry.put("batches/a", {**BATCH, "closed_on": "2026-06-05"})
    answer = await registry.send("PUT", "batches/b", {**BATCH, "placed_on": "2026-06-05"})
    assert answer.status_code == 409
    assert answer.json()["error"]["message"] == "batch b: batch a is in barn 1 at that time"
    await registry.put("batches/b", {**BATCH, "placed_on": "2026-06-06"})


async def test_farm_with_barns_is_not_removed(registry: Registry) -> None:
    await farm(registry)
    answer = await registry.send("DELETE", "farms/n")
    assert (answer.status_code, "barns refer to this farm" in answer.text) == (409, True)
    assert (await registry.send("DELETE", "barns/n/1")).status_code == 204
    assert (await registry.send("DELETE", "farms/n")).status_code == 204


async def test_id_that_no_device_could_send_is_refused(registry: Registry) -> None:
    answer = await registry.send("PUT", "farms/a%20farm", FARM)
    assert answer.status_code == 400
    assert (await registry.send("GET", "farms/a%20farm", who="viewer")).status_code == 404
    assert (await registry.send("GET", "farms/%00", who="viewer")).status_code == 404
    late = "breed-standards/broiler/example/mixed/old"
    assert (await registry.send("GET", late, who="viewer")).status_code == 404


async def test_other_companys_rows_are_not_found_and_not_touched(registry: Registry) -> None:
    await farm(registry)
    await registry.put("batches/a", BATCH)
    for path in ("farms/n", "barns/n/1", "batches/a"):
        assert (await registry.send("GET", path, who="other")).status_code == 404
        assert (await registry.send("DELETE", path, who="other")).status_code == 404
    assert (await registry.got("batches", who="other"))["batches"] == []
    # The same ids are theirs to use; a barn of hill's is none of dale's.
    answer = await registry.send("PUT", "batches/a", BATCH, who="other")
    assert (answer.status_code, "its barn is not registered" in answer.text) == (404, True)
    await registry.put("farms/n", {"name": "Dale", "timezone": "UTC"}, who="other")
    assert (await registry.got("farms/n"))["name"] == "North"
    as_dale = {"company": registry.companies["dale"]}
    assert (await registry.got("farms/n", who="sue", **as_dale))["name"] == "Dale"
    assert (await registry.send("GET", "farms", who="viewer", **as_dale)).status_code == 404


@pytest.mark.parametrize(
    ("who", "path", "body", "status"),
    [
        ("", "farms/x", FARM, 401),
        ("viewer", "farms/x", FARM, 403),
        ("technician", "farms/x", FARM, 403),
        ("viewer", "batches/x", BATCH, 403),
        ("operator", "batches/x", BATCH, 201),
    ],
)
async def test_writing_takes_a_role(
    registry: Registry, who: str, path: str, body: Any, status: int
) -> None:
    await farm(registry)
    assert (await registry.send("PUT", path, body, who=who)).status_code == status
    if status != 201:
        assert (await registry.send("DELETE", path, who=who)).status_code == status
        kind = path.partition("/")[0]
        refused = await registry.send("POST", f"{kind}/import", "x\n", who=who)
        assert refused.status_code == status


async def test_csv_is_imported_whole_and_repeated_without_effect(registry: Registry) -> None:
    farms = "farm_id,name,timezone\nn,North,Asia/Bangkok\ns,South,Europe/Berlin\n"
    trial = await registry.send("POST", "farms/import", farms, dry_run="true")
    assert trial.json() == {"rows": 2, "changed": 2, "dry_run": True}
    assert (await registry.got("farms"))["farms"] == []
    for changed in (2, 0):
        answer = await registry.send("POST", "farms/import", farms)
        assert answer.json() == {"rows": 2, "changed": changed, "dry_run": False}
    assert [row["farm_id"] for row in (await registry.got("farms"))["farms"]] == ["n", "s"]
    assert [row[:3] for row in registry.actions()] == [("admin@hill.farm", "import", "farms")] * 2


async def test_csv_that_is_valid_as_a_whole_is_imported_in_any_order(registry: Registry) -> None:
    await farm(registry)
    header = "batch_id,farm_id,barn_id,species,placed_count,placed_on,closed_on\n"
    first = "a,n,1,broiler,10,2026-05-01,\n"
    # The new batch comes before the line that closes the old one; then their days are shifted.
    closed = "b,n,1,broiler,10,2026-06-06,2026-07-01\na,n,1,broiler,10,2026-05-01,2026-06-05\n"
    later = "a,n,1,broiler,10,2026-05-01,2026-06-09\nb,n,1,broiler,10,2026-06-10,2026-07-01\n"
    for lines, changed in ((first, 1), (closed, 2), (closed, 0), (later, 2), (closed, 2)):
        trial = await registry.send("POST", "batches/import", header + lines, dry_run="true")
        answer = await registry.send("POST", "batches/import", header + lines)
        assert (trial.json()["changed"], answer.json()["changed"]) == (changed, changed)
    # What cannot be stored in any order is still named, each line once.
    wrong = "c,n,1,broiler,10,2026-06-30,\nd,n,1,broiler,10,2026-08-01,\n" + closed
    answer = await registry.send("POST", "batches/import", header + wrong)
    assert [d["field"] for d in answer.json()["error"]["details"]] == ["line 2"]


async def test_csv_with_bad_lines_names_every_one_and_changes_nothing(registry: Registry) -> None:
    await farm(registry)
    header = "batch_id,farm_id,barn_id,species,placed_count,placed_on,closed_on\n"
    wrong = "a,n,1,broiler,10,2026-05-01,\nb,n,1,broiler,-1,2026-05-01,\nc,n,1,broiler,1,soon,\n"
    answer = await registry.send("POST", "batches/import", header + wrong)
    details = answer.json()["error"]["details"]
    assert answer.status_code == 400
    assert [d["field"] for d in details] == ["line 3 placed_count", "line 4 placed_on"]
    # Each line is well in itself: the database says which do not fit what is there.
    unfit = (
        "a,n,1,broiler,10,2026-05-01,2026-06-01\n"
        "b,n,1,broiler,10,2026-05-20,\n"
        "c,n,9,broiler,10,2026-05-01,\n"
        "d,n,1,broiler,10,2026-06-02,\n"
    )
    answer = await registry.send("POST", "batches/import", header + unfit)
    details = answer.json()["error"]["details"]
    assert [d["field"] for d in details] == ["line 3", "line 4 barn_id"]
    assert details[0]["reason"] == "batch b: batch a is in barn 1 at that time"
    # Lines that are no rows and lines that the database refuses are in one answer.
    both = unfit + "e,n,1,broiler,none,2026-05-01,soon\n"
    answer = await registry.send("POST", "batches/import", header + both)
    assert [d["field"] for d in answer.json()["error"]["details"]] == [
        "line 3", "line 4 barn_id", "line 6 closed_on", "line 6 placed_count",
    ]  # fmt: skip
    column = await registry.send("POST", "batches/import", "batch_id,weight\na,1\n")
    assert "line 1 weight" in [d["field"] for d in column.json()["error"]["details"]]
    assert (await registry.got("batches"))["batches"] == []
    assert (await registry.send("POST", "batches/import", {})).status_code == 415
