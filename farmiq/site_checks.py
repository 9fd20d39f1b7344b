"""What `farmiq doctor` looks at beside what answers: rights, versions, keys, jobs, backups."""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx2
import psycopg
from cryptography import x509
from prometheus_client.parser import text_string_to_metric_families

from farmiq import __version__, config
from farmiq.edge.identity import Identity
from farmiq.farm import months
from farmiq.plumbing import db
from farmiq.plumbing.backup import marks
from farmiq.plumbing.bus.amqp import QueueCount
from farmiq.plumbing.tls import Tls
from farmiq.plumbing.tokens import TokenError

# What was seen, and what to do about it: nothing, if all is well.
Finding = tuple[str, str]

TIMEOUT_S = 5.0
HTTP_OK = 200
DENIED = (401, 403)
# So long before its end a certificate is told of.
CERTIFICATE_DAYS = 14
# A daily job may be a little late.
MAX_JOB_AGE_S = 36 * 3600.0
# How much older than wanted a backup may be: a copy takes a while.
BACKUP_SLACK = 2.0
MAX_WAL_AGE_S = 900.0
# A quarter, and some days.
MAX_DRILL_AGE_S = 100 * 86_400.0
READINGS = {"edge": "telemetry_raw", "cloud": "telemetry_readings"}
CONTEXT = "/api/v1/edges/context"


def read_only_problem(url: str) -> str | None:
    """Why nothing can be written: a standby, a server or a role that was set to read only."""
    with psycopg.connect(url, connect_timeout=5) as connection:
        row = connection.execute(
            "select pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'"
        ).fetchone()
    standby, read_only = row or (False, False)
    if standby:
        return "it is a standby and takes no writes"
    return "it is set to read only (default_transaction_read_only)" if read_only else None


async def partitions(site: str, tx: db.Connection) -> Finding:
    """Whether this month and the next have their own part of the readings' table."""
    table = READINGS[site]
    today = (await months.today(tx)).replace(day=1)
    wanted = {today, months.add_months(today, 1)}
    missing = sorted(wanted.difference(await months.partitions(tx, table)))
    # By size: what a role may see of the rows does not matter.
    used = await db.fetch_value(
        tx,
        "select coalesce(sum(pg_relation_size(inhrelid)), 0) > 0 from pg_inherits "
        "where inhparent = %s::regclass",
        table,
    )
    if not missing or not used:
        return f"{table} has its months", ""
    named = ", ".join(f"{month:%Y-%m}" for month in missing)
    remedy = f"is `farmiq run {site}` running? Its log says why telemetry.months fails (job.failed)"
    return f"{table} lacks {named}", remedy


async def certificate(tls: Tls) -> Finding:
    """Until when the certificate that we show is good."""
    file = tls.cert_file or Path()
    try:
        ends_at = x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        return f"{file} cannot be read: {error}", "correct FARMIQ_TLS_CERT_FILE"
    left = ends_at - datetime.now(UTC)
    remedy = "renew it and put it into FARMIQ_TLS_CERT_FILE: it is taken without a restart"
    if left < timedelta(0):
        return f"{file} expired at {ends_at:%Y-%m-%d %H:%M} UTC", remedy
    soon = left < timedelta(days=CERTIFICATE_DAYS)
    return f"{file} is good for {left.days} days", remedy if soon else ""


async def edge_key(settings: config.EdgeSettings, tx: db.Connection) -> Finding:
    """Whether the cloud takes what this edge signs; asked in the name of one of its tenants."""
    again = "`farmiq edge enroll` makes a new one; see docs/operate/enrolment.md"
    try:
        identity = Identity(settings)
        rows = await db.fetch_all(tx, "select tenant_id from sync_state order by 1 limit 1")
        token = identity.token(rows[0][0] if rows else "-")
    except (TokenError, ValueError, TypeError, KeyError) as error:
        return f"{settings.edge_key_file} is no key: {error}", again
    if not rows:
        return f"{settings.edge_key_file} is there; nothing was sent yet", ""
    url = settings.cloud_url.rstrip("/") + CONTEXT
    try:
        verify = settings.tls.client() if url.startswith("https") else True
        async with httpx2.AsyncClient(timeout=TIMEOUT_S, verify=verify) as client:
            answer = await client.get(url, headers={"Authorization": f"Bearer {token}"})
    except (httpx2.HTTPError, OSError):
        return "the cloud could not be asked whether it takes this key", ""
    if answer.status_code not in DENIED:
        return "the cloud takes this key", ""
    why = _message(answer)
    return f"the cloud refuses this key ({answer.status_code}): {why}", again


