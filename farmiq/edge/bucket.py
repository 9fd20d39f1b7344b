"""The edge's bucket of images."""

from farmiq.config import EdgeSettings
from farmiq.plumbing.storage import objects


def bucket_of(settings: EdgeSettings) -> objects.Bucket | None:
    """None where the settings name none: then no images are taken."""
    if settings.s3_url is None:
        return None
    return objects.Bucket(
        settings.s3_url.get_secret_value(), tls=settings.tls, public_url=settings.s3_public_url
    )
