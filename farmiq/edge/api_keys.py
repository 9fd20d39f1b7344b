"""Keys of the edge's HTTP API and tokens of devices: how they are made and looked up.

Without a web framework: the commands that make them start quickly. `access.py` checks them.
"""

import hashlib
import secrets
from typing import Literal

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
AREAS = (
    "telemetry", "weighvision", "media", "feed", "barn", "devices", "sync", "quarantine", "alerts",
    "losses",
)  # fmt: skip
_PREFIX = "fiq_"
_DEVICE_PREFIX = "fiqd_"


def new_key() -> str:
    return _PREFIX + secrets.token_urlsafe(32)


def new_device_token() -> str:
    return _DEVICE_PREFIX + secrets.token_urlsafe(32)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()
