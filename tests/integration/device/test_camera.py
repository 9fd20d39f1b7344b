"""Cameras: a real HTTP server, a real video file, a real folder; and pictures that are none."""

import asyncio
import contextlib
import os
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from farmiq.config.device import HardwareSettings
from farmiq.device.capture import camera, folder, sources
from farmiq.device.capture.camera import CameraError
from farmiq.device.capture.folder import Folder
from farmiq.plumbing.images import decoding
from farmiq.plumbing.tls import Tls
from tests.integration.device.pictures import picture
from tests.support.authority import Authority
from tests.support.until import until

AT = datetime(2026, 11, 15, tzinfo=UTC)
Answer = Callable[[dict[str, str]], bytes]


@contextlib.asynccontextmanager
async def serving(answer: Answer, *, tls: Tls | None = None) -> AsyncIterator[str]:
    """An HTTP server that answers each request by its headers; gives host:port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            writer.write(answer({name.lower(): value for name, value in headers.items()}))
            await writer.drain()
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=tls.server() if tls else None)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


def http(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def shot(url: str, *, timeout_s: float = 60.0) -> camera.CameraImage:
    there = camera.camera(url, timeout_s=timeout_s)
    try:
        return await there.take()
    finally:
        await there.close()


async def test_snapshot_is_told_by_its_bytes() -> None:
    body = picture(kind="PNG")
    async with serving(lambda _: http("200 OK", body, Content_Type="text/plain")) as host:
        taken = await shot(f"http://{host}/snapshot")
    assert taken.data == body
    assert (taken.content_type, taken.width, taken.height) == ("image/png", 64, 48)


async def test_snapshot_by_https_is_taken_from_a_camera_of_the_settings_authority(
    tmp_path: Path,
) -> None:
    """Cameras have certificates of the farm's own, which no system knows."""
    authority = Authority(tmp_path / "tls")
    async with serving(lambda _: http("200 OK", picture()), tls=authority.tls) as host:
        address = {"AGENT_CAMERA_URL": f"https://{host}/", "AGENT_CAMERA_SECONDS": "60"}
        trusted = {**address, "FARMIQ_TLS_CA_FILE": str(authority.ca_file)}
        for given_, answers in ((trusted, True), (address, False)):
            there = sources.camera_of(HardwareSettings.load_some(given_))
            try:
                with contextlib.nullcontext() if answers else pytest.raises(CameraError):
                    assert (await there.take()).content_type == "image/jpeg"
            finally:
                await there.close()


async def test_snapshot_with_basic_login_is_taken() -> None:
    expected = "Basic " + b64encode(b"admin:p@ss word").decode()

    def answer(headers: dict[str, str]) -> bytes:
        if headers.get("authorization") == expected:
            return http("200 OK", picture())
        return http("401 Unauthorized", WWW_Authenticate='Basic realm="camera"')

    async with serving(answer) as host:
        assert (await shot(f"http://admin:p%40ss%20word@{host}/")).content_type == "image/jpeg"
        with pytest.raises(CameraError, match="login"):
            await shot(f"http://admin:wrong@{host}/")
        with pytest.raises(CameraError, match="login"):
            await shot(f"http://{host}/")


async def test_snapshot_with_digest_login_is_taken() -> None:
    def answer(headers: dict[str, str]) -> bytes:
        said = headers.get("authorization", "")
        if said.startswith("Digest") and 'username="admin"' in said and 'nonce="n1"' in said:
            return http("200 OK", picture())
        asked = 'Digest realm="camera", nonce="n1", qop="auth", algorithm=MD5'
        return http("401 Unauthorized", WWW_Authenticate=asked)

    async with serving(answer) as host:
        assert (await shot(f"http://admin:secret@{host}/")).content_type == "image/jpeg"


@pytest.mark.req("WV-02")
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (http("200 OK"), "empty"),
        (http("200 OK", picture()[:-20]), "damaged"),
        (http("200 OK", picture(kind="GIF")), "no jpeg"),
        (http("200 OK", b"<html>sign in</html>"), "no jpeg"),
        (http("200 OK", b"\xff\xd8" + b"x" * camera.MAX_BYTES), "more than"),
        (http("503 Busy"), "503"),
        (http("302 Found", Location="http://127.0.0.1:1/"), "302"),
        (b"hello\r\n\r\n", "no answer"),
        (b"", "no answer"),
    ],
)
async def test_bytes_that_are_no_picture_are_rejected_with_the_reason(
    answer: bytes, why: str
) -> None:
    async with serving(lambda _: answer) as host:
        with pytest.raises(CameraError, match=why) as found:
            await shot(f"http://{host}/")
        assert "object at 0x" not in str(found.value)


