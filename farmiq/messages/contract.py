"""The number of the contract between sites: it grows when an event type or a field is added.

A newer edge may send what an older cloud does not know. By this number, which the cloud says in
every answer, the edge sees that it is ahead, and waits instead of setting events aside (D-581).
"""

CONTRACT = 2
HEADER = "x-farmiq-contract"
# Of a cloud that does not say one.
FIRST = 1


def parse(value: str | None) -> int:
    """The number in a header of an answer."""
    return int(value) if value is not None and value.isascii() and value.isdigit() else FIRST
