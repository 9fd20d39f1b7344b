"""A small authority: certificates of one site in files, renewed while who uses them runs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

from farmiq.plumbing.tls import Tls


class Authority:
    """`tls` are the files of a server and of its clients: what they trust and what they show."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.ca_file, self.cert_file, self.key_file = (
            folder / name for name in ("ca.pem", "cert.pem", "key.pem")
        )
        self.ca = trustme.CA()
        self.issue()

    @property
    def tls(self) -> Tls:
        return Tls(self.ca_file, self.cert_file, self.key_file)

    def renew(self) -> None:
        """Another authority, and a certificate of it."""
        self.ca = trustme.CA()
        self.issue()

    def issue(self, *, ends_at: datetime | None = None) -> None:
        issued = self.ca.issue_cert("localhost", "127.0.0.1", not_after=ends_at)
        self.ca.cert_pem.write_to_path(str(self.ca_file))
        issued.private_key_pem.write_to_path(str(self.key_file))
        self.cert_file.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))

    def expire(self) -> None:
        self.issue(ends_at=datetime.now(UTC) - timedelta(days=1))
