"""Receipts: what the edge writes, the device reads."""

from uuid import UUID

import msgspec
import pytest

from farmiq.messages import envelope, receipt
from farmiq.messages.check import InvalidError
from tests.unit.messages.examples import AT, EVENT_ID, PLACE

STORED = (UUID(int=1), UUID(int=2))


def test_receipt_is_an_envelope_that_names_both_lists() -> None:
    raw = receipt.write(
        PLACE, stored=STORED, refused={UUID(int=3): "no"}, event_id=UUID(EVENT_ID), now=AT
    )
    worn = envelope.read(raw)
    told = receipt.read(worn.payload)

    assert (worn.tenant_id, worn.device_id, worn.event_type) == ("t-001", "d-010", "device.receipt")
    assert (worn.event_id, worn.ts) == (UUID(EVENT_ID), AT)
    assert told.event_ids == STORED
    assert [(one.event_id, one.reason) for one in told.rejected] == [(UUID(int=3), "no")]


def test_receipt_may_be_empty() -> None:
    raw = receipt.write(PLACE, stored=(), refused={}, event_id=UUID(EVENT_ID), now=AT)

    assert receipt.read(envelope.read(raw).payload) == receipt.Receipt(event_ids=(), rejected=())


@pytest.mark.parametrize(
    "payload",
    [b"{}", b"[]", b'{"event_ids":["x"],"rejected":[]}', b'{"event_ids":[],"rejected":{}}'],
)
def test_odd_receipt_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidError):
        receipt.read(msgspec.Raw(payload))
