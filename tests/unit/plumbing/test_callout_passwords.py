"""Whoever guesses holds up nobody, and hides nobody."""

import asyncio
from typing import Any

import bcrypt

from farmiq.nats_users import Account
from farmiq.plumbing.broker import nats_jwt
from farmiq.plumbing.broker.callout import CLIENT_ID, MAX_CHECKS, MAX_REJECTIONS, Callout
from farmiq.plumbing.broker.log import LOGIN


def callout() -> Callout:
    nothing: Any = None
    return Callout(
        nothing,
        url="",
        key=nats_jwt.Key.new(),
        monitor=(nothing, ""),
        version=nothing,
        load=nothing,
        end_session=nothing,
    )


async def test_crowd_of_wrong_passwords_is_not_checked_but_for_a_few() -> None:
    asked = callout()
    secret = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    account = Account(user="t/d", secret_bcrypt=secret, publish=(), subscribe=())
    tries = [asyncio.create_task(asked.password_fits(f"no {each}", account)) for each in range(500)]
    await asyncio.sleep(0)
    assert asked._checking == {"t/d": MAX_CHECKS}
    assert not any(await asyncio.gather(*tries))
    assert await asked.password_fits("right", account)
    crowd = [asyncio.create_task(asked.password_fits("no", account)) for _ in range(MAX_CHECKS)]
    await asyncio.sleep(0)
    assert await asked.password_fits("right", account)
    assert not any(await asyncio.gather(*crowd))
    assert not asked._checking
    assert not asked._check_locks


async def test_crowd_of_invented_logins_hides_no_login_that_was_right() -> None:
    asked = callout()
    for number in range(1000):
        asked.note_rejection(LOGIN, f"invented-{number}", "10.0.0.9", "no such login")
    asked.note_rejection(CLIENT_ID, "t/d", "10.0.0.7", "not its own")
    found = asked.rejections()
    assert len(found) == MAX_REJECTIONS + 2
    assert found.total() == 1001
    assert {one.host for one in found if one.user == "t/d"} == {"10.0.0.7"}
    assert not asked.rejections()
