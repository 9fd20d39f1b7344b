"""Pure: words that others chose, made fit to be stored."""

MAX_LENGTH = 500


def storable(words: object) -> str:
    """Words of an answer, short and without what no database takes (NUL, half a character)."""
    text = str(words)[:MAX_LENGTH].encode(errors="replace").decode()
    return text.replace("\0", "\ufffd")
