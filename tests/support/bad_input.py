"""Bad input: messages and bodies that must end in quarantine or in the standard error body.

Pure and seeded: the same seed gives the same cases. Among the bad ones stand good ones that only
look odd; `good` says what must become of each. A later part adds a damage by adding a function to
MESSAGE_DAMAGES or BODY_DAMAGES; new event types come in by themselves, from the samples.
Damages that can stand beside others in one message are HARMS: all of them must be named.
"""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from farmiq.cloud.ingestion.batch import MAX_BYTES, MAX_EVENTS
from farmiq.messages import catalogue, topics
from farmiq.messages.catalogue import Maker
from tests.unit.messages import samples

DEPTH = 10_000
# What an edge may post (C-115).
OF_EDGES = [name for name, kind in catalogue.BUS.items() if kind.made_by is not Maker.CLOUD]
# Stands for itself until the JSON is written, so that anything can be put in its place.
HOLE = "\ue000hole\ue000"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message on MQTT. `good`: it is stored. `said`: words that its reasons must hold."""

    name: str
    topic: str
    raw: bytes
    good: bool = False
    said: str = ""


@dataclass(frozen=True, slots=True)
class Posted:
    """The body of a batch, and the status that it must get."""

    name: str
    body: bytes
    status: int = 400


def messages(seed: int, count: int) -> Iterator[Sent]:
    """`count` messages for the edge, each damaged in one way, on every topic of the map."""
    rng = Random(seed)
    names = list(MESSAGE_DAMAGES)
    for index in range(count):
        name = names[index % len(names)]
        yield MESSAGE_DAMAGES[name](rng, name)


def healthy(rng: Random) -> Sent:
    """A reading as it should be, with an id of its own."""
    topic, envelope = _reading(rng)
    return Sent("healthy", topic, _json(envelope), good=True)


def numbered(rng: Random, seq: int) -> Sent:
    """A reading as it should be, by a device that numbers its messages."""
    topic, envelope = _reading(rng)
    return Sent("numbered", topic, _json({**envelope, "seq": seq, "boot_id": "one"}), good=True)


def bodies(seed: int, count: int, *, tenant_id: str) -> Iterator[Posted]:
    """`count` bodies for the ingestion route, by an edge that speaks for `tenant_id`."""
    rng = Random(seed)
    names = list(BODY_DAMAGES)
    # A body at the limit takes a while to send; one of each is enough for a thousand others.
    rare = [name for name in names if name.startswith("huge")]
    for index in range(count):
        name = names[index % len(names)]
        if name in rare and index > len(names) and index % 1000 >= len(names):
            name = "not json"
        yield BODY_DAMAGES[name](rng, name, tenant_id)


# --- what is damaged


def _id(rng: Random, version: int = 7, variant: int = 0x2) -> str:
    """Of any version, also of those that this Python cannot make itself."""
    bits = rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62)
    return str(UUID(int=bits | version << 76 | variant << 62))


def _sample(rng: Random) -> tuple[str, dict[str, Any]]:
    kind = rng.choice(list(catalogue.MQTT.values()))
    sample = samples.from_device(kind.name, rng.choice(kind.topics))
    return sample.topic, {**copy.deepcopy(sample.envelope), "event_id": _id(rng)}


def _reading(rng: Random) -> tuple[str, dict[str, Any]]:
    sample = samples.from_device("telemetry.reading")
    envelope = {**copy.deepcopy(sample.envelope), "event_id": _id(rng)}
    envelope["payload"]["metric_value"] = rng.uniform(-50, 50)
    return sample.topic, envelope


def _event(rng: Random, tenant_id: str) -> dict[str, Any]:
    event = samples.on_the_bus(rng.choice(OF_EDGES))
    return {**copy.deepcopy(event), "event_id": _id(rng), "tenant_id": tenant_id}


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _with(value: Any, text: bytes) -> bytes:
    """The JSON of a value with these bytes where its hole is."""
    return _json(value).replace(_json(HOLE), text)


def _spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value, deepest last."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*path, key)
        if isinstance(item, dict | list) and key != "args":  # a command's args are its own
            yield from _spots(item, (*path, key))


def _put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The old value at the path, after the new one was put there."""
    for key in path[:-1]:
        value = value[key]
    old, value[path[-1]] = value[path[-1]], new
    return old


