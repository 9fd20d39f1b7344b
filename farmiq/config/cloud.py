"""Settings in the data centre."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SecretStr, field_validator

from farmiq.config.settings import Settings


class CloudSettings(Settings):
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
    ingestion_waiting: int = Field(
        1500,
        alias="INGESTION_WAITING_EVENTS",
        ge=1,
        description="events waiting for a service above which more batches are held back for "
        "up to 5 s, so that live events do not queue behind an edge's backlog",
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
    ingestion_dedupe_days: float = Field(
        90,
        alias="INGESTION_DEDUPE_DAYS",
        ge=7,
        description="how long the ids of received events are known; after that the consumers' own "
        "keys absorb a repeat",
    )
    sync_events_days: float = Field(
        90,
        alias="SYNC_EVENTS_RETENTION_DAYS",
        ge=1,
        description="how long it is kept which batches came from which edge",
    )
    s3_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_CLOUD_S3_URL",
        description="the cloud's bucket for images, https://key:secret@host/bucket; without it "
        "cloud-media-store knows of images, but has none",
    )
    s3_public_url: str | None = Field(
        None,
        alias="FARMIQ_CLOUD_S3_PUBLIC_URL",
        description="where edges reach that store; default: the address in FARMIQ_CLOUD_S3_URL",
    )
    media_presign_s: int = Field(
        900,
        alias="MEDIA_PRESIGN_SECONDS",
        ge=1,
        le=86_400,
        description="how long an address for an upload is good",
    )
    mqtt_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_CLOUD_MQTT_URL",
        description="cloud-mqtt-broker for cameras: mqtt:// or mqtts://user:password@host:port; "
        "sessions of logins that ended are ended through it",
    )
    mqtt_client_id: str | None = Field(
        None,
        alias="FARMIQ_CLOUD_MQTT_CLIENT_ID",
        description="the session that gateways before 0.2 had at the broker: it is ended. "
        "Default: the one that is kept in the database",
    )
    camera_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_CLOUD_CAMERA_URL",
        description="where cloud-camera-gateway reads what cameras sent: the NATS protocol of the "
        "cameras' broker, nats:// or tls://user:password@host:4222; without it it takes none",
    )
    camera_lease_s: float = Field(
        2,
        alias="CAMERA_LEASE_SECONDS",
        ge=1,
        description="a second gateway takes over when the first was silent for so long",
    )
    camera_missing_s: float = Field(
        0.5,
        alias="CAMERA_MISSING_SECONDS",
        gt=0,
        description="missing chunks are asked for so long after a camera's last chunk, later where "
        "the camera sends slowly or did not answer",
    )
    camera_timeout_s: float = Field(
        300,
        alias="CAMERA_TIMEOUT_SECONDS",
        gt=0,
        description="an image has failed so long after its last chunk",
    )
    camera_resume_days: float = Field(
        7,
        alias="CAMERA_RESUME_DAYS",
        gt=0,
        description="chunks of a failed image are kept for so long, for a camera that goes on",
    )
    camera_awake_s: float = Field(
        60,
        alias="CAMERA_AWAKE_SECONDS",
        gt=0,
        description="commands are sent to cameras that were heard within so long",
    )
    camera_round_s: float = Field(
        30,
        alias="CAMERA_ROUND_SECONDS",
        gt=0,
        description="how often it is asked which cameras miss their wakes",
    )
    camera_days: float = Field(
        30,
        alias="CAMERA_RETENTION_DAYS",
        gt=0,
        description="how long it is kept how images came, what was told and what was refused",
    )
    camera_observe_s: float = Field(
        2,
        alias="CAMERA_OBSERVE_SECONDS",
        gt=0,
        description="how often it is looked for images of cameras that nobody has judged yet",
    )
    camera_bridge_url: str | None = Field(
        None,
        alias="CAMERA_BRIDGE_URL",
        description="address of cloud-ingestion, https://host; with it the wakes of cameras become "
        "readings and images of their farm too (farm: program, barn: site); without it none do",
    )
    camera_bridge_key_file: Path | None = Field(
        None,
        alias="CAMERA_BRIDGE_KEY_FILE",
        description="the bridge's own key, enrolled as the edge cloud-camera-bridge for the "
        "companies whose wakes it may send (farmiq edge invite, farmiq edge enroll)",
    )
    camera_bridge_s: float = Field(
        5,
        alias="CAMERA_BRIDGE_SECONDS",
        gt=0,
        description="how often the bridge looks for wakes that are complete",
    )
    broker_users_file: Path | None = Field(
        None,
        alias="FARMIQ_CLOUD_BROKER_USERS_FILE",
        description="where the cameras' broker (NATS) reads its users from; we write it from the "
        "logins of cameras",
    )
    broker_own_users: str = Field(
        "GATEWAY",
        alias="FARMIQ_CLOUD_BROKER_OWN_USERS",
        description="users of the broker who are no cameras: names in own-users.conf beside it",
        pattern=r"^[A-Z_]+(,[A-Z_]+)*$",
    )
    broker_pid_file: Path | None = Field(
        None,
        alias="FARMIQ_CLOUD_BROKER_PID_FILE",
        description="pid file of the broker, which gets SIGHUP when its users change; "
        "without it something else must reload the broker",
    )
    broker_log_file: Path | None = Field(
        None,
        alias="FARMIQ_CLOUD_BROKER_LOG_FILE",
        description="log of the cameras' broker; what it refuses is counted, and told in our log",
    )
    weighvision_incomplete_min: float = Field(
        10,
        alias="WEIGHVISION_INCOMPLETE_MINUTES",
        gt=0,
        description="how long a weigh session waits for its image, and after its last event for "
        "any other part, until pages and the API show it as INCOMPLETE",
    )
    broker_nats_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_CLOUD_BROKER_NATS_URL",
        description="the broker's own protocol (NATS), nats://user:password@host:4222: what the "
        "broker may keep is bounded through it; without it one sender may fill the broker",
    )
    broker_callout_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_CLOUD_BROKER_CALLOUT_URL",
        description="where the broker (NATS) asks us who may connect (auth_callout): "
        "nats://user:password@host:4222, of its system account; then no users file is needed",
    )
    broker_callout_key_file: Path | None = Field(
        None,
        alias="FARMIQ_CLOUD_BROKER_CALLOUT_KEY_FILE",
        description="the key that signs those answers; `farmiq device callout` makes it",
    )
    broker_client_ids: Literal["own", "any"] = Field(
        "own",
        alias="FARMIQ_CLOUD_BROKER_CLIENT_IDS",
        description="with a callout: own, a camera connects under client ids of its own only; any, "
        "for cameras whose id cannot be changed, only those of others are refused",
    )
    broker_monitor_url: str | None = Field(
        None,
        alias="FARMIQ_CLOUD_BROKER_MONITOR_URL",
        description="monitoring endpoint of the cameras' broker (NATS), such as "
        "http://127.0.0.1:8222, which tells how much each sends; without it none is paused",
    )
    camera_per_second: float = Field(
        50,
        alias="CAMERA_MESSAGES_PER_SECOND",
        ge=0,
        description="messages that a camera may send for ever; beyond them and the burst its login "
        "is paused at the broker for a while; 0: none is",
    )
    camera_burst: float = Field(
        5_000,
        alias="CAMERA_MESSAGES_BURST",
        ge=1,
        description="messages that a camera may send at once: the chunks of its largest image, or "
        "of several",
    )
    camera_bytes_per_second: float = Field(
        2**20,
        alias="CAMERA_BYTES_PER_SECOND",
        ge=0,
        description="bytes that a camera may send for ever, as CAMERA_MESSAGES_PER_SECOND",
    )
    camera_bytes_burst: float = Field(
        64 * 2**20,
        alias="CAMERA_BYTES_BURST",
        ge=1,
        description="bytes that a camera may send at once: several of its largest images",
    )
    camera_calendar_s: float = Field(
        60,
        alias="CAMERA_CALENDAR_SECONDS",
        gt=0,
        le=3600,
        description="how often it is looked for sites of cameras whose day begins or ends",
    )
    camera_pending_s: float = Field(
        300,
        alias="CAMERA_PENDING_SECONDS",
        gt=0,
        description="how long a camera's wake waits for its image after the last sign of it, until "
        "it has failed",
    )
    next_wake_min_s: float = Field(
        60,
        alias="NEXT_WAKE_MIN_SECONDS",
        ge=0,
        le=3600,
        description="a camera is told to wake so many seconds from now at the earliest",
    )
    next_wake_spread_s: float = Field(
        0,
        alias="NEXT_WAKE_SPREAD_SECONDS",
        ge=0,
        le=1800,
        description="cameras are told to wake up to so many seconds after their time, each always "
        "by the same share, so that thousands do not wake in one second; 0: all on time",
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

    @property
    def says_who_connects(self) -> bool:
        """Whether we say who may connect to the broker, by a file or by answering it."""
        return self.broker_users_file is not None or self.broker_callout_url is not None
