"""S3: a bucket of one site. The address carries key, secret and bucket: http://key:secret@host/bucket."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from farmiq.plumbing.tls import Tls

UNAVAILABLE = (BotoCoreError, ClientError)


@dataclass(frozen=True, slots=True)
class ObjectHead:
    size_bytes: int
    etag: str
    content_type: str


class Bucket:
    """boto3 blocks, so each call runs in a thread; the client itself is safe to share."""

    def __init__(self, url: str, *, tls: Tls | None = None) -> None:
        parts = urlsplit(url)
        self.name = parts.path.strip("/")
        port = f":{parts.port}" if parts.port else ""
        self._s3: Any = boto3.client(
            "s3",
            endpoint_url=f"{parts.scheme}://{parts.hostname}{port}",
            aws_access_key_id=unquote(parts.username or ""),
            aws_secret_access_key=unquote(parts.password or ""),
            region_name="us-east-1",
            verify=str(tls.ca_file) if tls and tls.ca_file else None,
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                connect_timeout=5,
                read_timeout=30,
                retries={"max_attempts": 2},
                # Stores other than AWS do not know the newer default checksums.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    async def put(self, key: str, body: bytes, *, content_type: str) -> None:
        await asyncio.to_thread(
            self._s3.put_object, Bucket=self.name, Key=key, Body=body, ContentType=content_type
        )

    async def get(self, key: str) -> bytes:
        return await asyncio.to_thread(self._get, key)

    async def head(self, key: str) -> ObjectHead | None:
        """What is stored under the key, or None."""
        try:
            found = await asyncio.to_thread(self._s3.head_object, Bucket=self.name, Key=key)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:  # noqa: PLR2004
                return None
            raise
        return ObjectHead(
            found["ContentLength"], found["ETag"].strip('"'), found.get("ContentType", "")
        )

    async def delete(self, key: str) -> None:
        await asyncio.to_thread(self._s3.delete_object, Bucket=self.name, Key=key)

    def presign_put(self, key: str, *, lifetime_s: int, signed: Mapping[str, Any]) -> str:
        """An address that accepts one PUT; `signed` are S3 parameters such as ContentType."""
        url: str = self._s3.generate_presigned_url(
            "put_object",
            Params={"Bucket": self.name, "Key": key, **signed},
            ExpiresIn=lifetime_s,
        )
        return url

    async def problem(self) -> str | None:
        try:
            await asyncio.to_thread(self._s3.head_bucket, Bucket=self.name)
        except UNAVAILABLE as error:
            return f"object store does not answer for bucket {self.name}: {error}"
        return None

    def _get(self, key: str) -> bytes:
        body: bytes = self._s3.get_object(Bucket=self.name, Key=key)["Body"].read()
        return body
