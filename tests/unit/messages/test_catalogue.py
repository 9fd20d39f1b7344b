"""The catalogue: every type of the documents and of ours, read whole, bare and damaged."""

import json
import re
from typing import Any

import msgspec
import pytest

from farmiq.messages import bus, catalogue, mqtt, topics
from farmiq.messages.catalogue import Direction
from farmiq.messages.check import InvalidError
from tests.unit.messages import samples

ROUTING_KEYS = {
    "telemetry.ingested", "telemetry.aggregated",
    "weighvision.session.created", "weighvision.weight.recorded", "weighvision.image.captured",
    "weighvision.session.finalized", "weighvision.session.cancelled",
    "weighvision.session.incomplete", "edge.alert.opened", "edge.alert.closed",
    "media.stored", "inference.completed", "sync.batch.sent", "sync.batch.acked",
    "feed.intake.recorded", "feed.lot.received", "barn.record.created", "kpi.daily.updated",
    "device.status", "device.buffer.dropped",
}  # fmt: skip
SENT_ON = {
    "iot/telemetry": {"telemetry.reading"},
    "iot/event": {
        "feed.dispensed", "feed.imported", "weighvision.image.captured", "barn.record.created",
        "device.buffer.dropped",
        "device.command.answered",
    },
    "iot/status": {"device.status"},
    "iot/weighvision": {
        "weighvision.session.created", "weighvision.weight.recorded", "weighvision.image.captured",
        "weighvision.session.finalized", "weighvision.session.cancelled",
    },
    "iot/command": {"device.command"},
    "iot/ack": {"device.receipt"},
}  # fmt: skip
EVERY_WAY = [(kind.name, carrier) for kind in catalogue.MQTT.values() for carrier in kind.topics]


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def reasons_on_mqtt(event_type: str, **payload: Any) -> list[str]:
    sample = samples.from_device(event_type)
    changed = {**sample.envelope, "payload": {**sample.envelope["payload"], **payload}}
    with pytest.raises(InvalidError) as refused:
        mqtt.read(sample.topic, encoded(changed))
    return refused.value.reasons


def reasons_on_the_bus(event_type: str, **payload: Any) -> list[str]:
    event = samples.on_the_bus(event_type)
    with pytest.raises(InvalidError) as refused:
        bus.read(encoded({**event, "payload": {**event["payload"], **payload}}))
    return refused.value.reasons


def test_bus_carries_these_types() -> None:
    assert catalogue.BUS.keys() == ROUTING_KEYS


@pytest.mark.parametrize("name", sorted(ROUTING_KEYS))
def test_exchange_is_named_after_the_first_word(name: str) -> None:
    exchange = catalogue.BUS[name].exchange

    assert re.fullmatch(r"farmiq\.[a-z]+\.exchange", exchange)
    assert exchange.split(".")[1] == name.partition(".")[0]


def test_each_topic_carries_the_types_of_the_map() -> None:
    found: dict[str, set[str]] = {}
    for name, carrier in EVERY_WAY:
        found.setdefault("/".join(topics.SHAPES[carrier].split("/")[:2]), set()).add(name)
    assert found == SENT_ON


def test_only_commands_and_receipts_go_down() -> None:
    down = {kind.name for kind in catalogue.MQTT.values() if kind.direction is Direction.DOWN}
    assert down == {"device.command", "device.receipt"}


def test_only_events_about_a_whole_tenant_may_leave_the_place_open() -> None:
    optional = {kind.name for kind in catalogue.BUS.values() if kind.place_optional}
    assert optional == {
        "sync.batch.sent", "sync.batch.acked", "edge.alert.opened", "edge.alert.closed"
    }  # fmt: skip


@pytest.mark.parametrize(("name", "carrier"), EVERY_WAY)
def test_every_type_of_mqtt_is_read_on_every_topic_that_carries_it(name: str, carrier: Any) -> None:
    sample = samples.from_device(name, carrier)

    message = mqtt.read(sample.topic, encoded(sample.envelope))

    assert message.kind.name == name
    sent = msgspec.json.decode(message.envelope.payload, type=message.kind.payload)
    assert json.loads(msgspec.json.encode(sent)) == sample.envelope["payload"]


@pytest.mark.parametrize("name", sorted(ROUTING_KEYS))
def test_every_type_of_the_bus_comes_out_as_it_was_sent(name: str) -> None:
    event = samples.on_the_bus(name)

    read = bus.read(encoded(event))

    assert json.loads(bus.write(read)) == event
    payload = msgspec.json.decode(read.payload, type=catalogue.BUS[name].payload)
    assert json.loads(msgspec.json.encode(payload)) == event["payload"]


