"""What every page must be on a phone and on a wide screen, light and dark."""

from itertools import product
from pathlib import Path
from typing import Literal, Protocol

from playwright.sync_api import Page

from tests.browser import patience, person

WIDTHS = (360, 1180)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
# A theme is other colours on the same page: what else axe looks at has been looked at.
OF_COLOURS = ("color-contrast", "link-in-text-block")
# Of the images that are not folded away, those near the top.
DRAWN = """[...document.images].filter(i => !i.closest("details:not([open])"))
  .filter(i => i.getBoundingClientRect().top < 800)
  .every(i => i.complete && i.naturalWidth)"""
SCREENSHOTS = Path(__file__).parents[2] / "artefacts" / "screenshots"


class Keep(Protocol):
    """Check the page of the test; `name` is that of its pictures."""

    def __call__(self, name: str) -> None: ...


def keep(page: Page, name: str, *, pictures: bool = False) -> None:
    """Accessible and not too wide on every screen; with `pictures` kept as one of each."""
    for width, theme in product(WIDTHS, THEMES):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        patience.until(lambda: bool(page.evaluate(DRAWN)), "the images in sight are drawn")
        person.expect_accessible(page, rules=() if theme == THEMES[0] else OF_COLOURS)
        person.expect_no_sideways_scrolling(page)
        if pictures:
            page.mouse.move(0, 0)
            # Those of a wide screen with a quarter of the pixels.
            page.screenshot(
                path=SCREENSHOTS / f"{name}-{width}-{theme}.png",
                full_page=True,
                scale="device" if width == WIDTHS[0] else "css",
            )
