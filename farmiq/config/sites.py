"""The settings of each site by its name, and a commented file of them."""

from pydantic import SecretStr

from farmiq.config.backup import BackupSettings
from farmiq.config.cloud import CloudSettings
from farmiq.config.device import DeviceSettings
from farmiq.config.edge import EdgeSettings
from farmiq.config.settings import Settings, setting


class AdminSettings(Settings):
    """For `farmiq migrate`, `trace` and `topology`: the owners of the databases and of the bus."""

    edge_db_url: SecretStr | None = setting(
        "FARMIQ_EDGE_DB_ADMIN_URL", None, "PostgreSQL of the edge, as the owner of its tables"
    )
    cloud_db_url: SecretStr | None = setting(
        "FARMIQ_CLOUD_DB_ADMIN_URL", None, "PostgreSQL of the cloud, as the owner of its tables"
    )
    rabbitmq_api_url: SecretStr | None = setting(
        "FARMIQ_RABBITMQ_API_URL",
        None,
        "management API of cloud-rabbitmq, as an administrator, for farmiq topology",
    )


TEMPLATES: dict[str, type[Settings]] = {
    "device": DeviceSettings,
    "edge": EdgeSettings,
    "cloud": CloudSettings,
    "admin": AdminSettings,
    "backup": BackupSettings,
}


def site(name: str) -> type[EdgeSettings] | type[CloudSettings]:
    return EdgeSettings if name == "edge" else CloudSettings


def template(name: str) -> str:
    """A commented file of a site's settings, ready for systemd's EnvironmentFile."""
    settings = TEMPLATES[name]
    lines = [f"# FarmIQ settings: {name}. {(settings.__doc__ or '').splitlines()[0]}"]
    lines.append("# Keep the quotes: an address may contain & and other signs that a shell reads.")
    lines.append(
        "# Instead of a secret NAME_URL or NAME_TOKEN, NAME_URL_FILE names a file that has it."
    )
    for variable, field in settings.variables().items():
        lines += ["", f"# {field.description}"]
        default = "" if field.is_required() or field.default is None else field.default
        if isinstance(default, tuple):
            default = ",".join(
                f"{part:g}" if isinstance(part, int | float) else str(part) for part in default
            )
        lines.append(f'{variable}=""' if field.is_required() else f'#{variable}="{default}"')
    return "\n".join(lines) + "\n"
