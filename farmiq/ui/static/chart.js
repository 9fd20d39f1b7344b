// Draws each <figure class="chart"> from the table in it, so that chart and table say the same.
// Colours come from the style sheet and follow the theme; a gap in the table is a gap in the line.

const HEIGHT = { narrow: 200, wide: 260 };
const drawn = new Map();


function resolved(name) {
  // light-dark() is resolved by the browser only where it is used.
  const probe = document.createElement("span");
  probe.className = "visually-hidden";
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}

const faint = (rgb, alpha) => rgb.replace(/^rgb\(([^)]+)\)$/, `rgba($1, ${alpha})`);

function read(figure) {
  const isTime = figure.dataset.x === "time";
  const roles = [...figure.querySelectorAll(".twin thead th")].slice(1).map((cell) => ({
    label: cell.textContent,
    role: cell.dataset.role,
  }));
  const xs = [];
  const columns = roles.map(() => []);
  for (const row of figure.querySelectorAll(".twin tbody tr")) {
    const at = row.querySelector("th time")?.dateTime;
    xs.push(isTime ? Date.parse(at) / 1000 : Number(row.querySelector("th [data-value]").dataset.value));
    [...row.querySelectorAll("td")].forEach((cell, index) => {
      const value = cell.querySelector("[data-value]")?.dataset.value;
      columns[index]?.push(value === undefined || value === "" ? null : Number(value));
    });
  }
  return { isTime, roles, data: [xs, ...columns] };
}

// Lines of one chart differ by colour and by dashes.
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [4, 4], [14, 4]];

function series(roles, colours) {
  const tints = [colours.accent, colours.good, colours.warn, colours.bad, colours.muted, colours.text];
  let lines = -1;
  return roles.map(({ label, role }) => {
    const common = { label, spanGaps: false };
    if (role === "points") {
      return { ...common, stroke: colours.accent, paths: () => null, points: { show: true, size: 6, fill: colours.accent } };
    }
    if (role === "bars") {
      return { ...common, stroke: colours.accent, fill: faint(colours.accent, 0.6), paths: uPlot.paths.bars({ size: [0.7, 40] }), points: { show: false } };
    }
    if (role === "expected") return { ...common, stroke: colours.muted, width: 1.5, dash: [6, 4], points: { show: false } };
    if (role === "forecast") return { ...common, stroke: colours.warn, width: 2, dash: [2, 4], points: { show: false } };
    if (role.endsWith("low") || role.endsWith("high")) return { ...common, class: "band", stroke: "transparent", width: 0, points: { show: false } };
    lines = (lines + 1) % DASHES.length;
    return { ...common, stroke: tints[lines], dash: DASHES[lines], width: 2, points: { show: roles.length === 1 ? undefined : false, size: 4, fill: tints[lines], filter: alone } };
  });
}

// A value between two gaps has no line: it is a dot.
function alone(plot, index, shown) {
  const values = plot.data[index];
  const isGap = (at) => values[at] === null || values[at] === undefined;
  return shown ? null : [...values.keys()].filter((at) => !isGap(at) && isGap(at - 1) && isGap(at + 1));
}

// low and high are a band; so are expected_low and expected_high, forecast_low and forecast_high.
function bands(roles, colours) {
  const at = (role) => roles.findIndex((column) => column.role === role) + 1;
  return [["", colours.accent], ["expected_", colours.muted], ["forecast_", colours.warn]]
    .filter(([kind]) => at(`${kind}low`) && at(`${kind}high`))
    .map(([kind, tint]) => ({ series: [at(`${kind}high`), at(`${kind}low`)], fill: faint(tint, 0.18) }));
}

function marks(figure, isTime, colours) {
  const found = [...figure.querySelectorAll(".chart-mark")].map((mark) => ({
    at: isTime ? Date.parse(mark.dataset.at) / 1000 : Number(mark.dataset.at),
    text: mark.textContent,
  }));
  return (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colours.warn;
    ctx.fillStyle = colours.muted;
    ctx.setLineDash([3, 3]);
    for (const { at } of found) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };
}

