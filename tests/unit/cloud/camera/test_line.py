"""Whose messages the gateway takes next."""

from farmiq.cloud.camera.gateway.line import MOST_DEAR, Line
from farmiq.plumbing.mqtt import Message

MANY, OTHER = "AABBCCDDEE01", "AABBCCDDEE02"
CHUNK, ANNOUNCEMENT = b'{"chunk_id": 1}', b'{"total_chunks": 1}'


def message(number: int, mac: str = MANY, payload: bytes = CHUNK, **changes: int) -> Message:
    said = {"qos": 1, "connection": 1, **changes}
    return Message(
        f"device/{mac}/data", payload, retained=False, repeated=False, packet_id=number,
        size=len(payload), **said,
    )  # fmt: skip


def line_of(*messages: Message) -> Line:
    line = Line()
    line.join(messages)
    return line


def taken(line: Line, most: int = 200, most_bytes: int = 10**6) -> list[int]:
    return [one.packet_id for one in line.take(most=most, most_bytes=most_bytes)]


def test_another_camera_does_not_wait_for_one_that_has_sent_much() -> None:
    line = line_of(*(message(n) for n in range(1, 1000)), message(1000, OTHER))
    assert taken(line, most=10) == [1, 2, 3, 4, 5, 1000, 6, 7, 8, 9]
    assert (line.count, line.bytes) == (990, 990 * len(CHUNK))


def test_a_transaction_has_few_announcements_of_one_camera_and_its_order_holds() -> None:
    sent = [message(n, payload=CHUNK if n % 2 else ANNOUNCEMENT) for n in range(1, 1001)]
    line, found = line_of(*sent), []
    while part := taken(line):
        assert len(part) <= 2 * MOST_DEAR
        found += part
    assert found == list(range(1, 1001))


def test_whoever_was_served_is_last_the_next_time() -> None:
    line = line_of(message(1), message(2), message(3, OTHER))
    assert [taken(line, most=1) for _ in range(4)] == [[1], [3], [2], []]
    assert (line.count, line.bytes) == (0, 0)
    assert taken(line_of(message(1), message(2)), most_bytes=len(CHUNK)) == [1]


def test_what_the_broker_sends_again_is_here_once_and_of_a_lost_connection_not_at_all() -> None:
    line = line_of(message(1), message(2), message(1))
    line.join([message(0, qos=0), message(0, qos=0)])
    line.forget_but(1)
    assert line.count == 4
    line.forget_but(2)
    line.join([message(1, connection=2)])
    assert taken(line) == [0, 0, 1]


def test_what_is_not_committed_is_in_hand() -> None:
    line = line_of(message(1), message(2, OTHER))
    both = {f"device/{MANY}/data", f"device/{OTHER}/data"}
    assert set(line.topics()) == both
    taken(line, most=1)
    assert set(line.topics()) == both, "taken, and not yet committed"
    line.settled()
    assert set(line.topics()) == {f"device/{OTHER}/data"}
