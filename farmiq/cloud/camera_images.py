"""The bytes of a camera image, for people of its company, in the console and the API."""

from typing import NamedTuple
from uuid import UUID

from farmiq.config import CloudSettings
from farmiq.plumbing import db, objects
from farmiq.plumbing.gallery import Gallery
from farmiq.plumbing.http import HttpError

# The gateway's folder in the bucket, with a folder per company.
FOLDER = "camera/"


class Stored(NamedTuple):
    """Object key and ETag of an image."""

    key: str
    tag: str


def gallery(settings: CloudSettings) -> Gallery | None:
    """None if this cloud has no object store."""
    if settings.s3_url is None:
        return None
    return Gallery(objects.Bucket(settings.s3_url.get_secret_value(), tls=settings.tls))


async def stored(connection: db.Connection, image_id: UUID) -> Stored:
    """As the person. Raises HttpError 404 if their company has no such stored image."""
    rows = await db.fetch_all(
        connection,
        """
        select company_id, image_url, extract(epoch from received_at)::text
        from device_images where image_id = %s and status = 'complete'
        """,
        image_id,
    )
    if not rows:
        raise HttpError(404, "there is no such image")
    company_id, key, received = rows[0]
    # An invented address must not open other objects of the bucket.
    if not key.startswith(f"{FOLDER}{company_id}/"):
        raise HttpError(404, "this image is not kept in the store of this cloud")
    return Stored(key, f"{image_id}-{received}")


def opened(gallery: Gallery | None) -> Gallery:
    """Raises HttpError 503 if this cloud has no object store."""
    if gallery is None:
        raise HttpError(
            503, "this cloud has no object store (FARMIQ_CLOUD_S3_URL)", retry_after_s=60
        )
    return gallery
