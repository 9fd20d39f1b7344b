"""The console's cookies are marked Secure when we serve HTTPS ourselves, unless it is said."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
import trustme

from farmiq.cloud.console import service
from farmiq.config import CloudSettings
from farmiq.plumbing import http
from farmiq.plumbing.tls import Tls
from tests.conftest import Database
from tests.support.until import until


@pytest.mark.parametrize(
    ("https", "said", "secure"),
    [
        (True, "", True),
        (True, "false", False),
        (False, "", False),
        (False, "true", True),
    ],
)
async def test_cookies_are_secure_where_they_should(
    cloud_db: Database,
    tmp_path: Path,
    free_port: Callable[[], int],
    tasks: asyncio.TaskGroup,
    *,
    https: bool,
    said: str,
    secure: bool,
) -> None:
    port = free_port()
    files = _certificate(tmp_path)
    settings = CloudSettings.load(
        {
            "FARMIQ_CLOUD_DB_URL": cloud_db.url,
            "FARMIQ_AMQP_URL": "amqp://unused",
            "FARMIQ_EDGE_KEYS_FILE": "unused",
            "CONSOLE_COOKIE_SECURE": said,
            **(files if https else {}),
        }
    )
    server = http.HttpServer("farmiq-cloud", "test")
    tasks.create_task(service.run(settings, server))
    tasks.create_task(http.serve(server, host="127.0.0.1", port=port, tls=settings.tls))
    address = f"{'https' if https else 'http'}://localhost:{port}/sign-in"
    trusted = Tls(tmp_path / "authority.pem").client()
    async with httpx2.AsyncClient(verify=trusted, timeout=60) as browser:
        await until(lambda: _answers(browser, address))
        cookie = (await browser.get(address)).headers["set-cookie"]

    assert ("; secure" in cookie.lower()) is secure


@pytest.mark.parametrize("alone", ["FARMIQ_TLS_CERT_FILE", "FARMIQ_TLS_KEY_FILE"])
def test_half_a_certificate_serves_no_https(tmp_path: Path, alone: str) -> None:
    settings = CloudSettings.load(
        {
            "FARMIQ_CLOUD_DB_URL": "unused",
            "FARMIQ_AMQP_URL": "unused",
            "FARMIQ_EDGE_KEYS_FILE": "unused",
            alone: str(tmp_path / "file.pem"),
        }
    )
    assert settings.cookie_secure is False


async def _answers(browser: httpx2.AsyncClient, address: str) -> bool:
    try:
        return (await browser.get(address)).is_success
    except httpx2.TransportError:
        return False


def _certificate(folder: Path) -> dict[str, str]:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    return {
        "FARMIQ_TLS_CERT_FILE": str(folder / "cert.pem"),
        "FARMIQ_TLS_KEY_FILE": str(folder / "key.pem"),
    }
