"""THE LIST: every service in flow order, what it reads and what it writes."""

import pkgutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from farmiq.messages import topics

if TYPE_CHECKING:
    from farmiq.plumbing import http

Run = Callable[[Any, "http.HttpServer"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Service:
    """`name` is what a person types and sees; `run` is called with (settings, server)."""

    name: str
    site: str
    module: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    run: str = "run"

    def load(self) -> Run:
        run: Run = pkgutil.resolve_name(f"{self.module}:{self.run}")
        return run


def _listed(what: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(what.split(", ")) if isinstance(what, str) else what


def _service(
    name: str,
    module: str,
    *,
    reads: str | tuple[str, ...],
    writes: str | tuple[str, ...],
    run: str = "run",
) -> Service:
    """A service whose site is the first word of its name; texts list things with commas."""
    site = name.partition("-")[0]
    return Service(name, site, module, _listed(reads), _listed(writes), run)


def _sink(name: str, purpose: str, table: str, sink: str) -> Service:
    """A service of the cloud that stores the events of one queue in one table."""
    return Service(
        name,
        "cloud",
        "farmiq.cloud.sinks",
        reads=(f"farmiq.{name}.{purpose}.queue", "companies"),
        writes=(table, f"farmiq.{name}.dlq.queue"),
        run=f"{sink}.run",
    )


# On the weigh station it is a program of its own (`farmiq agent run`): no site's process runs it.
AGENT = Service(
    "iot-weighvision-agent",
    "device",
    "farmiq.device.service",
    reads=("scale, camera", "mqtt iot/ack/…", "mqtt iot/command/…"),
    writes=(
        "its buffer",
        "mqtt iot/weighvision/…",
        "mqtt iot/event/…",
        "mqtt iot/status/…",
        "POST /api/v1/media/images/presign",
        "PUT to the address it gives",
    ),
)

SERVICES = (
    _service(
        "edge-ingress-gateway",
        "farmiq.edge.ingress.service",
        reads=(*(f"mqtt {topic}" for topic in topics.UP), "devices"),
        writes="ingress_dedupe, telemetry_raw, telemetry_dirty, telemetry_latest, device_state, "
        "feed_intakes, barn_records, media_objects, weight_sessions, "
        "weight_session_events, sync_outbox, device_seq, quarantine, alerts, loss_ledger, "
        "audit_log, leases, mqtt iot/ack/…",
    ),
    _service(
        "edge-devices-registry",
        "farmiq.edge.devices.service",
        reads="devices, device_state, device_commands, device_pauses, the broker's log, the "
        "broker's counts, the clock",
        writes="devices, device_state, device_commands, device_pauses, sync_outbox, alerts, the "
        "broker's users, mqtt iot/command/…",
    ),
    _service(
        "edge-telemetry-timeseries",
        "farmiq.edge.telemetry.service",
        reads=("telemetry_dirty", "telemetry_raw", "farms", "metric_settings", "the calendar"),
        writes="telemetry_agg, telemetry_latest, sync_outbox, partitions of telemetry_raw, GET "
        "/api/v1/telemetry/latest, GET /api/v1/telemetry/range",
    ),
    _service(
        "edge-feed-intake",
        "farmiq.edge.feed.service",
        reads="telemetry_raw, silo_settings, devices, farms, cloud_batches, POST "
        "/api/v1/feed/lots, POST /api/v1/feed/intakes",
        writes="feed_intakes, feed_lots, silo_states, posted_events, sync_outbox, audit_log, GET "
        "/api/v1/feed/lots, GET /api/v1/feed/intakes",
    ),
    _service(
        "edge-barn-records",
        "farmiq.edge.barn.service",
        reads="POST /api/v1/barn/records, devices, farms, cloud_batches",
        writes="barn_records, posted_events, sync_outbox, audit_log, GET /api/v1/barn/records",
    ),
    _service(
        "edge-media-store",
        "farmiq.edge.media.service",
        reads=(
            "POST /api/v1/media/images/presign",
            "media_objects",
            "the edge's bucket",
            "sync_outbox",
        ),
        writes="media_objects, inference_jobs, sync_outbox, alerts, the edge's bucket, POST "
        "/api/v1/media/images/presign of the cloud, the cloud's bucket, GET "
        "/api/v1/media/images",
    ),
    _service(
        "edge-weighvision-session",
        "farmiq.edge.weighvision.service",
        reads="weight_session_events, media_objects, inference_results, farms, cloud_farms, the "
        "clock",
        writes=(
            "weight_sessions",
            "alerts",
            "sync_outbox",
            "GET /api/v1/weighvision/sessions",
            "GET /api/v1/weighvision/sessions/{session_id}",
        ),
    ),
    _service(
        "edge-vision-inference",
        "farmiq.edge.vision.service",
        reads="inference_jobs, media_objects, weight_sessions, vision_references, cloud_batches, "
        "cloud_contexts, farms, camera_views, the edge's bucket",
        writes="inference_jobs, inference_results, vision_references, vision_models, vision_days, "
        "camera_views, telemetry_raw, telemetry_dirty, telemetry_latest, sync_outbox, alerts, the "
        "edge's bucket, VISION_MODELS_DIR",
    ),
    _service(
        "edge-alert-rules",
        "farmiq.edge.alert.service",
        reads="telemetry_latest, telemetry_raw, devices, cloud_contexts, the clock",
        writes="alert_series, local_alerts, alert_sirens, alert_mails, alerts, sync_outbox, mqtt "
        "ALERT_SIREN_TOPIC, ALERT_SIREN_COMMAND, ALERT_SMTP_URL",
    ),
    _service(
        "edge-sync-forwarder",
        "farmiq.edge.sync.service",
        reads=(
            "sync_outbox",
            "POST /api/v1/sync/redrive",
            "POST /api/v1/sync/unclaim-stuck",
            "GET /api/v1/edges/context of the cloud",
            "devices",
            "alerts",
            "quarantine",
            "loss_ledger",
        ),
        writes="sync_outbox, sync_state, sync_drain, sync_archives, cloud_contexts, cloud_farms, "
        "cloud_batches, telemetry_rezoned, cloud_tenants, alerts, audit_log, POST "
        "/api/v1/ingestion/batch, POST /api/v1/edges/heartbeat, GET /api/v1/sync/status, "
        "GET /api/v1/sync/outbox",
    ),
    _service(
        "edge-console",
        "farmiq.edge.console.service",
        reads="api_keys, telemetry_latest, telemetry_raw, telemetry_agg, weight_sessions, "
        "weight_session_events, media_objects, the edge's bucket, devices, device_state, alerts, "
        "sync_outbox, sync_state, quarantine, cloud_contexts, cloud_batches, farms",
        writes="console_sign_ins, barn_records, feed_intakes, feed_lots, posted_events, "
        "sync_outbox, quarantine, alerts, loss_ledger, audit_log, GET / (HTML, SSE)",
    ),
    _service(
        "cloud-edges-registry",
        "farmiq.cloud.edges.service",
        reads="POST /api/v1/edges/enroll, POST /api/v1/edges/rotate, POST "
        "/api/v1/edges/heartbeat, edge_invites, companies, sign_ins, farms, barns, batches, "
        "breed_standards, alert_episodes, alert_rules, alert_states, alert_windows",
        writes=(
            "edge_keys",
            "edge_actions",
            "edge_heartbeats",
            "edge_hours",
            "GET /api/v1/edges",
            "GET /api/v1/edges/context",
            "GET /.well-known/jwks.json",
        ),
    ),
    _service(
        "cloud-farms-registry",
        "farmiq.cloud.farms.service",
        reads="PUT, DELETE /api/v1/farms/…, /api/v1/barns/…, /api/v1/batches/…, "
        "/api/v1/feed-products/…, /api/v1/metrics/…, /api/v1/breed-standards/…, POST "
        "/api/v1/…/import, barn_events, sign_ins, memberships",
        writes="farms, barns, batches, feed_products, metrics, breed_standards, "
        "master_data_actions, GET of the same",
    ),
    _service(
        "cloud-ingestion",
        "farmiq.cloud.ingestion.service",
        reads=("POST /api/v1/ingestion/batch", "edge_keys", "companies"),
        writes=("ingestion_dedupe", "event_conflicts", "edge_hours", "farmiq.*.exchange"),
    ),
    _service(
        "cloud-telemetry-service",
        "farmiq.cloud.telemetry.service",
        reads=(
            "farmiq.cloud-telemetry-service.ingest.queue",
            "farmiq.cloud-telemetry-service.agg.queue",
            "companies",
            "farms",
            "batches",
            "sign_ins",
        ),
        writes=(
            "telemetry_readings",
            "alert_readings",
            "analytics_dirty_days",
            "telemetry_latest",
            "telemetry_agg",
            "telemetry_dirty",
            "telemetry_rezoned",
            "telemetry_state",
            "telemetry_archives",
            "the cloud's bucket",
            "farmiq.telemetry.exchange",
            "farmiq.cloud-telemetry-service.dlq.queue",
            "GET /api/v1/telemetry/range",
        ),
    ),
    _service(
        "cloud-weighvision-service",
        "farmiq.cloud.weighvision.service",
        reads=("farmiq.cloud-weighvision-service.ingest.queue", "companies"),
        writes=(
            "weighvision_events",
            "weight_sessions",
            "farmiq.cloud-weighvision-service.dlq.queue",
        ),
    ),
    _service(
        "cloud-media-store",
        "farmiq.cloud.media.service",
        reads="farmiq.cloud-media-store.store.queue, companies, POST "
        "/api/v1/media/images/presign, edge_keys, device_images, petri_observations, the "
        "cloud's bucket, sign_ins",
        writes=(
            "media_events",
            "media_objects",
            "farmiq.cloud-media-store.dlq.queue",
            "the cloud's bucket",
            "GET /api/v1/media/images",
        ),
    ),
    _service(
        "cloud-camera-gateway",
        "farmiq.cloud.camera.gateway.service",
        reads=(
            *(f"mqtt {topic}" for topic in ("device/+/status", "device/+/data")),
            *(f"mqtt {topic}" for topic in ("ESP32CAM/+/status", "ESP32CAM/+/data")),
            "devices",
            "camera_logins",
            "expected_wakes",
            "the broker's log",
            "the broker's counts",
        ),
        writes=(
            "camera_transfers",
            "camera_chunks",
            "camera_commands",
            "camera_quarantine",
            "camera_states",
            "leases",
            "broker_cursors",
            "devices",
            "device_images",
            "device_wake_payloads",
            "device_alerts",
            "the cloud's bucket",
            "the broker's users",
            "mqtt device/{mac}/ack, …/cmd",
            "mqtt ESP32CAM/{mac}/ack, …/cmd",
        ),
    ),
    _service(
        "cloud-camera-observations",
        "farmiq.cloud.camera.observations.service",
        reads=("petri_observations", "dish_series", "device_images", "the cloud's bucket"),
        writes=("petri_observations", "dish_series", "the cloud's bucket"),
    ),
    _service(
        "cloud-camera-bridge",
        "farmiq.cloud.camera.bridge.service",
        reads=("petri_observations", "device_wake_payloads", "device_images", "companies"),
        writes=("petri_observations", "POST /api/v1/ingestion/batch"),
    ),
    _sink("cloud-inference-service", "ingest", "inference_events", "INFERENCE"),
    _service(
        "cloud-feed-service",
        "farmiq.cloud.feed.service",
        reads="farmiq.cloud-feed-service.ingest.queue, companies, POST /api/v1/feed/lots, POST "
        "/api/v1/feed/intakes, barns, batches, farms, sign_ins, memberships",
        writes="feed_events, posted_events, farmiq.feed.exchange, "
        "farmiq.cloud-feed-service.dlq.queue, GET /api/v1/feed/lots, GET /api/v1/feed/intakes, GET "
        "/api/v1/feed/stock",
    ),
    _service(
        "cloud-barn-service",
        "farmiq.cloud.barn.service",
        reads="farmiq.cloud-barn-service.ingest.queue, companies, POST /api/v1/barn/records, "
        "barns, batches, farms, sign_ins, memberships",
        writes="barn_events, posted_events, farmiq.barn.exchange, "
        "farmiq.cloud-barn-service.dlq.queue, GET /api/v1/barn/records",
    ),
    _sink("cloud-device-service", "ingest", "device_events", "DEVICE"),
    _sink("cloud-sync-service", "ingest", "sync_events", "SYNC"),
    _service(
        "cloud-analytics-service",
        "farmiq.cloud.analytics.service",
        reads="farmiq.cloud-analytics-service.days.queue, "
        "farmiq.cloud-analytics-service.kpi.queue, companies, farms, batches, breed_standards, "
        "metrics, weight_sessions, weighvision_events, inference_events, feed_events, barn_events, "
        "telemetry_agg, sign_ins",
        writes="analytics_pending, analytics_dirty_days, batch_days, kpi_daily, "
        "farmiq.kpi.exchange, kpi_events, farmiq.cloud-analytics-service.dlq.queue, GET "
        "/api/v1/kpis, GET /api/v1/batches/{batch_id}/summary, GET "
        "/api/v1/batches/{batch_id}/weighings, GET /api/v1/batches/{batch_id}/forecast",
    ),
    _service(
        "cloud-alerts-service",
        "farmiq.cloud.alerts.service",
        reads="farmiq.cloud-alerts-service.signals.queue, "
        "farmiq.cloud-alerts-service.edge.queue, companies, farms, barns, batches, "
        "alert_readings, telemetry_readings, telemetry_latest, telemetry_agg, kpi_daily, "
        "feed_events, weighvision_events, weight_sessions, edge_heartbeats, edge_keys, "
        "device_alerts, site_device_sessions, devices, dead_letter_groups, alert_values, the "
        "clock, sign_ins, memberships, PUT, DELETE /api/v1/alert-rules/…, POST "
        "/api/v1/alerts/{episode_id}/acknowledge, POST, DELETE /api/v1/alert-windows",
        writes="alert_readings, alert_states, alert_rechecks, alert_values, alert_episodes, "
        "alert_steps, alert_rules, alert_windows, alert_actions, "
        "farmiq.cloud-alerts-service.dlq.queue, GET /api/v1/alerts, GET /api/v1/alert-rules, GET "
        "/api/v1/alert-windows, POST /api/v1/alert-rules/try",
    ),
    _service(
        "cloud-notification-service",
        "farmiq.cloud.notification.service",
        reads="alert_steps, alert_episodes, alert_rules, reports, farms, barns, companies, "
        "sign_ins, memberships, PUT, DELETE /api/v1/alert-channels/…, "
        "/api/v1/alert-contacts/…, /api/v1/alert-settings, POST "
        "/api/v1/alert-channels/{channel_id}/test, POST /alerts/ack/{token}",
        writes="alert_steps, alert_messages, alert_mail_counts, alert_channels, alert_contacts, "
        "alert_settings, alert_episodes, alert_actions, mail servers, webhooks and other "
        "receivers, GET /api/v1/alert-messages, GET /alerts/ack/{token}, GET of the same",
    ),
    _service(
        "cloud-reports-service",
        "farmiq.cloud.reports.service",
        reads="report_subscriptions, companies, farms, barns, batches, kpi_daily, batch_days, "
        "breed_standards, barn_events, alert_episodes, alert_channels, the clock",
        writes="reports, alert_messages",
    ),
    _service(
        "cloud-camera-calendar",
        "farmiq.cloud.camera.calendar.service",
        reads=("the clock", "sites", "devices", "device_schedule_changes", "device_wake_payloads"),
        writes="site_device_sessions, expected_wakes, devices, device_schedule_changes, "
        "device_images, device_wake_payloads, device_alerts",
    ),
    _service(
        "cloud-camera-accounts",
        "farmiq.cloud.camera.accounts.service",
        reads="pilot_programs, sites, devices, site_device_sessions, expected_wakes, "
        "device_wake_payloads, device_images, petri_observations, "
        "device_schedule_changes, device_alerts, camera_commands, camera_quarantine, the "
        "cloud's bucket, sign_ins, memberships, POST /api/v1/camera/…",
        writes="pilot_programs, sites, devices, device_schedule_changes, device_images, "
        "device_alerts, camera_commands, GET /api/v1/camera/…",
    ),
    _service(
        "cloud-deadletter-service",
        "farmiq.cloud.deadletter.service",
        reads="farmiq.*.dlq.queue, farmiq.cloud-ingestion.unrouted.queue, sign_ins, "
        "memberships, companies, dead_letter_orders, POST /api/v1/dead-letters/redrive, POST "
        "/api/v1/dead-letters/discard",
        writes=(
            "farmiq.retry.exchange",
            "farmiq.*.exchange",
            "dead_letter_actions",
            "dead_letter_groups",
            "dead_letter_orders",
            "bus_queues",
            "alert_episodes",
            "GET /api/v1/dead-letters",
        ),
    ),
    _service(
        "cloud-console",
        "farmiq.cloud.console.service",
        reads="telemetry_latest, telemetry_readings, telemetry_agg, device_events, "
        "weight_sessions, weighvision_events, media_objects, sites, devices, "
        "site_device_sessions, expected_wakes, device_wake_payloads, device_images, "
        "petri_observations, device_alerts, the cloud's bucket, companies, users, "
        "sign_ins, memberships, farms, barns, batches, breed_standards, feed_products, "
        "kpi_daily, batch_days, barn_events, feed_events, alert_episodes, alert_steps, "
        "alert_messages, alert_rules, alert_windows, alert_channels, alert_contacts, edge_keys, "
        "edge_heartbeats, edge_hours, dead_letter_groups, dead_letter_orders, bus_queues, "
        "event_conflicts, camera_quarantine, second_factors, reports, report_subscriptions, all "
        "audit logs",
        writes="device_schedule_changes, device_images, sign_ins, posted_events, batches, "
        "users, second_factors, memberships, user_actions, report_subscriptions, edge_invites, "
        "edge_keys, edge_actions, "
        "dead_letter_orders, master_data_actions, alert_episodes, alert_steps, alert_rules, "
        "alert_windows, alert_channels, alert_contacts, alert_messages, pages, GET "
        "/api/v1/telemetry/latest, GET /api/v1/weighvision/sessions, GET "
        "/api/v1/weighvision/sessions/{session_id}",
    ),
)

SITES = ("edge", "cloud")
# Where each site has its schema, migrations and functions.
SQL = {site: Path(__file__).parent / site / "sql" for site in SITES}


def named(what: str) -> tuple[Service, ...]:
    """The services behind a name: one, a site, or `all`. Raises KeyError with the choices."""
    matches = tuple(s for s in SERVICES if what in (s.name, s.site, "all"))
    if not matches:
        names = ", ".join(["all", *SITES, *(service.name for service in SERVICES)])
        raise KeyError(f"there is no service {what!r}; choose one of: {names}")
    return matches


def flow() -> str:
    """The list as text: reads → service → writes. docs/develop/flow.md shows the same."""
    lines = []
    for site in (AGENT.site, *SITES):
        lines.append(site)
        for service in (AGENT, *SERVICES):
            if service.site == site:
                lines += [
                    *(f"    {'':28}{what}" for what in service.reads),
                    f"    → {service.name}",
                    *(f"    {'':28}→ {what}" for what in service.writes),
                ]
    return "\n".join(lines) + "\n"