async def test_camera_that_is_away_or_silent_is_an_error() -> None:
    with pytest.raises(CameraError, match="no answer"):
        await shot("http://127.0.0.1:1/")

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(CameraError, match="no picture within"):
        await shot(f"http://127.0.0.1:{port}/", timeout_s=0.1)
    server.close()
    for writer in writers:
        writer.transport.abort()


@given(st.binary(max_size=200), st.integers(0, 400), st.sampled_from(["JPEG", "PNG", "WEBP"]))
def test_any_bytes_are_a_picture_or_refused(rubbish: bytes, where: int, kind: str) -> None:
    whole = picture(kind=kind)
    for data in (rubbish, whole[:where] + rubbish + whole[where:], whole[:where]):
        with contextlib.suppress(CameraError):
            assert camera.decode(data, captured_at=AT).width > 0


def test_picture_that_would_fill_the_memory_is_refused() -> None:
    huge = picture(kind="PNG", size=(9000, 6000))
    with pytest.raises(CameraError, match="pixels"):
        camera.decode(huge, captured_at=AT)


def video(path: Path, frames: int) -> None:
    cv2 = pytest.importorskip("cv2")
    numpy = pytest.importorskip("numpy")
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 10.0, (64, 48))
    for number in range(frames):
        writer.write(numpy.full((48, 64, 3), number * 3, dtype=numpy.uint8))
    writer.release()


async def test_video_frames_of_opencv_are_taken(tmp_path: Path) -> None:
    """A video file stands in for /dev/video0, through the same cv2.VideoCapture."""
    file = tmp_path / "barn.avi"
    video(file, 12)
    there = camera.camera(f"v4l2:{file}")
    taken = [await there.take() for _ in range(4)]
    await there.close()
    assert {(each.content_type, each.width, each.height) for each in taken} == {
        ("image/jpeg", 64, 48)
    }
    assert taken[0].data != taken[1].data


async def test_video_device_that_is_missing_is_an_error(tmp_path: Path) -> None:
    there = camera.camera(f"v4l2:{tmp_path / 'video7'}")
    with pytest.raises(CameraError, match="cannot be opened"):
        await there.take()
    await there.close()


@pytest.mark.parametrize("address", ["", "http://", "ftp://host/x", "v4l2:", "rtsp://host/1"])
def test_address_that_cannot_work_is_rejected(address: str) -> None:
    with pytest.raises(ValueError, match="is no camera"):
        camera.camera(address)


async def test_folder_gives_each_picture_once_and_moves_it_after_it_was_kept(
    tmp_path: Path,
) -> None:
    for number in range(3):
        file = tmp_path / f"{number}.jpg"
        file.write_bytes(picture(number))
        os.utime(file, (1000 + number, 1000 + number))
    there = Folder(tmp_path, scan_s=0.005)
    for number in range(3):
        taken = await there.next()
        assert taken.data == picture(number)
        assert taken.captured_at.timestamp() == 1000 + number
        if number != 1:
            await there.confirm(taken)
    assert sorted(each.name for each in (tmp_path / folder.DONE).iterdir()) == ["0.jpg", "2.jpg"]
    # What was taken and not kept, as by a power cut, is there for the next one.
    assert (await Folder(tmp_path, scan_s=0.005).next()).data == picture(1)


def test_file_written_beyond_the_calendar_is_of_now() -> None:
    assert folder.moment(1_000_000_000).isoformat() == "1970-01-01T00:00:01+00:00"
    for odd_ns in (10**21, -(10**21), 10**400):
        assert abs((folder.moment(odd_ns) - datetime.now(UTC)).total_seconds()) < 60


