"""Weigh sessions: an animal on the scale, its weights and its images, from created to finalized.

The device's payloads are those of the MQTT topics; the bus carries them with what the edge adds
(C-29, C-96, C-109). A weight or an image says the same on both.
"""

from typing import Annotated, Literal
from uuid import UUID

import msgspec

from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import Count, Name, Sha256, Text, WeightKg, require_utc
from farmiq.messages.media import ImageType

SESSION_CREATED = "weighvision.session.created"
WEIGHT_RECORDED = "weighvision.weight.recorded"
IMAGE_CAPTURED = "weighvision.image.captured"
SESSION_FINALIZED = "weighvision.session.finalized"
SESSION_CANCELLED = "weighvision.session.cancelled"
SESSION_INCOMPLETE = "weighvision.session.incomplete"

# A key of the bus payload, true if the edge took the event's weight from the weighings it had: not
# the device's own word, and older than weighings that came later (C-29, C-109).
DERIVED = "weight_derived"
# A key of the bus payload: the station, which on MQTT the topic names. The edge's word, not the
# device's.
STATION = "station_id"


class WeightRecorded(msgspec.Struct, frozen=True, kw_only=True):
    weight_kg: WeightKg


# What an image without a session is for: the scale while nothing stands on it, against which
# animals are told from the floor.
EMPTY_SCALE = "empty_scale"


class ImageCaptured(msgspec.Struct, frozen=True, kw_only=True):
    """Sent after the upload; on the events topic if the image belongs to no session.

    `purpose` says what an image without a session is for; see EMPTY_SCALE.
    """

    media_id: UUID
    content_type: ImageType | msgspec.UnsetType | None = msgspec.UNSET
    size_bytes: Count | msgspec.UnsetType | None = msgspec.UNSET
    sha256: Sha256 | msgspec.UnsetType | None = msgspec.UNSET
    purpose: Name | msgspec.UnsetType | None = msgspec.UNSET


class SessionCreatedByDevice(msgspec.Struct, frozen=True, kw_only=True):
    """`animal_id` is what the station read from the animal, such as an ear tag."""

    batch_id: Id | None
    initial_weight_kg: WeightKg | msgspec.UnsetType | None = msgspec.UNSET
    animal_id: Name | msgspec.UnsetType | None = msgspec.UNSET


class SessionFinalizedByDevice(msgspec.Struct, frozen=True, kw_only=True):
    image_count: Count
    final_weight_kg: WeightKg | msgspec.UnsetType | None = msgspec.UNSET


class SessionCancelledByDevice(msgspec.Struct, frozen=True, kw_only=True):
    """The device gave up on this session (C-28)."""

    reason: Text | msgspec.UnsetType | None = msgspec.UNSET


class SessionCreated(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["created"]
    batch_id: Id | None
    initial_weight_kg: WeightKg | None
    animal_id: Name | msgspec.UnsetType | None = msgspec.UNSET


class SessionFinalized(msgspec.Struct, frozen=True, kw_only=True):
    """The weight is null if its weighings come later, the result if nothing was inferred."""

    status: Literal["finalized"]
    final_weight_kg: WeightKg | None
    image_count: Count
    inference_result_id: UUID | None


class SessionCancelled(msgspec.Struct, frozen=True, kw_only=True):
    status: Literal["cancelled"]
    reason: Text | msgspec.UnsetType | None = msgspec.UNSET


class SessionIncomplete(msgspec.Struct, frozen=True, kw_only=True):
    """The edge waits for parts of a session for too long (C-110); once each time it becomes so.

    It is no fact of the session: what a session is follows from the device's events alone. Whether
    the parts came later, those events say. `since` is when the edge first heard of the session.
    """

    session_id: UUID
    missing: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=8)]
    since: Instant
    station_id: Id

    def __post_init__(self) -> None:
        require_utc(self.since)
