"""Settings: frozen, per site, read once. This is the only file that reads the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from farmiq.plumbing.tls import Tls


class SettingsError(Exception):
    """Settings are missing or odd; the text names each and says what it is for."""


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, populate_by_name=True, extra="ignore")

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", alias="FARMIQ_LOG_LEVEL", description="debug, info, warning, error"
    )
    tls_ca_file: Path | None = Field(
        None,
        alias="FARMIQ_TLS_CA_FILE",
        description="authority that checks servers' certificates; default: the system's",
    )
    tls_cert_file: Path | None = Field(
        None,
        alias="FARMIQ_TLS_CERT_FILE",
        description="certificate we show, as a client and on our own HTTP address (then HTTPS)",
    )
    tls_key_file: Path | None = Field(
        None, alias="FARMIQ_TLS_KEY_FILE", description="private key of that certificate"
    )

    actions_per_minute: int = Field(
        120,
        alias="API_ACTIONS_PER_MINUTE",
        ge=1,
        description="how often a key or a person may act over HTTP (redrive, discard, register …)",
    )

    request_within_s: float = Field(
        60,
        alias="API_REQUEST_SECONDS",
        gt=0,
        description="how long a client may take to send a request; then it is answered 408",
    )

    @property
    def tls(self) -> Tls:
        return Tls(self.tls_ca_file, self.tls_cert_file, self.tls_key_file)

    @classmethod
    def load(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Raises SettingsError naming every variable that is missing or wrong."""
        source = os.environ if environment is None else environment
        given = {name: source[name] for name in cls.variables() if source.get(name)}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsError(cls._explain(error)) from None

    @classmethod
    def load_some(cls, environment: Mapping[str, str]) -> Self:
        """For commands that need a few settings only: what must be set elsewhere may be missing."""
        required = {name: "-" for name, field in cls.variables().items() if field.is_required()}
        return cls.load({**required, **environment})

    @classmethod
    def variables(cls) -> dict[str, Any]:
        return {str(field.alias): field for field in cls.model_fields.values()}

    @classmethod
    def _explain(cls, error: ValidationError) -> str:
        lines = []
        for item in error.errors():
            name = str(item["loc"][0])
            what = cls.variables()[name].description
            wrong = "is not set" if item["type"] == "missing" else f"is wrong: {item['msg']}"
            lines.append(f"{name} {wrong} ({what})")
        return "\n".join(lines)


