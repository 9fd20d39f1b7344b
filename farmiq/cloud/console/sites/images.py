"""Pure: the page of one camera image, from its row and the time."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from uuid import UUID

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.sites import view as sites
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

STATUS_WORDS = {
    "complete": marked("here"),
    "receiving": marked("on its way"),
    "failed": marked("failed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image of a camera; site and day are those of its wake, if any."""

    image_id: UUID
    device_id: UUID
    device_name: str
    image_name: str
    captured_at: datetime
    status: str
    received_at: datetime | None
    image_size: int | None
    error_message: str | None
    quality: str | None
    quality_reason: str | None
    width_px: int | None
    height_px: int | None
    sha256: str | None
    site_id: UUID | None
    site_name: str | None
    timezone: str | None
    session_date: date | None


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    now: datetime
    image: Image
    zone: str
    captured: str
    facts: tuple[tuple[str, str], ...]
    previous: str | None
    following: str | None
    page: str = "sites"

    @property
    def title(self) -> str:
        return f"{words.cut(self.image.device_name)}, {self.captured}"

    @property
    def here(self) -> bool:
        return self.image.status == "complete"

    @property
    def file(self) -> str:
        return f"{address(self.image.image_id)}/file?company={self.company.company_id}"

    @property
    def site(self) -> str | None:
        """The day of the site that the image belongs to."""
        image = self.image
        if image.site_id is None:
            return None
        day = sites.site_address(image.site_id, day=image.session_date, camera=image.device_id)
        return f"{day}#i-{image.image_id}"


def address(image_id: UUID) -> str:
    return f"/sites/images/{image_id}"


def view(
    company: Company, image: Image, *, before: UUID | None, after: UUID | None, now: datetime
) -> View:
    zone = words.zone(image.timezone or company.timezone)
    captured = image.captured_at.astimezone(zone)
    return View(
        company=company,
        now=now,
        image=image,
        zone=words.zone_name(zone, now),
        captured=f"{words.day(captured.date())}, {captured:%H:%M:%S}",
        facts=tuple(_facts(image)),
        previous=address(before) if before else None,
        following=address(after) if after else None,
    )


def _facts(image: Image) -> Iterator[tuple[str, str]]:
    yield _("Captured (UTC)"), f"{image.captured_at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    if image.received_at is not None:
        waited_s = (image.received_at - image.captured_at).total_seconds()
        yield _("Arrived"), _("%(time)s later") % {"time": words.duration(waited_s)}
    yield _("Bytes"), _(STATUS_WORDS[image.status])
    if image.error_message:
        yield _("Why"), words.cut(image.error_message, 300)
    if image.image_size is not None:
        yield _("Size"), _("%(count)s bytes") % {"count": words.number(image.image_size)}
    if image.width_px and image.height_px:
        size = {"width": image.width_px, "height": image.height_px}
        yield _("Pixels"), _("%(width)s by %(height)s") % size
    if image.quality is not None:
        reason = f": {words.cut(image.quality_reason, 200)}" if image.quality_reason else ""
        yield _("Quality"), f"{image.quality}{reason}"
    yield _("Name on the camera"), words.cut(image.image_name)