def _wrong(rng: Random, old: Any) -> Any:
    """A value of another type than the old one."""
    if isinstance(old, str):
        return rng.choice([7, True, [old], {"x": old}, 1.5])
    if isinstance(old, bool):
        return rng.choice(["yes", 1, [old]])
    if isinstance(old, int | float):
        return rng.choice([str(old), [old], {"x": old}, True])
    if isinstance(old, list):
        return rng.choice([7, "rows", {}, True])
    return rng.choice([7, "x", [], True])


def _wrong_type(rng: Random, value: dict[str, Any]) -> dict[str, Any]:
    spots = [path for path in _spots(value) if _at(value, path) is not None]
    path = rng.choice(spots)
    _put(value, path, _wrong(rng, _at(value, path)))
    return value


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _holed(rng: Random, value: dict[str, Any]) -> dict[str, Any]:
    """With a hole in one of its fields, or in one that nobody knows."""
    where = rng.choice(["payload", "envelope", "unknown", "unknown in payload"])
    if where == "unknown":
        return {**value, "from_the_future": HOLE}
    if where == "unknown in payload":
        return {**value, "payload": {**value["payload"], "from_the_future": HOLE}}
    inner = value["payload"] if where == "payload" else value
    key = rng.choice([key for key in inner if key != "payload"])
    inner[key] = HOLE
    return value


def _twice(rng: Random, value: dict[str, Any]) -> bytes:
    """With one key said twice, in the envelope or in the payload."""
    inner = rng.choice([value, value["payload"]])
    key = rng.choice(list(inner))
    said = _json(inner)
    doubled = said[:-1] + b", " + _json(key) + b": " + _json(inner[key]) + b"}"
    if inner is value:
        return doubled
    value["payload"] = HOLE
    return _with(value, doubled)


def _without(rng: Random, value: dict[str, Any], required: list[str]) -> dict[str, Any]:
    gone = rng.sample(required, rng.randint(1, len(required)))
    return {key: item for key, item in value.items() if key not in gone}


REQUIRED = ["schema_version", "event_id", "trace_id", "tenant_id", "device_id", "event_type", "ts"]
REQUIRED_ON_BUS = ["event_type", "farm_id", "barn_id", "occurred_at", "trace_id", "payload"]

