"""Settings on the weigh station; docs/operate/hardware.md explains scale and camera."""

import re
from pathlib import Path
from typing import Literal

from pydantic import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    field_validator,
)

from farmiq.config.settings import Settings, required, setting
from farmiq.messages.ids import ID_PATTERN
from farmiq.messages.topics import Place


class HardwareSettings(Settings):
    """Scale and camera of a weigh station."""

    capture: Literal["session", "schedule", "both"] = setting(
        "AGENT_CAPTURE",
        "session",
        "session: weigh each animal (phase 1); schedule: pictures at fixed times (phase 2); both",
    )
    batch_id: str | None = setting(
        "AGENT_BATCH_ID", None, "the batch of animals that is weighed here"
    )

    # --- the scale
    scale_url: str | None = setting(
        "AGENT_SCALE_URL",
        None,
        "serial:///dev/ttyUSB0 or tcp://host:port; unset: no scale. It has to send "
        "continuously (`farmiq agent scale` shows what comes)",
    )
    scale_format: Literal["and", "ohaus", "rinstrum", "toledo", "regex"] = setting(
        "AGENT_SCALE_FORMAT",
        "and",
        "what its lines look like: and, ohaus, rinstrum, toledo, or regex",
    )
    scale_pattern: str | None = setting(
        "AGENT_SCALE_PATTERN",
        None,
        "for regex: a whole line, with the group (?P<weight>…) and perhaps sign, "
        "unit, stable, unstable, overload",
    )
    scale_unit: Literal["kg", "g", "lb", "t"] = setting(
        "AGENT_SCALE_UNIT", "kg", "unit of lines that name none: kg, g, lb, t"
    )
    scale_baud: int = setting(
        "AGENT_SCALE_BAUD", 9600, "speed of a serial line", ge=110, le=4_000_000
    )
    scale_mode: str = setting(
        "AGENT_SCALE_MODE",
        "8N1",
        "data bits, parity and stop bits of a serial line, such as 8N1 or 7E1",
    )
    scale_silent_s: PositiveFloat = setting(
        "AGENT_SCALE_SILENT_SECONDS",
        10,
        "a scale that says nothing for so long is away; its cable is opened again",
    )

    # --- the camera
    camera_url: SecretStr | None = setting(
        "AGENT_CAMERA_URL",
        None,
        "http://user:password@host/snapshot.jpg, v4l2:/dev/video0 or folder:/path; "
        "unset: no camera",
    )
    camera_timeout_s: PositiveFloat = setting(
        "AGENT_CAMERA_SECONDS", 5, "longest wait for a picture"
    )

    # --- weighing an animal (phase 1)
    present_kg: PositiveFloat = setting(
        "AGENT_PRESENT_KG", 5, "more than this is an animal; about a third of the lightest"
    )
    tolerance_kg: PositiveFloat = setting(
        "AGENT_TOLERANCE_KG", 0.5, "a stable weight stays within this, from the least to the most"
    )
    stable_s: PositiveFloat = setting("AGENT_STABLE_SECONDS", 1.5, "… for so long")
    again_s: PositiveFloat = setting(
        "AGENT_AGAIN_SECONDS", 2, "how often an animal that stays is weighed again"
    )
    settle_s: PositiveFloat = setting(
        "AGENT_SETTLE_SECONDS", 60, "an animal without a stable weight is given up after so long"
    )
    zero_kg: NonNegativeFloat = setting(
        "AGENT_ZERO_KG", 5, "how far the zero follows an empty scale that drifts; 0: not at all"
    )
    zero_kg_per_s: NonNegativeFloat = setting(
        "AGENT_ZERO_KG_PER_SECOND", 0.02, "how fast it follows; far slower than an animal steps on"
    )
    session_weights: PositiveInt = setting(
        "AGENT_SESSION_WEIGHTS", 3, "weights of a whole session", le=100
    )
    session_pictures: PositiveInt = setting(
        "AGENT_SESSION_PICTURES", 1, "pictures of a whole session", le=100
    )
    session_s: PositiveFloat = setting(
        "AGENT_SESSION_SECONDS", 30, "longest session; then it is closed"
    )
    passes_s: NonNegativeFloat = setting(
        "AGENT_PASSES_SECONDS",
        2,
        "who leaves sooner, without a stable weight, only passed: no event",
    )
    empty_scale_hours: NonNegativeFloat = setting(
        "AGENT_EMPTY_SCALE_HOURS",
        24,
        "hours between pictures of the empty scale, from which animals are told; "
        "the first soon after the start; 0: none",
    )

    # --- pictures at fixed times (phase 2)
    schedule_minutes: PositiveFloat = setting(
        "AGENT_SCHEDULE_MINUTES", 5, "minutes between pictures"
    )
    schedule_weights: bool = setting(
        "AGENT_SCHEDULE_WEIGHTS", True, "with the weight of who stands there; false: pictures alone"
    )

    @field_validator("batch_id")
    @classmethod
    def _batch(cls, given: str | None) -> str | None:
        if given is not None and not re.match(ID_PATTERN, given):
            raise ValueError("letters, digits and . _ : -, at most 128")
        return given