class EdgeSettings(_Settings):
    """In the barn."""

    db_url: SecretStr = Field(alias="FARMIQ_EDGE_DB_URL", description="PostgreSQL of the edge")
    mqtt_url: SecretStr = Field(
        alias="FARMIQ_EDGE_MQTT_URL",
        description="edge-mqtt-broker: mqtt:// or mqtts://user:password@host:port",
    )
    mqtt_client_id: str = Field(
        "edge-ingress-gateway",
        alias="FARMIQ_EDGE_MQTT_CLIENT_ID",
        description="names the gateway's persistent session at the broker; never change it lightly",
    )
    http_host: str = Field(
        "127.0.0.1", alias="FARMIQ_EDGE_HTTP_HOST", description="address to listen on"
    )
    http_port: int = Field(
        8081, alias="FARMIQ_EDGE_HTTP_PORT", ge=1, le=65535, description="port to listen on"
    )
    ingress_batch: int = Field(
        2000, alias="INGRESS_BATCH_EVENTS", ge=1, description="most messages in one transaction"
    )
    ingress_writers: int = Field(
        2,
        alias="INGRESS_WRITERS",
        ge=1,
        le=4,
        description="transactions at the same time; all messages of one device share one",
    )
    ingress_linger_ms: int = Field(
        5, alias="INGRESS_LINGER_MS", ge=0, description="how long a transaction waits for company"
    )
    telemetry_raw_days: int = Field(
        90,
        alias="TELEMETRY_RAW_RETENTION_DAYS",
        ge=1,
        le=36500,
        description="how long readings are kept; late ones are aggregated as far back as this",
    )
    telemetry_agg_days: int = Field(
        365,
        alias="TELEMETRY_AGG_RETENTION_DAYS",
        ge=1,
        le=36500,
        description="how long aggregates by minute, hour and day are kept",
    )
    telemetry_agg_every_s: float = Field(
        2,
        alias="TELEMETRY_AGG_EVERY_SECONDS",
        gt=0,
        description="pause between rounds of making aggregates",
    )
    telemetry_settle_s: float = Field(
        30,
        alias="TELEMETRY_AGG_SETTLE_SECONDS",
        ge=0,
        description="how long a bucket waits for late readings before it is owed to the cloud",
    )
    ingress_lease_s: float = Field(
        5,
        alias="INGRESS_LEASE_SECONDS",
        ge=1,
        description="a second gateway takes over when the first was silent for so long",
    )
    dedupe_ttl_hours: float = Field(
        72,
        alias="INGRESS_DEDUPE_TTL_HOURS",
        gt=0,
        description="how long an event's id is remembered at the door; above 96 a device that "
        "replays its whole buffer late meets it still",
    )
    quarantine_max_bytes: int = Field(
        256 * 2**20,
        alias="QUARANTINE_MAX_BYTES",
        ge=2**20,
        description="most bytes of messages in quarantine; the oldest go first, onto the ledger",
    )
    quarantine_retention_days: float = Field(
        90,
        alias="QUARANTINE_RETENTION_DAYS",
        gt=0,
        description="how long a message stays in quarantine after it was last received",
    )
    alert_days: float = Field(
        90,
        alias="ALERT_RETENTION_DAYS",
        gt=0,
        description="how long alerts are kept after they were closed",
    )
    audit_days: float = Field(
        400,
        alias="AUDIT_RETENTION_DAYS",
        ge=30,
        description="how long the audit log is kept",
    )
    loss_days: float = Field(
        400,
        alias="LOSS_RETENTION_DAYS",
        ge=30,
        description="how long the loss ledger is kept; what the cloud has not got stays",
    )
    barn_days: float = Field(
        400,
        alias="BARN_RETENTION_DAYS",
        gt=0,
        description="how long barn records are kept; what the cloud has not got stays",
    )
    disk_paths: str = Field(
        "/",
        alias="EDGE_DISK_PATHS",
        description="a path on each disk that the database and the broker write to, commas between",
    )
    disk_warn_percent: float = Field(
        85, alias="DISK_WARN_PERCENT", gt=0, le=100, description="disk use that raises an alert"
    )
    disk_shed_percent: float = Field(
        92,
        alias="DISK_SHED_PERCENT",
        gt=0,
        le=100,
        description="disk use at which what can be spared is removed, never anything unsynced",
    )
    upkeep_at: str = Field(
        "02:00",
        alias="UPKEEP_AT",
        pattern=r"^([01]\d|2[0-3]):[0-5]\d$",
        description="when daily upkeep runs, in FARMIQ_EDGE_TIMEZONE",
    )
    timezone: str = Field(
        "UTC",
        alias="FARMIQ_EDGE_TIMEZONE",
        description="IANA zone of this edge's days, and of farms that have none (farmiq farm set)",
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, ZoneInfoNotFoundError):
            raise ValueError(f"{name!r} is no time zone, such as Europe/Berlin") from None
        return name

    feed_settle_s: float = Field(
        300,
        alias="FEED_SETTLE_SECONDS",
        ge=0,
        description="how long a silo's weight waits for others of its time before intakes are "
        "derived from it",
    )
    feed_derive_s: float = Field(
        60, alias="FEED_DERIVE_SECONDS", gt=0, description="how often intakes are derived"
    )
    feed_days: float = Field(
        400,
        alias="FEED_RETENTION_DAYS",
        gt=0,
        description="how long feed lots and intakes are kept; what the cloud has not got stays",
    )
    cloud_url: str = Field(
        alias="FARMIQ_CLOUD_URL", description="cloud-ingestion, for example https://cloud.example"
    )
    edge_cluster_id: str = Field(
        "edge-01", alias="FARMIQ_EDGE_CLUSTER_ID", description="name of this edge"
    )
    edge_key_file: Path = Field(
        alias="FARMIQ_EDGE_KEY_FILE",
        description="private key that signs our tokens (farmiq edge enroll makes it)",
    )
    token_issuer: str = Field(
        "farmiq-edge", alias="FARMIQ_TOKEN_ISSUER", description="iss of our tokens"
    )
    token_audience: str = Field(
        "farmiq-cloud-ingestion", alias="FARMIQ_TOKEN_AUDIENCE", description="aud of our tokens"
    )
    sync_batch: int = Field(
        500, alias="SYNC_BATCH_EVENTS", ge=1, le=500, description="most events in one POST"
    )
    sync_poll_ms: int = Field(
        250, alias="SYNC_POLL_MS", ge=10, description="how often an empty outbox is looked at"
    )
    sync_lease_s: int = Field(
        30, alias="SYNC_LEASE_SECONDS", ge=1, description="how long a claimed event is ours"
    )
    sync_timeout_s: float = Field(
        20,
        alias="SYNC_TIMEOUT_SECONDS",
        gt=0,
        description="longest wait for the cloud's answer; keep it above the cloud's own limits",
    )
    sync_max_attempts: int = Field(
        10,
        alias="SYNC_MAX_ATTEMPTS",
        ge=1,
        description="failures of its own before an event is set aside (dlq)",
    )
    sync_base_s: float = Field(
        1, alias="SYNC_BACKOFF_BASE_SECONDS", gt=0, description="first retry delay is twice this"
    )
    sync_cap_s: float = Field(
        300, alias="SYNC_BACKOFF_MAX_SECONDS", gt=0, description="longest retry delay"
    )
    sync_breaker_s: float = Field(
        30,
        alias="SYNC_BREAKER_MAX_SECONDS",
        gt=0,
        description="longest pause between probes of a cloud that is away",
    )
    devices_round_s: float = Field(
        1,
        alias="DEVICES_ROUND_SECONDS",
        gt=0,
        description="how often it is looked which devices fell silent",
    )
    command_days: int = Field(
        90,
        alias="DEVICE_COMMAND_RETENTION_DAYS",
        ge=1,
        description="how long commands that ended are kept",
    )
    device_state_days: float = Field(
        90,
        alias="DEVICE_STATE_RETENTION_DAYS",
        gt=0,
        description="how long it is kept how a device was that is revoked",
    )
    broker_users_file: Path | None = Field(
        None,
        alias="FARMIQ_EDGE_BROKER_USERS_FILE",
        description="where the broker (NATS) reads its users from; we write it from the registry",
    )
    broker_own_users: str = Field(
        "GATEWAY",
        alias="FARMIQ_EDGE_BROKER_OWN_USERS",
        description="users of the broker who are no devices: names in own-users.conf beside it",
        pattern=r"^[A-Z_]+(,[A-Z_]+)*$",
    )
    broker_pid_file: Path | None = Field(
        None,
        alias="FARMIQ_EDGE_BROKER_PID_FILE",
        description="pid file of the broker, which gets SIGHUP when its users change; "
        "without it something else must reload the broker",
    )
    broker_log_file: Path | None = Field(
        None,
        alias="FARMIQ_EDGE_BROKER_LOG_FILE",
        description="log of the broker; what it refuses becomes a security alert",
    )
    sync_heartbeat_s: float = Field(
        60,
        alias="SYNC_HEARTBEAT_SECONDS",
        gt=0,
        description="how often this edge tells the cloud how it is",
    )
    sync_gzip: bool = Field(True, alias="SYNC_GZIP", description="batches travel compressed")
    sync_stall_s: float = Field(
        600,
        alias="SYNC_STALL_SECONDS",
        gt=0,
        description="a backlog that has not fallen for so long raises an alert",
    )
    outbox_retention_days: float = Field(
        30,
        alias="OUTBOX_RETENTION_DAYS",
        gt=0,
        description="how long delivered, set aside and discarded events stay in the outbox",
    )
    outbox_archive_dir: Path | None = Field(
        None,
        alias="OUTBOX_ARCHIVE_DIR",
        description="where events go that were never delivered, before they leave the outbox; "
        "default: outbox-archive in FARMIQ_STATE_DIR",
    )

    def outbox_archive(self) -> Path:
        return self.outbox_archive_dir or state_dir() / "outbox-archive"


