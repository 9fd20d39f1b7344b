"""What people type becomes a body that the API accepts, or a text at the field that is wrong."""

from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from farmiq.cloud.console.entry import view
from farmiq.cloud.console.entry.view import PlaceOption
from farmiq.farm.postings import IntakePosted, LotPosted, RecordPosted
from farmiq.messages.barn import RecordType
from farmiq.ui.entry import fields
from farmiq.ui.entry.fields import Place
from farmiq.ui.entry.kinds import RECORD_KINDS

NOW = datetime(2026, 4, 1, 6, tzinfo=UTC)
BARN = Place("f", "1", "b", ZoneInfo("Asia/Bangkok"))
EMPTY = Place("f", "2", None, ZoneInfo("Asia/Bangkok"))
PLACES = {place.value: place for place in (BARN, EMPTY)}


def record(**typed: str) -> tuple[dict[str, Any], dict[str, str]]:
    return fields.record({"kind": "mortality", "place": "f/1/b", **typed}, PLACES, NOW)


def test_two_dead_animals_become_a_record_of_the_batch() -> None:
    body, errors = record(value=" 2 ")
    assert not errors
    assert body == {
        "farm_id": "f", "barn_id": "1", "batch_id": "b", "record_type": "mortality", "value": 2,
    }  # fmt: skip
    assert msgspec.convert(body, RecordPosted).record_type == body["record_type"]


def test_time_is_that_of_the_farm() -> None:
    body, _ = record(value="2", at="2026-04-01T06:30")
    assert body["occurred_at"] == "2026-03-31T23:30:00+00:00"


def test_entry_that_waited_says_when_it_was_written_down() -> None:
    waited = "2026-04-01T05:00:00.123Z"
    assert record(value="2", entered_at=waited)[0]["occurred_at"].startswith("2026-04-01T05:00:00")
    # What somebody chose counts before, and a clock that is ahead counts for nothing.
    assert record(value="2", entered_at=waited, at="2026-04-01T06:30")[0]["occurred_at"].startswith(
        "2026-03-31T23:30"
    )
    assert "occurred_at" not in record(value="2", entered_at="2026-04-01T06:00:01Z")[0]
    assert "occurred_at" not in record(value="2", entered_at="yesterday")[0]


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"value": ""}, "value"), ({"value": "2.5"}, "value"), ({"value": "-1"}, "value"),
        ({"value": "two"}, "value"), ({"value": "1e3"}, "value"), ({"value": "٢"}, "value"),
        ({"value": "2", "place": ""}, "place"), ({"value": "2", "place": "other/1/"}, "place"),
        ({"value": "2", "at": "yesterday"}, "at"), ({"value": "2", "kind": "party"}, "kind"),
        ({"value": "2", "kind": "treatment"}, "product"),
        ({"value": "2", "kind": "treatment", "product": "x", "withdrawal_days": "a"},
         "withdrawal_days"),
        ({"value": "12,5", "kind": "water"}, "value"),
    ],
)  # fmt: skip
def test_wrong_field_is_named(typed: dict[str, str], field: str) -> None:
    _, errors = record(**typed)
    assert list(errors) == [field]


def test_every_kind_of_record_has_a_form() -> None:
    assert set(RECORD_KINDS) == set(RecordType.__args__)  # type: ignore[attr-defined]


def test_record_of_an_empty_barn_names_no_batch() -> None:
    body, errors = record(kind="temperature", value="21.5", place="f/2/")
    assert not errors
    assert "batch_id" not in body
    assert (body["value"], body["unit"]) == (21.5, "°C")
    assert msgspec.convert(body, RecordPosted).record_type == body["record_type"]


def test_treatment_has_product_dose_and_withdrawal() -> None:
    body, errors = record(
        kind="treatment", value="900", product="Doxy", dose="20", dose_unit="mg/kg",
        withdrawal_days="7",
    )  # fmt: skip
    assert not errors
    assert (body["product"], body["dose"], body["withdrawal_days"]) == ("Doxy", 20.0, 7)
    assert msgspec.convert(body, RecordPosted).record_type == body["record_type"]


