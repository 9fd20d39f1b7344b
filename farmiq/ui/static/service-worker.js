// Shows the last known state, with its age, when the server cannot be reached.
// Pages and files are kept as they were fetched last; nothing else is cached.

const PAGES = "farmiq-pages-1";
const FORMS = "farmiq-forms-1";
const FILES = "farmiq-files-1";
const MAX_PAGES = 40;
const FORMS_MS = 3_600_000;
// In FORMS: whose pages these are, and when the forms were fetched.
const OWNER = "/owner";
const OFFLINE = "/offline";
// Pages with secrets of a person, and files to download, are never kept.
const SECRET = /^\/(sign-in|settings\/account)|\.pdf$/;
const FILE_OF_PAGE = /(?:href|src)="(\/static\/[^"]+)"/g;

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("fetch", (event) => {
  const { request } = event;
  const url = new URL(request.url);
  if (request.method !== "GET" || url.origin !== location.origin) return;
  if (url.pathname.startsWith("/static/")) event.respondWith(file(request));
  else if (request.mode === "navigate") event.respondWith(page(request, url));
});

async function file(address) {
  const cache = await caches.open(FILES);
  const found = await cache.match(address);
  if (found) return found;
  const answer = await fetch(address);
  if (answer.ok) cache.put(address, answer.clone());
  return answer;
}

const mayKeep = (answer) =>
  answer.ok &&
  !answer.redirected &&
  !SECRET.test(new URL(answer.url).pathname) &&
  answer.headers.get("Content-Type")?.startsWith("text/html");

async function page(request, url) {
  const cache = await caches.open(PAGES);
  try {
    const answer = await fetch(request);
    if (mayKeep(answer)) {
      await cache.put(request, answer.clone());
      const keys = await cache.keys();
      await Promise.all(keys.slice(0, Math.max(0, keys.length - MAX_PAGES)).map((key) => cache.delete(key)));
    }
    return answer;
  } catch (error) {
    const last = (await cache.match(request)) ?? (await form(url));
    if (last) return marked(last);
    const offline = await caches.match(OFFLINE, { cacheName: FILES });
    if (!offline) throw error;
    return offline;
  }
}

// A form is kept once for each kind; offline.js chooses the barn that the address names. What
// corrects an entry, or is of another company, is a form of its own.
async function form({ pathname, searchParams }) {
  if (searchParams.has("replaces") || searchParams.has("company")) return undefined;
  const kind = searchParams.get("kind");
  return caches.match(kind ? `${pathname}?kind=${kind}` : pathname, { cacheName: FORMS });
}

// Says that this page is old, and of when: the text is the server's own, with the page.
async function marked(answer) {
  const html = await answer.text();
  const headers = new Headers(answer.headers);
  const of = new Date(headers.get("Date")).toISOString();
  return new Response(html.replace("<body", `<body data-kept="${of}"`), { status: 200, headers });
}

// Every page says whose it is. What that person needs without a link is kept before it is needed:
// the page that is open, which may be the first one, the forms, and what to show for all other pages.
// One after the other: what one page asks for is then there for the next one.
let work = Promise.resolve();
self.addEventListener("message", (event) => {
  work = work.then(() => (event.data === "forget" ? forget() : keep(event.data))).catch(() => {});
  event.waitUntil(work);
});

// Whoever signs out takes the kept pages along.
const forget = () => Promise.all([caches.delete(PAGES), caches.delete(FORMS)]);

async function keep({ owner, address, forms }) {
  const last = await (await caches.match(OWNER, { cacheName: FORMS }))?.json();
  if (last?.owner !== owner) await forget();
  const [pages, kept, files] = await Promise.all([PAGES, FORMS, FILES].map((name) => caches.open(name)));
  if (!(await pages.match(address))) await fetchInto(pages, address);
  if (last?.owner === owner && Date.now() - last.at < FORMS_MS) return;
  await fetchInto(files, OFFLINE);
  for (const one of forms) await fetchInto(kept, one);
  await kept.put(OWNER, Response.json({ owner, at: Date.now() }));
}

async function fetchInto(cache, address) {
  const answer = await fetch(address);
  if (!mayKeep(answer)) return;
  const html = await answer.clone().text();
  await cache.put(address, answer);
  await Promise.all([...html.matchAll(FILE_OF_PAGE)].map(([, address]) => file(address)));
}

// --- alerts, also when no page is open

self.addEventListener("push", (event) => {
  let alert = {};
  try {
    alert = event.data?.json() ?? {};
  } catch {
    alert = { body: event.data?.text() };
  }
  const options = {
    body: String(alert.body ?? ""),
    // A later word about the same episode takes the place of the one before.
    tag: String(alert.episode_id ?? alert.message_id ?? "farmiq"),
    renotify: true,
    requireInteraction: alert.severity === "critical" || alert.severity === "security",
    data: { page: String(alert.page ?? "/alerts") },
  };
  event.waitUntil(self.registration.showNotification(String(alert.title ?? "FarmIQ"), options));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(openPage(event.notification.data?.page));
});

async function openPage(page) {
  // Only pages of our own: the message came over somebody else's service.
  const url = new URL(page ?? "/alerts", location.origin);
  const address = url.origin === location.origin ? url.href : `${location.origin}/alerts`;
  const windows = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const open = windows.find((client) => client.url === address) ?? windows[0];
  if (!open) return self.clients.openWindow(address);
  await open.focus();
  return open.url === address ? open : open.navigate(address);
}