NO_JSON = (
    b"", b" ", b"not json", b"{", b"}", b"{]", b"\xff\xfe\x00", b"\xef\xbb\xbf{}", b"'a'", b"nul",
    b"01", b"+1", b".5", b"{'a':1}", b'{"a":1,}', b"[1,]", b'{"a"}', b"\x00", b"<xml/>", b"NaN",
    b'{"a":1}{"a":1}', b"// {}", b'"\n"', b'"\\x"', b"tru",
)  # fmt: skip
NO_OBJECT = (b"[]", b"7", b'"text"', b"null", b"true", b"[[]]", b"1.5", b"[{}]")
NO_NUMBER = (b"NaN", b"Infinity", b"-Infinity", b"1e400", b"-1e400", b"1e99999", b"0x10", b"1_000")
# jsonb or a double would make something else of these (C-108).
NOT_EXACT = (
    b"1e-400", b"-1e-400", b"0." + b"0" * 330 + b"1", b"0." + b"1" * 16_384, b"1.5e-16390",
)  # fmt: skip
SURROGATES = (rb'"\ud800"', rb'"\udc00\ud800"', rb'"a\udfff"', b'"\xed\xa0\x80"', b'"\xff"')
NULS = (rb'"\u0000"', rb'"a\u0000b"', rb'{"\u0000": 1}', rb'[["\u0000"]]')
NESTS = (
    b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH, b"[" * 40 + b"]" * 40,
    b"[" * 900 + b"]" * 900, b'[{"a":' * 25 + b"0" + b"}]" * 25,
)  # fmt: skip
VERSIONS = (
    "2.0", "0.9", "", "one", "10.0", " 1.0", "v1", "1,0", "-1.0", "\u0661.0", "1.", "1.x; drop",
    "1.0.0", "1.\u0661", "1.0\n",
)  # fmt: skip
NO_MOMENTS = (
    "2025-01-02T10:00:00", "2025-01-02", "yesterday", "", "2025-13-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2025-01-02T25:00:00Z", "1735812000",
)  # fmt: skip
NO_IDS = ("", "a b", "a/b", "+", "#", "-x", "ä", "x" * 129, "a\n", "../..", "t-001 ", "'; drop --")
NO_UUIDS = ("", "7", "018f1a84", "018f1a84-bb0e-7d3f-b2e4-9e8b5f8e030g", "{}", "null", "x" * 36)
FOREIGN = ("t-002", "T-001", "t-0011", "other", "t-001.")
# (type, field, value): each is a number that its field must not have.
NO_AMOUNTS: tuple[tuple[str, str, Any], ...] = (
    ("weighvision.weight.recorded", "weight_kg", 0),
    ("weighvision.weight.recorded", "weight_kg", -120.5),
    ("weighvision.session.created", "initial_weight_kg", -0.0),
    ("weighvision.session.finalized", "final_weight_kg", 0),
    ("weighvision.session.finalized", "image_count", -1),
    ("weighvision.session.finalized", "image_count", 2**53),
    ("weighvision.session.finalized", "image_count", 10**30),
    ("weighvision.session.finalized", "image_count", 2.5),
    ("weighvision.image.captured", "size_bytes", -204800),
    ("device.status", "buffer_depth", -1),
    ("device.buffer.dropped", "count", -12),
    ("barn.record.created", "value", -2),
)
ODD_TOPICS = (
    "", "/", "iot", "iot/telemetry", "iot/#", "iot/+/t/f/b/d/m", "iot/telemetry/t-001",
    "iot/telemetry/t-001/f-001//d-010/temperature", "iot/telemetry/t-001/f-001/b-001/d-010/a b",
    "/iot/telemetry/t-001/f-001/b-001/d-010/temperature", "IOT/telemetry/t/f/b/d/m",
    "iot/telemetry/t-001/f-001/b-001/d-010/temperature/", "iot/weather/t/f/b/d",
    "iot/event/t-001/f-001/b-001/d-010/feed.eaten", "iot/telemetry/t/f/b/d/\x00",
    "iot/event/t-001/f-001/b-001/d-010/telemetry.reading", "device/aa:bb/data", "device//cmd",
    "iot/weighvision/t-001/f-001/b-001/s-1/session/7/weighvision.weight.recorded",
    "$SYS/broker/load", "iot/telemetry/\ud800/f/b/d/m", "iot/telemetry/" + "x" * 600, "ä" * 300,
    "iot/telemetry//f-001/b-001/d-010/temperature", "iot/telemetry/t-001/f-001/b-001/d-010/",
    "iot/telemetry//////", "iot/status/t-001/f-001/b-001/", "iot/status/t-001//b-001/d-010",
    "iot/status/t-001/f-001/b-001/d-010/online", "iot/event/t-001/f-001/b-001/d-010/",
    "iot/telemetry/t-001/f-001/b-001/d-010/-x", "iot/telemetry/t-001/f-001/b-001/.d/temperature",
    "iot/telemetry/t-001/f-001/b-001/d-010/temp..era'ture", "iot/event/t-001/f-001/b-001//x.y",
    "iot/telemetry/t-001/f-001/b-001/" + "d" * 129 + "/temperature", "iot/status/$SYS/f/b/d",
    "iot/weighvision/t-001/f-001/b-001/s-1/session//weighvision.weight.recorded",
    "iot/weighvision/t-001/f-001/b-001/s-1/sessions/018f1a84-bb0e-7d3f-b2e4-9e8b5f8e0301/x",
)  # fmt: skip


# --- messages


def _plain(texts: tuple[bytes, ...]) -> Callable[[Random, str], Sent]:
    def damage(rng: Random, name: str) -> Sent:
        return Sent(name, _sample(rng)[0], rng.choice(texts))

    return damage


