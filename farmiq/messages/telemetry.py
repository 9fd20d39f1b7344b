"""Telemetry: one reading of one metric of one device, and what many of them come to."""

from typing import ClassVar, Literal

import msgspec

from farmiq.messages import check
from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import Count, Rules, Unit, require_utc

READING = "telemetry.reading"  # on MQTT
INGESTED = "telemetry.ingested"  # on the bus
AGGREGATED = "telemetry.aggregated"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The long form: the only one that is stored and that the bus carries (C-109)."""

    metric_type: Id
    metric_value: float
    unit: Unit


class ReadingByDevice(msgspec.Struct, frozen=True, kw_only=True):
    """What a device may send: the long form, or `{value, unit}` with the metric in the topic."""

    unit: Unit
    metric_type: Id | msgspec.UnsetType = msgspec.UNSET
    metric_value: float | msgspec.UnsetType = msgspec.UNSET
    value: float | msgspec.UnsetType = msgspec.UNSET

    def _has_a_value(self) -> str | None:
        if self.metric_value is msgspec.UNSET and self.value is msgspec.UNSET:
            return "missing required field `metric_value` (or `value`)"
        return None

    # Asked by `of_topic`, which needs the value: asked here it would take as long as the reading.
    rules: ClassVar[Rules] = (_has_a_value,)


class TelemetryAggregated(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket of one metric; late readings make it again (C-40).

    `made_by` is there if the cloud computed it; without it an edge sent it as an aggregate.
    """

    metric_type: Id
    aggregation_window: Literal["1m", "1h", "1d"]
    avg_value: float
    min_value: float
    max_value: float
    unit: Unit
    count: Count | msgspec.UnsetType = msgspec.UNSET
    bucket_start_at: Instant | msgspec.UnsetType = msgspec.UNSET
    bucket_end_at: Instant | msgspec.UnsetType = msgspec.UNSET
    made_by: Literal["cloud"] | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        require_utc(self.bucket_start_at, self.bucket_end_at)


by_device_decoder = msgspec.json.Decoder(ReadingByDevice)
aggregated_decoder = msgspec.json.Decoder(TelemetryAggregated)
ingested_decoder = msgspec.json.Decoder(Reading)


def read(payload: msgspec.Raw, *, metric_type: str) -> Reading:
    """The reading in a payload sent on the topic of `metric_type` (C-48, C-85).

    Raises check.InvalidError if the two name different metrics, or if there is no value.
    """
    return of_topic(check.read(payload, by_device_decoder, ReadingByDevice), metric_type)


def of_topic(sent: ReadingByDevice, metric_type: str) -> Reading:
    """Return the long form. Raises check.InvalidError without a value or on another metric."""
    value = sent.value if sent.metric_value is msgspec.UNSET else sent.metric_value
    if value is msgspec.UNSET or sent.metric_type not in (msgspec.UNSET, metric_type):
        broken = [f"{why} - at `$`" for rule in sent.rules if (why := rule(sent))]
        raise check.InvalidError([*broken, *other_metric(metric_type, sent.metric_type)])
    return Reading(metric_type=metric_type, metric_value=value, unit=sent.unit)


def other_metric(in_topic: str, in_payload: object) -> list[str]:
    """What is wrong if the payload names another metric than the topic."""
    if not isinstance(in_payload, str) or in_payload == in_topic:
        return []
    return [f"topic says metric {in_topic!r}, payload {in_payload!r}"]


def bus_payload(reading: Reading, sent: msgspec.Raw) -> msgspec.Raw:
    """The payload for the bus: the long form, and every other key as it was sent (C-04, C-109)."""
    try:
        plain = _nothing_else.decode(sent)
    except msgspec.ValidationError:
        return _with_other_keys(reading, sent)
    if plain.value is not msgspec.UNSET and plain.metric_value is not msgspec.UNSET:
        return _with_other_keys(reading, sent)
    return msgspec.Raw(msgspec.json.encode(reading))


def _with_other_keys(reading: Reading, sent: msgspec.Raw) -> msgspec.Raw:
    payload = _keys.decode(sent)
    if "metric_value" not in payload:
        # It has become metric_value; beside one it is a key like any other.
        del payload["value"]
    return msgspec.Raw(msgspec.json.encode({**payload, **msgspec.structs.asdict(reading)}))


class _NothingElse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Only the keys that `bus_payload` rewrites; their values are checked before."""

    unit: str
    metric_type: str | msgspec.UnsetType = msgspec.UNSET
    metric_value: float | msgspec.UnsetType = msgspec.UNSET
    value: float | msgspec.UnsetType = msgspec.UNSET


_nothing_else = msgspec.json.Decoder(_NothingElse)
_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_ingested(payload: msgspec.Raw) -> Reading:
    """The reading in the payload of a `telemetry.ingested` event from the bus."""
    return check.read(payload, ingested_decoder, Reading)


def read_aggregated(payload: msgspec.Raw) -> TelemetryAggregated:
    """The bucket in the payload of a `telemetry.aggregated` event from the bus."""
    return check.read(payload, aggregated_decoder, TelemetryAggregated)
