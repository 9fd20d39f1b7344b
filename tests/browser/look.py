"""What every page must be on a phone and on a wide screen, light and dark."""

from pathlib import Path
from typing import Literal, Protocol

from axe_playwright_python.base import AXE_SCRIPT, AxeResults
from playwright.sync_api import Error, Page

from tests.browser import patience, person

PHONE, WIDE = 360, 1180
Theme = Literal["light", "dark"]
# In an order that changes one thing at a time.
SCREENS: tuple[tuple[int, Theme], ...] = (
    (WIDE, "light"), (WIDE, "dark"), (PHONE, "dark"), (PHONE, "light"),
)  # fmt: skip
# All of axe's rules on a wide screen that is light and on a phone that is dark: colours are the
# same on both screens, all else is the same in both themes. Then the light colours of what only a
# phone shows.
OF_COLOURS = ("color-contrast", "link-in-text-block")
# Contrast takes axe most of its time: of texts with the same colours on the same backgrounds, as
# lists and other pages have them, one is looked at. A look is the hash of what contrast comes from.
LOOKS = """
axe.configure({ rules: [{ id: "color-contrast", selector: "[data-looks]" }] });
const hash = (what) => {
  let a = 0xdeadbeef, b = 0x41c6ce57;
  for (const unit of what.join()) {
    a = Math.imul(a ^ unit.codePointAt(0), 2654435761);
    b = Math.imul(b ^ unit.codePointAt(0), 1597334677);
  }
  return ((b ^ (b >>> 16)) >>> 0) * 2 ** 21 + ((a ^ (a >>> 13)) >>> 11);
};
window.markLooks = (shown, known) => {
  const below = new Map(), looks = new Set(known);
  const behind = (e) => {
    if (!e) return 0;
    if (!below.has(e)) {
      const { backgroundColor, backgroundImage, opacity } = getComputedStyle(e);
      below.set(e, hash([behind(e.parentElement), backgroundColor, backgroundImage, opacity]));
    }
    return below.get(e);
  };
  for (const e of shown) {
    delete e.dataset.looks;
    const text = [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE)
      .map((n) => n.data.trim()).join("");
    if (!text && !e.matches("input, select, textarea, button")) continue;
    const { color, fontSize, fontWeight, textShadow } = getComputedStyle(e);
    const exempt = e.closest("label, :disabled, [aria-disabled]") !== null;
    const look = hash(
      [behind(e), color, fontSize, fontWeight, textShadow, exempt, text.length > 1]);
    if (!looks.has(look)) e.dataset.looks = "";
    looks.add(look);
  }
  return [...looks];
};
"""
CHECKED = """async ({ rules, known }) => {
  const shown = [...document.querySelectorAll("body *")]
    .filter((e) => e.checkVisibility({ checkVisibilityCSS: true }));
  axe.wide ??= new Set(shown);
  const here = rules ? shown.filter((e) => !axe.wide.has(e)) : document;
  if (here.length === 0) return { violations: [], looks: known };
  const looks = markLooks(rules ? here : shown, known);
  const options = { resultTypes: ["violations"], ...(rules && { runOnly: rules }) };
  const { violations } = await axe.run(here, options);
  return { violations, looks };
}"""
# Of the images that are not folded away, those near the top.
DRAWN = """[...document.images].filter(i => !i.closest("details:not([open])"))
  .filter(i => i.getBoundingClientRect().top < 800)
  .every(i => i.complete && i.naturalWidth)"""
# Words of ours that go on in the next line, tabs in two rows, buttons too small for their text.
CRAMPED = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.parentElement.closest(".text, code, time, .visually-hidden, svg")) continue;
    for (const word of node.data.matchAll(/\\p{L}{2,18}/gu)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].map((r) => Math.round(r.top)));
      if (tops.size > 1) found.push(`breaks the word ${word[0]}`);
    }
  }
  for (const tabs of document.querySelectorAll(".tabs")) {
    const rows = new Set([...tabs.children].map((tab) => tab.offsetTop));
    if (rows.size > 1 && !tabs.closest(".kinds")) found.push(`has ${rows.size} rows of tabs`);
  }
  for (const button of document.querySelectorAll("button, .button"))
    if (button.scrollHeight > button.clientHeight) found.push(`cramps ${button.textContent}`);
  return [...new Set(found)];
}"""
FITS = "() => document.documentElement.scrollWidth <= innerWidth"
SCREENSHOTS = Path(__file__).parents[2] / "artefacts" / "screenshots"


class Keep(Protocol):
    """Check the page of the test; `name` is that of its pictures."""

    def __call__(self, name: str) -> None: ...


def keep(page: Page, name: str, *, pictures: bool = False) -> None:
    """For what only a journey shows, such as a form with an error: pages/ sees the rest."""
    wrong = problems(page, name, pictures=pictures)
    assert not wrong, wrong


def problems(
    page: Page, name: str, *, known: list[int] | None = None, pictures: bool = False
) -> list[str]:
    """Not accessible, or too wide for a screen; with `pictures` one of each is kept.

    `known` are the looks of other pages, which were looked at there; those of this page are added.
    """
    known = known if known is not None else []
    wrong = []
    page.evaluate(f"(() => {{ {AXE_SCRIPT}\n{LOOKS} }})()")
    for width, theme in SCREENS:
        is_looked_at = (width, theme) != (WIDE, "dark")
        if not is_looked_at and not pictures:
            continue
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        patience.until(lambda: bool(page.evaluate(DRAWN)), "the images in sight are drawn")
        if is_looked_at:
            rules = OF_COLOURS if (width, theme) == (PHONE, "light") else None
            answer = page.evaluate(CHECKED, {"rules": rules, "known": known})
            known[:] = answer.pop("looks")
            found = AxeResults(answer)
            if found.violations_count:
                wrong.append(f"at {width} {theme}: {found.generate_report()}")
            wrong += too_wide(page)
            wrong += [f"at {width} {what}" for what in page.evaluate(CRAMPED)]
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
