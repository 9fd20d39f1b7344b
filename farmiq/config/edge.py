"""Settings in the barn."""

from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, SecretStr, field_validator

from farmiq.config.environment import state_dir
from farmiq.config.settings import Settings


class EdgeSettings(Settings):
    """In the barn."""

    db_url: SecretStr = Field(alias="FARMIQ_EDGE_DB_URL", description="PostgreSQL of the edge")
    mqtt_url: SecretStr = Field(
        alias="FARMIQ_EDGE_MQTT_URL",
        description="edge-mqtt-broker: mqtt:// or mqtts://user:password@host:port",
    )
    ingress_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_EDGE_INGRESS_URL",
        description="where ingress reads what devices send: nats:// or tls://user:password@"
        "host:port reads the log of a NATS broker, in order and without a session; mqtt:// or "
        "mqtts:// a session at any broker. Default: as FARMIQ_EDGE_MQTT_URL",
    )
    mqtt_client_id: str | None = Field(
        None,
        alias="FARMIQ_EDGE_MQTT_CLIENT_ID",
        description="names the gateway's session at the broker; never change it lightly. "
        "Default: one that nobody guesses, made once and kept in the database",
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
    log_hold_minutes: float = Field(
        15,
        alias="INGRESS_LOG_HOLD_MINUTES",
        ge=0,
        description="how long the broker's log holds what is stored already, for a database that "
        "is restored; less while the log is more than half full",
    )
    ingress_lease_s: float = Field(
        1.2,
        alias="INGRESS_LEASE_SECONDS",
        ge=1,
        description="a second gateway takes over when the first was silent for so long",
    )
    dedupe_ttl_hours: float = Field(
        72,
        alias="INGRESS_DEDUPE_TTL_HOURS",
        gt=0,
        description="how long an event's id is remembered by ingress; above 96 a device that "
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
    s3_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_EDGE_S3_URL",
        description="the edge's bucket for images, http://key:secret@host:port/bucket; without it "
        "edge-media-store takes no images",
    )
    s3_public_url: str | None = Field(
        None,
        alias="FARMIQ_EDGE_S3_PUBLIC_URL",
        description="where weigh stations reach that store, such as http://10.0.0.2:8333; "
        "default: the address in FARMIQ_EDGE_S3_URL",
    )
    media_presign_s: int = Field(
        900,
        alias="MEDIA_PRESIGN_SECONDS",
        ge=1,
        le=86_400,
        description="how long an address for an upload is good",
    )
    media_max_bytes: int = Field(
        10 * 2**20,
        alias="MEDIA_MAX_BYTES",
        ge=1,
        le=10 * 2**20,
        description="largest image that is taken",
    )
    media_presigns_per_minute: int = Field(
        600,
        alias="MEDIA_PRESIGNS_PER_MINUTE",
        ge=1,
        description="how often a device may ask for an address for an upload",
    )
    media_check_s: float = Field(
        0.5,
        alias="MEDIA_CHECK_SECONDS",
        gt=0,
        description="how often it is looked for images that were announced or should be there",
    )
    media_expire_hours: float = Field(
        24,
        alias="MEDIA_PRESIGNED_HOURS",
        gt=0,
        description="how long an image is remembered that was never uploaded",
    )
    media_days: float = Field(
        90,
        alias="MEDIA_RETENTION_DAYS",
        gt=0,
        le=36500,
        description="how long images are kept; what the cloud has not got stays",
    )
    media_store_max_bytes: int = Field(
        20 * 2**30,
        alias="MEDIA_STORE_MAX_BYTES",
        ge=1,
        description="most bytes of images; above it the oldest go that the cloud has",
    )
    media_open_sessions: bool = Field(
        False,
        alias="MEDIA_DELETE_OPEN_SESSIONS",
        description="true: images of sessions that were never finalized go at their time too",
    )
    media_sync: bool = Field(
        True, alias="MEDIA_SYNC", description="false: images stay here and none goes to the cloud"
    )
    media_sync_at_once: int = Field(
        4, alias="MEDIA_SYNC_AT_ONCE", ge=1, le=32, description="images on their way to the cloud"
    )
    media_lease_s: float = Field(
        60,
        alias="MEDIA_LEASE_SECONDS",
        ge=1,
        description="an image that is being looked at or carried is another's after so long; keep "
        "it above SYNC_TIMEOUT_SECONDS",
    )
    weighvision_incomplete_min: float = Field(
        10,
        alias="WEIGHVISION_INCOMPLETE_MINUTES",
        gt=0,
        description="how long a weigh session waits for its image, and after its last event for "
        "any other part, until it is INCOMPLETE and raises an alert",
    )
    weighvision_round_s: float = Field(
        5,
        alias="WEIGHVISION_ROUND_SECONDS",
        gt=0,
        description="how often it is looked which weigh sessions wait for too long",
    )
    weighvision_days: float = Field(
        400,
        alias="WEIGHVISION_RETENTION_DAYS",
        gt=0,
        description="how long weigh sessions that ended are kept; what the cloud has not got stays",
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
    broker_nats_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_EDGE_BROKER_NATS_URL",
        description="the broker's own protocol (NATS), nats://user:password@host:4222: what the "
        "broker may keep is bounded through it; without it one sender may fill the broker",
    )
    broker_callout_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_EDGE_BROKER_CALLOUT_URL",
        description="where the broker (NATS) asks us who may connect (auth_callout): "
        "nats://user:password@host:4222, of its system account; then no users file is needed",
    )
    broker_callout_key_file: Path | None = Field(
        None,
        alias="FARMIQ_EDGE_BROKER_CALLOUT_KEY_FILE",
        description="the key that signs those answers; `farmiq device callout` makes it",
    )
    broker_client_ids: Literal["own", "any"] = Field(
        "own",
        alias="FARMIQ_EDGE_BROKER_CLIENT_IDS",
        description="with a callout: own, a device connects under client ids of its own only; any, "
        "for devices whose id cannot be changed, only those of others are refused",
    )
    broker_monitor_url: str | None = Field(
        None,
        alias="FARMIQ_EDGE_BROKER_MONITOR_URL",
        description="monitoring endpoint of the broker (NATS), such as http://127.0.0.1:8222: it "
        "tells how much each device sends; without it nobody is paused",
    )
    device_per_second: float = Field(
        200,
        alias="DEVICE_MESSAGES_PER_SECOND",
        ge=0,
        description="messages that a device may send for ever; beyond them and the burst its login "
        "is paused at the broker for a while; 0: nobody's is",
    )
    device_burst: float = Field(
        4_000,
        alias="DEVICE_MESSAGES_BURST",
        ge=1,
        description="messages that a device may send at once, such as its buffer after an outage",
    )
    device_bytes_per_second: float = Field(
        2**20,
        alias="DEVICE_BYTES_PER_SECOND",
        ge=0,
        description="bytes that a device may send for ever, as DEVICE_MESSAGES_PER_SECOND",
    )
    device_bytes_burst: float = Field(
        32 * 2**20,
        alias="DEVICE_BYTES_BURST",
        ge=1,
        description="bytes that a device may send at once, as DEVICE_MESSAGES_BURST",
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

    @property
    def says_who_connects(self) -> bool:
        """Whether we say who may connect to the broker, by a file or by answering it."""
        return self.broker_users_file is not None or self.broker_callout_url is not None
