"""Patterns of sentences that are made where `worded` is not: SQL functions, plumbing.

Pages recognize and translate these as all others. A test compares ours with what makes them.
"""

from farmiq.messages.wording import worded

OF_SQL = (
    worded("%(camera)s missed %(number)s of %(number2)s expected wakes"),
    worded("%(number)s of %(number2)s images failed"),
    worded("%(camera)s had %(number)s V at its last wake"),
    worded("%(image)s did not arrive: %(why)s"),
    worded("%(image)s came without a time; its arrival at %(instant)s counts as one"),
    worded(
        "the clock of the camera cannot be right: %(image)s came with %(moment)s; its arrival at "
        "%(instant)s counts"
    ),
    worded("your company has no camera %(camera)s"),
    worded("camera %(camera)s is retired: its schedule stays"),
    worded("you may look at your own company only"),
    worded("this is not an e-mail address"),
)
OF_FLOODS = (
    worded(
        "it sends more than %(number)s %(what)s a second, and has used up its burst of "
        "%(number2)s: its login at the broker cannot be paused here, the others wait. What it has "
        "sent is taken; the rest it can send later"
    ),
    worded(
        "it sends more than %(number)s %(what)s a second, and has used up its burst of "
        "%(number2)s: its login at the broker is paused until %(moment)s, pause %(number3)s in a "
        "row. What it has sent is taken; the rest it can send later"
    ),
)
