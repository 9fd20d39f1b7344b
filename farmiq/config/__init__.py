"""Settings: frozen, per site, read once; a file for each site."""

import importlib
from typing import TYPE_CHECKING, Any

from farmiq.config.environment import crash_at as crash_at
from farmiq.config.environment import environment as environment
from farmiq.config.environment import given_urls as given_urls
from farmiq.config.environment import running_stacks_dir as running_stacks_dir
from farmiq.config.environment import stack_mqtt_sync as stack_mqtt_sync
from farmiq.config.environment import stack_postgres as stack_postgres
from farmiq.config.environment import state_dir as state_dir
from farmiq.config.environment import state_dir_given as state_dir_given

if TYPE_CHECKING:
    from farmiq.config.cloud import CloudSettings as CloudSettings
    from farmiq.config.device import DeviceSettings as DeviceSettings
    from farmiq.config.edge import EdgeSettings as EdgeSettings
    from farmiq.config.environment import SettingsError as SettingsError
    from farmiq.config.settings import Settings as Settings
    from farmiq.config.sites import TEMPLATES as TEMPLATES
    from farmiq.config.sites import AdminSettings as AdminSettings
    from farmiq.config.sites import site as site
    from farmiq.config.sites import template as template

# Imported at first use: most commands need the environment alone, and to import all settings takes
# as long as the rest of their start.
_MODULES = {
    "AdminSettings": "sites",
    "CloudSettings": "cloud",
    "DeviceSettings": "device",
    "EdgeSettings": "edge",
    "Settings": "settings",
    "SettingsError": "environment",
    "TEMPLATES": "sites",
    "site": "sites",
    "template": "sites",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