def test_feed_becomes_an_intake_or_a_lot() -> None:
    typed = {"place": "f/1/b", "quantity_kg": "120.5", "feed_lot_id": "L-1", "silo": "silo-1"}
    intake, errors = fields.intake(typed, PLACES, NOW)
    assert not errors
    assert msgspec.convert(intake, IntakePosted).quantity_kg == 120.5
    assert (intake["batch_id"], intake["device_id"]) == ("b", "silo-1")
    lot, errors = fields.lot({**typed, "feed_product_id": "starter"}, PLACES, NOW)
    assert not errors
    assert msgspec.convert(lot, LotPosted).feed_product_id == "starter"


def test_batch_has_all_of_its_values() -> None:
    body, errors = fields.batch(
        {
            "place": "f/2/", "batch_id": "b-2", "species": "broiler", "breed": "", "sex": "mixed",
            "placed_count": "5000", "placed_on": "2026-04-01", "age_at_placing_days": "",
            "target_weight_kg": "2.5", "target_on": "", "closed_on": "",
        },
        PLACES,
    )  # fmt: skip
    assert not errors
    assert (body["placed_count"], body["placed_on"], body["age_at_placing_days"]) == (
        5000, date(2026, 4, 1), None,
    )  # fmt: skip
    assert body["breed"] is None
    assert body["target_on"] is None


def test_reasons_of_the_posting_stand_at_their_fields() -> None:
    details = [
        {"field": "occurred_at", "reason": "is in the future"},
        {"field": "body", "reason": "`value` of water must be between 0 and 10"},
        {"field": "feed_lot_id", "reason": "no lot 'x' was received"},
    ]
    assert fields.errors_of(details, "") == {
        "at": "This moment has not come yet.",
        "value": "Value of water must be between 0 and 10.",
        "feed_lot_id": "No lot 'x' was received.",
    }
    ahead = {"field": "$.occurred_at", "reason": "is in the future: it is 2026-05-31T06:00:00Z now"}
    assert fields.errors_of([ahead], "").keys() == {"at"}
    assert fields.errors_of(None, "was replaced already") == {"": "Was replaced already."}


def option(barn_id: str, batch_id: str | None, farm_id: str = "f") -> PlaceOption:
    return PlaceOption(
        farm_id=farm_id, barn_id=barn_id, farm_name=f"Farm {farm_id}", barn_name=f"Barn {barn_id}",
        timezone="Asia/Bangkok", batch_id=batch_id, species="broiler",
    )  # fmt: skip


def test_form_begins_with_the_barn_that_is_meant() -> None:
    places = [option("1", "b"), option("2", None)]
    assert view.place_of(places, wanted="f/2/", batch_id="") == "f/2/"
    assert view.place_of(places, wanted="", batch_id="b") == "f/1/b"
    assert view.place_of(places, wanted="nowhere", batch_id="other") == ""
    assert view.place_of(places[:1], wanted="", batch_id="") == "f/1/b"


def test_barns_of_several_farms_are_told_apart() -> None:
    one = [option("1", "b"), option("2", None)]
    assert [label for _, label in view.options(one)] == ["Barn 1, broiler", "Barn 2, empty"]
    two = [option("1", "b"), option("1", "c", farm_id="g")]
    assert [label for _, label in view.options(two)][1] == "Farm g, Barn 1, broiler"


def test_entry_names_the_barn_as_people_do() -> None:
    barns = [option("1", "b"), option("1", "c", farm_id="g")]
    row = {"farm_id": "g", "barn_id": "1"}
    assert view.barn_name(row, barns) == "Barn 1"
    assert view.barn_name({**row, "barn_id": "9"}, barns) == "9"


def test_correction_begins_with_what_was_entered() -> None:
    event = {
        "farm_id": "f", "barn_id": "1", "occurred_at": datetime(2026, 4, 1, 1, tzinfo=UTC),
        "payload": {"record_type": "cull", "value": 3.0, "unit": None},
    }  # fmt: skip
    values = view.values_of(event, [option("1", "b")])
    assert (values["place"], values["kind"], values["value"]) == ("f/1/b", "cull", 3)
    assert str(values["value"]) == "3"
    assert values["at"] == "2026-04-01T08:00"
