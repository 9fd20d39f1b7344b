"""Telemetry: one reading of one metric of one device, and what many of them come to."""

from typing import Literal

import msgspec

from farmiq.messages import check
from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import Count, Unit, require_utc

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

    def __post_init__(self) -> None:
        if self.metric_value is msgspec.UNSET and self.value is msgspec.UNSET:
            raise ValueError("missing required field `metric_value` (or `value`)")


class TelemetryAggregated(msgspec.Struct, frozen=True, kw_only=True):
    """One bucket of one metric; late readings make it again (C-40)."""

    metric_type: Id
    aggregation_window: Literal["1m", "1h", "1d"]
    avg_value: float
    min_value: float
    max_value: float
    unit: Unit
    count: Count | msgspec.UnsetType = msgspec.UNSET
    bucket_start_at: Instant | msgspec.UnsetType = msgspec.UNSET
    bucket_end_at: Instant | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        require_utc(self.bucket_start_at, self.bucket_end_at)


by_device_decoder = msgspec.json.Decoder(ReadingByDevice)
ingested_decoder = msgspec.json.Decoder(Reading)


def read(payload: msgspec.Raw, *, metric_type: str) -> Reading:
    """The reading in a payload sent on the topic of `metric_type` (C-48, C-85).

    Raises check.Invalid if the two name different metrics, or if there is no value.
    """
    return of_topic(check.read(payload, by_device_decoder, ReadingByDevice), metric_type)


def of_topic(sent: ReadingByDevice, metric_type: str) -> Reading:
    """The long form of what was sent. Raises check.Invalid if it names another metric."""
    if sent.metric_type not in (msgspec.UNSET, metric_type):
        raise check.Invalid([other_metric(metric_type, sent.metric_type)])
    value = sent.value if sent.metric_value is msgspec.UNSET else sent.metric_value
    assert value is not msgspec.UNSET  # noqa: S101 - the type has made sure
    return Reading(metric_type=metric_type, metric_value=value, unit=sent.unit)


def other_metric(in_topic: str, in_payload: object) -> str:
    return f"topic says metric {in_topic!r}, payload {in_payload!r}"


def read_ingested(payload: msgspec.Raw) -> Reading:
    """The reading in the payload of a `telemetry.ingested` event from the bus."""
    return check.read(payload, ingested_decoder, Reading)
