"""The bytes of one camera image, for people of its company; the console and the API use it."""

from typing import NamedTuple
from uuid import UUID

from farmiq.config import CloudSettings
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.images.gallery import Gallery
from farmiq.plumbing.storage import objects

# The gateway's folder in the bucket, with a folder per company.
FOLDER = "camera/"


class Stored(NamedTuple):
    """Object key and ETag of an image."""

    key: str
    tag: str


def gallery(settings: CloudSettings) -> Gallery:
    """cloud-media-store checks whether the object store answers."""
    url = settings.s3_url
    bucket = objects.Bucket(url.get_secret_value(), tls=settings.tls) if url else None
    return Gallery(bucket, site="cloud")


async def stored(connection: db.Connection, image_id: UUID) -> Stored:
    """With the rights of the person. Raises HttpError 404 if their company has no bytes of it."""
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
    # A forged key must not give access to anything else in the bucket.
    if not key.startswith(f"{FOLDER}{company_id}/"):
        raise HttpError(404, "this image is not kept in the store of this cloud")
    return Stored(key, f"{image_id}-{received}")