class CloudSettings(_Settings):
    """In the data centre."""

    db_url: SecretStr = Field(
        alias="FARMIQ_CLOUD_DB_URL",
        description="PostgreSQL of the cloud, as the role farmiq_service",
    )
    amqp_url: SecretStr = Field(
        alias="FARMIQ_AMQP_URL",
        description="cloud-rabbitmq: amqp:// or amqps://user:password@host:port/vhost",
    )
    http_host: str = Field(
        "127.0.0.1", alias="FARMIQ_CLOUD_HTTP_HOST", description="address to listen on"
    )
    http_port: int = Field(
        8080, alias="FARMIQ_CLOUD_HTTP_PORT", ge=1, le=65535, description="port to listen on"
    )
    edge_keys_file: Path | None = Field(
        None,
        alias="FARMIQ_EDGE_KEYS_FILE",
        description="public keys of edges that did not enrol, a JWKS (farmiq keys new); they are "
        "trusted for whatever tenant they name, and read when we start",
    )
    token_issuer: str = Field(
        "farmiq-edge", alias="FARMIQ_TOKEN_ISSUER", description="iss we accept"
    )
    token_audience: str = Field(
        "farmiq-cloud-ingestion", alias="FARMIQ_TOKEN_AUDIENCE", description="aud we accept"
    )
    bus_timeout_s: float = Field(
        5,
        alias="INGESTION_BUS_TIMEOUT_SECONDS",
        gt=0,
        description="longest wait for the bus to confirm a batch",
    )
    bus_retry_s: tuple[float, ...] = Field(
        (1, 5, 30, 120),
        alias="BUS_RETRY_SECONDS",
        min_length=1,
        description="how long an event that failed waits before each new try, growing, such as "
        "1,5,30,120; after the last it is a dead letter",
    )
    bus_outage_days: float = Field(
        7,
        alias="BUS_OUTAGE_DAYS",
        gt=0,
        description="queues are sized to hold what comes while a consumer is away for so long",
    )
    bus_scale: float = Field(
        1,
        alias="BUS_SCALE",
        gt=0,
        description="how much more comes than 20 readings and about as many other events a second",
    )
    sign_in_hours: float = Field(
        12,
        alias="CONSOLE_SIGN_IN_HOURS",
        gt=0,
        description="how long a sign-in to the console lasts",
    )
    cookie_secure_given: bool | None = Field(
        None,
        alias="CONSOLE_COOKIE_SECURE",
        description="true: browsers send the cookie over HTTPS only; set it behind a TLS proxy; "
        "default: true if we serve HTTPS ourselves",
    )

    @field_validator("bus_retry_s", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        return [part.strip() for part in given.split(",")] if isinstance(given, str) else given

    @field_validator("bus_retry_s")
    @classmethod
    def _growing(cls, given: tuple[float, ...]) -> tuple[float, ...]:
        if any(wait < 0.001 for wait in given) or sorted(set(given)) != list(given):  # noqa: PLR2004
            raise ValueError("each wait has to be longer than the one before, from 0.001 on")
        return given

    @property
    def cookie_secure(self) -> bool:
        given = self.cookie_secure_given
        return self.tls.serves() if given is None else given


class AdminSettings(_Settings):
    """For `farmiq migrate`, `trace` and `topology`: the owners of the databases and of the bus."""

    edge_db_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_EDGE_DB_ADMIN_URL",
        description="PostgreSQL of the edge, as the owner of its tables",
    )
    cloud_db_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_CLOUD_DB_ADMIN_URL",
        description="PostgreSQL of the cloud, as the owner of its tables",
    )
    rabbitmq_api_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_RABBITMQ_API_URL",
        description="management API of cloud-rabbitmq, as an administrator, for farmiq topology",
    )


