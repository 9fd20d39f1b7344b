"""Settings on the weigh station."""

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from farmiq.config.hardware import HardwareSettings
from farmiq.messages.ids import ID_PATTERN
from farmiq.messages.topics import Place


class DeviceSettings(HardwareSettings):
    """On the weigh station: `farmiq agent run`."""

    # --- who we are, as `farmiq device add` registered us
    tenant_id: str = Field(alias="AGENT_TENANT_ID", description="tenant of this station")
    farm_id: str = Field(alias="AGENT_FARM_ID", description="farm of this station")
    barn_id: str = Field(alias="AGENT_BARN_ID", description="barn of this station")
    device_id: str = Field(alias="AGENT_DEVICE_ID", description="device_id of the agent")
    station_id: str = Field(
        alias="AGENT_STATION_ID", description="the station; it names the sessions' topics"
    )

    # --- the edge
    mqtt_url: SecretStr = Field(
        alias="AGENT_MQTT_URL",
        description="edge-mqtt-broker: mqtt:// or mqtts://user:password@host:port of this device",
    )
    edge_url: str = Field(
        alias="AGENT_EDGE_URL",
        description="edge-media-store, which gives addresses for uploads, such as http://edge:8081",
    )
    token: SecretStr = Field(
        alias="AGENT_TOKEN", description="device token; `farmiq device add` prints it once"
    )
    ack_mode: Literal["receipt", "puback"] = Field(
        "receipt",
        alias="AGENT_ACK_MODE",
        description="receipt: an event is stored when the edge says so; puback: when the broker "
        "has it, for edges that send no receipts",
    )

    # --- the buffer; none of these is read again while the agent runs
    buffer_dir: Path = Field(
        Path("/var/lib/farmiq-agent"),
        alias="AGENT_BUFFER_DIR",
        description="where events and pictures wait; on a disk that survives a power cut",
    )
    buffer_events: int = Field(
        10_000, alias="AGENT_BUFFER_EVENTS", ge=10, description="most events in the buffer"
    )
    buffer_hours: float = Field(
        72,
        alias="AGENT_BUFFER_HOURS",
        gt=0,
        description="how long an event that is not critical is offered without a receipt",
    )
    stored_hours: float = Field(
        24,
        alias="AGENT_STORED_HOURS",
        ge=0,
        description="how long events are kept after their receipt, for an edge that was restored",
    )
    picture_bytes: int = Field(
        2 * 2**30,
        alias="AGENT_PICTURE_BYTES",
        ge=2**20,
        description="most bytes of pictures that wait for their upload or have failed",
    )
    disk_reserve_bytes: int = Field(
        64 * 2**20,
        alias="AGENT_DISK_RESERVE_BYTES",
        ge=0,
        description="no capture begins with less free on the disk of the buffer",
    )

    # --- sending
    per_second: int = Field(
        20, alias="AGENT_MESSAGES_PER_SECOND", ge=1, le=20, description="most messages a second"
    )
    window: int = Field(
        200,
        alias="AGENT_WINDOW",
        ge=1,
        le=1000,
        description="most events on their way, sent and without a receipt",
    )
    receipt_s: float = Field(
        30,
        alias="AGENT_RECEIPT_SECONDS",
        gt=0,
        description="how long to wait for a receipt before an event is sent again; doubles",
    )
    stalled_s: float = Field(
        120,
        alias="AGENT_STALLED_SECONDS",
        gt=0,
        description="nothing stored for so long while connected and events wait: drain_stalled",
    )
    reconnect_s: float = Field(
        30,
        alias="AGENT_RECONNECT_SECONDS",
        gt=0,
        le=40,
        description="longest wait between tries to reach the broker or the media store",
    )
    heartbeat_s: float = Field(
        30, alias="AGENT_HEARTBEAT_SECONDS", gt=0, description="how often the status is published"
    )

    # --- pictures
    patience_s: float = Field(
        30,
        alias="AGENT_PICTURE_PATIENCE_SECONDS",
        ge=0,
        description="how long the weights of a session wait for its pictures to be uploaded",
    )
    upload_attempts: int = Field(
        10,
        alias="AGENT_UPLOAD_ATTEMPTS",
        ge=1,
        description="refusals after which an upload has failed; time offline does not count",
    )
    upload_timeout_s: float = Field(
        60, alias="AGENT_UPLOAD_SECONDS", gt=0, description="longest wait for one HTTP answer"
    )
    upload_backoff_s: float = Field(
        2, alias="AGENT_UPLOAD_BACKOFF_SECONDS", gt=0, description="first wait after a failure"
    )
    picture_side_px: int | None = Field(
        None,
        alias="AGENT_PICTURE_SIDE_PX",
        ge=640,
        description="longer side that pictures are scaled down to; unset: as the camera made them",
    )
    picture_quality: int = Field(
        90,
        alias="AGENT_PICTURE_QUALITY",
        ge=50,
        le=100,
        description="JPEG quality of pictures that are scaled down",
    )
    max_weight_kg: float = Field(
        2_000,
        alias="AGENT_MOST_WEIGHT_KG",
        gt=0,
        description="a weight above this is absurd and refused",
    )

    # --- the status page
    status_host: str = Field(
        "127.0.0.1", alias="AGENT_STATUS_HOST", description="address of the local status page"
    )
    status_port: int = Field(
        8083, alias="AGENT_STATUS_PORT", ge=0, le=65535, description="its port; 0: no page"
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
