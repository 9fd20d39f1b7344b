"""Passwords are checked beside the loop, few at once for one login."""

import asyncio
from typing import Any

import bcrypt

from farmiq.nats_users import Account
from farmiq.plumbing import nats_jwt
from farmiq.plumbing.broker_callout import MAX_CHECKS, Callout


async def test_crowd_of_wrong_passwords_is_not_checked_but_for_a_few() -> None:
    nothing: Any = None
    asked = Callout(
        nothing,
        url="",
        key=nats_jwt.Key.new(),
        monitor=(nothing, ""),
        version=nothing,
        load=nothing,
        end_session=nothing,
    )
    secret = bcrypt.hashpw(b"right", bcrypt.gensalt(4)).decode()
    account = Account(user="t/d", secret_bcrypt=secret, publish=(), subscribe=())
    tries = [asyncio.create_task(asked._fits(f"no {each}", account)) for each in range(500)]
    await asyncio.sleep(0)
    assert asked._checking == {"t/d": MAX_CHECKS}
    assert not any(await asyncio.gather(*tries))
    assert await asked._fits("right", account)
    crowd = [asyncio.create_task(asked._fits("no", account)) for _ in range(MAX_CHECKS)]
    await asyncio.sleep(0)
    assert await asked._fits("right", account)
    assert not any(await asyncio.gather(*crowd))
    assert not asked._checking
    assert not asked._check_locks
