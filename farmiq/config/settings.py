"""What the settings of every site have in common, and how they are read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    IPvAnyNetwork,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from farmiq.config.environment import SettingsError, given_by_process
from farmiq.plumbing import connections
from farmiq.plumbing.messaging import mqtt_address
from farmiq.plumbing.tls import Tls

T = TypeVar("T")

# Settings are named after their unit; more than a hundred years make no sense.
_UNITS_S = {"ms": 0.001, "s": 1.0, "min": 60.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}
MAX_DURATION_S = 36_500 * 86_400.0
MAX_NUMBER = 10**15


def setting(variable: str, default: Any, text: str, **limits: Any) -> Any:
    """A field that is read from this environment variable; `text` explains it to who sets it."""
    return Field(default, alias=variable, description=text, **limits)


def required(variable: str, text: str) -> Any:
    return Field(alias=variable, description=text)


class Settings(BaseModel):
    model_config = ConfigDict(
        frozen=True, populate_by_name=True, extra="ignore", allow_inf_nan=False
    )

    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "FARMIQ_LOG_LEVEL", "info", "debug, info, warning, error"
    )
    tls_ca_file: Path | None = setting(
        "FARMIQ_TLS_CA_FILE",
        None,
        "authority that checks servers' certificates; default: the system's",
    )
    tls_cert_file: Path | None = setting(
        "FARMIQ_TLS_CERT_FILE",
        None,
        "certificate we show, as a client and on our own HTTP address (then HTTPS)",
    )
    tls_key_file: Path | None = setting(
        "FARMIQ_TLS_KEY_FILE", None, "private key of that certificate"
    )

    actions_per_minute: PositiveInt = setting(
        "API_ACTIONS_PER_MINUTE",
        120,
        "how often a key or a person may act over HTTP (redrive, discard, register …)",
    )

    request_within_s: PositiveFloat = setting(
        "API_REQUEST_SECONDS",
        60,
        "how long a client may take to send a request; then it is answered 408",
    )

    max_connections: int = setting(
        "API_MAX_CONNECTIONS",
        512,
        "how many HTTP connections may be open at once; when there are more, the one "
        "that was idle longest is closed, those that never signed in first",
        ge=8,
    )
    max_connections_per_address: int = setting(
        "API_MAX_CONNECTIONS_PER_ADDRESS",
        128,
        "how many of them from one address; not counted for trusted proxies",
        ge=4,
    )
    trusted_proxies: tuple[IPvAnyNetwork, ...] = setting(
        "API_TRUSTED_PROXIES",
        tuple(connections.LOOPBACK),
        "addresses or networks of our own reverse proxies, comma-separated, which say "
        "in X-Forwarded-For who the client is; none: -; default: this machine itself",
    )

    metrics_token: SecretStr | None = setting(
        "API_METRICS_TOKEN",
        None,
        "who asks for /metrics with it (Authorization: Bearer …) sees figures by "
        "tenant; without it they are summed over all",
        min_length=16,
    )

    @field_validator("trusted_proxies", mode="before")
    @classmethod
    def _proxies(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        return () if given.strip() == "-" else [part.strip() for part in given.split(",")]

    @property
    def limits(self) -> connections.Limits:
        return connections.Limits(
            self.max_connections, self.max_connections_per_address, self.trusted_proxies
        )

    @field_validator("*")
    @classmethod
    def _bounded(cls, value: T, info: ValidationInfo) -> T:
        """No number, and no time by its unit, is beyond what clocks and tables can count with."""
        unit_s = _UNITS_S.get((info.field_name or "").rpartition("_")[2])
        limit = MAX_NUMBER if unit_s is None else MAX_DURATION_S / unit_s
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, (int, float)) and number > limit:
                raise ValueError(f"at most {limit:.15g}")
        return value

    @field_validator("mqtt_url", check_fields=False)
    @classmethod
    def _broker_address(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None and given.get_secret_value() != "-":
            mqtt_address.addresses(given.get_secret_value())
        return given

    @field_validator("ingress_url", check_fields=False)
    @classmethod
    def _log_address(cls, given: SecretStr | None) -> SecretStr | None:
        """`nats://` and `tls://` are a broker's log, `mqtt://` and `mqtts://` a session."""
        if given is not None and urlsplit(given.get_secret_value()).scheme not in {"nats", "tls"}:
            mqtt_address.addresses(given.get_secret_value())
        return given

    @property
    def tls(self) -> Tls:
        return Tls(self.tls_ca_file, self.tls_cert_file, self.tls_key_file)

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Raises SettingsError naming every variable that is missing or wrong."""
        source = given_by_process() if environment is None else environment
        given = {name: source[name] for name in cls.variables() if source.get(name)}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsError(cls._explain(error)) from None

    @classmethod
    def load_some(cls, environment: Mapping[str, str]) -> Self:
        """For commands that need a few settings only: what must be set elsewhere may be missing."""
        required = [name for name, field in cls.variables().items() if field.is_required()]
        missing = {name: "-" for name in required if not environment.get(name)}
        return cls.load({**environment, **missing})

    @classmethod
    def variables(cls) -> dict[str, Any]:
        return {str(field.alias): field for field in cls.model_fields.values()}

    @classmethod
    def _explain(cls, error: ValidationError) -> str:
        lines = []
        for item in error.errors():
            name = str(item["loc"][0])
            what = cls.variables()[name].description
            problem = "is not set" if item["type"] == "missing" else f"is wrong: {item['msg']}"
            lines.append(f"{name} {problem} ({what})")
        return "\n".join(lines)


def secret(given: SecretStr | None) -> str | None:
    return None if given is None else given.get_secret_value()