@pytest.mark.parametrize("name", sorted(ROUTING_KEYS))
def test_only_what_is_required_is_enough_and_absent_stays_absent(name: str) -> None:
    kind = catalogue.BUS[name].payload
    needed = {f.encode_name for f in msgspec.structs.fields(kind) if f.required}
    bare = {key: value for key, value in samples.ON_THE_BUS[name].items() if key in needed}
    if name == "barn.record.created":  # a treatment needs its product
        bare["record_type"] = "mortality"

    read = bus.read(encoded({**samples.on_the_bus(name), "payload": bare}))

    again = msgspec.json.encode(msgspec.json.decode(read.payload, type=kind))
    assert json.loads(again) == bare


@pytest.mark.parametrize("name", sorted(ROUTING_KEYS))
def test_each_required_field_of_a_payload_is_missed(name: str) -> None:
    kind = catalogue.BUS[name].payload
    needed = [f.encode_name for f in msgspec.structs.fields(kind) if f.required]
    with pytest.raises(InvalidError) as refused:
        bus.read(encoded({**samples.on_the_bus(name), "payload": {}}))
    assert refused.value.reasons == [
        f"missing required field `{field}` - at `$.payload`" for field in needed
    ]


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("weighvision.session.created", {"batch_id": None, "initial_weight_kg": None}),
        ("weighvision.session.finalized", {"final_weight_kg": None, "inference_result_id": None}),
        ("feed.intake.recorded", {"feed_lot_id": None}),
        ("weighvision.image.captured", {"sha256": None, "size_bytes": None}),
        ("device.status", {"health": None, "battery_v": None}),
        ("device.status", {"health": {"camera_ok": None}}),
    ],
)
def test_payload_field_that_is_null_stays_null(name: str, payload: dict[str, Any]) -> None:
    event = samples.on_the_bus(name)
    whole = {**event["payload"], **payload}

    read = bus.read(encoded({**event, "payload": whole}))

    kept = msgspec.json.decode(read.payload, type=catalogue.BUS[name].payload)
    assert json.loads(msgspec.json.encode(kept)) == whole


@pytest.mark.parametrize("weight", [0, -0.0, -1, -120.5])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("weighvision.weight.recorded", "weight_kg"),
        ("weighvision.session.created", "initial_weight_kg"),
        ("weighvision.session.finalized", "final_weight_kg"),
    ],
)
def test_weight_is_more_than_nothing(name: str, field: str, weight: float) -> None:
    for reasons in (reasons_on_mqtt, reasons_on_the_bus):
        (reason,) = reasons(name, **{field: weight})
        assert "> 0" in reason
        assert reason.endswith(f"- at `$.payload.{field}`")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("weighvision.session.finalized", "image_count"),
        ("weighvision.image.captured", "size_bytes"),
        ("device.status", "buffer_depth"),
        ("device.buffer.dropped", "count"),
    ],
)
@pytest.mark.parametrize("count", [-1, 1.5, "3", True, 2**53, 10**30])
def test_count_is_a_whole_number_from_nought_on(name: str, field: str, count: Any) -> None:
    (reason,) = reasons_on_mqtt(name, **{field: count})
    assert reason.endswith(f"- at `$.payload.{field}`")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("feed.intake.recorded", "source"),
        ("barn.record.created", "record_type"),
        ("kpi.daily.updated", "kpi_type"),
        ("device.status", "state"),
        ("weighvision.session.created", "status"),
        ("weighvision.session.finalized", "status"),
        ("sync.batch.acked", "status"),
        ("telemetry.aggregated", "aggregation_window"),
        ("media.stored", "mime_type"),
    ],
)
def test_enumeration_knows_its_words(name: str, field: str) -> None:
    (reason,) = reasons_on_the_bus(name, **{field: "something else"})
    assert reason == f"Invalid enum value 'something else' - at `$.payload.{field}`"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"record_type": "note"}, "`value` of a note must be text"),
        ({"value": "two"}, "`value` of a treatment must be a number"),
        ({"value": -1}, "`value` of a treatment must not be negative"),
        ({"value": 2.5}, "`value` of a treatment must be whole animals"),
        ({"record_type": "head_count", "value": 1e300}, "must be whole animals"),
        ({"record_type": "housing"}, "`value` of housing must be text"),
        ({"record_type": "water", "value": -1}, "`value` of water must be between 0 and"),
        ({"product": None}, "a treatment needs its `product`"),
        ({"record_type": "vaccination", "product": None}, "a vaccination needs its `product`"),
        ({"replaces": "r-1"}, "`replaces` names the record itself"),
    ],
)
def test_fields_of_a_record_agree(changes: dict[str, Any], said: str) -> None:
    (reason,) = reasons_on_mqtt("barn.record.created", **changes)
    assert said in reason
    assert reason.endswith("- at `$.payload`")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("barn.record.created", "recorded_at"),
        ("device.status", "last_seen_at"),
        ("telemetry.aggregated", "bucket_start_at"),
        ("telemetry.aggregated", "bucket_end_at"),
    ],
)
def test_moment_that_utc_cannot_name_is_named(name: str, field: str) -> None:
    assert reasons_on_the_bus(name, **{field: "0001-01-01T00:00:00+14:00"}) == [
        f"not a moment between 0001-01-03 and 9999-12-29 in UTC - at `$.payload.{field}`"
    ]


