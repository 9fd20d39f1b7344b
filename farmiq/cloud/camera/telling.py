"""Pure: what people and programs may tell cameras, each in what its dialect has words for."""

from datetime import datetime, timedelta
from typing import Literal

from farmiq.cloud.camera.gateway import dialects, wire

Name = Literal["send_image", "capture_image", "next_wake"]
NAMES: tuple[Name, ...] = ("send_image", "capture_image", "next_wake")
STATES = ("queued", "sent", "done", "failed", "expired")
GATEWAY = "gateway"
MAX_QUEUED = 100
MOST_AHEAD = timedelta(days=31)
# This dialect says the hour alone: what is further off would be another wake.
MOST_AHEAD_BY_HOUR = timedelta(days=1)


def problems(
    name: Name, *, image_name: str | None, wake_at: datetime | None, dialect: str, now: datetime
) -> list[tuple[str, str]]:
    """What is wrong with an order: a field and a reason each."""
    by_hour = dialect == dialects.ESP32CAM
    wrong = []
    if name == "send_image" and image_name is not None:
        wrong += [("image_name", each) for each in wire.name_problems(image_name)]
    if name == "send_image" and image_name is None and by_hour:
        wrong.append(("image_name", "is missing: this camera's dialect asks for images by name"))
    if name != "send_image" and image_name is not None:
        wrong.append(("image_name", "is for send_image"))
    if name != "next_wake" and wake_at is not None:
        wrong.append(("wake_at", "is for next_wake"))
    if name == "next_wake":
        wrong += _wake_problems(wake_at, MOST_AHEAD_BY_HOUR if by_hour else MOST_AHEAD, now)
    return wrong


def _wake_problems(
    wake_at: datetime | None, most: timedelta, now: datetime
) -> list[tuple[str, str]]:
    if wake_at is None:
        return [("wake_at", "is missing: next_wake says when")]
    if not now < wake_at <= now + most:
        hours = most // timedelta(hours=1)
        return [
            ("wake_at", f"has to be in the next {hours} hours: this camera understands no other")
        ]
    return []
