"""Requests to addresses of others: what is inside our network is refused, whatever it is called."""

import asyncio
import ssl
import threading
from ipaddress import ip_address

import pytest
import trustme

from farmiq.plumbing import outgoing
from farmiq.plumbing.addresses import Address, Allowed
from farmiq.plumbing.outgoing import ForbiddenHostError, NoAnswerError
from tests.support.http_receiver import HttpReceiver, http_receiver
from tests.support.ports import free_port

LOOPBACK = Allowed.read(["127.0.0.1"])


async def post(url: str, allowed: Allowed = LOOPBACK, **given: object) -> outgoing.Answer:
    return await outgoing.post(
        url,
        content=b"{}",
        headers={"X-Token": "t"},
        allowed=allowed,
        **given,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0", "localhost", "LOCALHOST",
        "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "[::ffff:a9fe:a9fe]", "10.0.0.1",
        "[fd00:ec2::254]", "[fe80::1]", "100.100.100.200",
    ],
)  # fmt: skip
async def test_address_inside_is_refused_however_it_is_written(host: str) -> None:
    async with http_receiver() as receiver:
        with pytest.raises(ForbiddenHostError, match="private network"):
            await post(f"https://{host}:{receiver.port}/", Allowed())
    assert receiver.connections == 0


async def test_allowed_address_is_reached_by_name_and_the_name_is_sent() -> None:
    async with http_receiver() as receiver:
        answer = await post(f"http://localhost:{receiver.port}/a?b=c", Allowed.read(["localhost"]))
    (posted,) = receiver.posted
    assert (answer.status, answer.body) == (200, b"ok")
    assert (posted.path, posted.headers["host"]) == ("/a?b=c", f"localhost:{receiver.port}")
    assert posted.headers["x-token"] == "t"


async def test_certificate_is_checked_for_the_name() -> None:
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(serving)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    receiver = HttpReceiver(free_port())
    receiver.answering.set()
    listening = await asyncio.start_server(receiver.serve, "127.0.0.1", receiver.port, ssl=serving)
    async with listening:
        url = f"https://localhost:{receiver.port}/"
        allowed = Allowed.read(["localhost", "127.0.0.1"])
        assert (await post(url, allowed, context=trusting)).status == 200
        with pytest.raises(NoAnswerError):
            await post(url, allowed)
        with pytest.raises(NoAnswerError):
            await post(f"https://127.0.0.1:{receiver.port}/", allowed, context=trusting)
    assert len(receiver.posted) == 1


async def test_redirect_is_an_answer_and_is_not_followed() -> None:
    async with http_receiver() as inside, http_receiver() as receiver:
        receiver.status, receiver.headers = 307, {"Location": inside.url}
        answer = await post(receiver.url)
    assert answer.status == 307
    assert inside.connections == 0


async def test_answer_without_end_is_read_to_a_bound() -> None:
    async with http_receiver() as receiver:
        receiver.body, receiver.is_endless = b"x" * 4096, True
        answer = await post(receiver.url)
    assert len(answer.body) == outgoing.MAX_ANSWER


async def test_server_that_never_answers_ends_at_the_deadline() -> None:
    async with http_receiver() as receiver:
        receiver.answering.clear()
        with pytest.raises(NoAnswerError, match="took too long"):
            await post(receiver.url + "/s3cret", deadline_s=0.2)


async def test_names_of_one_owner_that_hang_do_not_hold_back_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    goes_on = threading.Event()

    def hang(host: str, port: int) -> list[Address]:
        del port
        if host == "good.example.com":
            return [ip_address("1.1.1.1")]
        asked.append(host)
        goes_on.wait()
        return []

    # No name server that hangs can be had on loopback without changing the machine's own.
    monkeypatch.setattr(outgoing, "addresses_of", hang)
    monkeypatch.setattr(outgoing, "RESOLVE_S", 0.2)
    try:
        hanging = [
            outgoing.resolve(f"{number}.example.com", 443, allowed=Allowed(), owner="hill")
            for number in range(40)
        ]
        ended = await asyncio.gather(*hanging, return_exceptions=True)
        assert all(isinstance(error, NoAnswerError) for error in ended)
        assert len(asked) == outgoing.PER_OWNER
        monkeypatch.setattr(outgoing, "RESOLVE_S", 5.0)
        target = await outgoing.resolve("good.example.com", 443, allowed=Allowed(), owner="dale")
        assert str(target.address) == "1.1.1.1"
    finally:
        goes_on.set()


async def test_no_server_is_unreachable_and_its_address_is_not_quoted() -> None:
    async with http_receiver() as receiver:
        pass
    with pytest.raises(NoAnswerError) as failed:
        await post(receiver.url + "/s3cret")
    assert "s3cret" not in str(failed.value)


async def test_plain_http_is_for_hosts_inside_only() -> None:
    with pytest.raises(ForbiddenHostError, match="https"):
        await post("http://1.1.1.1/", Allowed())
