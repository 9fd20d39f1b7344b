"""TLS for every connection we open or accept: one description, one context per side.

Certificates are renewed while we run. Whoever holds a context for months must notice, so a context
looks at its files before every new connection; those that are open go on as they began.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from farmiq.plumbing import log

# Codes of OpenSSL (X509_V_ERR_…), and what a person does about each.
_NEW_CA = (
    "it is of an authority that is not trusted here: add its certificate to FARMIQ_TLS_CA_FILE"
)
_ANOTHER_NAME = "it is for another name: use the name that it has, or have one made for this name"
_ADVICE = {
    9: "it is not valid yet: compare the clocks of both machines",
    10: "it has expired: renew it there; no restart is needed here",
    18: _NEW_CA,
    19: _NEW_CA,
    20: _NEW_CA,
    21: _NEW_CA,
    62: _ANOTHER_NAME,
    64: _ANOTHER_NAME,
}


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of one site. Without `ca_file` the system's authorities are trusted.

    `cert_file` and `key_file` are what we show: to a server that asks, or as a server ourselves.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def client(self) -> ssl.SSLContext:
        """Raises OSError if the files are not there or do not fit."""
        return _Renewed(ssl.PROTOCOL_TLS_CLIENT, self, self.current_client)

    def server(self) -> ssl.SSLContext:
        """Raises OSError if the files are not there or do not fit."""
        return _Renewed(ssl.PROTOCOL_TLS_SERVER, self, self._server)

    def serves(self) -> bool:
        return self.cert_file is not None and self.key_file is not None

    def current_client(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca_file)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def _server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        assert self.cert_file is not None  # noqa: S101 - serves() says so
        context.load_cert_chain(self.cert_file, self.key_file)
        return context

    def _versions(self) -> list[tuple[int, int, int]]:
        files = (self.ca_file, self.cert_file, self.key_file)
        stats = [file.stat() for file in files if file is not None]
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats]


class _Renewed(ssl.SSLContext):
    """Hands each new connection to a context of the files as they are now.

    Files that cannot be read, or do not fit each other, change nothing: one is often there before
    the other.
    """

    def __new__(cls, protocol: int, _tls: Tls, _make: Callable[[], ssl.SSLContext]) -> Self:
        return super().__new__(cls, protocol)

    def __init__(self, _protocol: int, tls: Tls, make: Callable[[], ssl.SSLContext]) -> None:
        self._tls, self._make = tls, make
        self._protocols: list[str] = []
        self._versions = tls._versions()  # noqa: SLF001 - its other half
        self._current = make()

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        self._protocols = list(alpn_protocols)
        self._current.set_alpn_protocols(self._protocols)

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        return self._now().wrap_bio(*args, **options)

    def wrap_socket(self, *args: Any, **options: Any) -> ssl.SSLSocket:
        return self._now().wrap_socket(*args, **options)

    def _now(self) -> ssl.SSLContext:
        try:
            versions = self._tls._versions()  # noqa: SLF001
            if versions == self._versions:
                return self._current
            # Not asked again before they change once more.
            self._versions = versions
            renewed = self._make()
        except OSError as error:
            log.get("tls").error("tls.not_renewed", error=str(error))
            return self._current
        if self._protocols:
            renewed.set_alpn_protocols(self._protocols)
        log.get("tls").info("tls.renewed")
        self._current = renewed
        return renewed


def advice(error: BaseException | None) -> str | None:
    """Why a server's certificate was refused and what to do, or None if that is not what failed.

    Errors that are raised again and again may be each other's cause: each is looked at once.
    """
    looked_at: set[int] = set()
    while error is not None and id(error) not in looked_at:
        looked_at.add(id(error))
        if isinstance(error, ssl.SSLCertVerificationError):
            what = _ADVICE.get(error.verify_code, error.verify_message)
            return f"the server's certificate is refused: {what}"
        error = error.__cause__ or error.__context__
    return None