def test_wrong_field_hides_no_rule_that_does_not_need_it() -> None:
    assert reasons_on_mqtt(
        "barn.record.created",
        value=-3,
        recorded_by_ref="",
        recorded_at="9999-12-31T23:59:59-14:00",
    ) == [
        "Expected `str` of length >= 1 - at `$.payload.recorded_by_ref`",
        "not a moment between 0001-01-03 and 9999-12-29 in UTC - at `$.payload.recorded_at`",
        "`value` of a treatment must not be negative - at `$.payload`",
    ]


def test_rule_is_not_asked_about_a_field_that_is_wrong() -> None:
    assert reasons_on_mqtt("barn.record.created", record_type="noise", value="two") == [
        "Invalid enum value 'noise' - at `$.payload.record_type`"
    ]
    assert reasons_on_mqtt("telemetry.reading", metric_value="1", unit=7) == [
        "Expected `str`, got `int` - at `$.payload.unit`",
        "Expected `float`, got `str` - at `$.payload.metric_value`",
    ]


def test_note_is_text_and_a_temperature_may_be_below_zero() -> None:
    for changes in (
        {"record_type": "note", "value": "quiet night", "unit": None},
        {"record_type": "welfare", "value": "calm", "product": None},
        {"record_type": "temperature", "value": -4, "unit": "C"},
        {"record_type": "head_count", "value": 0},
    ):
        event = samples.on_the_bus("barn.record.created")
        whole = {**event["payload"], **changes}
        kept = bus.read(encoded({**event, "payload": whole})).payload
        assert msgspec.json.decode(kept) == whole


def test_every_problem_of_every_row_is_listed_with_its_place() -> None:
    rows = [
        {"feed_lot_id": "lot-001", "quantity_kg": 25.5, "ref": "row 1"},
        {"feed_lot_id": "a/b", "quantity_kg": "12"},
        {"feed_lot_id": "lot-002", "quantity_kg": -1, "ref": "row 3"},
        7,
    ]

    assert [
        reason.split(" - at ")[1] for reason in reasons_on_mqtt("feed.imported", rows=rows)
    ] == [
        "`$.payload.rows[1].feed_lot_id`",
        "`$.payload.rows[1].quantity_kg`",
        "`$.payload.rows[1]`",
        "`$.payload.rows[2].quantity_kg`",
        "`$.payload.rows[3]`",
    ]


def test_import_without_rows_is_rejected() -> None:
    assert reasons_on_mqtt("feed.imported", rows=[]) == [
        "Expected `array` of length >= 1 - at `$.payload.rows`"
    ]


def test_parts_of_a_nested_object_are_looked_at() -> None:
    assert reasons_on_mqtt("device.status", health={"camera_ok": "yes", "disk_ok": 1}) == [
        "Expected `bool | null`, got `str` - at `$.payload.health.camera_ok`",
        "Expected `bool | null`, got `int` - at `$.payload.health.disk_ok`",
    ]


def test_refusals_in_a_receipt_are_looked_at_one_by_one() -> None:
    rejected = [{"event_id": "x", "reason": "no"}, {"event_id": samples.MEDIA_ID}]

    assert reasons_on_mqtt("device.receipt", rejected=rejected) == [
        "Invalid UUID - at `$.payload.rejected[0].event_id`",
        "missing required field `reason` - at `$.payload.rejected[1]`",
    ]
