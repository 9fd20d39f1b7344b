"""The object store: a bucket of one site, and addresses that accept one thing only."""

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit, urlunsplit

import httpx2
import pytest
from botocore.exceptions import ClientError

from farmiq.lab.simulate.link import linked
from farmiq.plumbing import ids
from farmiq.plumbing.storage.objects import THREADS, Bucket, ObjectHead
from tests.support.until import until

BODY = bytes(range(256)) * 4


@pytest.fixture
def bucket(engines: dict[str, str]) -> Iterator[Bucket]:
    opened = Bucket(engines["FARMIQ_EDGE_S3_URL"])
    yield opened
    opened._s3.close()


@pytest.fixture
def foreign(engines: dict[str, str]) -> Iterator[Bucket]:
    """The edge's credential on the cloud's bucket."""
    theirs = urlsplit(engines["FARMIQ_CLOUD_S3_URL"]).path
    url = urlunsplit(urlsplit(engines["FARMIQ_EDGE_S3_URL"])._replace(path=theirs))
    opened = Bucket(url)
    yield opened
    opened._s3.close()


@pytest.fixture
def key() -> str:
    return f"tenants/t-001/images/{ids.new()}.jpg"


async def put(url: str, *, content_type: str = "image/jpeg", body: bytes = BODY) -> int:
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = await client.put(url, content=body, headers={"content-type": content_type})
    return answer.status_code


async def test_an_object_is_put_looked_at_read_and_deleted(bucket: Bucket, key: str) -> None:
    assert await bucket.head(key) is None

    await bucket.put(key, BODY, content_type="image/jpeg")
    head = await bucket.head(key)

    assert isinstance(head, ObjectHead)
    assert (head.size_bytes, head.content_type) == (len(BODY), "image/jpeg")
    assert len(head.etag) == 32
    assert await bucket.get(key) == BODY
    await bucket.delete(key)
    assert await bucket.head(key) is None
    await bucket.delete(key)


async def test_missing_object_is_not_found(bucket: Bucket, key: str) -> None:
    with pytest.raises(ClientError, match="NoSuchKey"):
        await bucket.get(key)


async def test_a_presigned_address_accepts_its_put(bucket: Bucket, key: str) -> None:
    url = bucket.presign_put(key, lifetime_s=60, signed={"ContentType": "image/jpeg"})

    assert await put(url) == 200
    assert await bucket.get(key) == BODY
    head = await bucket.head(key)
    assert head is not None
    assert head.content_type == "image/jpeg"


async def test_a_presigned_address_refuses_another_content_type(bucket: Bucket, key: str) -> None:
    url = bucket.presign_put(key, lifetime_s=60, signed={"ContentType": "image/jpeg"})

    assert await put(url, content_type="text/html") == 403
    assert await bucket.head(key) is None


async def test_a_presigned_address_is_for_one_key_and_one_method(bucket: Bucket, key: str) -> None:
    url = bucket.presign_put(key, lifetime_s=60, signed={"ContentType": "image/jpeg"})

    assert await put(url.replace(".jpg", ".png")) == 403
    async with httpx2.AsyncClient(timeout=60) as client:
        assert (await client.get(url)).status_code == 403
        assert (await client.delete(url)).status_code == 403


async def test_a_presigned_address_expires(bucket: Bucket, key: str) -> None:
    url = bucket.presign_put(key, lifetime_s=1, signed={"ContentType": "image/jpeg"})

    async def refused() -> bool:
        return await put(url) == 403

    await until(refused)


async def test_the_bucket_of_another_site_is_closed(foreign: Bucket, key: str) -> None:
    for attempt in (
        foreign.put(key, BODY, content_type="image/jpeg"),
        foreign.get(key),
        foreign.head(key),
    ):
        with pytest.raises(ClientError) as refused:
            await attempt
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert await put(foreign.presign_put(key, lifetime_s=60, signed={})) == 403
    assert "does not answer for bucket farmiq-cloud" in (await foreign.problem() or "")


async def test_a_store_that_answers_has_no_problem(bucket: Bucket) -> None:
    assert await bucket.problem() is None


async def test_a_hanging_store_keeps_no_other_work_waiting(engines: dict[str, str]) -> None:
    parts = urlsplit(engines["FARMIQ_EDGE_S3_URL"])
    async with linked(parts.hostname or "", parts.port or 0) as link:
        login = parts.netloc.rpartition("@")[0]
        there = parts._replace(netloc=f"{login}@127.0.0.1:{link.port_here}")
        bucket = Bucket(urlunsplit(there))
        assert await bucket.problem() is None

        link.swallowing = True
        calls = [
            asyncio.create_task(call)
            for _ in range(40)
            for call in (
                bucket.problem(),
                bucket.find("some/key"),
                bucket.put_new("some/key", BODY, content_type="image/jpeg"),
            )
        ]
        # All of them wait by now; the threads that everybody shares are free all the same.
        await until(lambda: len(bucket._threads._threads) == THREADS)
        await asyncio.wait_for(asyncio.to_thread(int), timeout=20)
        assert "does not answer" in str(await calls[0])

        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
        link.heal()
        link.cut()
        await until(lambda: _answers(bucket))
        await asyncio.to_thread(bucket._threads.shutdown)
        bucket._s3.close()


async def _answers(bucket: Bucket) -> bool:
    return await bucket.problem() is None