TEMPLATES: dict[str, type[_Settings]] = {
    "edge": EdgeSettings,
    "cloud": CloudSettings,
    "admin": AdminSettings,
}


def site(name: str) -> type[EdgeSettings] | type[CloudSettings]:
    return EdgeSettings if name == "edge" else CloudSettings


def template(name: str) -> str:
    """A commented file of a site's settings, ready for systemd's EnvironmentFile."""
    settings = TEMPLATES[name]
    lines = [f"# FarmIQ settings: {name}. {(settings.__doc__ or '').splitlines()[0]}"]
    lines.append("# Keep the quotes: an address may contain & and other signs that a shell reads.")
    for variable, field in settings.variables().items():
        lines += ["", f"# {field.description}"]
        default = "" if field.is_required() or field.default is None else field.default
        if isinstance(default, tuple):
            default = ",".join(f"{part:g}" for part in default)
        lines.append(f'{variable}=""' if field.is_required() else f'#{variable}="{default}"')
    return "\n".join(lines) + "\n"


def crash_at() -> str | None:
    """Where a test wants this process to die (farmiq/crash.py)."""
    return os.environ.get("FARMIQ_CRASH_AT") or None


def state_dir() -> Path:
    """Local engines' data: FARMIQ_STATE_DIR, the nearest .farmiq above, or ~/.local/state."""
    given = os.environ.get("FARMIQ_STATE_DIR")
    if given:
        return Path(given).absolute()
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / ".farmiq").is_dir():
            return folder / ".farmiq"
    return Path.home() / ".local" / "state" / "farmiq"


def stack_postgres() -> str | None:
    """Which of Debian's PostgreSQL local stacks start, such as 15; None: the one of the wheel."""
    return os.environ.get("FARMIQ_STACK_POSTGRES") or None


def stack_mqtt_sync() -> str:
    """When local brokers flush to disk: `always` (before they acknowledge), or as often as 2m."""
    return os.environ.get("FARMIQ_STACK_MQTT_SYNC") or "always"


def given_urls() -> dict[str, str]:
    """Engines that the environment names: those are used and not started."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("FARMIQ_") and name.endswith("_URL") and value
    }


def environment(
    *, over: Mapping[str, str] | None = None, under: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Our environment: `under` gives what it lacks, `over` wins over it."""
    return {**(under or {}), **os.environ, **(over or {})}
