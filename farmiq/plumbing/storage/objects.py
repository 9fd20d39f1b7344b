"""S3: a bucket of one site. The address carries key, secret and bucket: http://key:secret@host/bucket."""

import asyncio
import base64
import contextlib
import hashlib
import hmac
import http
import http.client
import io
import re
import ssl
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, BinaryIO, Literal, TypeVar
from urllib.parse import quote, unquote, urlsplit

import boto3
import httpx2
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from farmiq.plumbing.tls import Tls, advice

UNAVAILABLE = (BotoCoreError, ClientError, TimeoutError)
# A call of ours is given up after so long, and at most so many are under way at once.
CALL_WITHIN_S = 60.0
THREADS = 8
CHECK_WITHIN_S = 2.0
REGION = "us-east-1"
_READ_S = 30.0
# A store that is busy, or a connection that it closed meanwhile, gets a second attempt.
_ATTEMPTS = 2
_SERVER_ERROR = 500
_BUFFER = 2**20  # of an object that is read in parts
_CODE = re.compile(rb"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]*)</Message>")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectHead:
    size_bytes: int
    etag: str
    content_type: str


class Bucket:
    """Each call runs in a thread: boto3 blocks, and so do the plain requests of put and get.

    boto3 costs 1.5 ms of CPU a call, a plain signed request 0.4 ms (D-280). Addresses for others
    are signed for `public_url`, if they reach the store by another name.
    """

    def __init__(self, url: str, *, tls: Tls | None = None, public_url: str | None = None) -> None:
        parts = urlsplit(url)
        self.name = parts.path.strip("/")
        self._s3 = client(url, at=url, tls=tls)
        https = parts.scheme == "https"
        self._verify: ssl.SSLContext | Literal[False] = (tls or Tls()).client() if https else False
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix=f"bucket-{self.name}")
        self._signing = client(url, at=public_url, tls=tls) if public_url else self._s3
        self._url = parts
        self._idle: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _close, self._idle)

    async def put(self, key: str, body: bytes, *, content_type: str) -> None:
        await self._call(self._put, key, body, content_type)

    async def put_verified(self, key: str, body: bytes, *, content_type: str) -> bool:
        """Put it and read it back; False if that gives other bytes."""

        def put_and_get() -> bool:
            self._put(key, body, content_type)
            return self._get(key) == body

        return await self._call(put_and_get)

    async def put_new(self, key: str, body: bytes, *, content_type: str) -> bool:
        """Put it unless something is there; False if there was, and that stays."""
        try:
            await self._call(self._put, key, body, content_type, {"if-none-match": "*"})
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 412:  # noqa: PLR2004
                return False
            raise
        return True

    async def get(self, key: str) -> bytes:
        return await self._call(self._get, key)

    async def read_file(self, key: str, *, size_bytes: int, read: Callable[[BinaryIO], T]) -> T:
        """What `read` makes of the object as a file; what it does not look at is not fetched."""
        file = io.BufferedReader(_ObjectFile(partial(self._get_range, key), size_bytes), _BUFFER)
        return await self._call(read, file)

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
            answer = await self._call(self._s3.head_object, Bucket=self.name, Key=key)
        except ClientError as error:
            if _is_missing(error):
                return None
            raise
        return ObjectHead(
            answer["ContentLength"], answer["ETag"].strip('"'), answer.get("ContentType", "")
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

    async def page(self, prefix: str, *, after: str, limit: int = 1000) -> list[tuple[str, int]]:
        """(key, size) of the objects behind `after`, by name."""
        answer = await self._call(
            self._s3.list_objects_v2,
            Bucket=self.name,
            Prefix=prefix,
            StartAfter=after,
            MaxKeys=limit,
        )
        return [(item["Key"], item["Size"]) for item in answer.get("Contents", [])]

    async def keys(self, prefix: str) -> list[str]:
        """All keys that begin so, by name."""
        names: list[str] = []
        while page := await self.page(prefix, after=names[-1] if names else ""):
            names += [key for key, _ in page]
        return names

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
            answer = await self._call(self._s3.get_bucket_lifecycle_configuration, Bucket=self.name)
        except ClientError as error:
            if _is_missing(error):
                return {}
            raise
        return {rule["Filter"]["Prefix"]: rule["Expiration"]["Days"] for rule in answer["Rules"]}

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
            why = advice(error) or str(error) or type(error).__name__
            return f"object store does not answer for bucket {self.name}: {why}"
        if answer.is_error:
            return f"object store does not answer for bucket {self.name}: {answer.status_code}"
        return None

    async def _call(self, call: Callable[..., T], *args: Any, **named: Any) -> T:
        """Run in a thread of our own: a store that hangs does not delay other work."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CALL_WITHIN_S):
            return await loop.run_in_executor(self._threads, partial(call, *args, **named))

    def _put(
        self, key: str, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._request("PUT", key, body, {"content-type": content_type, **(headers or {})})

    def _get(self, key: str) -> bytes:
        return self._request("GET", key, b"", {})

    def _get_range(self, key: str, first: int, last: int) -> bytes:
        return self._request("GET", key, b"", {"range": f"bytes={first}-{last}"})

    def _request(self, method: str, key: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Raises the exceptions that boto3 raises."""
        path = f"/{self.name}/{quote(key)}"
        for attempt in range(1, _ATTEMPTS + 1):
            connection = self._connect(fresh=attempt > 1)
            try:
                signed = self._sign(method, path, body)
                connection.request(method, path, body=body or None, headers={**headers, **signed})
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if attempt == _ATTEMPTS:
                    raise HTTPClientError(error=error) from error
                continue
            self._idle.append(connection)
            if answer.status < _SERVER_ERROR or attempt == _ATTEMPTS:
                break
        if answer.status >= http.HTTPStatus.MULTIPLE_CHOICES:
            raise _error(answer.status, content, method)
        return content

    def _connect(self, *, fresh: bool) -> http.client.HTTPConnection:
        """One that is idle; `fresh`: a new one, since the store may have closed all of them."""
        if not fresh:
            with contextlib.suppress(IndexError):
                return self._idle.pop()
        host, port = self._url.hostname or "", self._url.port
        if self._verify:
            return http.client.HTTPSConnection(host, port, timeout=_READ_S, context=self._verify)
        return http.client.HTTPConnection(host, port, timeout=_READ_S)

    def _sign(self, method: str, path: str, body: bytes) -> dict[str, str]:
        """Headers of AWS Signature Version 4."""
        at = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        port = f":{self._url.port}" if self._url.port else ""
        signed = {
            "host": f"{self._url.hostname}{port}",
            "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
            "x-amz-date": at,
        }
        names = ";".join(signed)
        lines = [f"{name}:{value}" for name, value in signed.items()]
        request = "\n".join((method, path, "", *lines, "", names, signed["x-amz-content-sha256"]))
        scope = f"{at[:8]}/{REGION}/s3/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        to_sign = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{digest}"
        key = _signing_key(unquote(self._url.password or ""), at[:8])
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        credential = f"{unquote(self._url.username or '')}/{scope}"
        signed["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, "
            f"Signature={signature}"
        )
        return signed


class _ObjectFile(io.RawIOBase):
    """An object as a file to read from; every read is a request for a range of its bytes."""

    def __init__(self, get_range: Callable[[int, int], bytes], size_bytes: int) -> None:
        self._get_range, self._size, self._at = get_range, size_bytes, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = self._get_range(self._at, end - 1)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _close(connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


@lru_cache(maxsize=8)
def _signing_key(secret: str, day: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, REGION, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def _error(status: int, body: bytes, method: str) -> ClientError:
    def text(pattern: re.Pattern[bytes], otherwise: str) -> str:
        match = pattern.search(body)
        return match[1].decode("utf-8", "replace") if match else otherwise

    reason = http.client.responses.get(status, "")
    error = {"Code": text(_CODE, str(status)), "Message": text(_MESSAGE, reason)}
    response: Any = {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, f"{method.capitalize()}Object")


def client(url: str, *, at: str, tls: Tls | None) -> Any:
    """A client with the credentials of `url` for the server of `at`."""
    login, parts = urlsplit(url), urlsplit(at)
    port = f":{parts.port}" if parts.port else ""
    return boto3.client(
        "s3",
        endpoint_url=f"{parts.scheme}://{parts.hostname}{port}",
        aws_access_key_id=unquote(login.username or ""),
        aws_secret_access_key=unquote(login.password or ""),
        region_name=REGION,
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
