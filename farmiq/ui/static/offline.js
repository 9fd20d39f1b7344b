// Forms with data-offline are kept on this device when the link breaks and sent when it is back.
// Each carries an idempotency key that the server knows it by, so sending twice stores once.

const STORE = "farmiq.waiting";
const place = document.getElementById("waiting-forms");
const SEND_MS = 15_000;

const kept = () => {
  try {
    return JSON.parse(localStorage.getItem(STORE) ?? "[]");
  } catch {
    return [];
  }
};
const keep = (entries) => localStorage.setItem(STORE, JSON.stringify(entries));
const without = (key) => kept().filter((one) => one.key !== key);

// Whose entries these are: of a person at a company. Nobody sends what another wrote down.
const company = document.querySelector("main")?.dataset.company ?? "";
const person = place?.dataset.person ?? "";
const isOwn = (entry) => entry.company === company && (entry.person ?? person) === person;
// Not about the entry: sign in again, wait, or try later.
const mustWait = (status) => status === 401 || status === 403 || status === 429 || status >= 500;

// A page that the service worker kept has the key of an entry that may be stored already.
const newKey = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`;
for (const form of document.querySelectorAll("form[data-offline]")) form.elements.idempotency_key.value = newKey();

const lang = document.documentElement.lang;

function show(...lines) {
  const shown = lines.filter((line) => line);
  place.replaceChildren(
    ...shown.map((line) => {
      if (line instanceof Node) return line;
      const text = document.createElement("span");
      text.textContent = line;
      return text;
    }),
  );
  place.hidden = !shown.length;
}

function button(text, press, look = "quiet") {
  const made = document.createElement("button");
  made.type = "button";
  made.className = look;
  made.textContent = text;
  made.addEventListener("click", press);
  return made;
}

const joined = (label, text) => (label ? `${label}${/[?:]$/.test(label) ? "" : ":"} ${text}` : text);

function showWaiting() {
  const own = kept().filter(isOwn);
  const rejected = own.find((entry) => entry.reason);
  if (rejected) return showRejected(rejected);
  const others = kept().filter((entry) => !isOwn(entry));
  const people = [...new Set(others.map((entry) => entry.person))].join(", ");
  show(
    own.length && (own.length === 1 ? place.dataset.one : place.dataset.many.replace("{count}", own.length)),
    others.length && place.dataset.others.replace("{count}", others.length).replace("{people}", people),
  );
}

function showRejected(entry) {
  const at = new Date(entry.at).toLocaleString(lang, { dateStyle: "medium", timeStyle: "short" });
  const fields = (entry.labels ?? []).map(({ label, text }) => joined(label, text)).join(" · ");
  const remove = () => {
    keep(without(entry.key));
    showWaiting();
  };
  show(
    place.dataset.rejected.replace("{reason}", entry.reason),
    place.dataset.written.replace("{time}", at).replace("{fields}", fields),
    corrected()?.key !== entry.key && button(place.dataset.correct, () => location.assign(correction(entry)), "plain-button"),
    button(place.dataset.discard, remove),
  );
}

// --- an entry that was not accepted is opened in its form again

const valueOf = (entry, name) => entry.fields.find(([field]) => field === name)?.[1];

function correction(entry) {
  const query = entry.fields.filter(([name]) => name === "kind" || name === "replaces");
  return `${entry.action}${query.length ? `?${new URLSearchParams(query)}` : ""}#entry=${entry.key}`;
}

const corrected = () => kept().find((entry) => isOwn(entry) && location.hash === `#entry=${entry.key}`);

// The option of this value; of a place, that of the barn, whichever batch is in it now.
function choose(select, value) {
  select.value = value;
  if (select.name !== "place" || select.selectedIndex >= 0) return;
  const barn = value.slice(0, value.lastIndexOf("/") + 1);
  select.value = [...select.options].find((option) => barn && option.value.startsWith(barn))?.value ?? "";
}

function fillIn() {
  const entry = corrected();
  const isOf = (form) => form.action === entry.action && form.elements.kind?.value === valueOf(entry, "kind");
  const form = entry && [...document.querySelectorAll("form[data-offline]")].find(isOf);
  if (!form) return;
  for (const [name, value] of entry.fields) {
    const field = form.elements[name];
    if (field?.nodeName === "SELECT") choose(field, value);
    else if (field && field.type !== "hidden") field.value = value;
  }
  // It takes the place of what was not accepted, and was still written down when it was.
  form.elements.idempotency_key.value = entry.key;
  if (form.elements.entered_at) form.elements.entered_at.dataset.first = valueOf(entry, "entered_at") ?? "";
}

