"""Settings of what hangs on the weigh station: the scale, the camera, and how animals are weighed.

Part of the station's settings (device.py); docs/operate/hardware.md explains them with examples.
"""

import re
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from farmiq.config.settings import Settings
from farmiq.messages.ids import ID_PATTERN


class HardwareSettings(Settings):
    """Scale and camera of a weigh station."""

    capture: Literal["session", "schedule", "both"] = Field(
        "session",
        alias="AGENT_CAPTURE",
        description="session: weigh each animal (phase 1); schedule: pictures at fixed times "
        "(phase 2); both",
    )
    batch_id: str | None = Field(
        None, alias="AGENT_BATCH_ID", description="the batch of animals that is weighed here"
    )

    # --- the scale
    scale_url: str | None = Field(
        None,
        alias="AGENT_SCALE_URL",
        description="serial:///dev/ttyUSB0 or tcp://host:port; unset: no scale. It has to send "
        "continuously (`farmiq agent scale` shows what comes)",
    )
    scale_format: Literal["and", "ohaus", "rinstrum", "toledo", "regex"] = Field(
        "and",
        alias="AGENT_SCALE_FORMAT",
        description="what its lines look like: and, ohaus, rinstrum, toledo, or regex",
    )
    scale_pattern: str | None = Field(
        None,
        alias="AGENT_SCALE_PATTERN",
        description="for regex: a whole line, with the group (?P<weight>…) and perhaps sign, "
        "unit, stable, unstable, overload",
    )
    scale_unit: Literal["kg", "g", "lb", "t"] = Field(
        "kg", alias="AGENT_SCALE_UNIT", description="unit of lines that name none: kg, g, lb, t"
    )
    scale_baud: int = Field(
        9600, alias="AGENT_SCALE_BAUD", ge=110, le=4_000_000, description="speed of a serial line"
    )
    scale_mode: str = Field(
        "8N1",
        alias="AGENT_SCALE_MODE",
        description="data bits, parity and stop bits of a serial line, such as 8N1 or 7E1",
    )
    scale_silent_s: float = Field(
        10,
        alias="AGENT_SCALE_SILENT_SECONDS",
        gt=0,
        description="a scale that says nothing for so long is away; its cable is opened again",
    )

    # --- the camera
    camera_url: SecretStr | None = Field(
        None,
        alias="AGENT_CAMERA_URL",
        description="http://user:password@host/snapshot.jpg, v4l2:/dev/video0 or folder:/path; "
        "unset: no camera",
    )
    camera_timeout_s: float = Field(
        5, alias="AGENT_CAMERA_SECONDS", gt=0, description="longest wait for a picture"
    )

    # --- weighing an animal (phase 1)
    present_kg: float = Field(
        5,
        alias="AGENT_PRESENT_KG",
        gt=0,
        description="more than this is an animal; about a third of the lightest",
    )
    tolerance_kg: float = Field(
        0.5,
        alias="AGENT_TOLERANCE_KG",
        gt=0,
        description="a stable weight stays within this, from the least to the most",
    )
    stable_s: float = Field(1.5, alias="AGENT_STABLE_SECONDS", gt=0, description="… for so long")
    again_s: float = Field(
        2,
        alias="AGENT_AGAIN_SECONDS",
        gt=0,
        description="how often an animal that stays is weighed again",
    )
    settle_s: float = Field(
        60,
        alias="AGENT_SETTLE_SECONDS",
        gt=0,
        description="an animal without a stable weight is given up after so long",
    )
    zero_kg: float = Field(
        5,
        alias="AGENT_ZERO_KG",
        ge=0,
        description="how far the zero follows an empty scale that drifts; 0: not at all",
    )
    zero_kg_per_s: float = Field(
        0.02,
        alias="AGENT_ZERO_KG_PER_SECOND",
        ge=0,
        description="how fast it follows; far slower than an animal steps on",
    )
    session_weights: int = Field(
        3, alias="AGENT_SESSION_WEIGHTS", ge=1, le=100, description="weights of a whole session"
    )
    session_pictures: int = Field(
        1, alias="AGENT_SESSION_PICTURES", ge=1, le=100, description="pictures of a whole session"
    )
    session_s: float = Field(
        30, alias="AGENT_SESSION_SECONDS", gt=0, description="longest session; then it is closed"
    )
    passes_s: float = Field(
        2,
        alias="AGENT_PASSES_SECONDS",
        ge=0,
        description="who leaves sooner, without a stable weight, only passed: no event",
    )

    # --- pictures at fixed times (phase 2)
    schedule_minutes: float = Field(
        5, alias="AGENT_SCHEDULE_MINUTES", gt=0, description="minutes between pictures"
    )
    schedule_weights: bool = Field(
        default=True,
        alias="AGENT_SCHEDULE_WEIGHTS",
        description="with the weight of who stands there; false: pictures alone",
    )

    @field_validator("batch_id")
    @classmethod
    def _batch(cls, given: str | None) -> str | None:
        if given is not None and not re.match(ID_PATTERN, given):
            raise ValueError("letters, digits and . _ : -, at most 128")
        return given