async def test_folder_waits_for_a_half_written_file(tmp_path: Path) -> None:
    there = Folder(tmp_path, scan_s=0.005)
    data = picture(7, size=(640, 480))
    file = tmp_path / "a.jpg"
    waiting = asyncio.create_task(there.next())
    for end in range(0, len(data), len(data) // 5):
        file.write_bytes(data[:end])
        seen = end
        await until(lambda: there._seen.get("a.jpg", ((0, -1), 0))[0][1] == seen)  # noqa: B023
        assert not waiting.done()
    file.write_bytes(data)
    assert (await waiting).data == data


@pytest.mark.req("WV-02")
async def test_file_that_never_becomes_a_picture_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(b"no picture")
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / ".part.jpg").write_bytes(picture())
    there = Folder(tmp_path, scan_s=0.001)
    waiting = asyncio.create_task(there.next())
    refused = tmp_path / folder.REJECTED
    await until(lambda: refused.is_dir() and len(list(refused.iterdir())) == 2)
    (tmp_path / "good.png").write_bytes(picture(kind="PNG"))
    assert (await waiting).content_type == "image/png"
    assert (tmp_path / "notes.txt").exists()


async def test_poisonous_picture_is_set_aside_at_once_and_the_next_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty million pixels are the most; and few enough may still take more than a station has."""
    decode, decoded = decoding.decode, list[str]()

    def counted(operation: str, data: bytes, **named: Any) -> decoding.Decoded:
        decoded.append(operation)
        return decode(operation, data, **named)

    monkeypatch.setattr(decoding, "decode", counted)
    Image.new("1", (8000, 8000)).save(tmp_path / "pixels.png")
    Image.new("RGB", (5300, 5300)).save(tmp_path / "memory.png", compress_level=1)
    there = Folder(tmp_path, scan_s=0.001)
    waiting = asyncio.create_task(there.next())
    refused = tmp_path / folder.REJECTED
    await until(lambda: {path.name for path in refused.glob("*")} == {"pixels.png", "memory.png"})
    assert decoded == ["check", "check"], "each was tried once"
    (tmp_path / "good.png").write_bytes(picture(kind="PNG"))
    assert (await waiting).content_type == "image/png"


@pytest.mark.parametrize("kills", [folder.MAX_DECODER_FAILURES - 1, folder.MAX_DECODER_FAILURES])
def test_picture_whose_decoder_is_killed_waits_and_is_set_aside_after_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    decode, left = decoding.decode, kills

    def killed(*args: Any, **named: Any) -> decoding.Decoded:
        nonlocal left
        left -= 1
        if left >= 0:
            raise decoding.DecoderGoneError("ended from outside")
        return decode(*args, **named)

    monkeypatch.setattr(decoding, "decode", killed)
    (tmp_path / "good.png").write_bytes(picture(kind="PNG"))
    there = Folder(tmp_path)
    looks = folder.RETRY_SCANS * folder.MAX_DECODER_FAILURES
    found = [shot for _ in range(looks) if (shot := there.scan({})) is not None]
    assert len(found) == (kills < folder.MAX_DECODER_FAILURES)
    assert (tmp_path / folder.REJECTED / "good.png").exists() is (
        kills == folder.MAX_DECODER_FAILURES
    )


async def test_folder_take_ignores_pictures_that_were_there_before(tmp_path: Path) -> None:
    (tmp_path / "old.jpg").write_bytes(picture(1))
    there = Folder(tmp_path, timeout_s=0.1, scan_s=0.005)
    with pytest.raises(CameraError, match="no new picture"):
        await there.take()
    there.timeout_s, there._seen = 60.0, {}
    asking = asyncio.create_task(there.take())
    await until(lambda: there._seen)
    (tmp_path / "new.jpg").write_bytes(picture(2))
    assert (await asking).data == picture(2)


async def test_camera_may_write_the_same_name_again(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.jpg"
    there = Folder(tmp_path, scan_s=0.005)
    file.write_bytes(picture(1))
    first = await there.next()
    file.write_bytes(picture(2, size=(80, 60)))
    await there.confirm(first)
    assert file.exists()
    assert (await there.next()).data == picture(2, size=(80, 60))


async def test_name_that_comes_again_overwrites_nothing(tmp_path: Path) -> None:
    there = Folder(tmp_path, scan_s=0.005)
    for number in range(3):
        (tmp_path / "snapshot.jpg").write_bytes(picture(number))
        await there.confirm(await there.next())
    kept = sorted(each.name for each in (tmp_path / folder.DONE).iterdir())
    assert kept == ["snapshot.1.jpg", "snapshot.2.jpg", "snapshot.jpg"]


async def test_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CameraError, match="no folder"):
        await Folder(tmp_path / "nowhere").take()
