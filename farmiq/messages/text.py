"""Pure: words that others chose, made fit to be stored."""

MAX_LENGTH = 500


def storable(words: object, *, max_length: int | None = MAX_LENGTH) -> str:
    """Words of others, short and without what no database takes (NUL, half a character)."""
    text = str(words)[:max_length].encode(errors="replace").decode()
    return text.replace("\0", "\ufffd")
