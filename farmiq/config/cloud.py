"""Settings in the data centre."""

from pathlib import Path
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, SecretStr, field_validator

from farmiq.config.settings import required, setting
from farmiq.config.tracing import TracedSettings
from farmiq.plumbing import addresses, mail


class CloudSettings(TracedSettings):
    """In the data centre."""

    db_url: SecretStr = required(
        "FARMIQ_CLOUD_DB_URL", "PostgreSQL of the cloud, as the role farmiq_service"
    )
    amqp_url: SecretStr = required(
        "FARMIQ_AMQP_URL", "cloud-rabbitmq: amqp:// or amqps://user:password@host:port/vhost"
    )
    http_host: str = setting("FARMIQ_CLOUD_HTTP_HOST", "127.0.0.1", "address to listen on")
    http_port: PositiveInt = setting("FARMIQ_CLOUD_HTTP_PORT", 8080, "port to listen on", le=65535)
    edge_keys_file: Path | None = setting(
        "FARMIQ_EDGE_KEYS_FILE",
        None,
        "public keys of edges that did not enrol, a JWKS (farmiq keys new); they are "
        "trusted for whatever tenant they name, and read when we start",
    )
    token_issuer: str = setting("FARMIQ_TOKEN_ISSUER", "farmiq-edge", "iss we accept")
    token_audience: str = setting(
        "FARMIQ_TOKEN_AUDIENCE", "farmiq-cloud-ingestion", "aud we accept"
    )
    bus_timeout_s: PositiveFloat = setting(
        "INGESTION_BUS_TIMEOUT_SECONDS", 5, "longest wait for the bus to confirm a batch"
    )
    ingestion_waiting: PositiveInt = setting(
        "INGESTION_WAITING_EVENTS",
        1500,
        "events waiting for a service above which more batches are held back for "
        "up to 5 s, so that live events do not queue behind an edge's backlog",
    )
    bus_retry_s: tuple[float, ...] = setting(
        "BUS_RETRY_SECONDS",
        (1, 5, 30, 120),
        "how long an event that failed waits before each new try, growing, such as "
        "1,5,30,120; after the last it is a dead letter",
        min_length=1,
    )
    bus_outage_days: PositiveFloat = setting(
        "BUS_OUTAGE_DAYS",
        7,
        "queues are sized to hold what comes while a consumer is away for so long",
    )
    bus_scale: PositiveFloat = setting(
        "BUS_SCALE",
        1,
        "how much more comes than 20 readings and about as many other events a second",
    )
    operator_tenant: str | None = setting(
        "OPERATOR_TENANT",
        None,
        "the company of those who run this cloud: it is told of dead letters that belong to no "
        "company",
    )
    ingestion_dedupe_days: float = setting(
        "INGESTION_DEDUPE_DAYS",
        90,
        "how long the ids of received events are known; after that the consumers' own "
        "keys absorb a repeat",
        ge=7,
    )
    sync_events_days: float = setting(
        "SYNC_EVENTS_RETENTION_DAYS",
        90,
        "how long the list of batches of each edge is kept",
        ge=1,
    )
    alert_days: PositiveFloat = setting(
        "ALERT_RETENTION_DAYS", 400, "how long episodes of alerts are kept after they ended"
    )
    telemetry_agg_every_s: PositiveFloat = setting(
        "CLOUD_TELEMETRY_AGG_SECONDS",
        10,
        "how often minutes, hours and days are computed from the readings that came",
    )
    telemetry_settle_s: NonNegativeFloat = setting(
        "CLOUD_TELEMETRY_SETTLE_SECONDS",
        60,
        "an hour or a day is published as telemetry.aggregated so long after its end, and "
        "whenever late readings change it after that",
    )
    telemetry_raw_days: PositiveInt | None = setting(
        "CLOUD_TELEMETRY_RAW_RETENTION_DAYS",
        None,
        "how long readings are kept, by their own time; minutes, hours and days stay. "
        "Default: for ever",
    )
    telemetry_minutes_days: PositiveInt | None = setting(
        "CLOUD_TELEMETRY_MINUTES_RETENTION_DAYS",
        None,
        "how long minutes are kept, at least as long as readings; hours and days stay. "
        "Default: for ever",
    )
    telemetry_history_months: PositiveInt | None = setting(
        "TELEMETRY_HISTORY_MONTHS",
        None,
        "readings of months that ended more than so many months ago move to Parquet files in "
        "the cloud's bucket; needs FARMIQ_CLOUD_S3_URL and farmiq[history]. Default: none do",
    )
    s3_url: SecretStr | None = setting(
        "FARMIQ_CLOUD_S3_URL",
        None,
        "the cloud's bucket for images and older readings, https://key:secret@host/bucket; "
        "without it cloud-media-store knows of images, but has none",
    )
    s3_public_url: str | None = setting(
        "FARMIQ_CLOUD_S3_PUBLIC_URL",
        None,
        "where edges reach that store; default: the address in FARMIQ_CLOUD_S3_URL",
    )
    media_presign_s: PositiveInt = setting(
        "MEDIA_PRESIGN_SECONDS", 900, "how long an address for an upload is valid", le=86_400
    )
    mqtt_url: SecretStr | None = setting(
        "FARMIQ_CLOUD_MQTT_URL",
        None,
        "cloud-mqtt-broker for cameras: mqtt:// or mqtts://user:password@host:port; "
        "sessions of logins that ended are ended through it",
    )
    mqtt_client_id: str | None = setting(
        "FARMIQ_CLOUD_MQTT_CLIENT_ID",
        None,
        "the session that gateways before 0.2 had at the broker: it is ended. "
        "Default: the one that is kept in the database",
    )
    camera_url: SecretStr | None = setting(
        "FARMIQ_CLOUD_CAMERA_URL",
        None,
        "where cloud-camera-gateway reads what cameras sent: the NATS protocol of the "
        "cameras' broker, nats:// or tls://user:password@host:4222; without it it takes none",
    )
    camera_lease_s: float = setting(
        "CAMERA_LEASE_SECONDS",
        2,
        "a second gateway takes over when the first was silent for so long",
        ge=1,
    )
    camera_missing_s: PositiveFloat = setting(
        "CAMERA_MISSING_SECONDS",
        0.5,
        "missing chunks are asked for so long after a camera's last chunk, later where "
        "the camera sends slowly or did not answer",
    )
    camera_timeout_s: PositiveFloat = setting(
        "CAMERA_TIMEOUT_SECONDS", 300, "an image has failed so long after its last chunk"
    )
    camera_resume_days: PositiveFloat = setting(
        "CAMERA_RESUME_DAYS",
        7,
        "chunks of a failed image are kept for so long, for a camera that goes on",
    )
    camera_awake_s: PositiveFloat = setting(
        "CAMERA_AWAKE_SECONDS", 60, "commands are sent to cameras that were heard within so long"
    )
    camera_round_s: PositiveFloat = setting(
        "CAMERA_ROUND_SECONDS", 30, "how often cameras are checked for missed wakes"
    )
    camera_days: PositiveFloat = setting(
        "CAMERA_RETENTION_DAYS",
        30,
        "how long states of images, answers to cameras and quarantined messages are stored",
    )
    camera_observe_s: PositiveFloat = setting(
        "CAMERA_OBSERVE_SECONDS",
        2,
        "how often new images of cameras are assessed",
    )
    camera_bridge_url: str | None = setting(
        "CAMERA_BRIDGE_URL",
        None,
        "address of cloud-ingestion, https://host; with it the wakes of cameras become "
        "readings and images of their farm too (farm: program, barn: site); without it none do",
    )
    camera_bridge_key_file: Path | None = setting(
        "CAMERA_BRIDGE_KEY_FILE",
        None,
        "the bridge's own key, enrolled as the edge cloud-camera-bridge for the "
        "companies whose wakes it may send (farmiq edge invite, farmiq edge enroll)",
    )
    camera_bridge_s: PositiveFloat = setting(
        "CAMERA_BRIDGE_SECONDS", 5, "how often the bridge looks for wakes that are complete"
    )
    broker_users_file: Path | None = setting(
        "FARMIQ_CLOUD_BROKER_USERS_FILE",
        None,
        "where the cameras' broker (NATS) reads its users from; we write it from the "
        "logins of cameras",
    )
    broker_own_users: str = setting(
        "FARMIQ_CLOUD_BROKER_OWN_USERS",
        "GATEWAY",
        "users of the broker who are no cameras: names in own-users.conf beside it",
        pattern=r"^[A-Z_]+(,[A-Z_]+)*$",
    )
    broker_pid_file: Path | None = setting(
        "FARMIQ_CLOUD_BROKER_PID_FILE",
        None,
        "pid file of the broker, which gets SIGHUP when its users change; "
        "without it something else must reload the broker",
    )
    broker_log_file: Path | None = setting(
        "FARMIQ_CLOUD_BROKER_LOG_FILE",
        None,
        "log of the cameras' broker; what it refuses is counted and logged",
    )
    weighvision_incomplete_min: PositiveFloat = setting(
        "WEIGHVISION_INCOMPLETE_MINUTES",
        10,
        "how long a weigh session waits for its image, and after its last event for "
        "any other part, until pages and the API show it as INCOMPLETE",
    )
    broker_nats_url: SecretStr | None = setting(
        "FARMIQ_CLOUD_BROKER_NATS_URL",
        None,
        "the broker's own protocol (NATS), nats://user:password@host:4222: what the "
        "broker may keep is bounded through it; without it one sender may fill the broker",
    )
    broker_callout_url: SecretStr | None = setting(
        "FARMIQ_CLOUD_BROKER_CALLOUT_URL",
        None,
        "where the broker (NATS) asks us who may connect (auth_callout): "
        "nats://user:password@host:4222, of its system account; then no users file is needed",
    )
    broker_callout_key_file: Path | None = setting(
        "FARMIQ_CLOUD_BROKER_CALLOUT_KEY_FILE",
        None,
        "the key that signs those answers; `farmiq device callout` makes it",
    )
    broker_client_ids: Literal["own", "any"] = setting(
        "FARMIQ_CLOUD_BROKER_CLIENT_IDS",
        "own",
        "with a callout: own, a camera connects under client ids of its own only; any, "
        "for cameras whose id cannot be changed, only those of others are refused",
    )
    broker_replicas: PositiveInt = setting(
        "FARMIQ_CLOUD_BROKER_REPLICAS",
        1,
        "how many nodes of the broker's cluster hold each message, such as 3 of three",
        le=5,
    )
    broker_monitor_url: str | None = setting(
        "FARMIQ_CLOUD_BROKER_MONITOR_URL",
        None,
        "monitoring endpoint of the cameras' broker (NATS), such as "
        "http://127.0.0.1:8222, which tells how much each sends; without it none is paused",
    )
    camera_per_second: NonNegativeFloat = setting(
        "CAMERA_MESSAGES_PER_SECOND",
        50,
        "messages a second that a camera may send all the time; beyond them and the burst its "
        "login is paused at the broker for a while; 0: none is",
    )
    camera_burst: float = setting(
        "CAMERA_MESSAGES_BURST",
        5_000,
        "messages that a camera may send at once: the chunks of its largest image, or of several",
        ge=1,
    )
    camera_bytes_per_second: NonNegativeFloat = setting(
        "CAMERA_BYTES_PER_SECOND",
        2**20,
        "bytes a second that a camera may send all the time, as CAMERA_MESSAGES_PER_SECOND",
    )
    camera_bytes_burst: float = setting(
        "CAMERA_BYTES_BURST",
        64 * 2**20,
        "bytes that a camera may send at once: several of its largest images",
        ge=1,
    )
    secrets_key_file: Path | None = setting(
        "FARMIQ_SECRETS_KEY_FILE",
        None,
        "the key that seals secrets of alert channels and second factors and signs links to "
        "acknowledge; `farmiq alert key` makes it; without it channels have no secrets, messages "
        "no link and people no second factor",
    )
    public_url: str | None = setting(
        "FARMIQ_PUBLIC_URL",
        None,
        "where people reach the cloud, such as https://farmiq.example.com, for links in "
        "messages; without it they have none",
        pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$",
    )
    alert_smtp_url: SecretStr | None = setting(
        "FARMIQ_ALERT_SMTP_URL",
        None,
        "mail server for alerts of companies that have none: smtp:// or "
        "smtps://user:password@host:port",
    )
    alert_mail_from: str | None = setting(
        "FARMIQ_ALERT_MAIL_FROM",
        None,
        "who such mails are from, such as FarmIQ <alerts@example.com>",
    )
    alert_mails_per_hour: int = setting(
        "FARMIQ_ALERT_MAILS_PER_HOUR",
        300,
        "how many such mails a company may have in an hour, twice as many if they are critical; "
        "the others wait for the next",
        ge=1,
    )
    alert_private_hosts: tuple[str, ...] = setting(
        "FARMIQ_ALERT_PRIVATE_HOSTS",
        (),
        "hosts or networks of our own that alerts may be sent to, comma-separated, such as "
        "mail.farm.local,10.0.0.0/8; others inside private networks are refused",
    )
    alert_messages_days: float = setting(
        "ALERT_MESSAGES_RETENTION_DAYS",
        400,
        "how long messages about alerts are kept: who got which",
        ge=1,
    )
    report_days: float = setting(
        "REPORT_RETENTION_DAYS", 400, "how long reports that were mailed can be downloaded", ge=1
    )
    camera_calendar_s: PositiveFloat = setting(
        "CAMERA_CALENDAR_SECONDS",
        60,
        "how often the days of the cameras' sites are opened and locked",
        le=3600,
    )
    camera_pending_s: PositiveFloat = setting(
        "CAMERA_PENDING_SECONDS",
        300,
        "how long a camera's wake waits for its image after the last sign of it, until "
        "it has failed",
    )
    next_wake_min_s: NonNegativeFloat = setting(
        "NEXT_WAKE_MIN_SECONDS",
        60,
        "a camera is told to wake so many seconds from now at the earliest",
        le=3600,
    )
    next_wake_spread_s: NonNegativeFloat = setting(
        "NEXT_WAKE_SPREAD_SECONDS",
        0,
        "cameras are told to wake up to so many seconds after their time, each always "
        "by the same share, so that thousands do not wake in one second; 0: all on time",
        le=1800,
    )
    sign_in_hours: PositiveFloat = setting(
        "CONSOLE_SIGN_IN_HOURS", 12, "how long a sign-in to the console lasts"
    )
    cookie_secure_given: bool | None = setting(
        "CONSOLE_COOKIE_SECURE",
        None,
        "true: browsers send the cookie over HTTPS only; set it behind a TLS proxy; "
        "default: true if we serve HTTPS ourselves",
    )

    @field_validator("bus_retry_s", "alert_private_hosts", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        return [part.strip() for part in given.split(",")] if isinstance(given, str) else given

    @field_validator("bus_retry_s")
    @classmethod
    def _growing(cls, given: tuple[float, ...]) -> tuple[float, ...]:
        if any(wait < 0.001 for wait in given) or sorted(set(given)) != list(given):  # noqa: PLR2004
            raise ValueError("each wait has to be longer than the one before, from 0.001 on")
        return given

    @field_validator("alert_private_hosts")
    @classmethod
    def _hosts(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        addresses.Allowed.read(given)
        return given

    @field_validator("alert_smtp_url")
    @classmethod
    def _mail_server(cls, given: SecretStr | None) -> SecretStr | None:
        if given is not None:
            mail.server(given.get_secret_value())
        return given

    @field_validator("alert_mail_from")
    @classmethod
    def _mail_sender(cls, given: str | None) -> str | None:
        if given is not None:
            mail.compose(sender=given, to=["nobody@example.com"], subject="", text="")
        return given

    @property
    def cookie_secure(self) -> bool:
        given = self.cookie_secure_given
        return self.tls.serves() if given is None else given

    @property
    def says_who_connects(self) -> bool:
        """Whether we say who may connect to the broker, by a file or by answering it."""
        return self.broker_users_file is not None or self.broker_callout_url is not None
