"""What a response means for an upload: only a rejection of this object counts against it (C-33)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.device.uplink.uploads import POLICY as DEVICE
from farmiq.device.uplink.uploads import retry_delay_s
from farmiq.edge.media.cloud_upload import IMAGE_RETRY, MAX_DELAY_S, outage_retry
from farmiq.edge.media.cloud_upload import POLICY as EDGE
from farmiq.plumbing.storage import upload_rules
from farmiq.plumbing.storage.upload_rules import (
    Policy,
    Presigning,
    Putting,
    Rejected,
    Response,
    State,
    Stored,
    Unavailable,
)

SHA = "ab" * 32
ADDRESS = {"upload_url": "http://x", "required_headers": {"a": "b"}}
ERROR = {"error": {"code": "X", "message": "no"}}


def presign(
    status: int | None, body: Any = None, *, policy: Policy = EDGE, puts: int = 1, **more: Any
) -> State:
    response = Response(status, body, **more)
    return upload_rules.after_presign(
        Presigning(puts), response, policy, object_id="i-1", sha256=SHA
    )


def put(status: int | None, *, policy: Policy = EDGE, left: int = 0) -> State:
    return upload_rules.after_put(Putting("u", {}, left), Response(status), policy)


@pytest.mark.req("WV-30", "WV-31")
@pytest.mark.parametrize(
    ("status", "presigned", "after_put"),
    [
        (200, Putting, Stored),
        (201, Putting, Stored),
        (204, Putting, Stored),
        (400, Rejected, Rejected),
        (401, "unauthorized", Rejected),
        (403, "unauthorized", Presigning),
        (404, "unauthorized", Rejected),
        (408, Unavailable, Unavailable),
        (412, Rejected, Presigning),
        (413, Rejected, Rejected),
        (422, Rejected, Rejected),
        (429, Unavailable, Unavailable),
        (500, Rejected, Rejected),
        (502, Unavailable, Unavailable),
        (503, Unavailable, Unavailable),
        (504, Unavailable, Unavailable),
    ],
)
def test_responses_of_the_edge_to_a_device(status: int, presigned: Any, after_put: Any) -> None:
    for body in (None, ERROR):
        is_good = presigned is Putting
        found = presign(status, ADDRESS if is_good else body, policy=DEVICE)
        if presigned == "unauthorized":
            assert isinstance(found, Unavailable)
            assert found.unauthorized
        else:
            assert isinstance(found, presigned)
            assert not getattr(found, "unauthorized", False)
    assert isinstance(put(status, policy=DEVICE, left=2), after_put)


def test_upload_counts_as_stored_only_when_the_receiver_has_read_it_back() -> None:
    whole = {"stored": True, "size_bytes": 5, "sha256": SHA}
    assert presign(200, whole) == Stored()
    assert isinstance(presign(200, {**whole, "sha256": "0" * 64}), Rejected)
    assert isinstance(presign(200, {**whole, "stored": "true"}), Unavailable)
    assert presign(200, ADDRESS) == Putting("http://x", {"a": "b"}, 0)
    assert isinstance(presign(200, {**ADDRESS, "media_id": "i-2"}), Rejected)
    odd: Any
    for odd in (None, [], "portal", {}, {"upload_url": 1, "required_headers": {}}):
        assert isinstance(presign(200, odd), Unavailable)
        assert isinstance(presign(200, odd, policy=DEVICE), Rejected)


def test_an_upload_that_is_not_found_afterwards_is_rejected() -> None:
    asking = put(200)
    assert asking == Presigning(0)
    assert isinstance(presign(200, ADDRESS, puts=0), Rejected)


def test_an_outage_counts_against_no_image() -> None:
    for status in (None, 401, 403, 404, 429, 500, 502, 503, 504):
        assert isinstance(presign(status, ERROR), Unavailable)
    assert isinstance(presign(418, "a proxy's page"), Unavailable)
    for status in (400, 409, 413):
        assert isinstance(presign(status, ERROR), Rejected)
    assert presign(503, ERROR, retry_after_s=9.0) == Unavailable("503 X no", 9.0)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (200, Presigning),
        (204, Presigning),
        (412, Presigning),
        (403, Rejected),
        (400, Rejected),
        (503, Unavailable),
        (None, Unavailable),
    ],
)
def test_responses_of_the_clouds_store_to_a_put(status: int | None, kind: Any) -> None:
    assert isinstance(put(status), kind)


@pytest.mark.req("WV-30")
def test_delays_of_a_device_grow_up_to_an_hour() -> None:
    delays = [retry_delay_s(attempts, base_s=2, chance=1) for attempts in range(14)]
    assert delays[:4] == [2, 4, 8, 16]
    assert delays == sorted(delays)
    assert max(delays) == 3600


@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0, 1e9))
def test_delays_of_an_edge_grow_and_end(count: int, chance: float, asked: float) -> None:
    delay = IMAGE_RETRY.delay_s(count, chance=chance)
    assert 0 < delay <= MAX_DELAY_S
    pause = outage_retry(cap_s=30).delay_s(count, chance=chance, retry_after_s=asked)
    assert min(asked, MAX_DELAY_S) <= pause <= max(30, MAX_DELAY_S)
