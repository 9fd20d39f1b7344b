"""Frames written by hand are what the codec reads, whatever the message."""

from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from farmiq.plumbing.bus import amqp_stream
from farmiq.plumbing.bus.amqp import Outgoing

SHORT = st.text(max_size=60)


@given(
    st.binary(max_size=300),
    SHORT,
    st.dictionaries(st.text(min_size=1, max_size=20), st.text(max_size=300), max_size=4),
    st.integers(min_value=1, max_value=400),
)
def test_frames_say_what_the_message_is(
    content: bytes, message_id: str, headers: dict[str, str], most: int
) -> None:
    message = Outgoing("work", "a.b", content, message_id=message_id, headers=headers)

    found = _read(b"".join(amqp_stream.frames(message, most)))

    method, about, *parts = found
    assert isinstance(method, commands.Basic.Publish)
    assert (method.exchange, method.routing_key, method.mandatory) == ("work", "a.b", True)
    assert isinstance(about, header.ContentHeader)
    assert about.body_size == len(content)
    assert about.properties.content_type == "application/json"
    assert about.properties.delivery_mode == 2
    assert about.properties.message_id == message_id
    assert (about.properties.headers or {}) == headers
    bodies = [part.value for part in parts if isinstance(part, body.ContentBody)]
    assert len(bodies) == len(parts)
    assert all(len(one) <= most for one in bodies)
    assert b"".join(bodies) == content


def _read(buffer: bytes) -> list[object]:
    found: list[object] = []
    while buffer:
        used, channel, one = frame.unmarshal(buffer)
        assert channel == amqp_stream.CHANNEL
        found.append(one)
        buffer = buffer[used:]
    return found
