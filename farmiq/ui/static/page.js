// What every page does: ids are copied by their button, arrow keys step to what stands beside.

const said = document.getElementById("copied");

// Where the page came over plain HTTP, browsers have no clipboard for scripts: mark it and copy.
function copyMarked(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "visually-hidden";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  if (!done) throw new Error("the browser refused");
}

async function copy(button) {
  let word = said.dataset.done;
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(button.dataset.copy);
    else copyMarked(button.dataset.copy);
  } catch {
    word = said.dataset.failed;
  }
  button.focus();
  button.classList.add("done");
  setTimeout(() => button.classList.remove("done"), 1500);
  // Emptied first: the same word twice would be read out once.
  said.textContent = "";
  setTimeout(() => (said.textContent = word), 50);
}

document.documentElement.classList.add("can-copy", "scripted");

// Of tabs that go on to the right the chosen one is in sight.
for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
  const tabs = tab.parentElement;
  tabs.scrollLeft = tab.offsetLeft - tabs.offsetLeft - (tabs.clientWidth - tab.offsetWidth) / 2;
}

// A choice that applies at once: filters, the company. Without a script there is a button.
document.addEventListener("change", (event) => {
  if (event.target.closest("[data-submit]")) event.target.form?.requestSubmit();
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-copy]");
  if (button) copy(button);
});

const BESIDE = { ArrowLeft: "prev", ArrowRight: "next" };

document.addEventListener("keydown", (event) => {
  const pressedAlone = !(event.altKey || event.ctrlKey || event.metaKey || event.shiftKey);
  if (!pressedAlone || event.target.closest("input, select, textarea")) return;
  document.querySelector(`a[rel="${BESIDE[event.key]}"]`)?.click();
});

// A press beside an open sheet closes it.
document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("details.more-pages[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});

// A form that leaves its page for a server that is away takes along what was typed: look first.
const REACH_MS = 10_000;
const notSent = document.getElementById("not-sent");
let leaving = null;

async function isReached() {
  try {
    const answer = await fetch("/healthz", { cache: "no-store", signal: AbortSignal.timeout(REACH_MS) });
    // A proxy answers for a server that is away.
    return ![502, 504].includes(answer.status);
  } catch {
    return false;
  }
}

document.addEventListener("submit", async (event) => {
  const { target: form, submitter } = event;
  if (form === leaving || event.defaultPrevented || form.method !== "post" || form.matches("[data-offline], [data-stay]")) return;
  event.preventDefault();
  notSent.hidden = await isReached();
  if (!notSent.hidden) return form.append(notSent);
  leaving = form;
  form.requestSubmit(submitter);
  leaving = null;
});

// The server could not be reached: this is the page as it was, and it says since when.
const kept = document.getElementById("kept");
if (document.body.dataset.kept) {
  const at = new Date(document.body.dataset.kept);
  const { lang } = document.documentElement;
  const shownAt = at.toLocaleString(lang, { dateStyle: "medium", timeStyle: "short" });
  const words = new Intl.RelativeTimeFormat(lang, { numeric: "auto" });
  const showAge = () => {
    const minutes = Math.floor((Date.now() - at) / 60_000);
    const [count, unit] =
      minutes < 60 ? [minutes, "minute"] : minutes < 2880 ? [Math.floor(minutes / 60), "hour"] : [Math.floor(minutes / 1440), "day"];
    kept.querySelector("time").textContent = `${shownAt} (${words.format(-count, unit)})`;
  };
  kept.querySelector("time").dateTime = at.toISOString();
  showAge();
  setInterval(showAge, 30_000);
  kept.hidden = false;
}

// Whoever signs out takes along what this browser kept of their pages.
document.addEventListener("submit", (event) => {
  if (event.target.closest(".sign-out")) navigator.serviceWorker?.controller?.postMessage("forget");
});

// ?kiosk=1: a screen on the wall, which stays on as long as it is seen.
if (new URLSearchParams(location.search).get("kiosk") === "1") {
  document.documentElement.dataset.kiosk = "";
  const stayOn = () => document.visibilityState === "visible" && navigator.wakeLock?.request("screen").catch(() => {});
  document.addEventListener("visibilitychange", stayOn);
  stayOn();
}