def _in_a_hole(texts: tuple[bytes, ...]) -> Callable[[Random, str], Sent]:
    def damage(rng: Random, name: str) -> Sent:
        topic, envelope = _sample(rng)
        return Sent(name, topic, _with(_holed(rng, envelope), rng.choice(texts)))

    return damage


def _in_a_field(field: str, values: tuple[Any, ...]) -> Callable[[Random, str], Sent]:
    def damage(rng: Random, name: str) -> Sent:
        topic, envelope = _sample(rng)
        return Sent(name, topic, _json({**envelope, field: rng.choice(values)}), said=field)

    return damage


def _message_of_wrong_type(rng: Random, name: str) -> Sent:
    topic, envelope = _sample(rng)
    return Sent(name, topic, _json(_wrong_type(rng, envelope)), said=" - at `$.")


def _message_without_fields(rng: Random, name: str) -> Sent:
    topic, envelope = _sample(rng)
    return Sent(name, topic, _json(_without(rng, envelope, REQUIRED)), said="missing required")


def _message_with_a_key_twice(rng: Random, name: str) -> Sent:
    topic, envelope = _sample(rng)
    return Sent(name, topic, _twice(rng, envelope), said="more than once")


def _message_too_large(rng: Random, name: str) -> Sent:
    topic, envelope = _sample(rng)
    envelope["padding"] = "x" * topics.MAX_PAYLOAD_BYTES
    return Sent(name, topic, _json(envelope), said="at most 262144")


def _message_cut_short(rng: Random, name: str) -> Sent:
    topic, envelope = _sample(rng)
    whole = _json(envelope)
    return Sent(name, topic, whole[: rng.randrange(len(whole))])


def _message_with_bytes_changed(rng: Random, name: str) -> Sent:
    """Never valid: a byte that no UTF-8 text has stands somewhere in it."""
    topic, envelope = _sample(rng)
    whole = bytearray(_json(envelope))
    whole[rng.randrange(len(whole))] = rng.choice([0xC0, 0xF5, 0xFF, 0x00, 0x01])
    return Sent(name, topic, bytes(whole))


def _message_with_a_wrong_amount(rng: Random, name: str) -> Sent:
    event_type, field, value = rng.choice(NO_AMOUNTS)
    sample = samples.from_device(event_type)
    payload = {**sample.envelope["payload"], field: value}
    raw = _json({**sample.envelope, "event_id": _id(rng), "payload": payload})
    return Sent(name, sample.topic, raw, said="payload")


def wrong_in_many_places(rng: Random, name: str, *, places: int) -> Sent:
    """So many mistakes in one message; listing them must not take longer than a moment."""
    sample = samples.from_device("feed.imported")
    raw = _json({**sample.envelope, "event_id": _id(rng), "payload": HOLE})
    many = (
        b'{"rows":[' + b",".join([b"7"] * places) + b"]}",
        b"{" + b",".join(b'"k%d":0,"k%d":0' % (n, n) for n in range(places)) + b"}",
        b'{"' + b"k" * places + b'":[' + b",".join([rb'"\u0000"'] * places) + b"]}",
        b'{"rows":"' + b"x" * places + b'"}',
    )
    return Sent(name, sample.topic, raw.replace(_json(HOLE), rng.choice(many)))


def _message_on_an_odd_topic(rng: Random, name: str) -> Sent:
    return Sent(name, rng.choice(ODD_TOPICS), _json(_sample(rng)[1]))


def _message_on_anothers_topic(rng: Random, name: str) -> Sent:
    topic, envelope = _sample(rng)
    return Sent(
        name, topic.replace("t-001", rng.choice(FOREIGN)), _json(envelope), said="tenant_id"
    )


def _good_uuid_of_another_version(rng: Random, name: str) -> Sent:
    topic, envelope = _reading(rng)
    envelope["event_id"] = _id(rng, rng.randrange(16), rng.choice([0x2, 0x2, 0, 0x3]))
    return Sent(name, topic, _json(envelope), good=True)


def _good_with_a_wrong_clock(rng: Random, name: str) -> Sent:
    """Kept as it was sent, and flagged (C-44)."""
    topic, envelope = _reading(rng)
    year = rng.choice([1900, 1970, 1999, 2038, 2100, 9999])
    ts = f"{year}-{rng.randint(1, 12):02}-{rng.randint(2, 28):02}T{rng.randrange(24):02}:00:00Z"
    return Sent(name, topic, _json({**envelope, "ts": ts}), good=True)


