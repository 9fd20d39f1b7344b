"""Settings: frozen, per site, read once; a file for each site."""

import importlib
from typing import TYPE_CHECKING, Any

from farmiq.config.environment import (
    crash_at,
    environment,
    given_urls,
    running_stacks_dir,
    stack_mqtt_sync,
    stack_postgres,
    state_dir,
    state_dir_given,
)

if TYPE_CHECKING:
    from farmiq.config.cloud import CloudSettings
    from farmiq.config.device import DeviceSettings
    from farmiq.config.edge import EdgeSettings
    from farmiq.config.settings import Settings, SettingsError
    from farmiq.config.sites import TEMPLATES, AdminSettings, site, template

__all__ = [
    "TEMPLATES",
    "AdminSettings",
    "CloudSettings",
    "DeviceSettings",
    "EdgeSettings",
    "Settings",
    "SettingsError",
    "crash_at",
    "environment",
    "given_urls",
    "running_stacks_dir",
    "site",
    "stack_mqtt_sync",
    "stack_postgres",
    "state_dir",
    "state_dir_given",
    "template",
]

# Imported at first use: most commands need the environment alone, and to import all settings takes
# as long as the rest of their start.
_MODULES = {
    "AdminSettings": "sites",
    "CloudSettings": "cloud",
    "DeviceSettings": "device",
    "EdgeSettings": "edge",
    "Settings": "settings",
    "SettingsError": "settings",
    "TEMPLATES": "sites",
    "site": "sites",
    "template": "sites",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
