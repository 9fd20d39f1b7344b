"""The catalogue: every event type, as data. What it carries, where it travels, which way.

MQTT between devices and the edge, BUS between the cloud's services. A type of the same name on
both sides may carry more on the bus: what the edge adds (C-109).
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from farmiq.messages import (
    barn,
    device,
    edge,
    feed,
    inference,
    kpi,
    media,
    receipt,
    sync,
    telemetry,
    topics,
    weighvision,
)
from farmiq.messages.topics import (
    CommandTopic,
    EventTopic,
    ReceiptTopic,
    SessionTopic,
    StatusTopic,
    TelemetryTopic,
    Topic,
)


class Direction(Enum):
    UP = "from devices to the edge"
    DOWN = "from the edge to devices"


@dataclass(frozen=True, slots=True)
class MqttType:
    """An event type on MQTT: its payload, and the kinds of topic that carry it."""

    name: str
    payload: Any
    topics: tuple[type[Topic], ...]
    summary: str
    direction: Direction
    decoder: "msgspec.json.Decoder[Any]"


class Maker(Enum):
    """Who makes an event (C-115); an edge posts what edges make, and the cloud nothing."""

    EDGE = "edges, and the camera bridge on behalf of cameras"
    CLOUD = "the cloud alone"
    EITHER = "the cloud, or an edge that sends a metric as aggregates (C-40)"


@dataclass(frozen=True, slots=True)
class BusType:
    """An event type on the bus. `place_optional`: farm and barn may be null (C-08)."""

    name: str
    payload: Any
    summary: str
    place_optional: bool
    made_by: Maker
    decoder: "msgspec.json.Decoder[Any]"

    @property
    def exchange(self) -> str:
        """`farmiq.{first segment}.exchange`; the routing key is the type itself (C-07)."""
        return f"farmiq.{self.name.split('.', maxsplit=1)[0]}.exchange"


def _mqtt(
    name: str,
    payload: Any,
    summary: str,
    *carriers: type[Topic],
    direction: Direction = Direction.UP,
) -> MqttType:
    decoder = msgspec.json.Decoder(payload)
    return MqttType(name, payload, carriers, summary, direction, decoder)


def _bus(
    name: str,
    payload: Any,
    summary: str,
    *,
    place_optional: bool = False,
    made_by: Maker = Maker.EDGE,
) -> BusType:
    return BusType(name, payload, summary, place_optional, made_by, msgspec.json.Decoder(payload))


MQTT = {
    kind.name: kind
    for kind in (
        _mqtt(
            telemetry.READING,
            telemetry.ReadingByDevice,
            "One reading of one metric.",
            TelemetryTopic,
        ),
        _mqtt(feed.DISPENSED, feed.FeedDispensed, "Feed was dispensed.", EventTopic),
        _mqtt(
            feed.IMPORTED,
            feed.FeedImported,
            "Feed intakes from elsewhere, one per row.",
            EventTopic,
        ),
        _mqtt(
            barn.RECORD_CREATED,
            barn.BarnRecordCreated,
            "Somebody wrote something down about a barn.",
            EventTopic,
        ),
        _mqtt(
            device.BUFFER_DROPPED,
            device.DeviceBufferDropped,
            "A device dropped events on purpose, and says which.",
            EventTopic,
        ),
        _mqtt(
            device.COMMAND_ANSWERED,
            device.DeviceCommandAnswered,
            "What became of a command.",
            EventTopic,
        ),
        _mqtt(
            device.STATUS,
            device.DeviceStatusByDevice,
            "How a device is; also its last will.",
            StatusTopic,
        ),
        _mqtt(
            weighvision.SESSION_CREATED,
            weighvision.SessionCreatedByDevice,
            "A weigh session began.",
            SessionTopic,
        ),
        _mqtt(
            weighvision.WEIGHT_RECORDED,
            weighvision.WeightRecorded,
            "A weight of a session; may repeat.",
            SessionTopic,
        ),
        _mqtt(
            weighvision.IMAGE_CAPTURED,
            weighvision.ImageCaptured,
            "An image was uploaded; outside of a session on the events topic.",
            SessionTopic,
            EventTopic,
        ),
        _mqtt(
            weighvision.SESSION_FINALIZED,
            weighvision.SessionFinalizedByDevice,
            "A weigh session is complete.",
            SessionTopic,
        ),
        _mqtt(
            weighvision.SESSION_CANCELLED,
            weighvision.SessionCancelledByDevice,
            "The device gave up on a weigh session.",
            SessionTopic,
        ),
        _mqtt(
            device.COMMAND,
            device.DeviceCommand,
            "A device is told to do something.",
            CommandTopic,
            direction=Direction.DOWN,
        ),
        _mqtt(
            receipt.RECEIPT,
            receipt.Receipt,
            "Which events are committed, or refused for good.",
            ReceiptTopic,
            direction=Direction.DOWN,
        ),
    )
}

BUS = {
    kind.name: kind
    for kind in (
        _bus(telemetry.INGESTED, telemetry.Reading, "One reading of one metric."),
        _bus(
            telemetry.AGGREGATED,
            telemetry.TelemetryAggregated,
            "What the readings of one bucket of time come to.",
            made_by=Maker.EITHER,
        ),
        _bus(weighvision.SESSION_CREATED, weighvision.SessionCreated, "A weigh session began."),
        _bus(weighvision.WEIGHT_RECORDED, weighvision.WeightRecorded, "A weight of a session."),
        _bus(
            weighvision.IMAGE_CAPTURED,
            weighvision.ImageCaptured,
            "An image was uploaded to the edge.",
        ),
        _bus(
            weighvision.SESSION_FINALIZED,
            weighvision.SessionFinalized,
            "A weigh session is complete.",
        ),
        _bus(
            weighvision.SESSION_CANCELLED,
            weighvision.SessionCancelled,
            "The device gave up on a weigh session.",
        ),
        _bus(
            weighvision.SESSION_INCOMPLETE,
            weighvision.SessionIncomplete,
            "Parts of a weigh session have not come to the edge for too long.",
        ),
        _bus(media.STORED, media.MediaStored, "An image is in the store."),
        _bus(inference.COMPLETED, inference.InferenceCompleted, "What a model made of an image."),
        _bus(
            sync.BATCH_SENT,
            sync.SyncBatchSent,
            "A batch of an edge was received.",
            place_optional=True,
            made_by=Maker.CLOUD,
        ),
        _bus(
            sync.BATCH_ACKED,
            sync.SyncBatchAcked,
            "All events of a batch are confirmed.",
            place_optional=True,
            made_by=Maker.CLOUD,
        ),
        _bus(feed.INTAKE_RECORDED, feed.FeedIntakeRecorded, "Feed was taken in."),
        _bus(feed.LOT_RECEIVED, feed.FeedLotReceived, "A lot of feed was delivered."),
        _bus(
            barn.RECORD_CREATED,
            barn.BarnRecordCreated,
            "Somebody wrote something down about a barn.",
        ),
        _bus(
            kpi.DAILY_UPDATED,
            kpi.KpiDailyUpdated,
            "A key figure of a day was computed.",
            made_by=Maker.CLOUD,
        ),
        _bus(device.STATUS, device.DeviceStatus, "The state of a device changed."),
        _bus(
            device.BUFFER_DROPPED,
            device.DeviceBufferDropped,
            "A device dropped events on purpose, and says which.",
        ),
        _bus(
            edge.ALERT_OPENED,
            edge.EdgeAlert,
            "An edge opened an alert.",
            place_optional=True,
        ),
        _bus(
            edge.ALERT_CLOSED,
            edge.EdgeAlert,
            "An alert of an edge is over.",
            place_optional=True,
        ),
    )
}


def event_type_of(where: Topic) -> str | None:
    """The event type that a topic announces; None where there is no envelope to announce."""
    match where:
        case TelemetryTopic():
            return telemetry.READING
        case EventTopic(event_type=event_type) | SessionTopic(event_type=event_type):
            return event_type
        case StatusTopic():
            return device.STATUS
        case CommandTopic():
            return device.COMMAND
        case ReceiptTopic():
            return receipt.RECEIPT
        case topics.CameraTopic():
            return None
