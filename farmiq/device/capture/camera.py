"""The camera: one picture on request, by HTTP snapshot or from a device of this machine (V4L2).

    farmiq agent --take()--> [camera] --HTTP GET | V4L2--> CameraImage or CameraError

A picture is checked before it is used (WV-02): its bytes name its type, and it decodes to its end.
Pictures that others put into a folder come from `folder.py`.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx2

from farmiq.device.buffer.recorder import Picture, RejectedError
from farmiq.plumbing.images import decoding
from farmiq.plumbing.images.decoding import DecodeError, DecoderGoneError
from farmiq.plumbing.tls import Tls

ContentType = Literal["image/jpeg", "image/png", "image/webp"]
# The store accepts no more (C-25).
MAX_BYTES = 10 * 2**20
# A small box: with the agent itself and the decoder's program it stays below MemoryMax.
LIMITS = decoding.Limits(memory_bytes=100 * 2**20, cpu_s=30)
# A camera gives frames that it took before the request; so many are skipped.
STALE_FRAMES = 4
_UNAUTHORIZED, _OK = 401, 200


class CameraError(Exception):
    """No picture; the text says why and what to look at."""


class PoisonError(CameraError):
    """A picture that needs more memory or time than the station has; waiting does not help."""


class PassingError(CameraError):
    """The station could not decode the picture just now; the picture may be good."""


@dataclass(frozen=True, slots=True)
class CameraImage:
    data: bytes
    content_type: ContentType
    width: int
    height: int
    captured_at: datetime
    path: Path | None = None


class Camera(Protocol):
    async def take(self) -> CameraImage:
        """A picture of now. Raises CameraError."""

    async def confirm(self, shot: CameraImage) -> None:
        """The picture is stored and is not needed any more."""

    async def close(self) -> None: ...


def decode(data: bytes, *, captured_at: datetime, path: Path | None = None) -> CameraImage:
    """The picture in these bytes. Raises CameraError unless it is a whole jpeg, png or webp."""
    if not data:
        raise CameraError("the picture is empty")
    if len(data) > MAX_BYTES:
        raise CameraError(f"the picture has {len(data)} bytes, more than {MAX_BYTES}")
    try:
        facts = decoding.decode("check", data, limits=LIMITS).facts
    except decoding.TooCostlyError as error:
        raise PoisonError(f"the picture is not taken: {error}") from None
    except DecodeError as error:
        raise CameraError(f"the picture is damaged or no jpeg, png or webp: {error}") from None
    except DecoderGoneError as error:
        raise PassingError(f"the picture was not looked at: {error}") from None
    size = facts["width_px"], facts["height_px"]
    return CameraImage(data, facts["mime_type"], *size, captured_at, path)


@dataclass
class Snapshot:
    """A camera with an address: `http://user:password@host/path` (basic or digest, as it asks)."""

    url: str
    timeout_s: float = 5.0
    tls: Tls = field(default_factory=Tls)
    _client: httpx2.AsyncClient = field(init=False)
    _auth: httpx2.Auth | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self._login = (unquote(parts.username or ""), unquote(parts.password or ""))
        self._address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        # The environment's proxies are for the internet, not for a camera.
        self._client = httpx2.AsyncClient(
            timeout=self.timeout_s, trust_env=False, verify=self.tls.client()
        )

    async def take(self) -> CameraImage:
        try:
            async with asyncio.timeout(self.timeout_s):
                data = await self._get()
        except TimeoutError:
            raise CameraError(f"no picture within {self.timeout_s:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise CameraError(f"no answer: {str(error) or type(error).__name__}") from None
        return await asyncio.to_thread(decode, data, captured_at=datetime.now(UTC))

    async def confirm(self, shot: CameraImage) -> None:
        """It has no other copy."""

    async def close(self) -> None:
        await self._client.aclose()

    async def _get(self) -> bytes:
        status, challenge, data = await self._request()
        if status == _UNAUTHORIZED and self._login[0]:
            kind = httpx2.DigestAuth if "digest" in challenge.lower() else httpx2.BasicAuth
            self._auth = kind(*self._login)
            status, _, data = await self._request()
        if status == _UNAUTHORIZED:
            raise CameraError("it refuses the login: look at the user and password of its address")
        if status != _OK:
            raise CameraError(f"it answers {status}, and no picture")
        return data

    async def _request(self) -> tuple[int, str, bytes]:
        """(status, login challenge, body); a body that is too large is not read to its end."""
        async with self._client.stream("GET", self._address, auth=self._auth) as response:
            body = bytearray()
            async for part in response.aiter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise CameraError(f"the picture has more than {MAX_BYTES} bytes")
            challenge = response.headers.get("www-authenticate", "")
            return response.status_code, challenge, bytes(body)


@dataclass
class Video:
    """A camera of this machine: /dev/video0, a number, or a file; needs the extra `camera`."""

    source: str
    timeout_s: float = 5.0
    quality: int = 90
    _capture: Any = None
    # The library cannot be interrupted: with one thread of its own, a call that hangs blocks nobody
    # else, and no second call goes to a device that has not answered the first.
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "camera"))

    async def take(self) -> CameraImage:
        frame = asyncio.get_running_loop().run_in_executor(self._thread, self._frame)
        try:
            async with asyncio.timeout(self.timeout_s):
                data, at = await frame
        except TimeoutError:
            raise CameraError(f"no picture within {self.timeout_s:g} s") from None
        return await asyncio.to_thread(decode, data, captured_at=at)

    async def confirm(self, shot: CameraImage) -> None:
        """It has no other copy."""

    async def close(self) -> None:
        self._thread.submit(self._release)
        self._thread.shutdown(wait=False)

    def _frame(self) -> tuple[bytes, datetime]:
        cv2 = _cv2()
        try:
            return self._encoded(cv2)
        except cv2.error as error:
            self._release()
            raise CameraError(f"{self.source}: {error}") from None

    def _encoded(self, cv2: Any) -> tuple[bytes, datetime]:
        frame = self._read(self._open(cv2))
        if frame is None:
            # Unplugged and back, or a file at its end: once more from the start.
            self._release()
            frame = self._read(self._open(cv2))
        if frame is None:
            self._release()
            raise CameraError(f"{self.source} gives no frame: is it in use by another program?")
        image, at = frame
        good, encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, self.quality])
        if not good:
            raise CameraError(f"the frame of {self.source} cannot be made a jpeg")
        return encoded.tobytes(), at

    def _read(self, capture: Any) -> tuple[Any, datetime] | None:
        for _ in range(STALE_FRAMES):
            capture.grab()
        good, image = capture.read()
        return (image, datetime.now(UTC)) if good else None

    def _open(self, cv2: Any) -> Any:
        if self._capture is None:
            source = int(self.source) if self.source.isdigit() else self.source
            capture = cv2.VideoCapture(source)
            if not capture.isOpened():
                capture.release()
                raise CameraError(f"{self.source} cannot be opened: `ls /dev/video*`, group video")
            self._capture = capture
        return self._capture

    def _release(self) -> None:
        if self._capture is not None:
            self._capture.release()
            self._capture = None


def _cv2() -> Any:
    try:
        import cv2  # noqa: PLC0415 - an extra: a station with a network camera has no use for it
    except ImportError:
        raise CameraError("OpenCV is not installed: pip install 'farmiq[camera]'") from None
    return cv2


def camera(address: str, *, timeout_s: float = 5.0, tls: Tls | None = None) -> Camera:
    """`http(s)://…` or `v4l2:/dev/video0`. Raises ValueError."""
    parts = urlsplit(address)
    if parts.scheme in {"http", "https"} and parts.hostname:
        return Snapshot(address, timeout_s=timeout_s, tls=tls or Tls())
    if parts.scheme == "v4l2" and parts.path:
        return Video(parts.path, timeout_s=timeout_s)
    raise ValueError(
        f"{address!r} is no camera: http://host/snapshot.jpg, v4l2:/dev/video0 "
        "or folder:/path (docs/operate/hardware.md)"
    )


def scaled(picture: Picture, *, side_px: int, quality: int) -> Picture:
    """The picture with a longer side of at most `side_px`; a smaller one stays as it is (WV-33).

    Without a decoder it stays as it is, too: better too large than lost. Raises RejectedError if
    it cannot be decoded.
    """
    try:
        data = decoding.decode(
            "shrink", picture.data, limits=LIMITS, side_px=side_px, quality=quality
        ).data
    except DecodeError as error:
        raise RejectedError(f"a picture that cannot be decoded: {error}") from error
    except DecoderGoneError:
        return picture
    return replace(picture, content_type="image/jpeg", data=data) if data else picture
