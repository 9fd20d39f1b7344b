"""Reports from the database to the mailbox: true, once, and of one's own company only."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from math import fsum
from pathlib import Path

import pytest
from typer.testing import CliRunner

from farmiq import crash
from farmiq.cli import app
from farmiq.cloud.identity import session
from farmiq.cloud.notification import service as notification
from farmiq.cloud.reports import files, jobs, store
from farmiq.cloud.reports.files import Subject
from farmiq.cloud.reports.jobs import ReportJob
from farmiq.cloud.reports.model import BatchReport
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http
from farmiq.plumbing.runtime.clock import AgeGuard
from tests.integration.cloud.reports.conftest import ANN, Site
from tests.support import preloaded
from tests.support.mail_server import MailServer
from tests.support.until import until

BATCH = Subject("f", "b")


async def gathered(site: Site, pool: db.Pool, token: str) -> files.Gathered | None:
    """What a person sees."""
    async with session.as_person(pool, token) as tx:
        return await files.gather(tx, "hill", BATCH, site.week, now=site.now)


async def test_no_report_is_made_by_a_clock_that_is_ahead_nor_missing_when_it_is_back(
    site: Site, pool: db.Pool
) -> None:
    subscription_id = site.subscribe()
    await AgeGuard(pool, "test").look()
    site.ahead("60 days")
    assert await ReportJob(pool).job().do() == {}
    assert site.run("select count(*) from reports") == [(0,)]
    site.ahead("0")
    # An earlier version made one.
    site.run(
        "insert into reports (tenant_id, report_id, subscription_id, farm_id, batch_id, period, "
        "first_day, address, language, file_name, created_at, created_by) "
        "values ('hill', gen_random_uuid(), %s, 'f', 'b', 'week', %s, %s, 'en', '', %s, 'ann')",
        subscription_id, site.week.first + timedelta(days=56), ANN, site.now,
    )  # fmt: skip
    job = ReportJob(pool).job()
    assert await job.do() == {"made": 1}
    assert await job.do() == {"made": 0}


async def test_report_says_what_kpi_daily_says(site: Site, pool: db.Pool) -> None:
    made = await gathered(site, pool, site.tokens["ann"])
    assert made is not None
    report = made.report
    assert isinstance(report, BatchReport)

    rows = site.run(
        "select distinct on (kpi_type) kpi_type, value, expected_value from kpi_daily "
        "where tenant_id = 'hill' and batch_id = 'b' and kpi_date <= %s "
        "order by kpi_type, kpi_date desc",
        site.week.last,
    )
    assert {kind: (f.value, f.expected_value) for kind, f in report.latest.items()} == {
        kind: (value, expected) for kind, value, expected in rows
    }
    ((feed,),) = site.run(
        "select sum(value) from kpi_daily where tenant_id = 'hill' and kpi_type = 'intake_kg' "
        "and kpi_date between %s and %s",
        site.week.first, site.week.last,
    )  # fmt: skip
    ((dead,),) = site.run(
        "select sum(dead) from batch_days where tenant_id = 'hill' "
        "and kpi_date between %s and %s",
        site.week.first, site.week.last,
    )  # fmt: skip
    assert report.now.feed_kg == pytest.approx(feed)
    assert report.now.dead == dead
    assert report.now.feed_kg == fsum(line.feed_kg or 0 for line in report.lines)
    assert len(report.lines) == 7
    assert len(report.weighed) == 31


async def test_another_company_sees_neither_reports_nor_subscriptions(
    site: Site, pool: db.Pool
) -> None:
    site.subscribe()
    await ReportJob(pool).make_due()
    ((report_id,),) = site.run("select report_id from reports")

    assert await gathered(site, pool, site.tokens["other"]) is None
    for who, seen in (("ann", 1), ("other", 0)):
        async with session.as_person(pool, site.tokens[who]) as tx:
            assert len(await store.reports(tx, "hill", limit=10)) == seen
            assert len(await store.subscriptions(tx, "hill")) == seen
            assert (await store.file(tx, "hill", report_id) is not None) == bool(seen)


async def test_report_is_made_once_however_often_and_by_how_many(site: Site, pool: db.Pool) -> None:
    site.subscribe()
    site.subscribe("farm@hill.farm", batch_id=None)

    await asyncio.gather(*(ReportJob(pool).make_due() for _ in range(3)))
    await ReportJob(pool).make_due()

    rows = site.run("select address, first_day, length(file) from reports order by address")
    assert [(address, first) for address, first, _size in rows] == [
        (ANN, site.week.first),
        ("farm@hill.farm", site.week.first),
    ]
    assert all(size > 10_000 for _address, _first, size in rows)
    assert site.run("select count(*), count(distinct message_id) from alert_messages") == [(2, 2)]


async def test_subscription_of_a_batch_that_was_not_there_sends_nothing(
    site: Site, pool: db.Pool
) -> None:
    site.subscribe()
    site.run("update batches set closed_on = placed_on")

    assert await ReportJob(pool).make_due() == {"made": 0}
    assert site.run("select file, message_id from reports") == [(None, None)]
    assert site.run("select count(*) from alert_messages") == [(0,)]


async def test_new_subscription_waits_for_the_next_period(site: Site, pool: db.Pool) -> None:
    subscription_id = site.subscribe()
    site.run("update report_subscriptions set created_at = %s", site.now)
    async with db.transaction(pool) as tx:
        (subscription,) = await store.subscriptions(tx, "hill")

    assert subscription.subscription_id == subscription_id
    assert jobs.due(subscription, now=site.now) is None
    later = jobs.due(subscription, now=site.now + timedelta(days=8))
    assert later is not None
    assert later.first > site.week.first


def sending(site: Site, mailbox: MailServer) -> CloudSettings:
    return CloudSettings.load(
        {
            "FARMIQ_CLOUD_DB_URL": site.database.url,
            "FARMIQ_AMQP_URL": "amqp://unused",
            "FARMIQ_EDGE_KEYS_FILE": "unused",
            "FARMIQ_ALERT_SMTP_URL": mailbox.url,
            "FARMIQ_ALERT_MAIL_FROM": "FarmIQ <reports@example.com>",
        }
    )


async def test_killed_while_making_each_report_arrives_once_with_its_file(
    site: Site,
    pool: db.Pool,
    mailbox: MailServer,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    """The service dies at each point; then the outbox sends what is there."""
    points = [point for point in crash.POINTS if point.startswith("reports.")]
    assert points == ["reports.after_draw", "reports.before_commit", "reports.after_commit"]
    site.subscribe()
    for point in points:
        environment = {
            **os.environ,
            "FARMIQ_CLOUD_DB_URL": site.database.url,
            "FARMIQ_AMQP_URL": "amqp://unused",
            "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
            "FARMIQ_CRASH_AT": point,
        }
        dying = preloaded.run("cloud-reports-service", environment, log=tmp_path / f"{point}.log")
        await until(partial(_ended, dying), within_s=60)
        assert dying.returncode == -signal.SIGKILL, point
        kept = 1 if point == "reports.after_commit" else 0
        assert site.run("select count(*) from reports") == [(kept,)], point
    await ReportJob(pool).make_due()
    server = http.HttpServer(title="cloud", version="0")
    running = asyncio.create_task(notification.run(sending(site, mailbox), server))
    try:
        await until(lambda: bool(mailbox.received), within_s=30)
        await until(lambda: site.run("select state from alert_messages") == [("sent",)])
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    (received,) = mailbox.received
    (attached,) = received.iter_attachments()
    assert received["To"] == ANN
    assert "Barn 1, batch b" in str(received["Subject"])
    assert "below the standard" in received.get_body().get_content()  # type: ignore[union-attr]
    assert attached.get_filename() == f"farmiq-{site.week.name}-b.pdf"
    ((stored,),) = site.run("select file from reports")
    assert attached.get_payload(decode=True) == bytes(stored)
    assert site.run("select used from alert_mail_counts") == [(1,)]


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


def test_command_makes_sends_and_lists_reports(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FARMIQ_CLOUD_DB_URL", site.database.url)
    target, period = tmp_path / "r.pdf", site.week.name
    common = ["--tenant", "hill", "--period", period]

    def run(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["report", *arguments])
        return result.exit_code, result.output

    assert run("make", *common, "--batch", "b", "--out", str(target))[0] == 0
    assert target.read_bytes().startswith(b"%PDF-")
    code, said = run("make", *common, "--batch", "none")
    assert (code, "has no batch none" in said) == (2, True)
    assert run("make", *common)[0] == 2
    assert run("send", *common, "--farm", "f", "--to", "nobody")[0] == 2
    assert run("send", *common, "--farm", "f", "--to", ANN)[0] == 0
    code, listed = run("ls", "--tenant", "hill")
    assert code == 0
    assert period in listed
    assert "pending" in listed