class DeviceSettings(HardwareSettings):
    """On the weigh station: `farmiq agent run`."""

    # --- who we are, as `farmiq device add` registered us
    tenant_id: str = required("AGENT_TENANT_ID", "tenant of this station")
    farm_id: str = required("AGENT_FARM_ID", "farm of this station")
    barn_id: str = required("AGENT_BARN_ID", "barn of this station")
    device_id: str = required("AGENT_DEVICE_ID", "device_id of the agent")
    station_id: str = required("AGENT_STATION_ID", "the station; it names the sessions' topics")

    # --- the edge
    mqtt_url: SecretStr = required(
        "AGENT_MQTT_URL",
        "edge-mqtt-broker: mqtt:// or mqtts://user:password@host:port of this device",
    )
    edge_url: str = required(
        "AGENT_EDGE_URL",
        "edge-media-store, which gives addresses for uploads, such as http://edge:8081",
    )
    token: SecretStr = required("AGENT_TOKEN", "device token; `farmiq device add` prints it once")
    ack_mode: Literal["receipt", "puback"] = setting(
        "AGENT_ACK_MODE",
        "receipt",
        "receipt: an event is stored when the edge says so; puback: when the broker "
        "has it, for edges that send no receipts",
    )

    # --- the buffer; none of these is read again while the agent runs
    buffer_dir: Path = setting(
        "AGENT_BUFFER_DIR",
        Path("/var/lib/farmiq-agent"),
        "where events and pictures wait; on a disk that survives a power cut",
    )
    buffer_events: int = setting("AGENT_BUFFER_EVENTS", 10_000, "most events in the buffer", ge=10)
    buffer_hours: PositiveFloat = setting(
        "AGENT_BUFFER_HOURS",
        72,
        "how long an event that is not critical is offered without a receipt",
    )
    stored_hours: NonNegativeFloat = setting(
        "AGENT_STORED_HOURS",
        24,
        "how long events are kept after their receipt, for an edge that was restored",
    )
    picture_bytes: int = setting(
        "AGENT_PICTURE_BYTES",
        2 * 2**30,
        "most bytes of pictures that wait for their upload or have failed",
        ge=2**20,
    )
    disk_reserve_bytes: NonNegativeInt = setting(
        "AGENT_DISK_RESERVE_BYTES",
        64 * 2**20,
        "no capture begins with less free on the disk of the buffer",
    )

    # --- sending
    per_second: PositiveInt = setting(
        "AGENT_MESSAGES_PER_SECOND", 20, "most messages a second", le=20
    )
    window: PositiveInt = setting(
        "AGENT_WINDOW", 200, "most events on their way, sent and without a receipt", le=1000
    )
    receipt_s: PositiveFloat = setting(
        "AGENT_RECEIPT_SECONDS",
        30,
        "how long to wait for a receipt before an event is sent again; doubles",
    )
    stalled_s: PositiveFloat = setting(
        "AGENT_STALLED_SECONDS",
        120,
        "nothing stored for so long while connected and events wait: drain_stalled",
    )
    reconnect_s: PositiveFloat = setting(
        "AGENT_RECONNECT_SECONDS",
        30,
        "longest wait between tries to reach the broker or the media store",
        le=40,
    )
    heartbeat_s: PositiveFloat = setting(
        "AGENT_HEARTBEAT_SECONDS", 30, "how often the status is published"
    )

    # --- pictures
    patience_s: NonNegativeFloat = setting(
        "AGENT_PICTURE_PATIENCE_SECONDS",
        30,
        "how long the weights of a session wait for its pictures to be uploaded",
    )
    upload_attempts: PositiveInt = setting(
        "AGENT_UPLOAD_ATTEMPTS",
        10,
        "refusals after which an upload has failed; time offline does not count",
    )
    upload_timeout_s: PositiveFloat = setting(
        "AGENT_UPLOAD_SECONDS", 60, "longest wait for one HTTP answer"
    )
    upload_backoff_s: PositiveFloat = setting(
        "AGENT_UPLOAD_BACKOFF_SECONDS", 2, "first wait after a failure"
    )
    picture_side_px: int | None = setting(
        "AGENT_PICTURE_SIDE_PX",
        None,
        "longer side that pictures are scaled down to; unset: as the camera made them",
        ge=640,
    )
    picture_quality: int = setting(
        "AGENT_PICTURE_QUALITY", 90, "JPEG quality of pictures that are scaled down", ge=50, le=100
    )
    max_weight_kg: PositiveFloat = setting(
        "AGENT_MOST_WEIGHT_KG", 2_000, "a weight above this is absurd and refused"
    )

    # --- the status page
    status_host: str = setting("AGENT_STATUS_HOST", "127.0.0.1", "address of the local status page")
    status_port: NonNegativeInt = setting(
        "AGENT_STATUS_PORT", 8083, "its port; 0: no page", le=65535
    )

    @field_validator("tenant_id", "farm_id", "barn_id", "device_id", "station_id")
    @classmethod
    def _id(cls, given: str) -> str:
        if not re.match(ID_PATTERN, given) and given != "-":
            raise ValueError("letters, digits and . _ : -, at most 128, as in a topic")
        return given

    @field_validator("edge_url")
    @classmethod
    def _http(cls, given: str) -> str:
        if not given.startswith(("http://", "https://")) and given != "-":
            raise ValueError("an address that begins with http:// or https://")
        return given.rstrip("/")

    @property
    def place(self) -> Place:
        return Place(self.tenant_id, self.farm_id, self.barn_id, self.device_id)
