"""The rules for Prometheus: each names metrics that there are, has a runbook, fires and ends."""

import re
import subprocess
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from farmiq.contracts import metrics
from farmiq.lab.stack import debian
from tests.support.engines import state_dir

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy" / "alerts.yaml"
RUNBOOKS = "docs/operate/runbooks.md"
RULES: dict[str, Any] = {
    rule["alert"]: rule
    for group in yaml.safe_load(FILE.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
# promtool's steps, and how many of them an hour has.
STEP_S = 300
HOUR = 12
# Of each rule the series that make it fire, in the words of `values`.
SERIES: dict[str, dict[str, str]] = {
    "FarmiqQueueFilling": {
        'farmiq_bus_queue_messages{queue="q"}': "level 60",
        'farmiq_bus_queue_limit{queue="q"}': "always 100",
    },
    "FarmiqQueueNearlyFull": {
        'farmiq_bus_queue_messages{queue="r"}': "level 90",
        'farmiq_bus_queue_limit{queue="r"}': "always 100",
    },
    "FarmiqDeadLetters": {
        'farmiq_bus_queue_messages{queue="farmiq.cloud-feed-service.dlq.queue"}': "level 1"
    },
    "FarmiqUnrouted": {
        'farmiq_bus_queue_messages{queue="farmiq.cloud-ingestion.unrouted.queue"}': "level 1"
    },
    "FarmiqPublishRefused": {
        'farmiq_bus_publish_failed_total{service="s",outcome="refused"}': "rises"
    },
    "FarmiqEventConflict": {'farmiq_ingestion_events_total{outcome="conflict"}': "rises"},
    "FarmiqEdgeSilent": {'farmiq_edges{state="silent"}': "level 1"},
    "FarmiqEdgeKeyReplaced": {"farmiq_edge_key_rotations_total": "rises"},
    "FarmiqDeliveryStalled": {"farmiq_sync_oldest_seconds": "level 901"},
    "FarmiqDeliverySetAside": {"farmiq_sync_dlq": "level 1"},
    "FarmiqQuarantineGrows": {'farmiq_ingress_refused_total{instance="i",kind="k"}': "rises"},
    "FarmiqQuarantineDrops": {"farmiq_quarantine_dropped_total": "rises"},
    "FarmiqIngressBehind": {"farmiq_ingress_lag_seconds": "level 61"},
    "FarmiqBrokerLogFills": {
        "farmiq_ingress_log_bytes": "level 51",
        "farmiq_ingress_log_max_bytes": "always 100",
    },
    "FarmiqDiskFills": {'farmiq_disk_used_percent{path="/"}': "level 86"},
    "FarmiqDiskSheds": {'farmiq_disk_shed_total{what="images"}': "rises"},
    "FarmiqReadingsMissing": {"farmiq_ingress_seq_missing": "level 3"},
    "FarmiqWeighingsIncomplete": {"farmiq_weighvision_incomplete_sessions": "level 1"},
    "FarmiqVisionStands": {"farmiq_vision_oldest_seconds": "level 1801"},
    "FarmiqSiloFails": {"farmiq_feed_derivation_failed_total": "rises"},
    "FarmiqSirenFails": {'farmiq_siren_driven_total{output="o",outcome="failed"}': "rises"},
    "FarmiqEdgeMailFails": {'farmiq_local_alert_mails_total{outcome="given_up"}': "rises"},
    "FarmiqImagesMissing": {'farmiq_media_missing{tenant_id="t"}': "level 1"},
    "FarmiqImagesWaiting": {"farmiq_media_unsynced_oldest_seconds": "level 86401"},
    "FarmiqBucketsBehind": {"farmiq_cloud_telemetry_dirty_oldest_seconds": "level 901"},
    "FarmiqFiguresBehind": {"farmiq_analytics_behind_seconds": "level 3601"},
    "FarmiqReportsFail": {'farmiq_reports_total{outcome="failed"}': "rises"},
    "FarmiqAlertRulesBehind": {"farmiq_alert_readings_behind_seconds": "level 121"},
    "FarmiqMessagesBehind": {"farmiq_alert_messages_behind_seconds": "level 301"},
    "FarmiqMessagesFail": {
        'farmiq_alert_messages_total{instance="i",kind="mail",outcome="failed"}': "rises"
    },
    "FarmiqNobodyTold": {"farmiq_alert_steps_without_contact_total": "rises"},
    "FarmiqCalendarStopped": {
        'farmiq_chore_last_success_seconds{chore="calendar.open"}': "stops 2"
    },
    "FarmiqCalendarSiteFailing": {'farmiq_calendar_sites_failing{step="open"}': "level 1"},
    "FarmiqCountersDiffer": {"farmiq_calendar_counters_differing": "level 1"},
    "FarmiqCamerasUnknown": {"farmiq_cameras_unknown": "level 1"},
    "FarmiqCameraBrokerRefuses": {'farmiq_camera_broker_refusals_total{kind="k"}': "rises"},
    "FarmiqCamerasBehind": {"farmiq_camera_log_lag_seconds": "level 301"},
    "FarmiqCameraLogFills": {"farmiq_camera_log_ratio": "level 0.6"},
    "FarmiqCameraLogRewound": {"farmiq_camera_log_rewound_total": "rises"},
    "FarmiqCameraBrokerFills": {"farmiq_camera_broker_store_ratio": "level 0.5"},
    "FarmiqZonesDiffer": {"farmiq_calendar_zones_differing": "level 1"},
    "FarmiqProcessAway": {'up{job="farmiq-edge",instance="i"}': "falls"},
    "FarmiqServiceRestarts": {'farmiq_service_restarts_total{service="s"}': "rises"},
    "FarmiqServerErrors": {
        'farmiq_http_requests_total{instance="i",route="/r",status="503"}': "rises"
    },
    "FarmiqConnectionsFull": {
        'farmiq_http_connections_full_total{limit="all",outcome="refused"}': "rises"
    },
    "FarmiqChoreFails": {'farmiq_chore_runs_total{chore="c",outcome="failed"}': "rises"},
    "FarmiqRetentionStopped": {
        'farmiq_chore_last_success_seconds{chore="sync.retention"}': "stops 48"
    },
    "FarmiqMonthsStopped": {
        'farmiq_chore_last_success_seconds{chore="telemetry.months"}': "stops 3"
    },
    "FarmiqBackupOld": {'farmiq_backup_last_seconds{mark="copy"}': "level -172801"},
    "FarmiqBackupChangesBehind": {'farmiq_backup_last_seconds{mark="change"}': "stops 2"},
    "FarmiqBackupFailed": {'farmiq_backup_failed{mark="drill"}': "level 1"},
    "FarmiqBackupDrillOld": {'farmiq_backup_last_seconds{mark="drill"}': "level -8640001"},
    "FarmiqTracesDropped": {'farmiq_trace_spans_total{outcome="dropped"}': "rises"},
}


def values(how: str) -> tuple[str, int]:
    """The values of a series, step by step, and for how many steps they are bad.

    An hour well, then bad, then well until `increase` has forgotten it, a day and a half at most.
    """
    word, _, number = how.partition(" ")
    bad, after = 2 * HOUR, 36 * HOUR
    match word:
        case "level":
            return f"0x{HOUR} {number}x{bad} 0x{after}", bad
        case "rises":
            return f"0x{HOUR} 10+10x{bad} {10 * (bad + 1)}x{after}", bad
        case "falls":
            return f"1x{HOUR} 0x{bad} 1x{after}", bad
        case "stops":  # the moment of the last good round stands still, then goes on
            bad = int(number) * HOUR
            now = STEP_S * (HOUR + bad + 2)
            return f"0+{STEP_S}x{HOUR} {STEP_S * HOUR}x{bad} {now}+{STEP_S}x{after}", bad
        case _:
            return f"{number}x{HOUR + bad + after}", bad


def promtool_test() -> dict[str, Any]:
    """What promtool reads: each rule is quiet, fires while it is bad, and ends.

    All series in one test: promtool evaluates every rule at every step of each test.
    """
    checks: list[dict[str, Any]] = []
    for alert, series in SERIES.items():
        bad = max(values(how)[1] for how in series.values())
        firing = f'group(ALERTS{{alertname="{alert}",alertstate="firing"}})'
        fires = [{"labels": "{}", "value": 1}]
        moments: dict[int, list[Any]] = {
            HOUR - 1: [],
            HOUR + bad: fires,
            HOUR + bad + 35 * HOUR: [],
        }
        checks += [
            {"expr": firing, "eval_time": f"{step * STEP_S}s", "exp_samples": expected}
            for step, expected in moments.items()
        ]
    every = {name: how for series in SERIES.values() for name, how in series.items()}
    test = {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": name, "values": values(how)[0]} for name, how in every.items()],
        "promql_expr_test": checks,
    }
    return {"rule_files": [str(FILE)], "evaluation_interval": f"{STEP_S}s", "tests": [test]}


def test_every_rule_is_quiet_then_fires_then_ends(tmp_path: Path) -> None:
    assert SERIES.keys() == RULES.keys()
    promtool = debian.promtool_path(state_dir() / "engines")
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(promtool_test()), encoding="utf-8")
    done = subprocess.run(
        [promtool, "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_metric_and_label_of_a_rule_is_in_the_catalogue() -> None:
    known = {entry.name: set(entry.labels) for entry in metrics.entries()}
    for alert, rule in RULES.items():
        names = re.findall(r"farmiq_\w+", rule["expr"])
        assert set(names) <= known.keys(), alert
        labels = set(re.findall(r"(\w+)=~?\"", rule["expr"]))
        labels |= set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        given = {label for name in names for label in known[name]}
        assert labels <= given | {"instance", "job"}, alert


def test_every_rule_has_a_runbook_and_every_runbook_a_rule() -> None:
    page = (ROOT / RUNBOOKS).read_text(encoding="utf-8")
    assert re.findall(r"(?m)^### (\w+)$", page)
    assert set(re.findall(r"(?m)^### (\w+)$", page)) == RULES.keys()
    for alert, rule in RULES.items():
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}#{alert.lower()}"
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}


def test_cameras_broker_that_fills_up_or_was_set_back_raises_an_alert() -> None:
    """In the cloud these have no table of alerts: who runs it hears of them by these rules."""
    assert RULES["FarmiqCameraBrokerFills"]["expr"] == "farmiq_camera_broker_store_ratio >= 0.5"
    assert "farmiq_camera_log_rewound_total" in RULES["FarmiqCameraLogRewound"]["expr"]
