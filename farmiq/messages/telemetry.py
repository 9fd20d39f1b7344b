"""Telemetry: one reading of one metric of one device."""

from typing import Annotated

import msgspec

from farmiq.messages import check
from farmiq.messages.ids import Id

READING = "telemetry.reading"  # on MQTT
INGESTED = "telemetry.ingested"  # on the bus

Unit = Annotated[str, msgspec.Meta(max_length=64)]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The long form: the only one that is stored and that the bus carries (C-109)."""

    metric_type: Id
    metric_value: float
    unit: Unit


class _AsSent(msgspec.Struct, frozen=True, kw_only=True):
    """What a device may send: the long form, or `{value, unit}` with the metric in the topic."""

    unit: Unit
    metric_type: Id | msgspec.UnsetType = msgspec.UNSET
    metric_value: float | msgspec.UnsetType = msgspec.UNSET
    value: float | msgspec.UnsetType = msgspec.UNSET


_as_sent = msgspec.json.Decoder(_AsSent)
ingested_decoder = msgspec.json.Decoder(Reading)


def read(payload: msgspec.Raw, *, metric_type: str) -> Reading:
    """The reading in a payload sent on the topic of `metric_type` (C-48, C-85).

    Raises check.Invalid if the two name different metrics, or if there is no value.
    """
    sent = check.read(payload, _as_sent, _AsSent)
    if sent.metric_type not in (msgspec.UNSET, metric_type):
        raise check.Invalid([f"topic says metric {metric_type!r}, payload {sent.metric_type!r}"])
    value = sent.value if sent.metric_value is msgspec.UNSET else sent.metric_value
    if value is msgspec.UNSET:
        raise check.Invalid(["missing required field `metric_value` (or `value`) - at `$.payload`"])
    return Reading(metric_type=metric_type, metric_value=value, unit=sent.unit)


def read_ingested(payload: msgspec.Raw) -> Reading:
    """The reading in the payload of a `telemetry.ingested` event from the bus."""
    return check.read(payload, ingested_decoder, Reading)
