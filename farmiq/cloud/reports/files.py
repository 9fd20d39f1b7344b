"""Makes the PDF of a report: first what it says, from the database, then the file, in a thread."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from farmiq.cloud.reports import model, queries, wording
from farmiq.cloud.reports.model import BatchReport, FarmReport, Made
from farmiq.cloud.reports.paper import document
from farmiq.cloud.reports.periods import Period
from farmiq.plumbing import db
from farmiq.ui import i18n


@dataclass(frozen=True, slots=True)
class Subject:
    """A farm, or one batch of it."""

    farm_id: str
    batch_id: str | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    report: FarmReport | BatchReport
    made: Made

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to tell: no animals were there, and nothing was wrong."""
        report = self.report
        if isinstance(report, BatchReport):
            return not report.days
        return not report.batches and not report.alerts.count


@dataclass(frozen=True, slots=True)
class File:
    name: str
    title: str
    headline: str
    content: bytes = field(repr=False)


async def gather(
    tx: db.Connection, tenant_id: str, subject: Subject, period: Period, *, now: datetime
) -> Gathered | None:
    """What the report says, with the caller's rights; None if there is no such farm or batch."""
    made = Made(company=await queries.company_name(tx, tenant_id), made_at=now)
    if subject.batch_id is not None:
        batch = await queries.batch(tx, tenant_id, subject.batch_id)
        if batch is None or batch.farm_id != subject.farm_id:
            return None
        facts = await queries.batch_facts(tx, tenant_id, batch, period)
        return Gathered(model.batch_report(facts, period), made)
    farm = await queries.farm(tx, tenant_id, subject.farm_id)
    if farm is None:
        return None
    whole = await queries.farm_facts(tx, tenant_id, farm, period)
    return Gathered(model.farm_report(whole, period), made)


def draw(gathered: Gathered, *, language: str) -> File:
    """The file, in this language. Takes some tenths of a second of a core."""
    report = gathered.report
    with i18n.use(language):
        if isinstance(report, BatchReport):
            return File(
                wording.file_name(report.period, subject=report.batch.batch_id),
                wording.batch_title(report),
                wording.batch_headline(report),
                document.batch_pdf(report, gathered.made),
            )
        return File(
            wording.file_name(report.period, subject=report.farm.farm_id),
            report.farm.name,
            wording.farm_headline(report),
            document.farm_pdf(report, gathered.made),
        )


async def drawn(gathered: Gathered, *, language: str) -> File:
    """As `draw`, in a thread: other requests go on meanwhile."""
    return await asyncio.to_thread(draw, gathered, language=language)
