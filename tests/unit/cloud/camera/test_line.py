"""Whose messages the gateway takes next."""

import msgspec
import pytest

from farmiq.cloud.camera.gateway import line as module
from farmiq.cloud.camera.gateway.line import MOST_DEAR, Line
from farmiq.plumbing.mqtt import Message

MANY, OTHER = "AABBCCDDEE01", "AABBCCDDEE02"
CHUNK, ANNOUNCEMENT = b'{"chunk_id": 1}', b'{"total_chunks": 1}'


def message(
    number: int,
    mac: str = MANY,
    payload: bytes = CHUNK,
    *,
    repeated: bool = False,
    qos: int = 1,
    connection: int = 1,
) -> Message:
    return Message(
        f"device/{mac}/data", payload, retained=False, repeated=repeated, packet_id=number,
        size=len(payload), qos=qos, connection=connection,
    )  # fmt: skip


def line_of(*messages: Message) -> Line:
    line = Line()
    line.connected(1, settled_at=0.0)
    line.join(messages)
    return line


def taken(line: Line, most: int = 200, most_bytes: int = 10**6, now: float = 0.0) -> list[int]:
    return [one.packet_id for one in line.take(most=most, most_bytes=most_bytes, now=now)]


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


def test_what_comes_again_on_a_connection_is_here_once_whether_or_not_it_was_taken() -> None:
    again = message(1, repeated=True)
    line = line_of(message(1), message(2), again)
    assert taken(line) == [1, 2]
    line.join([again])
    line.settled()
    line.join([again])
    assert (taken(line), line.stale(), line.taken) == ([], [], 2)


def test_a_number_that_is_used_again_names_another_message() -> None:
    line = line_of(message(1))
    line.join([message(1, payload=ANNOUNCEMENT, repeated=True), message(1)])
    assert taken(line) == [1, 1, 1]


def test_of_a_lost_connection_only_what_nobody_brings_again_stays() -> None:
    line = line_of(message(1), message(2, repeated=True), message(0, qos=0), message(0, qos=0))
    line.connected(1, settled_at=9.0)
    assert line.count == 4
    line.connected(2, settled_at=0.0)
    line.join([message(1, connection=2, repeated=True)])
    assert taken(line) == [1, 0, 0]


def settling(*messages: Message) -> Line:
    line = Line()
    line.connected(7, settled_at=0.0)  # the last one is lost, the next one has not answered yet
    assert taken(line) == []
    line.connected(7, settled_at=12.0)
    line.join(messages)
    assert taken(line) == []
    return line


@pytest.mark.req("DB2-14")
def test_what_the_last_connection_left_comes_first_and_as_it_was_sent() -> None:
    """The broker brings it in any order: old announcements would be taken for the next image."""
    left = [message(n, payload=b"%d" % n, repeated=True) for n in (30, 40, 10, 20)]
    line = settling(message(50), *left[:2], message(51, OTHER), *left[2:])
    assert (taken(line, now=2.0), line.settles_for(2.0), line.count) == ([], 10.0, 6)
    assert taken(line, now=12.0) == [10, 20, 30, 40, 50, 51]
    assert (line.settles_for(12.0), line.count) == (0.0, 0)


def test_what_was_left_comes_first_also_if_a_restarted_broker_numbers_it_later() -> None:
    assert taken(settling(message(1), message(2, repeated=True)), now=12.0) == [2, 1]


def test_the_brokers_numbers_begin_again_after_the_largest() -> None:
    left = (message(n, payload=b"%d" % n, repeated=True) for n in (3, 65_530, 200, 65_535))
    assert taken(settling(*left), now=12.0) == [65_530, 65_535, 3, 200]


@pytest.mark.req("DB2-14")
def test_what_the_last_connection_left_and_comes_after_newer_messages_is_dropped() -> None:
    line = line_of(message(9))
    assert taken(line) == [9]
    late = [message(n, mac, repeated=True) for n, mac in ((2, MANY), (3, OTHER))]
    line.join(late)
    assert (line.stale(), line.stale(), taken(line)) == ([late[0]], [], [3])


def test_what_the_broker_only_kept_is_old_news() -> None:
    kept = msgspec.structs.replace(message(1), retained=True)
    line = line_of(kept, message(2))
    assert (taken(line), line.stale()) == ([2], [kept])


def test_what_came_with_qos_0_and_is_taken_between_connections_makes_nothing_stale() -> None:
    line = line_of(message(0, qos=0))
    line.connected(2, settled_at=0.0)
    assert taken(line) == [0]
    line.connected(2, settled_at=9.0)
    left = message(1, payload=ANNOUNCEMENT, repeated=True, connection=2)
    line.join([left])
    assert (taken(line, now=9.0), line.stale()) == ([1], [])


@pytest.mark.req("DB2-14")
def test_what_was_left_is_put_in_order_though_nobody_asked_before_all_had_come() -> None:
    """A transaction may last for longer than that."""
    line = Line()
    line.connected(7, settled_at=12.0)
    line.join(message(n, payload=b"%d" % n, repeated=True) for n in (3, 4, 1, 2))
    assert taken(line, now=13.0) == [1, 2, 3, 4]


def test_what_this_connection_had_to_wait_for_is_never_stale() -> None:
    """The broker holds back what is too much, and brings it a first time as if again."""
    line = line_of(message(9))
    assert taken(line) == [9]
    line.join([message(20, repeated=True), message(8, repeated=True)])
    assert (taken(line), [one.packet_id for one in line.stale()]) == ([20], [8])


def test_of_what_is_known_again_the_last_ones_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KNOWN", 2)
    line = line_of(message(1), message(2), message(3))
    line.join([message(1, repeated=True), message(3, repeated=True)])
    assert taken(line) == [1, 2, 3, 1]


def test_what_is_not_committed_is_in_hand() -> None:
    line = line_of(message(1), message(2, OTHER))
    both = {f"device/{MANY}/data", f"device/{OTHER}/data"}
    assert set(line.topics()) == both
    taken(line, most=1)
    assert set(line.topics()) == both, "taken, and not yet committed"
    line.settled()
    assert set(line.topics()) == {f"device/{OTHER}/data"}