def _good_but_odd(rng: Random, name: str) -> Sent:
    topic, envelope = _reading(rng)
    odd: dict[str, Any] = rng.choice(
        [
            {"schema_version": "1.99"},
            {"from_the_future": {"a": [{"a": 1}, {"a": 1}]}},
            {"ts": "2025-01-02T17:00:00.123456+07:00"},
            {"ts": "1970-01-01T00:00:00Z"},
            {"trace_id": 'a": "b'},
            {"trace_id": r"\u0000"},
            {"payload": {"value": 1e-300, "unit": ""}},
            {"payload": {"metric_value": 10**25, "unit": "\u00b0C"}},
            {"payload": {"value": -0.0, "unit": "C", "metric_type": "temperature", "x": None}},
        ]
    )
    return Sent(name, topic, _json({**envelope, **odd}), good=True)


MESSAGE_DAMAGES: dict[str, Callable[[Random, str], Sent]] = {
    "not json": _plain(NO_JSON),
    "not an object": _plain(NO_OBJECT),
    "wrong type": _message_of_wrong_type,
    "fields missing": _message_without_fields,
    "not a number": _in_a_hole(NO_NUMBER),
    "not exact": _in_a_hole(NOT_EXACT),
    "surrogate": _in_a_hole(SURROGATES),
    "nul": _in_a_hole(NULS),
    "too deep": _in_a_hole(NESTS),
    "only deep": _plain(NESTS),
    "key twice": _message_with_a_key_twice,
    "too large": _message_too_large,
    "cut short": _message_cut_short,
    "bytes changed": _message_with_bytes_changed,
    "unknown version": _in_a_field("schema_version", VERSIONS),
    "not a moment": _in_a_field("ts", NO_MOMENTS),
    "not an id": _in_a_field("tenant_id", NO_IDS),
    "not a uuid": _in_a_field("event_id", NO_UUIDS),
    "foreign tenant": _in_a_field("tenant_id", FOREIGN),
    "foreign topic": _message_on_anothers_topic,
    "odd topic": _message_on_an_odd_topic,
    "wrong in many places": partial(wrong_in_many_places, places=200),
    "wrong amount": _message_with_a_wrong_amount,
    "good: another uuid": _good_uuid_of_another_version,
    "good: wrong clock": _good_with_a_wrong_clock,
    "good: odd": _good_but_odd,
}


# --- bodies


Body = Callable[[Random, str, str], Posted]


def _body(*events: Any, **more: Any) -> bytes:
    return _json({"events": list(events), **more})


def _plain_body(texts: tuple[bytes, ...]) -> Body:
    return lambda rng, name, _: Posted(name, rng.choice(texts))


def _body_with_a_hole(texts: tuple[bytes, ...]) -> Body:
    def damage(rng: Random, name: str, tenant_id: str) -> Posted:
        events = [_event(rng, tenant_id), _holed(rng, _event(rng, tenant_id))]
        return Posted(name, _with({"batchId": "b-1", "events": events}, rng.choice(texts)))

    return damage


def _body_with_a_field(field: str, values: tuple[Any, ...], status: int = 400) -> Body:
    def damage(rng: Random, name: str, tenant_id: str) -> Posted:
        bad = {**_event(rng, tenant_id), field: rng.choice(values)}
        return Posted(name, _body(_event(rng, tenant_id), bad), status)

    return damage


def _body_of_wrong_type(rng: Random, name: str, tenant_id: str) -> Posted:
    event = _event(rng, tenant_id)
    return Posted(name, _body(_event(rng, tenant_id), _wrong_type(rng, event), batchId="b-1"))


def _body_of_wrong_shape(rng: Random, name: str, tenant_id: str) -> Posted:
    event = _event(rng, tenant_id)
    shapes: tuple[Any, ...] = (
        {}, {"events": None}, {"events": {}}, {"events": "x"}, {"events": [None, 7, "x", [], {}]},
        {"events": [[event]]}, {"batchId": 7, "events": [event]}, {"events": event}, event, [event],
        {"batchId": "a/b", "events": [event]}, {"batchId": "", "events": []},
    )  # fmt: skip
    return Posted(name, _json(rng.choice(shapes)))


