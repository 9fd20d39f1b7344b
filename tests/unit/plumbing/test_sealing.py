"""Secrets at rest and signed tokens."""

import base64
import stat
from pathlib import Path

import pytest

from farmiq.plumbing import sealing
from farmiq.plumbing.sealing import Sealer, SealError


def sealer(number: int = 1, *older: int) -> Sealer:
    return Sealer([bytes([value]) * 32 for value in (number, *older)])


def test_secret_opens_for_what_it_was_sealed_for_only() -> None:
    sealed = sealer().seal(b"s3cret", bound_to="hill/mail")
    assert b"s3cret" not in sealed
    assert sealer().open(sealed, bound_to="hill/mail") == b"s3cret"
    with pytest.raises(SealError):
        sealer().open(sealed, bound_to="dale/mail")


def test_same_secret_is_sealed_differently_each_time() -> None:
    assert sealer().seal(b"x", bound_to="a") != sealer().seal(b"x", bound_to="a")


@pytest.mark.parametrize("cut", [b"", b"\x01", b"\x02" + b"x" * 40, b"\x01" + b"x" * 40])
def test_what_we_did_not_seal_does_not_open(cut: bytes) -> None:
    with pytest.raises(SealError):
        sealer().open(cut, bound_to="a")


def test_new_key_on_top_opens_and_verifies_what_the_old_one_made() -> None:
    sealed, token = sealer(1).seal(b"x", bound_to="a"), sealer(1).token(b"t")
    assert sealer(2, 1).open(sealed, bound_to="a") == b"x"
    assert sealer(2, 1).content(token) == b"t"
    with pytest.raises(SealError):
        sealer(2).open(sealed, bound_to="a")
    with pytest.raises(SealError):
        sealer(2).content(token)


def test_token_that_was_changed_anywhere_is_refused() -> None:
    token = sealer().token(b'["hill"]')
    assert sealer().content(token) == b'["hill"]'
    for place in range(len(token)):
        other = "A" if token[place] != "A" else "B"
        with pytest.raises(SealError):
            sealer().content(token[:place] + other + token[place + 1 :])
    for odd in ("", "x", token + "=", token + "A", " " + token, "ä" + token, token * 40):
        with pytest.raises(SealError):
            sealer().content(odd)


def test_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "secrets.key"
    sealing.write_new_key(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sealing.read(file).content(sealing.read(file).token(b"x")) == b"x"
    with pytest.raises(FileExistsError):
        sealing.write_new_key(file)


@pytest.mark.parametrize(
    "text", ["", "not base64!", base64.b64encode(b"short").decode(), "ä"], ids=str
)
def test_odd_key_file_is_named_and_not_quoted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secrets.key"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SealError, match=r"secrets\.key") as refused:
        sealing.read(file)
    assert not text or text not in str(refused.value)