function draw(figure) {
  const place = figure.querySelector(".plot");
  if (!place) return;
  const { isTime, roles, data } = read(figure);
  const old = drawn.get(figure);
  const shape = JSON.stringify(roles);
  if (old && old.shape === shape) {
    if (JSON.stringify(old.data) !== JSON.stringify(data)) {
      old.data = data;
      old.plot.setData(data);
    }
    return;
  }
  old?.plot.destroy();
  const names = { accent: "--accent", good: "--good", bad: "--bad", muted: "--muted", warn: "--warn", line: "--line", text: "--text" };
  const colours = Object.fromEntries(Object.entries(names).map(([key, name]) => [key, resolved(name)]));
  const decimals = Number(figure.dataset.decimals);
  const zone = figure.dataset.zone;
  const number = new Intl.NumberFormat(document.documentElement.lang, { maximumFractionDigits: Math.max(decimals, 0) });
  // The library's own is English, with a.m. and p.m.
  const moment = new Intl.DateTimeFormat(document.documentElement.lang, { timeZone: isTime ? zone : undefined, dateStyle: "medium", timeStyle: "short", hour12: false });
  const axis = { stroke: colours.muted, font: `12px ${getComputedStyle(document.body).fontFamily}`, grid: { stroke: colours.line, width: 1 }, ticks: { stroke: colours.line, width: 1, size: 4 } };
  const width = place.clientWidth;
  const options = {
    width,
    height: width < 560 ? HEIGHT.narrow : HEIGHT.wide,
    tzDate: isTime ? (at) => uPlot.tzDate(new Date(at * 1000), zone) : undefined,
    scales: { x: { time: isTime } },
    series: [{ label: figure.querySelector(".twin thead th").textContent, value: (_, at) => (at === null ? "" : isTime ? moment.format(at * 1000) : number.format(at)) }, ...series(roles, colours).map((one) => ({ ...one, value: (_, y) => (y === null || y === undefined ? "–" : number.format(y)) }))],
    bands: bands(roles, colours),
    axes: [{ ...axis, space: 60, ...(isTime ? { values: clock(zone) } : {}) }, { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => number.format(tick)) }],
    cursor: { sync: figure.dataset.sync ? { key: figure.dataset.sync } : undefined, drag: { x: true, y: false, setScale: !figure.dataset.zoom } },
    legend: { live: true },
    hooks: { draw: [marks(figure, isTime, colours)], setSelect: figure.dataset.zoom ? [zoom(figure.dataset.zoom)] : [] },
  };
  drawn.set(figure, { plot: new uPlot(options, data, place), data, shape });
}

// Ticks of time in the site's zone and the reader's language.
function clock(zone) {
  const parts = (options) => new Intl.DateTimeFormat(document.documentElement.lang, { timeZone: zone, ...options });
  const hour = parts({ hour: "2-digit", minute: "2-digit", hour12: false });
  const day = parts({ day: "numeric", month: "short" });
  return (_, ticks) => {
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : 0;
    let before = "";
    return ticks.map((tick) => {
      const at = new Date(tick * 1000);
      const date = day.format(at);
      if (step >= 86_400) return date;
      const text = date === before ? hour.format(at) : `${hour.format(at)}\n${date}`;
      before = date;
      return text;
    });
  };
}

// A dragged range is a page of its own, with an address that can be sent to somebody.
function zoom(address) {
  return (plot) => {
    if (plot.select.width < 10) return;
    const at = (x) => new Date(plot.posToVal(x, "x") * 1000).toISOString().replace(/\.\d+Z$/, "Z");
    const url = new URL(address, location.href);
    url.searchParams.set("from", at(plot.select.left));
    url.searchParams.set("to", at(plot.select.left + plot.select.width));
    location.assign(url);
  };
}

function drawAll() {
  for (const [figure, { plot }] of drawn) {
    if (!figure.isConnected) {
      plot.destroy();
      drawn.delete(figure);
    }
  }
  document.querySelectorAll("figure.chart").forEach(draw);
}

function redrawAll() {
  for (const { plot } of drawn.values()) plot.destroy();
  drawn.clear();
  drawAll();
}

drawAll();
document.addEventListener("refreshed", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  redrawAll();
});
