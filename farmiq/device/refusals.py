"""How the notebook says no."""


class Refused(Exception):  # noqa: N818 - an answer, not a mistake
    """It cannot be kept, and nothing of it was; the text says why."""


class Full(Refused):
    """There is room for nothing but what is critical (C-31), or the disk is full."""
