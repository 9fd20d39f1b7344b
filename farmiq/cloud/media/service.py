"""Media in the cloud: the images of the edges, and their bytes.

farmiq.media.exchange --store.queue--> [media] --media_events, media_objects-->
edge-media-store --presign, PUT--> the cloud's bucket <-- [media] --pictures--> people

The event of an image comes first, by the bus; its bytes are uploaded to the cloud's own bucket and
count as stored after they were read back and are what the edge declared (C-22).
"""

from datetime import timedelta

from farmiq.cloud import bus, sink
from farmiq.cloud.edges.keyring import Keyring
from farmiq.cloud.identity.sign_in import SignIns
from farmiq.cloud.media import store
from farmiq.cloud.media.api import Api
from farmiq.cloud.media.intake import Intake
from farmiq.cloud.sink import Sink
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http
from farmiq.plumbing.images.gallery import Gallery
from farmiq.plumbing.storage import objects

NAME = "cloud-media-store"

SINK = Sink("media", bus.MEDIA, store.apply_events)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    url = settings.db_url.get_secret_value()
    async with db.pool(url, name=NAME, min_size=0, max_size=6, timeout_s=3.0) as pool:
        add_routes(settings, server, pool)
        await sink.run(settings, server, SINK)


def add_routes(settings: CloudSettings, server: http.HttpServer, pool: db.Pool) -> None:
    bucket = _bucket(settings)
    if bucket is None:
        server.note("media.store", lambda: "takes no images: FARMIQ_CLOUD_S3_URL is not set")
    else:
        server.ready("media.store", bucket.problem)
    Intake(settings, pool, Keyring(settings, pool), bucket).add_to(server.app)
    sign_ins = SignIns(pool, lasts=timedelta(hours=settings.sign_in_hours))
    Api(sign_ins, Gallery(bucket, site="cloud")).add_to(server.app)


def _bucket(settings: CloudSettings) -> objects.Bucket | None:
    if settings.s3_url is None:
        return None
    return objects.Bucket(
        settings.s3_url.get_secret_value(), tls=settings.tls, public_url=settings.s3_public_url
    )