def _body_with_fields_missing(rng: Random, name: str, tenant_id: str) -> Posted:
    event = _without(rng, _event(rng, tenant_id), REQUIRED_ON_BUS)
    return Posted(name, _body(_event(rng, tenant_id), event))


def _body_with_a_key_twice(rng: Random, name: str, tenant_id: str) -> Posted:
    if rng.random() < 0.2:
        return Posted(name, b'{"events": [], "events": []}')
    return Posted(name, b'{"events": [' + _twice(rng, _event(rng, tenant_id)) + b"]}")


def _body_cut_short(rng: Random, name: str, tenant_id: str) -> Posted:
    whole = _body(_event(rng, tenant_id), batchId="b-1")
    return Posted(name, whole[: rng.randrange(len(whole))])


def _body_without_a_place(rng: Random, name: str, tenant_id: str) -> Posted:
    placed = [name for name in OF_EDGES if not catalogue.BUS[name].place_optional]
    event = {**samples.on_the_bus(rng.choice(placed)), "tenant_id": tenant_id}
    event[rng.choice(["farm_id", "barn_id"])] = None
    return Posted(name, _body({**event, "event_id": _id(rng)}))


def _body_with_a_wrong_amount(rng: Random, name: str, tenant_id: str) -> Posted:
    event_type, field, value = rng.choice(NO_AMOUNTS)
    event = {**samples.on_the_bus(event_type), "tenant_id": tenant_id, "event_id": _id(rng)}
    return Posted(name, _body({**event, "payload": {**event["payload"], field: value}}))


def _body_with_too_many(rng: Random, name: str, tenant_id: str) -> Posted:
    return Posted(name, _body(*[_event(rng, tenant_id)] * (MAX_EVENTS + 1)), 413)


def _body_with_too_much(rng: Random, name: str, tenant_id: str) -> Posted:
    return Posted(name, _body(_event(rng, tenant_id), padding="x" * MAX_BYTES), 413)


def _body_of_another_uuid(rng: Random, name: str, tenant_id: str) -> Posted:
    event = {**_event(rng, tenant_id), "event_id": _id(rng, rng.choice([1, 3, 4, 5]))}
    return Posted(name, _body(event, event), 202)


def _good_body(rng: Random, name: str, tenant_id: str) -> Posted:
    events = [_event(rng, tenant_id) for _ in range(rng.randint(0, 3))]
    return Posted(name, _body(*events, from_the_future=1), 202)


BODY_DAMAGES: dict[str, Body] = {
    "not json": _plain_body(NO_JSON),
    "not an object": _plain_body(NO_OBJECT),
    "wrong shape": _body_of_wrong_shape,
    "wrong type": _body_of_wrong_type,
    "fields missing": _body_with_fields_missing,
    "not a number": _body_with_a_hole(NO_NUMBER),
    "not exact": _body_with_a_hole(NOT_EXACT),
    "surrogate": _body_with_a_hole(SURROGATES),
    "nul": _body_with_a_hole(NULS),
    "too deep": _body_with_a_hole(NESTS),
    "only deep": _plain_body(NESTS),
    "key twice": _body_with_a_key_twice,
    "cut short": _body_cut_short,
    "not a moment": _body_with_a_field("occurred_at", NO_MOMENTS),
    "not an id": _body_with_a_field("tenant_id", NO_IDS),
    "not a uuid": _body_with_a_field("event_id", NO_UUIDS),
    "unknown type": _body_with_a_field("event_type", ("weather.guessed", "telemetry", "x", "")),
    "foreign tenant": _body_with_a_field("tenant_id", FOREIGN, 403),
    "no place": _body_without_a_place,
    "wrong amount": _body_with_a_wrong_amount,
    "huge: too many": _body_with_too_many,
    "huge: too much": _body_with_too_much,
    "good: another uuid": _body_of_another_uuid,
    "good": _good_body,
}


