"""S3: a bucket of one site. The address carries key, secret and bucket: http://key:secret@host/bucket."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import boto3
import httpx2
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from farmiq.plumbing.tls import Tls

UNAVAILABLE = (BotoCoreError, ClientError, TimeoutError)
# A call of ours is given up after so long, and at most so many are under way at once.
CALL_WITHIN_S = 60.0
THREADS = 8
CHECK_WITHIN_S = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectHead:
    size_bytes: int
    etag: str
    content_type: str


class Bucket:
    """boto3 blocks, so each call runs in a thread; the client itself is safe to share.

    Addresses for others are signed for `public_url`, if they reach the store by another name.
    """

    def __init__(self, url: str, *, tls: Tls | None = None, public_url: str | None = None) -> None:
        parts = urlsplit(url)
        self.name = parts.path.strip("/")
        self._s3 = _client(url, at=url, tls=tls)
        self._verify = (tls or Tls()).client() if parts.scheme == "https" else False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"bucket-{self.name}")
        self._signing = _client(url, at=public_url, tls=tls) if public_url else self._s3

    async def put(self, key: str, body: bytes, *, content_type: str) -> None:
        await self._call(
            self._s3.put_object, Bucket=self.name, Key=key, Body=body, ContentType=content_type
        )

    async def put_new(self, key: str, body: bytes, *, content_type: str) -> bool:
        """Put it unless something is there; False if there was, and that stays."""
        try:
            await self._call(
                self._s3.put_object,
                Bucket=self.name,
                Key=key,
                Body=body,
                ContentType=content_type,
                IfNoneMatch="*",
            )
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 412:  # noqa: PLR2004
                return False
            raise
        return True

    async def get(self, key: str) -> bytes:
        return await self._call(self._get, key)

    async def find(self, key: str) -> bytes | None:
        """The bytes under the key, or None if there are none."""
        try:
            return await self.get(key)
        except ClientError as error:
            if _is_missing(error):
                return None
            raise

    async def head(self, key: str) -> ObjectHead | None:
        """What is stored under the key, or None."""
        try:
            found = await self._call(self._s3.head_object, Bucket=self.name, Key=key)
        except ClientError as error:
            if _is_missing(error):
                return None
            raise
        return ObjectHead(
            found["ContentLength"], found["ETag"].strip('"'), found.get("ContentType", "")
        )

    async def delete(self, key: str) -> None:
        await self._call(self._s3.delete_object, Bucket=self.name, Key=key)

    async def copy(self, key: str, to: str) -> None:
        await self._call(
            self._s3.copy_object,
            Bucket=self.name,
            Key=to,
            CopySource={"Bucket": self.name, "Key": key},
        )

    async def page(self, prefix: str, *, after: str, most: int = 1000) -> list[tuple[str, int]]:
        """(key, size) of the objects behind `after`, by name."""
        found = await self._call(
            self._s3.list_objects_v2,
            Bucket=self.name,
            Prefix=prefix,
            StartAfter=after,
            MaxKeys=most,
        )
        return [(each["Key"], each["Size"]) for each in found.get("Contents", [])]

    async def expire(self, prefix: str, *, days: int | None) -> None:
        """The store itself deletes what is older than so many days; None: it deletes nothing."""
        if days is None:
            await self._call(self._s3.delete_bucket_lifecycle, Bucket=self.name)
            return
        rule = {
            "ID": "farmiq-net",
            "Status": "Enabled",
            "Filter": {"Prefix": prefix},
            "Expiration": {"Days": days},
        }
        await self._call(
            self._s3.put_bucket_lifecycle_configuration,
            Bucket=self.name,
            LifecycleConfiguration={"Rules": [rule]},
        )

    async def expiry(self) -> dict[str, int]:
        """After how many days the store deletes by itself, by prefix."""
        try:
            found = await self._call(self._s3.get_bucket_lifecycle_configuration, Bucket=self.name)
        except ClientError as error:
            if _is_missing(error):
                return {}
            raise
        return {rule["Filter"]["Prefix"]: rule["Expiration"]["Days"] for rule in found["Rules"]}

    def presign_put(self, key: str, *, lifetime_s: int, signed: Mapping[str, Any]) -> str:
        """An address that accepts one PUT; `signed` are S3 parameters such as ContentType."""
        url: str = self._signing.generate_presigned_url(
            "put_object",
            Params={"Bucket": self.name, "Key": key, **signed},
            ExpiresIn=lifetime_s,
        )
        return url

    def upload(
        self,
        key: str,
        *,
        lifetime_s: int,
        content_type: str,
        size_bytes: int | None,
        sha256: str | None,
    ) -> tuple[str, dict[str, str]]:
        """(address, headers) of one PUT; signed: type, length, bytes, and that nothing is there."""
        signed: dict[str, Any] = {"ContentType": content_type, "IfNoneMatch": "*"}
        headers = {"Content-Type": content_type, "If-None-Match": "*"}
        if size_bytes is not None:
            signed["ContentLength"] = size_bytes
            headers["Content-Length"] = str(size_bytes)
        if sha256 is not None:
            checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
            signed["ChecksumSHA256"] = headers["x-amz-checksum-sha256"] = checksum
        return self.presign_put(key, lifetime_s=lifetime_s, signed=signed), headers

    async def problem(self) -> str | None:
        """What is wrong with the store, in a sentence, or None. Asked without a thread."""
        url = self._s3.generate_presigned_url("head_bucket", Params={"Bucket": self.name})
        try:
            async with httpx2.AsyncClient(verify=self._verify, trust_env=False) as client:
                answer = await client.head(url, timeout=CHECK_WITHIN_S)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = str(error) or type(error).__name__
            return f"object store does not answer for bucket {self.name}: {why}"
        if answer.is_error:
            return f"object store does not answer for bucket {self.name}: {answer.status_code}"
        return None

    async def _call(self, call: Callable[..., T], *args: Any, **named: Any) -> T:
        """In a thread of our own: a store that hangs keeps nobody else's work waiting."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CALL_WITHIN_S):
            return await loop.run_in_executor(self._threads, partial(call, *args, **named))

    def _get(self, key: str) -> bytes:
        body: bytes = self._s3.get_object(Bucket=self.name, Key=key)["Body"].read()
        return body


def _client(url: str, *, at: str, tls: Tls | None) -> Any:
    """A client with the credentials of `url` for the server of `at`."""
    login, parts = urlsplit(url), urlsplit(at)
    port = f":{parts.port}" if parts.port else ""
    return boto3.client(
        "s3",
        endpoint_url=f"{parts.scheme}://{parts.hostname}{port}",
        aws_access_key_id=unquote(login.username or ""),
        aws_secret_access_key=unquote(login.password or ""),
        region_name="us-east-1",
        verify=str(tls.ca_file) if tls and tls.ca_file else None,
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            connect_timeout=5,
            read_timeout=30,
            retries={"total_max_attempts": 2},
            # Stores other than AWS do not know the newer default checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def _is_missing(error: ClientError) -> bool:
    return bool(error.response["ResponseMetadata"]["HTTPStatusCode"] == 404)  # noqa: PLR2004
