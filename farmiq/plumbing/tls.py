"""TLS for every connection we open or accept: one description, one context per side."""

import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of one site. Without `ca_file` the system's authorities are trusted.

    `cert_file` and `key_file` are what we show: to a server that asks, or as a server ourselves.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def serves(self) -> bool:
        return self.cert_file is not None and self.key_file is not None