# --- several damages in one


@dataclass(slots=True)
class Draft:
    """A good message or event, to be harmed. `taken`: what no other harm may touch any more.

    `said`: words that must stand in the reasons, some for each harm. `texts` go into the holes.
    """

    kind: catalogue.MqttType | catalogue.BusType
    body: dict[str, Any]
    topic: str = ""
    taken: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)

    def raw(self) -> bytes:
        raw = _json(self.body)
        for index, text in enumerate(self.texts):
            raw = raw.replace(_json(f"{HOLE}{index}"), text)
        return raw

    def take(self, *names: str) -> bool:
        """Whether they were free; they are taken now."""
        free = self.taken.isdisjoint(names)
        self.taken.update(names if free else ())
        return free


Harm = Callable[[Random, Draft], None]


def harmed_message(rng: Random) -> Draft:
    """A message for the edge with two or three harms."""
    kind = rng.choice(list(catalogue.MQTT.values()))
    sample = samples.from_device(kind.name, rng.choice(kind.topics))
    body = {**copy.deepcopy(sample.envelope), "event_id": _id(rng)}
    return _harmed(rng, Draft(kind, body, sample.topic), (*HARMS, *MESSAGE_HARMS))


def harmed_event(rng: Random) -> Draft:
    """An event for the bus with two or three harms."""
    kind = catalogue.BUS[rng.choice(list(catalogue.BUS))]
    body = {**copy.deepcopy(samples.on_the_bus(kind.name)), "event_id": _id(rng)}
    return _harmed(rng, Draft(kind, body), (*HARMS, *EVENT_HARMS))


def _harmed(rng: Random, draft: Draft, harms: tuple[Harm, ...]) -> Draft:
    wanted = rng.randint(2, 3)
    while len(draft.said) < wanted:
        rng.choice(harms)(rng, draft)
    return draft


def _lost(rng: Random, draft: Draft) -> None:
    names = REQUIRED if draft.topic else ["event_id", "tenant_id", *REQUIRED_ON_BUS]
    name = rng.choice([name for name in names if name in draft.body and name != "payload"])
    if _spares_the_type(draft, name) and draft.take(name):
        del draft.body[name]
        draft.said.append(f"missing required field `{name}` - at `$`")


def _needs_the_type(draft: Draft) -> bool:
    """Without its type nothing is known of a payload, nor whether an event needs a place."""
    draft.taken.add("type needed")
    return "no type" not in draft.taken


def _spares_the_type(draft: Draft, name: str = "event_type") -> bool:
    if name != "event_type":
        return True
    draft.taken.add("no type")
    return "type needed" not in draft.taken


def _payload_lost(rng: Random, draft: Draft) -> None:
    fields = msgspec.structs.fields(draft.kind.payload)
    needed = [each.encode_name for each in fields if each.required]
    name = rng.choice([*needed, "metric_value"])
    if name in draft.body["payload"] and _needs_the_type(draft) and draft.take(f"payload.{name}"):
        del draft.body["payload"][name]
        draft.said.append(f"missing required field `{name}`")


def _retyped(rng: Random, draft: Draft) -> None:
    """A field, however deep, holds a list or an object where something plain is expected."""
    path = rng.choice([p for p in _spots(draft.body) if not _is_nested(_at(draft.body, p))])
    old = _at(draft.body, path)
    if isinstance(old, str) and old.startswith(HOLE):
        return
    inside = path[0] == "payload"
    fits = _needs_the_type(draft) if inside else _spares_the_type(draft, path[0])
    if fits and draft.take(f"payload.{path[1]}" if inside else path[0]):
        _put(draft.body, path, rng.choice([[old], {"x": old}]))
        draft.said.append(f" - at `{_place(path)}`")


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


def _place(path: tuple[Any, ...]) -> str:
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)


ODD_TEXTS = {
    rb'"a\u0000b"': "contains a NUL character",
    rb'[{"y": "\ud800"}]': "contains a lone surrogate, which is half a character",
    b"1e400": "a number out of range",
    b"-1" + b"0" * 5000: "a number out of range",
    b"1e-400": "a number that cannot be kept exactly",
}