// A form that was kept before anybody had opened it: the barn is that of the address.
function chooseBarn() {
  const query = new URLSearchParams(location.search);
  for (const select of document.querySelectorAll("form[data-offline] select[name=place]")) {
    const isWanted = ({ value }) => value === query.get("place") || value.endsWith(`/${query.get("batch")}`);
    if (document.body.dataset.kept && !select.value) select.value = [...select.options].find(isWanted)?.value ?? "";
  }
}

async function send(entry) {
  const csrf = document.querySelector('input[name="csrf"]')?.value ?? "";
  return fetch(entry.action, {
    method: "POST",
    headers: { Accept: "application/json" },
    body: new URLSearchParams([...entry.fields.filter(([name]) => name !== "csrf"), ["csrf", csrf]]),
    signal: AbortSignal.timeout(SEND_MS),
  });
}

// Each reason with the name of its field, as the form had it.
function reasonOf({ error }, { labels = [] }) {
  if (!error?.details?.length) return error?.message;
  const named = ({ field, reason }) => joined(labels.find(({ name }) => name === field)?.label, reason);
  return error.details.map(named).join(" ");
}

let sending = false;
async function sendAll() {
  if (sending || !navigator.onLine) return;
  sending = true;
  let arrived = 0;
  try {
    for (const entry of kept().filter((one) => isOwn(one) && !one.reason)) {
      const answer = await send(entry);
      if (mustWait(answer.status)) break;
      if (answer.ok) {
        arrived += 1;
        keep(without(entry.key));
      } else {
        const problem = await answer.json().catch(() => ({}));
        const reason = reasonOf(problem, entry) ?? `HTTP ${answer.status}`;
        keep(kept().map((one) => (one.key === entry.key ? { ...one, reason } : one)));
      }
    }
  } catch {
    // The link is still broken: what waits goes on waiting.
  } finally {
    sending = false;
  }
  showWaiting();
  if (arrived && place.hidden) show(place.dataset.sent);
}

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-offline]");
  if (!form || event.defaultPrevented) return;
  event.preventDefault();
  // When it was written down, however late it is sent, and however often it is corrected first.
  const enteredAt = form.elements.entered_at;
  const at = enteredAt?.dataset.first || new Date().toISOString();
  if (enteredAt) enteredAt.value = at;
  const fields = [...new FormData(form, event.submitter)];
  const labels = [...form.elements].filter((field) => field.labels?.length && field.value).map((field) => ({
    name: field.name,
    label: field.labels[0].textContent.trim(),
    text: field.selectedOptions?.[0].textContent ?? field.value,
  }));
  const key = form.elements.idempotency_key.value;
  const entry = { key, company, person, action: form.action, fields, labels, at };
  // On the device first: a browser that dies while it sends has lost nothing.
  try {
    keep([...without(key), entry]);
  } catch {
    // The device stores nothing more: the answer, or the browser's own error, says what became of it.
    return form.submit();
  }
  try {
    const answer = await send(entry);
    if (answer.ok) {
      keep(without(key));
      const done = await answer.json();
      return location.assign(done.page ?? form.dataset.next ?? "/");
    }
    // It is sent after the sign-in, on this page or any other.
    if (answer.status === 401) return location.assign(`/sign-in?${new URLSearchParams({ next: location.pathname + location.search })}`);
    if (!mustWait(answer.status)) {
      keep(without(key));
      // The page of the answer says best what is wrong.
      return form.submit();
    }
  } catch {
    // The link is broken.
  }
  form.reset();
  form.elements.idempotency_key.value = newKey();
  if (enteredAt) enteredAt.dataset.first = "";
  chooseBarn();
  history.replaceState(null, "", location.pathname + location.search);
  showWaiting();
  show(place.dataset.kept, ...place.childNodes);
});

addEventListener("online", sendAll);
setInterval(sendAll, 30_000);
addEventListener("hashchange", () => {
  fillIn();
  showWaiting();
});
chooseBarn();
fillIn();
showWaiting();
sendAll();

// What this person needs without a link is kept now, while there is one.
async function prepare() {
  await navigator.serviceWorker.register("/service-worker.js");
  const { active } = await navigator.serviceWorker.ready;
  const forms = place.dataset.forms.split(" ").filter((form) => form);
  const owner = JSON.stringify([person, company, lang, forms]);
  active.postMessage({ owner, address: location.pathname + location.search, forms });
}
if ("serviceWorker" in navigator && !document.body.dataset.kept) prepare().catch(() => {});
