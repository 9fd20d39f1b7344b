"""Settings in the barn."""

import shlex
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationInfo,
    field_validator,
)

from farmiq.config.environment import state_dir
from farmiq.config.settings import required, setting
from farmiq.config.vision import VisionSettings
from farmiq.plumbing import mail


class EdgeSettings(VisionSettings):
    """In the barn."""

    db_url: SecretStr = required("FARMIQ_EDGE_DB_URL", "PostgreSQL of the edge")
    mqtt_url: SecretStr = required(
        "FARMIQ_EDGE_MQTT_URL", "edge-mqtt-broker: mqtt:// or mqtts://user:password@host:port"
    )
    ingress_url: SecretStr | None = setting(
        "FARMIQ_EDGE_INGRESS_URL",
        None,
        "where ingress reads what devices send: nats:// or tls://user:password@"
        "host:port reads the log of a NATS broker, in order and without a session; mqtt:// or "
        "mqtts:// a session at any broker. Default: as FARMIQ_EDGE_MQTT_URL",
    )
    mqtt_client_id: str | None = setting(
        "FARMIQ_EDGE_MQTT_CLIENT_ID",
        None,
        "names the gateway's session at the broker; never change it lightly. "
        "Default: one that nobody guesses, made once and kept in the database",
    )
    http_host: str = setting("FARMIQ_EDGE_HTTP_HOST", "127.0.0.1", "address to listen on")
    http_port: PositiveInt = setting("FARMIQ_EDGE_HTTP_PORT", 8081, "port to listen on", le=65535)
    sign_in_hours: PositiveFloat = setting(
        "CONSOLE_SIGN_IN_HOURS", 12, "how long a sign-in to the console lasts"
    )
    cookie_secure_given: bool | None = setting(
        "CONSOLE_COOKIE_SECURE",
        None,
        "true: browsers send the cookie over HTTPS only; set it behind a TLS proxy; "
        "default: true if we serve HTTPS ourselves",
    )
    ingress_batch: PositiveInt = setting(
        "INGRESS_BATCH_EVENTS",
        2000,
        "messages in one transaction, if the writers have as many; one may have those of all",
        le=20_000,
    )
    ingress_writers: PositiveInt = setting(
        "INGRESS_WRITERS",
        2,
        "transactions at the same time; all messages of one device share one",
        le=4,
    )
    ingress_linger_ms: NonNegativeInt = setting(
        "INGRESS_LINGER_MS", 5, "how long a transaction waits for company"
    )
    telemetry_raw_days: PositiveInt = setting(
        "TELEMETRY_RAW_RETENTION_DAYS",
        90,
        "how long readings are kept; late ones are aggregated as far back as this",
        le=36500,
    )
    telemetry_agg_days: PositiveInt = setting(
        "TELEMETRY_AGG_RETENTION_DAYS",
        365,
        "how long aggregates by minute, hour and day are kept",
        le=36500,
    )
    telemetry_agg_every_s: PositiveFloat = setting(
        "TELEMETRY_AGG_EVERY_SECONDS", 2, "pause between rounds of making aggregates"
    )
    telemetry_settle_s: NonNegativeFloat = setting(
        "TELEMETRY_AGG_SETTLE_SECONDS",
        30,
        "how long a bucket waits for late readings before it is sent to the cloud",
    )
    log_hold_minutes: NonNegativeFloat = setting(
        "INGRESS_LOG_HOLD_MINUTES",
        15,
        "how long the broker's log holds what is stored already, for a database that "
        "is restored; less while the log is more than half full",
    )
    ingress_lease_s: float = setting(
        "INGRESS_LEASE_SECONDS",
        1.2,
        "a second gateway takes over when the first was silent for so long",
        ge=1,
    )
    dedupe_ttl_hours: PositiveFloat = setting(
        "INGRESS_DEDUPE_TTL_HOURS",
        72,
        "how long an event's id is remembered by ingress; above 96 a device that "
        "replays its whole buffer late meets it still",
    )
    quarantine_max_bytes: int = setting(
        "QUARANTINE_MAX_BYTES",
        256 * 2**20,
        "most bytes of messages in quarantine; the oldest go first, onto the ledger",
        ge=2**20,
    )
    quarantine_retention_days: PositiveFloat = setting(
        "QUARANTINE_RETENTION_DAYS",
        90,
        "how long a message stays in quarantine after it was last received",
    )
    alert_days: PositiveFloat = setting(
        "ALERT_RETENTION_DAYS", 90, "how long alerts are kept after they were closed"
    )
    alert_round_s: PositiveFloat = setting(
        "ALERT_RULES_ROUND_SECONDS", 3, "how often rules are evaluated on new readings", le=300
    )
    siren_topic: str | None = setting(
        "ALERT_SIREN_TOPIC",
        None,
        "MQTT topic of the siren; {tenant_id}, {farm_id} and {barn_id} stand for those of the "
        "alert, such as iot/command/{tenant_id}/{farm_id}/{barn_id}/siren-1/siren",
        max_length=400,
        pattern=r"^[^#+\x00\s]+$",
    )
    siren_payload: Literal["json", "plain"] = setting(
        "ALERT_SIREN_PAYLOAD",
        "json",
        "json: state and the alerts; plain: ON or OFF, as simple relays want it",
    )
    siren_command: str | None = setting(
        "ALERT_SIREN_COMMAND",
        None,
        "a program with its arguments that switches the siren: it is given on or off as its last "
        "one and has 10 s; no shell reads it",
    )
    siren_severity: Literal["info", "warning", "critical"] = setting(
        "ALERT_SIREN_SEVERITY", "critical", "from which severity on the siren sounds"
    )
    siren_repeat_s: float = setting(
        "ALERT_SIREN_REPEAT_SECONDS", 30, "how often a siren is switched on again", ge=1, le=3600
    )
    alert_mail_from: str | None = setting(
        "ALERT_MAIL_FROM", None, "sender of those mails, such as FarmIQ <alerts@example.com>"
    )
    alert_mail_to: str | None = setting(
        "ALERT_MAIL_TO", None, "receivers of those mails, commas between"
    )
    alert_smtp_url: SecretStr | None = setting(
        "ALERT_SMTP_URL",
        None,
        "mail server of the edge's own alerts: smtp:// or smtps://user:password@host:port",
    )
    alert_mail_severity: Literal["info", "warning", "critical"] = setting(
        "ALERT_MAIL_SEVERITY", "warning", "from which severity on a mail is sent"
    )

    @property
    def alert_mail_receivers(self) -> list[str]:
        """The addresses of ALERT_MAIL_TO."""
        return _addresses(self.alert_mail_to)

    @field_validator("alert_smtp_url")
    @classmethod
    def _can_mail(cls, url: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        """Say at the start what would make every mail fail."""
        if url is not None:
            mail.server(url.get_secret_value())
            sender = info.data.get("alert_mail_from") or ""
            receivers = _addresses(info.data.get("alert_mail_to"))
            mail.compose(sender=sender, to=receivers, subject="", text="")
        return url

    @field_validator("siren_command")
    @classmethod
    def _can_be_split(cls, command: str | None) -> str | None:
        if command is not None and not shlex.split(command):
            raise ValueError("names no program")
        return command

    audit_days: float = setting(
        "AUDIT_RETENTION_DAYS", 400, "how long the audit log is kept", ge=30
    )
    loss_days: float = setting(
        "LOSS_RETENTION_DAYS",
        400,
        "how long the loss ledger is kept; what the cloud has not got stays",
        ge=30,
    )
    barn_days: PositiveFloat = setting(
        "BARN_RETENTION_DAYS",
        400,
        "how long barn records are kept; what the cloud has not got stays",
    )
    disk_paths: str = setting(
        "EDGE_DISK_PATHS",
        "/",
        "a path on each disk that the database and the broker write to, commas between",
    )
    disk_warn_percent: PositiveFloat = setting(
        "DISK_WARN_PERCENT", 85, "disk use that raises an alert", le=100
    )
    disk_shed_percent: PositiveFloat = setting(
        "DISK_SHED_PERCENT",
        92,
        "disk use at which what can be spared is removed, never anything unsynced",
        le=100,
    )
    upkeep_at: str = setting(
        "UPKEEP_AT",
        "02:00",
        "when daily upkeep runs, in FARMIQ_EDGE_TIMEZONE",
        pattern=r"^([01]\d|2[0-3]):[0-5]\d$",
    )
    timezone: str = setting(
        "FARMIQ_EDGE_TIMEZONE",
        "UTC",
        "IANA zone of this edge's days, and of farms that have none (farmiq farm set)",
    )

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ValueError, OSError, ZoneInfoNotFoundError):
            raise ValueError(f"{name!r} is no time zone, such as Europe/Berlin") from None
        return name

    feed_settle_s: NonNegativeFloat = setting(
        "FEED_SETTLE_SECONDS",
        300,
        "how long a silo's weight waits for others of its time before intakes are derived from it",
    )
    feed_derive_s: PositiveFloat = setting(
        "FEED_DERIVE_SECONDS", 60, "how often intakes are derived"
    )
    feed_days: PositiveFloat = setting(
        "FEED_RETENTION_DAYS",
        400,
        "how long feed lots and intakes are kept; what the cloud has not got stays",
    )
    s3_url: SecretStr | None = setting(
        "FARMIQ_EDGE_S3_URL",
        None,
        "the edge's bucket for images, http://key:secret@host:port/bucket; without it "
        "edge-media-store takes no images",
    )
    s3_public_url: str | None = setting(
        "FARMIQ_EDGE_S3_PUBLIC_URL",
        None,
        "where weigh stations reach that store, such as http://10.0.0.2:8333; "
        "default: the address in FARMIQ_EDGE_S3_URL",
    )
    media_presign_s: PositiveInt = setting(
        "MEDIA_PRESIGN_SECONDS", 900, "how long an address for an upload is valid", le=86_400
    )
    media_max_bytes: PositiveInt = setting(
        "MEDIA_MAX_BYTES", 10 * 2**20, "largest image that is taken", le=10 * 2**20
    )
    media_presigns_per_minute: PositiveInt = setting(
        "MEDIA_PRESIGNS_PER_MINUTE", 600, "how often a device may ask for an address for an upload"
    )
    media_bytes_per_hour: PositiveInt = setting(
        "MEDIA_BYTES_PER_HOUR",
        4 * 2**30,
        "most bytes of images that a device may upload in an hour, rejected ones too",
        ge=10 * 2**20,
    )
    media_check_s: PositiveFloat = setting(
        "MEDIA_CHECK_SECONDS",
        0.5,
        "how often images that were announced are checked",
    )
    media_expire_hours: PositiveFloat = setting(
        "MEDIA_PRESIGNED_HOURS", 24, "how long an image is remembered that was never uploaded"
    )
    media_days: PositiveFloat = setting(
        "MEDIA_RETENTION_DAYS",
        90,
        "how long images are kept; what the cloud has not got stays",
        le=36500,
    )
    media_store_max_bytes: PositiveInt = setting(
        "MEDIA_STORE_MAX_BYTES",
        20 * 2**30,
        "most bytes of images; above it the oldest go that the cloud has",
    )
    media_open_sessions: bool = setting(
        "MEDIA_DELETE_OPEN_SESSIONS",
        False,
        "true: images of sessions that were never finalized go at their time too",
    )
    media_sync: bool = setting(
        "MEDIA_SYNC", True, "false: images stay here and none goes to the cloud"
    )
    media_sync_at_once: PositiveInt = setting(
        "MEDIA_SYNC_AT_ONCE", 4, "images on their way to the cloud", le=32
    )
    media_lease_s: float = setting(
        "MEDIA_LEASE_SECONDS",
        60,
        "an image that is being checked or uploaded is another process's after so long; keep "
        "it above SYNC_TIMEOUT_SECONDS",
        ge=1,
    )
    weighvision_incomplete_min: PositiveFloat = setting(
        "WEIGHVISION_INCOMPLETE_MINUTES",
        10,
        "how long a weigh session waits for its image, and after its last event for "
        "any other part, until it is INCOMPLETE and raises an alert",
    )
    weighvision_round_s: PositiveFloat = setting(
        "WEIGHVISION_ROUND_SECONDS",
        5,
        "how often weigh sessions are checked for missing parts",
    )
    weighvision_days: PositiveFloat = setting(
        "WEIGHVISION_RETENTION_DAYS",
        400,
        "how long weigh sessions that ended are kept; what the cloud has not got stays",
    )
    cloud_url: str = required(
        "FARMIQ_CLOUD_URL", "cloud-ingestion, for example https://cloud.example"
    )
    edge_cluster_id: str = setting("FARMIQ_EDGE_CLUSTER_ID", "edge-01", "name of this edge")
    edge_key_file: Path = required(
        "FARMIQ_EDGE_KEY_FILE", "private key that signs our tokens (farmiq edge enroll makes it)"
    )
    token_issuer: str = setting("FARMIQ_TOKEN_ISSUER", "farmiq-edge", "iss of our tokens")
    token_audience: str = setting(
        "FARMIQ_TOKEN_AUDIENCE", "farmiq-cloud-ingestion", "aud of our tokens"
    )
    sync_batch: PositiveInt = setting("SYNC_BATCH_EVENTS", 500, "most events in one POST", le=500)
    sync_poll_ms: int = setting(
        "SYNC_POLL_MS", 250, "how often an empty outbox is looked at", ge=10
    )
    sync_lease_s: PositiveInt = setting(
        "SYNC_LEASE_SECONDS", 30, "how long a claimed event is ours"
    )
    sync_timeout_s: PositiveFloat = setting(
        "SYNC_TIMEOUT_SECONDS",
        20,
        "longest wait for the cloud's answer; keep it above the cloud's own limits",
    )
    sync_max_attempts: PositiveInt = setting(
        "SYNC_MAX_ATTEMPTS", 10, "failures of its own before an event is a dead letter (dlq)"
    )
    sync_base_s: PositiveFloat = setting(
        "SYNC_BACKOFF_BASE_SECONDS", 1, "first retry delay is twice this"
    )
    sync_cap_s: PositiveFloat = setting("SYNC_BACKOFF_MAX_SECONDS", 300, "longest retry delay")
    sync_breaker_s: PositiveFloat = setting(
        "SYNC_BREAKER_MAX_SECONDS", 30, "longest pause between probes of a cloud that is away"
    )
    devices_round_s: PositiveFloat = setting(
        "DEVICES_ROUND_SECONDS", 1, "how often devices are checked for silence"
    )
    command_days: PositiveInt = setting(
        "DEVICE_COMMAND_RETENTION_DAYS", 90, "how long commands that ended are kept"
    )
    device_state_days: PositiveFloat = setting(
        "DEVICE_STATE_RETENTION_DAYS", 90, "how long the last state of a revoked device is kept"
    )
    broker_users_file: Path | None = setting(
        "FARMIQ_EDGE_BROKER_USERS_FILE",
        None,
        "where the broker (NATS) reads its users from; we write it from the registry",
    )
    broker_own_users: str = setting(
        "FARMIQ_EDGE_BROKER_OWN_USERS",
        "GATEWAY",
        "users of the broker who are no devices: names in own-users.conf beside it",
        pattern=r"^[A-Z_]+(,[A-Z_]+)*$",
    )
    broker_pid_file: Path | None = setting(
        "FARMIQ_EDGE_BROKER_PID_FILE",
        None,
        "pid file of the broker, which gets SIGHUP when its users change; "
        "without it something else must reload the broker",
    )
    broker_log_file: Path | None = setting(
        "FARMIQ_EDGE_BROKER_LOG_FILE",
        None,
        "log of the broker; what it refuses becomes a security alert",
    )
    broker_nats_url: SecretStr | None = setting(
        "FARMIQ_EDGE_BROKER_NATS_URL",
        None,
        "the broker's own protocol (NATS), nats://user:password@host:4222: what the "
        "broker may keep is bounded through it; without it one sender may fill the broker",
    )
    broker_callout_url: SecretStr | None = setting(
        "FARMIQ_EDGE_BROKER_CALLOUT_URL",
        None,
        "where the broker (NATS) asks us who may connect (auth_callout): "
        "nats://user:password@host:4222, of its system account; then no users file is needed",
    )
    broker_callout_key_file: Path | None = setting(
        "FARMIQ_EDGE_BROKER_CALLOUT_KEY_FILE",
        None,
        "the key that signs those answers; `farmiq device callout` makes it",
    )
    broker_client_ids: Literal["own", "any"] = setting(
        "FARMIQ_EDGE_BROKER_CLIENT_IDS",
        "own",
        "with a callout: own, a device connects under client ids of its own only; any, "
        "for devices whose id cannot be changed, only those of others are refused",
    )
    broker_replicas: PositiveInt = setting(
        "FARMIQ_EDGE_BROKER_REPLICAS",
        1,
        "how many nodes of the broker's cluster hold each message, such as 3 of three",
        le=5,
    )
    broker_monitor_url: str | None = setting(
        "FARMIQ_EDGE_BROKER_MONITOR_URL",
        None,
        "monitoring endpoint of the broker (NATS), such as http://127.0.0.1:8222: it "
        "tells how much each device sends; without it nobody is paused",
    )
    device_per_second: NonNegativeFloat = setting(
        "DEVICE_MESSAGES_PER_SECOND",
        200,
        "messages a second that a device may send all the time; beyond them and the burst its "
        "login is paused at the broker for a while; 0: none is",
    )
    device_burst: float = setting(
        "DEVICE_MESSAGES_BURST",
        4_000,
        "messages that a device may send at once, such as its buffer after an outage",
        ge=1,
    )
    device_bytes_per_second: NonNegativeFloat = setting(
        "DEVICE_BYTES_PER_SECOND",
        2**20,
        "bytes a second that a device may send all the time, as DEVICE_MESSAGES_PER_SECOND",
    )
    device_bytes_burst: float = setting(
        "DEVICE_BYTES_BURST",
        32 * 2**20,
        "bytes that a device may send at once, as DEVICE_MESSAGES_BURST",
        ge=1,
    )
    sync_heartbeat_s: PositiveFloat = setting(
        "SYNC_HEARTBEAT_SECONDS", 60, "how often this edge tells the cloud how it is"
    )
    sync_context_s: PositiveFloat = setting(
        "SYNC_CONTEXT_SECONDS", 60, "how often this edge asks the cloud for its master data"
    )
    sync_gzip: bool = setting("SYNC_GZIP", True, "batches travel compressed")
    sync_stall_s: PositiveFloat = setting(
        "SYNC_STALL_SECONDS", 600, "a backlog that has not fallen for so long raises an alert"
    )
    outbox_retention_days: PositiveFloat = setting(
        "OUTBOX_RETENTION_DAYS",
        30,
        "how long delivered events, dead letters and discarded events stay in the outbox",
    )
    outbox_archive_dir: Path | None = setting(
        "OUTBOX_ARCHIVE_DIR",
        None,
        "where events go that were never delivered, before they leave the outbox; "
        "default: outbox-archive in FARMIQ_STATE_DIR",
    )

    @property
    def cookie_secure(self) -> bool:
        given = self.cookie_secure_given
        return self.tls.serves() if given is None else given

    def outbox_archive(self) -> Path:
        return self.outbox_archive_dir or state_dir() / "outbox-archive"

    @property
    def says_who_connects(self) -> bool:
        """Whether we say who may connect to the broker, by a file or by answering it."""
        return self.broker_users_file is not None or self.broker_callout_url is not None


def _addresses(text: str | None) -> list[str]:
    return [address.strip() for address in (text or "").split(",")]