def _unkeepable(rng: Random, draft: Draft) -> None:
    """In a field that nobody knows."""
    text, why = rng.choice(list(ODD_TEXTS.items()))
    inner, place = rng.choice([(draft.body, "$"), (draft.body["payload"], "$.payload")])
    name = f"new_{len(draft.texts)}"
    inner[name] = f"{HOLE}{len(draft.texts)}"
    draft.texts.append(text)
    draft.said.append(f"{why} - at `{place}.{name}")


def _said_twice(rng: Random, draft: Draft) -> None:
    inner, place = rng.choice([(draft.body, "$"), (draft.body["payload"], "$.payload")])
    name = f"new_{len(draft.texts)}"
    inner[name] = f"{HOLE}{len(draft.texts)}"
    draft.texts.append(b'1, "%s": 1' % name.encode())
    draft.said.append(f"the key {name!r} stands there more than once - at `{place}`")


def _valued(name: str, values: tuple[str, ...]) -> Harm:
    def harm(rng: Random, draft: Draft) -> None:
        if draft.take(name):
            draft.body[name] = rng.choice(values)
            draft.said.append(f" - at `$.{name}`")

    return harm


def _miscounted(rng: Random, draft: Draft) -> None:
    amounts = [each for each in NO_AMOUNTS if each[0] == draft.kind.name]
    if not amounts:
        return
    _, name, value = rng.choice(amounts)
    # Whether a record's value may be negative is a question of what it records.
    names = [f"payload.{each}" for each in (name, "record_type")]
    if name in draft.body["payload"] and _needs_the_type(draft) and draft.take(*names):
        draft.body["payload"][name] = value
        draft.said.append(" - at `$.payload")


def _of_unknown_version(rng: Random, draft: Draft) -> None:
    if draft.take("schema_version"):
        draft.body["schema_version"] = rng.choice(VERSIONS)
        draft.said.append("is not understood, expected 1 or 1.<digits>")


def _on_a_foreign_topic(rng: Random, draft: Draft) -> None:
    if draft.take("tenant_id", "topic"):
        draft.topic = draft.topic.replace("t-001", rng.choice(FOREIGN))
        draft.said.append("topic says tenant_id")


def _foreign(rng: Random, draft: Draft) -> None:
    if draft.take("tenant_id", "topic"):
        draft.body["tenant_id"] = rng.choice(FOREIGN)
        draft.said.append("topic says tenant_id 't-001'")


def _of_no_type(rng: Random, draft: Draft) -> None:  # noqa: ARG001 - all harms are called alike
    announced = draft.topic.endswith(f"/{draft.kind.name}")
    if announced and _spares_the_type(draft) and draft.take("event_type"):
        draft.topic = f"{draft.topic.rpartition('/')[0]}/feed.eaten"
        draft.body["event_type"] = "feed.eaten"
        draft.said.append("does not carry 'feed.eaten'")


def _without_a_place(rng: Random, draft: Draft) -> None:
    assert isinstance(draft.kind, catalogue.BusType)
    name = rng.choice(["farm_id", "barn_id"])
    if not draft.kind.place_optional and _needs_the_type(draft) and draft.take(name):
        draft.body[name] = None
        draft.said.append(f"`{name}` must not be null")


def _unregistered(rng: Random, draft: Draft) -> None:
    if _spares_the_type(draft) and draft.take("event_type"):
        draft.body["event_type"] = rng.choice(["weather.guessed", "telemetry", "x"])
        draft.said.append("is not registered")


HARMS: tuple[Harm, ...] = (
    _lost, _payload_lost, _retyped, _unkeepable, _said_twice, _miscounted,
    _valued("event_id", NO_UUIDS),
)  # fmt: skip
MESSAGE_HARMS: tuple[Harm, ...] = (
    _of_unknown_version, _on_a_foreign_topic, _foreign, _of_no_type, _valued("ts", NO_MOMENTS),
)  # fmt: skip
EVENT_HARMS: tuple[Harm, ...] = (
    _without_a_place, _unregistered, _valued("tenant_id", NO_IDS),
    _valued("occurred_at", NO_MOMENTS),
)  # fmt: skip
