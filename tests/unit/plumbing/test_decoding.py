"""Pictures are decoded elsewhere: whatever one of them does, whoever asked goes on."""

import io
import os
import signal
from pathlib import Path

import pytest
from PIL import Image

from farmiq.plumbing import sandbox
from farmiq.plumbing.images import decoding, gallery
from farmiq.plumbing.images.decoding import DecodeError, Limits, TooCostlyError

PLENTY = gallery.LIMITS
LITTLE = Limits(memory_bytes=16 * 2**20, cpu_s=20)


def made(size: tuple[int, int], form: str = "PNG", mode: str = "RGB") -> bytes:
    out = io.BytesIO()
    Image.new(mode, size).save(out, form)
    return out.getvalue()


SMALL = made((400, 300))


def thumbnail_size(data: bytes) -> tuple[int, int]:
    with Image.open(io.BytesIO(data)) as opened:
        return opened.size


def peak_kib() -> int:
    """The most memory that this process has ever had."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def test_picture_of_many_pixels_is_rejected_before_it_is_decoded() -> None:
    bomb = made((8000, 8000), mode="1")
    assert len(bomb) < 20_000
    with pytest.raises(TooCostlyError, match="8000 x 8000 pixels are more than 40000000"):
        decoding.decode("thumbnail", bomb, limits=PLENTY)


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
@pytest.mark.parametrize("operation", ["thumbnail", "check"])
def test_picture_that_takes_too_much_memory_is_rejected_and_the_next_is_taken(
    form: str, operation: str
) -> None:
    large = made((2500, 2500), form)
    before = peak_kib()
    with pytest.raises(DecodeError):
        decoding.decode(operation, large, limits=LITTLE)
    assert peak_kib() - before < 16 * 1024, "it was decoded here"
    assert decoding.decode("check", SMALL, limits=LITTLE).facts["width_px"] == 400


def test_photograph_is_made_small_within_the_limits() -> None:
    found = decoding.decode("thumbnail", made((3000, 3000)), limits=PLENTY)
    assert thumbnail_size(found.data) == (320, 320)


def test_large_jpeg_is_checked_in_little_memory() -> None:
    found = decoding.decode("check", made((6000, 6000), "JPEG"), limits=LITTLE)
    assert found.facts == {"mime_type": "image/jpeg", "width_px": 6000, "height_px": 6000}


def test_picture_that_takes_too_long_is_rejected_and_the_next_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as impatient:
        impatient.setattr(decoding.DECODER, "wall_s", 0.0)
        with pytest.raises(TooCostlyError, match="too long"):
            decoding.decode("thumbnail", made((3000, 3000)), limits=PLENTY)
    assert decoding.decode("thumbnail", SMALL, limits=PLENTY).data


def test_decoder_that_died_between_pictures_is_started_again() -> None:
    decoding.decode("check", SMALL, limits=LITTLE)
    assert decoding.DECODER.running is not None
    os.kill(decoding.DECODER.running.process.pid, signal.SIGKILL)
    decoding.DECODER.running.process.wait()
    assert decoding.decode("check", SMALL, limits=LITTLE).facts["height_px"] == 300


def test_decoder_knows_none_of_our_secrets() -> None:
    decoding.decode("check", SMALL, limits=LITTLE)
    assert decoding.DECODER.running is not None
    environment = Path(f"/proc/{decoding.DECODER.running.process.pid}/environ").read_bytes()
    assert environment == b""


class Killed:
    """Ends the decoder from outside while it has a picture, so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        self.left = times
        self._start = decoding.DECODER.start
        decoding.DECODER.stop()
        monkeypatch.setattr(decoding.DECODER, "start", self.start)

    def start(self) -> sandbox.Worker:
        worker = self._start()
        if self.left:
            self.left -= 1
            worker.process.kill()
        return worker


def test_picture_whose_decoder_was_killed_from_outside_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = Killed(monkeypatch, 1)
    assert decoding.decode("check", SMALL, limits=LITTLE).facts["height_px"] == 300
    assert not killed.left


def test_picture_whose_decoders_are_all_killed_is_not_condemned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Killed(monkeypatch, 2)
    with pytest.raises(decoding.DecoderGoneError):
        decoding.decode("check", SMALL, limits=LITTLE)
    assert decoding.decode("check", SMALL, limits=LITTLE).facts["height_px"] == 300