def _message(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.reason_phrase


async def version(base_url: str, site: str) -> Finding:
    """Whether what runs is what is installed."""
    try:
        async with httpx2.AsyncClient(timeout=TIMEOUT_S, verify=False) as client:
            running = str((await client.get(f"{base_url}/version")).json()["version"])
    except (httpx2.HTTPError, ValueError, KeyError, TypeError):
        return "nothing runs that could say its version", ""
    if running == __version__:
        return f"{running} runs", ""
    return (
        f"{running} runs, and {__version__} is installed here",
        (
            f"restart the services (`farmiq run {site}`) so that one version runs; first "
            f"`farmiq migrate {site} --phase pre`"
        ),
    )


async def jobs(base_url: str, token: str | None) -> Finding:
    """Periodic work that fails, by what the services count; that nothing answers is told elsewhere.

    `token` is none unless figures by tenant are wanted.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        async with httpx2.AsyncClient(timeout=TIMEOUT_S, verify=False) as client:
            answer = await client.get(f"{base_url}/metrics", headers=headers)
    except httpx2.HTTPError:
        return "nothing runs that could say how its jobs go", ""
    if answer.status_code != HTTP_OK:
        return "/metrics is not shown to us", ""
    try:
        return check_jobs(answer.text, now_s=time.time())
    except (ValueError, KeyError):
        return "what answers there are no metrics of ours", ""


def check_jobs(metrics: str, *, now_s: float) -> Finding:
    """Pure: jobs that failed and have not gone well since long, or never."""
    failed: dict[str, float] = {}
    good_at: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            job = sample.labels.get("chore", "")
            if sample.name == "farmiq_chore_runs_total" and sample.labels["outcome"] == "failed":
                failed[job] = sample.value
            elif sample.name == "farmiq_chore_last_success_seconds":
                good_at[job] = sample.value
    bad = sorted(
        job
        for job, count in failed.items()
        if count and now_s - good_at.get(job, 0.0) > MAX_JOB_AGE_S
    )
    detail = f"{len(good_at)} jobs went well"
    if bad:
        names = ", ".join(bad)
        return f"{detail}; {names} fails", f"look for job.failed with name {bad[0]} in the log"
    return detail, ""


def check_consumers(counts: Mapping[str, QueueCount], services: Mapping[str, str]) -> Finding:
    """Pure: queues in which something waits that nobody takes; `services` by queue."""
    lonely = [
        queue
        for queue, count in counts.items()
        if queue in services and count.messages and not count.consumers
    ]
    if not lonely:
        return "every queue with messages has its consumer", ""
    waiting = sum(counts[queue].messages for queue in lonely)
    who = services[lonely[0]]
    return (
        f"{waiting:,} events wait in {', '.join(lonely)}, and nobody takes them",
        f"start {who}: `farmiq run {who}`, or `farmiq run cloud`",
    )


async def backups(site: str, environment: Mapping[str, str]) -> Finding:
    """How old the last whole copy and the last stored change are."""
    return await asyncio.to_thread(backups_finding, site, environment)


def backups_finding(site: str, environment: Mapping[str, str]) -> Finding:
    from farmiq.config.backup import BackupSettings  # noqa: PLC0415 - few sites' doctor needs it
    from farmiq.plumbing import sealing  # noqa: PLC0415
    from farmiq.plumbing.backup import database, repository, sealed  # noqa: PLC0415

    settings = BackupSettings.load(environment)
    url = settings.url.get_secret_value().rstrip("/")
    start = f"is `farmiq backup stream {site}` running? `farmiq backup run {site}` makes one now"
    try:
        keys = sealing.read_keys(settings.key_file)
        opened = repository.open_at(f"{url}/{site}", keys=keys, tls=settings.tls)
        bases, covered = database.bases(opened), database.covered(opened)
    except (
        repository.RepositoryError, sealing.SealError, sealed.UnsealError, OSError
    ) as error:  # fmt: skip
        return f"the repository cannot be read: {error}", "correct FARMIQ_BACKUP_URL and its key"
    if not bases:
        return "there is no backup", start
    now = datetime.now(UTC)
    age_h = (now - bases[-1].ended_at).total_seconds() / 3600
    wal_s = (now - covered.at).total_seconds() if covered else None
    stored = "no change was stored" if wal_s is None else f"changes until {wal_s:,.0f} s ago"
    old = age_h > settings.base_hours * BACKUP_SLACK
    old = old or wal_s is None or wal_s > max(MAX_WAL_AGE_S, settings.wal_s * BACKUP_SLACK)
    detail = f"the last copy is {age_h:,.0f} h old; {stored}"
    if not old and _is_on_one_disk(url, settings.spool):
        detail += "; it is on the disk of what it is a copy of"
        return detail, "mount another machine's disk at the folder of FARMIQ_BACKUP_URL"
    return detail, start if old else ""


def _is_on_one_disk(url: str, spool: Path) -> bool:
    parts = urlsplit(url)
    try:
        return parts.scheme == "file" and (
            Path(unquote(parts.path)).stat().st_dev == spool.stat().st_dev
        )
    except OSError:
        return False


async def drill(site: str, tx: db.Connection) -> Finding:
    """What the last drill and the last reading of the backup found, wherever they ran."""
    if await db.fetch_value(tx, "select to_regclass('backup_marks') is null"):
        return "its schema is too old to say", ""
    return check_drill(site, await marks.read(tx), now=datetime.now(UTC))


def check_drill(site: str, noted: Mapping[str, marks.Mark], *, now: datetime) -> Finding:
    """Pure: a site that never had a drill may be new."""
    for name, command in ((marks.DRILL, f"drill {site}"), (marks.VERIFY, f"backup verify {site}")):
        if name in noted and (problem := noted[name].problem):
            words = f"`farmiq {command}` of {noted[name].at:%Y-%m-%d %H:%M} UTC found: {problem}"
            return words, f"the backup cannot be trusted: mend it, then `farmiq {command}`"
    if marks.DRILL not in noted:
        return "no drill was made yet", ""
    age_s = (now - noted[marks.DRILL].at).total_seconds()
    remedy = f"`farmiq drill {site}` proves that the backup can be restored"
    return f"the last was {age_s / 86_400:,.0f} days ago", (
        remedy if age_s > MAX_DRILL_AGE_S else ""
    )
