"""What every page must be on a phone and on a wide screen, light and dark."""

from pathlib import Path
from typing import Literal, Protocol

from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error, Page

from tests.browser import patience, person

PHONE, WIDE = 360, 1180
Theme = Literal["light", "dark"]
# In an order that changes one thing at a time.
SCREENS: tuple[tuple[int, Theme], ...] = (
    (WIDE, "light"), (WIDE, "dark"), (PHONE, "dark"), (PHONE, "light"),
)  # fmt: skip
# A theme is other colours on the same page: what else axe looks at has been looked at.
OF_COLOURS = ("color-contrast", "link-in-text-block")
# Of the images that are not folded away, those near the top.
DRAWN = """[...document.images].filter(i => !i.closest("details:not([open])"))
  .filter(i => i.getBoundingClientRect().top < 800)
  .every(i => i.complete && i.naturalWidth)"""
FITS = "() => document.documentElement.scrollWidth <= innerWidth"
SCREENSHOTS = Path(__file__).parents[2] / "artefacts" / "screenshots"


class Keep(Protocol):
    """Check the page of the test; `name` is that of its pictures."""

    def __call__(self, name: str) -> None: ...


def keep(page: Page, name: str, *, pictures: bool = False) -> None:
    """For what only a journey shows, such as a form with an error: pages/ sees the rest."""
    wrong = problems(page, name, pictures=pictures)
    assert not wrong, wrong


def problems(page: Page, name: str, *, pictures: bool = False) -> list[str]:
    """Not accessible, or too wide for a screen; with `pictures` one of each is kept."""
    wrong = []
    page.evaluate(AXE_SCRIPT)
    for width, theme in SCREENS:
        # Dark colours are the same on both screens.
        is_looked_at = (width, theme) != (WIDE, "dark")
        if not is_looked_at and not pictures:
            continue
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        patience.until(lambda: bool(page.evaluate(DRAWN)), "the images in sight are drawn")
        if is_looked_at:
            rules = {} if theme == "light" else {"runOnly": list(OF_COLOURS)}
            found = Axe("").run(page, options={"resultTypes": ["violations"], **rules})
            if found.violations_count:
                wrong.append(f"at {width} {theme}: {found.generate_report()}")
            wrong += too_wide(page)
        if pictures:
            page.mouse.move(0, 0)
            # Those of a wide screen with a quarter of the pixels.
            page.screenshot(
                path=SCREENSHOTS / f"{name}-{width}-{theme}.png",
                full_page=True,
                scale="device" if width == PHONE else "css",
            )
    return wrong


def too_wide(page: Page) -> list[str]:
    """A chart takes a moment to follow the screen."""
    try:
        page.wait_for_function(FITS, timeout=20_000)
    except Error:
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return [f"is {wider} px wider than the screen: {page.evaluate(person.TOO_WIDE)}"]
    return []
