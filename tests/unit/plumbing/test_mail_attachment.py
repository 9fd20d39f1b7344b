"""A mail with a PDF: its name can carry no other header, and its size is bounded."""

from email.message import EmailMessage

import pytest

from farmiq.plumbing import mail


def composed(name: str, content: bytes) -> EmailMessage:
    return mail.compose(
        sender="FarmIQ <reports@example.com>", to=["ann@example.com"], subject="Report",
        text="It is attached.", attachment=mail.Attachment(name, content),
    )  # fmt: skip


def test_attached_file_comes_out_as_it_went_in() -> None:
    message = composed("farmiq-2026-W46-b.pdf", b"%PDF-1.4 \x00\xff")

    (attached,) = message.iter_attachments()
    assert attached.get_content_type() == "application/pdf"
    assert attached.get_filename() == "farmiq-2026-W46-b.pdf"
    assert attached.get_payload(decode=True) == b"%PDF-1.4 \x00\xff"


@pytest.mark.parametrize(
    "name", ["", "a.exe", "a\nb.pdf", '"; x=".pdf', "ü.pdf", f"{'x' * 200}.pdf"]
)
def test_name_that_is_no_plain_name_of_a_pdf_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="name of letters"):
        composed(name, b"x")


def test_file_that_is_too_large_is_rejected() -> None:
    with pytest.raises(ValueError, match="at most"):
        composed("a.pdf", bytes(mail.MAX_FILE + 1))
