"use strict";
// Draws the report from the data in the page. Everything that comes from the data goes into the page as text, never as markup.

const D = JSON.parse(document.getElementById("data").textContent);
// a partition's fields, as page.py writes them
const MODEL = 0, BACKEND = 1, OUTCOME = 2, STANDING = 3, STAGE = 4, KIND = 5, MESSAGE = 6, DIFF = 7, AT = 8, CLUSTER = 9, SINCE = 10, STAGES = 11, SHAPES = 12;
const GLYPHS = { good: "●", part: "◐", bad: "✕", idle: "–" };
const TONES = ["good", "part", "bad", "idle"]; // by standing, as STANDINGS in snapshot.py
const TONE_WORDS = { good: "verified", part: "exported, not verified", bad: "failed", idle: "skipped" };
const SHORT_WORDS = { bad: "failed", part: "not verified", idle: "skipped" };

// ── Small tools ──────────────────────────────────────────────────────────────

const $ = (id) => document.getElementById(id);

/** An element: attributes that begin with "on" are listeners, false and null leave one out. */
function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name || "div");
  if (classes.length) element.className = classes.join(" ");
  return dress(element, attributes, children);
}

function s(tag, attributes, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dress(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === false || value == null) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

const number = new Intl.NumberFormat("en");
const count = (n, one, many = `${one}s`) => `${number.format(n)} ${n === 1 ? one : many}`;
const dayNames = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
const day = (seconds) => dayNames.format(new Date(seconds * 1000));
const moment = (seconds) => `${day(seconds)}, ${new Date(seconds * 1000).toISOString().slice(11, 16)} UTC`;

function ago(seconds) {
  const past = Math.max(0, D.at - seconds);
  if (past < 90) return "just now";
  for (const [unit, size] of [["week", 604800], ["day", 86400], ["hour", 3600], ["minute", 60]]) {
    const n = Math.round(past / size);
    if (n >= 1 && (unit !== "week" || past > 6.4 * 86400)) return `${count(n, unit)} ago`;
  }
  return "just now";
}

function bytes(n) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= size) return `${(n / size).toPrecision(3)} ${unit}`;
  return `${n} B`;
}

function seconds(n) {
  if (n >= 36000) return `${number.format(Math.round(n / 3600))} h`;
  if (n >= 600) return `${number.format(Math.round(n / 60))} min`;
  return `${n >= 100 ? Math.round(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2)} s`;
}

const memory = (mib) => (mib >= 1024 ? `${(mib / 1024).toFixed(1)} GiB` : `${Math.round(mib)} MiB`);
const difference = (value) => (value === "inf" ? "∞" : value == null ? "–" : value === 0 ? "0" : value.toExponential(1));

function by(key, direction = 1) {
  return (a, b) => {
    const x = key(a), y = key(b);
    return direction * (typeof x === "string" && typeof y === "string" ? x.localeCompare(y, "en") : x < y ? -1 : x > y ? 1 : 0);
  };
}

function groups(items, key) {
  const found = new Map();
  for (const item of items) {
    const k = key(item);
    found.has(k) ? found.get(k).push(item) : found.set(k, [item]);
  }
  return found;
}

// ── Data, as the page uses it ────────────────────────────────────────────────

const tone = (p) => TONES[p[STANDING]];
const cpuOf = (p) => p[STAGES].reduce((sum, stage) => sum + stage[2], 0);

const models = D.models.map(([name, type, family], index) => ({ index, name, type, family, cells: new Array(D.backends.length).fill(null) }));
for (const p of D.partitions) models[p[MODEL]].cells[p[BACKEND]] = p;
for (const m of models) {
  const cells = m.cells.filter(Boolean);
  m.tones = m.cells.map((p) => p && tone(p));
  m.cpu = cells.reduce((sum, p) => sum + cpuOf(p), 0);
  m.failing = m.tones.filter((t) => t === "bad" || t === "part").length;
  m.since = Math.min(...cells.map((p) => p[SINCE] ?? Infinity));
  m.text = [m.name, m.type, m.family, ...cells.flatMap((p) => [D.outcomes[p[OUTCOME]], p[STAGE], p[KIND], p[MESSAGE]])].join("\n").toLowerCase();
}

// ── Theme ────────────────────────────────────────────────────────────────────

const root = document.documentElement;
const wishes = matchMedia("(prefers-color-scheme: dark)");
let chosen = remembered();

function remembered(value) {
  try {
    if (value) localStorage.setItem("zooport-theme", value);
    return localStorage.getItem("zooport-theme");
  } catch {
    return value || null; // some browsers keep nothing for files
  }
}

function paint() {
  const theme = chosen || (wishes.matches ? "dark" : "light");
  root.dataset.theme = theme;
  $("theme").textContent = theme === "dark" ? "☀" : "☾";
  $("theme").setAttribute("aria-label", theme === "dark" ? "Switch to light" : "Switch to dark");
}
$("theme").addEventListener("click", () => {
  chosen = root.dataset.theme === "dark" ? "light" : "dark";
  remembered(chosen);
  paint();
});
wishes.addEventListener("change", paint);
paint();

// ── Changes ──────────────────────────────────────────────────────────────────

const VERBS = { broken: "broke", worse: "got worse", fixed: "fixed", better: "got further", slower: "slower", bigger: "bigger", drifted: "drifted", new: "new", gone: "gone" };
let comparison = D.comparisons[0], kind = null;

function drawSince() {
  $("since").replaceChildren(
    ...(D.comparisons.length > 1 || comparison
      ? D.comparisons.map((c) =>
          h("button", { type: "button", "aria-pressed": String(c === comparison), title: `compare with ${moment(c.at)}`, onclick: () => compareWith(c) },
            h("b", null, `since ${c.label === "last report" ? `the last report, ${ago(c.at)}` : c.label.match(/^\d/) && c.label.includes("week") ? `${c.label} ago` : c.label}`),
            h("i", { class: c.counts.broken ? false : "none" }, c.counts.broken ? `${c.counts.broken} broke` : "none broke")))
      : []));
}

function compareWith(c) {
  comparison = c;
  kind = null;
  drawChanges();
}

function drawChanges() {
  drawSince();
  const headline = $("headline");
  if (!comparison) {
    const failing = D.headline.failed + D.headline.unverified;
    headline.replaceChildren(`${number.format(D.headline.verified)} of ${count(D.headline.exports, "export")} verified`,
      failing ? h("span.bad", null, `, ${number.format(failing)} not`) : "", h("small", null, "The first report: changes show from the next one on."));
    $("changed").replaceChildren();
    return;
  }
  const n = comparison.counts;
  const newFailing = comparison.changes.filter((c) => c[0] === "new" && c[7] >= 0 && D.partitions[c[7]][STAGE]).length;
  headline.replaceChildren(...[
    h("span", { class: n.broken ? "bad" : "good" }, n.broken ? `${number.format(n.broken)} broke` : "Nothing broke"), ", ",
    h("span", { class: n.fixed ? "good" : false }, n.fixed ? `${number.format(n.fixed)} fixed` : "none fixed"),
    newFailing ? [", ", h("span.bad", null, `${count(newFailing, "new one fails", "new ones fail")}`)].flat() : "",
    h("small", null, `since ${moment(comparison.at)} (${ago(comparison.at)}); counted are exports, each of one model to one backend`)].flat());
  kind = kind || (!n.broken && newFailing ? "new" : Object.keys(D.kinds).find((k) => n[k])) || "broken";
  $("kinds").replaceChildren(...Object.keys(D.kinds).map((k) =>
    h("button", { type: "button", disabled: !n[k], "aria-pressed": String(k === kind && n[k] > 0), onclick: () => { kind = k; drawChanges(); } }, h("b", null, number.format(n[k])), VERBS[k])));
  $("rule").textContent = n[kind] ? `${VERBS[kind]}: ${D.kinds[kind]}` : "";
  const rows = comparison.changes.filter((c) => c[0] === kind);
  $("changed").replaceChildren(["slower", "bigger", "drifted"].includes(kind) ? figures(rows) : h("div", null, ...grouped(rows)));
}

/** Changes of outcome, together where they stop at one stage for one cause: those with most models first. */
function grouped(rows) {
  const clusterOf = (c) => (c[7] >= 0 ? D.partitions[c[7]][CLUSTER] : -1);
  const why = (c) => (kind === "broken" || kind === "worse" || kind === "better" || kind === "new" ? (clusterOf(c) >= 0 ? `#${clusterOf(c)}` : c[4]) : "");
  const found = [...groups(rows, (c) => [c[1], c[3], why(c), kind === "new" || kind === "gone" ? c[6] || c[5] : ""].join("\u0000")).values()];
  // of the new ones those that fail go first
  return capped(found.sort((a, b) => (kind === "new" ? Boolean(b[0][3]) - Boolean(a[0][3]) : 0) || b.length - a.length), 8, (g) => {
    const [, backend, , stage, message, before, after] = g[0];
    const cluster = D.clusters[clusterOf(g[0])];
    const text = why(g[0]) ? (cluster ? `${cluster[1]}: ${cluster[2]}` : message) : "";
    const turn = before && after ? `${before} → ${after}` : after || (before ? `was ${before}` : "");
    return h(".group", null,
      h(".where", null, backend, h("code", null, stage || (after === "skipped" ? "skipped" : turn))),
      h(".n", null, number.format(g.length), h("small", null, g.length === 1 ? "model" : "models")),
      h(".why", null, text && h(".cause", null, text), h(".models", null, ...capped(g.map((c) => c[2]), 14, modelButton))));
  });
}

const FIGURES = { slower: [seconds, "CPU before", "CPU now"], bigger: [bytes, "before", "now"], drifted: [difference, "before", "now"] };

function figures(rows) {
  const [show, before, after] = FIGURES[kind];
  const ratio = (c) => (c[6] === "inf" ? Infinity : c[5] ? c[6] / c[5] : Infinity);
  const sorted = [...rows].sort(by((c) => -ratio(c)));
  const table = h("table", null, h("thead", null, h("tr", null, h("th", null, "model"), h("th", null, "backend"), h("th", null, "stage"), h("th.num", null, before), h("th.num", null, after), h("th.num", null, "ratio"))));
  const body = h("tbody");
  table.append(body);
  const draw = (most) => body.replaceChildren(...sorted.slice(0, most).map((c) => h("tr", null, h("td", null, modelButton(c[2])), h("td", null, c[1]), h("td.mono", null, c[3]),
    h("td.num", null, show(c[5])), h("td.num", null, show(c[6])), h("td.num", null, Number.isFinite(ratio(c)) ? `×${ratio(c).toFixed(1)}` : "–"))));
  draw(15);
  const more = sorted.length > 15 && h("button.more-button", { type: "button", onclick: (e) => { draw(Infinity); e.target.remove(); } }, `show all ${sorted.length}`);
  return h(".wide", null, table, more);
}

/** The first few of a list and a button for the rest. */
function capped(items, most, draw) {
  const shown = items.slice(0, items.length <= most + 1 ? items.length : most).map(draw);
  const rest = items.slice(shown.length);
  if (rest.length) shown.push(h("button.more", { type: "button", onclick: (e) => e.target.replaceWith(...rest.map(draw)) }, `+ ${number.format(rest.length)} more`));
  return shown;
}

function modelButton(name) {
  const model = byName.get(name);
  return model ? h("button", { type: "button", onclick: () => openDetail(model) }, name) : h("span", null, name);
}
const byName = new Map(models.map((m) => [m.name, m]));

// ── By backend ───────────────────────────────────────────────────────────────

function stack(counts, total, label) {
  return h(".stack", { role: "img", "aria-label": label, title: label }, ...TONES.map((t) => counts[t] ? h(`i.t-${t}`, { style: `flex:${counts[t]} 1 0` }) : null));
}

const tally = (tones) => {
  const counts = { good: 0, part: 0, bad: 0, idle: 0, total: 0 };
  for (const t of tones) if (t) { counts[t]++; counts.total++; }
  return counts;
};
const words = (counts) => TONES.filter((t) => counts[t]).map((t) => `${number.format(counts[t])} ${TONE_WORDS[t]}`).join(", ");

function drawBackends() {
  $("backends").replaceChildren(...D.backends.map((backend, b) => {
    const counts = tally(models.map((m) => m.tones[b]));
    const before = D.trend.length > 1 ? D.trend[D.trend.length - 2][1][backend] : null;
    const delta = before == null ? 0 : counts.good - before;
    return h(".backend", null,
      h("h3", null, backend),
      h(".share", null, `${number.format(counts.good)} / ${number.format(counts.total)} `, h("span.note", null, `${Math.floor((1000 * counts.good) / Math.max(1, counts.total)) / 10} %`)),
      stack(counts, counts.total, words(counts)),
      h("span.note", null, Object.entries(SHORT_WORDS).filter(([t]) => counts[t]).map(([t, word]) => `${number.format(counts[t])} ${word}`).join(" · ") || "all verified",
        delta ? [" · ", h("span", { class: delta > 0 ? "up" : "down", title: "since the snapshot before" }, `${delta > 0 ? "▲" : "▼"} ${number.format(Math.abs(delta))}`)] : ""));
  }));
}

// ── Causes ───────────────────────────────────────────────────────────────────

function drawClusters() {
  const most = D.clusters.length ? D.clusters[0][6].length : 1;
  const rows = capped(D.clusters.map((c, index) => [c, index]), 12, ([[stage, error, cause, example, id, backends, members, alone, exports_], index]) => {
    const body = h(".body", { hidden: true });
    const toggle = h("button", { type: "button", "aria-expanded": "false", onclick: () => {
      const open = body.hidden;
      body.hidden = !open;
      toggle.setAttribute("aria-expanded", String(open));
      if (open && !body.childElementCount) body.append(h("pre", null, example || cause || "no message"), h(".models", null, ...capped(members.map((m) => D.models[m][0]), 60, modelButton)));
    } }, "models");
    return h(".cluster", null,
      h(".gain", null, h("b", null, `unlocks ${count(members.length, "model")}`), h("div.note", null, `${alone === members.length ? (alone === 1 ? "its" : "their") + " only failure" : alone ? `for ${number.format(alone)} the only failure` : "each fails elsewhere too"} · ${count(exports_, "export")}`),
        h(".track", null, h("i", { style: `width:${Math.max(1, (100 * members.length) / most)}%` }))),
      h("div", null, h("code", null, stage), h("span.note", null, ` ${backends.join(", ")}`), h(".cause", null, h("em", null, error ? `${error}: ` : ""), cause || "no message")),
      h(".act", null, toggle, h("button", { type: "button", onclick: () => filterByCluster(index) }, "in the table")),
      body);
  });
  $("clusters").replaceChildren(...(rows.length ? [h("p.note", null, "Repairing a cause lets these models go on, to verified or to what stops them next."), ...rows] : [h("p.note", null, "Nothing fails.")]));
}

function filterByCluster(index) {
  state.cluster = index;
  $("matrix").scrollIntoView();
  filter();
}

// ── Models ───────────────────────────────────────────────────────────────────

const ROW = 28, HEAD = 32; // pixels, as in page.css
const state = { query: "", outcome: "", family: "", cluster: -1, sort: "failing", down: true, byType: true, open: new Set(), rows: [], focus: 0 };
const COLUMNS = [
  { id: "name", label: "model type", key: (r) => r.label.toLowerCase(), down: false },
  { id: "models", label: "models", key: (r) => r.members.length, down: true, opt: true, num: true },
  ...D.backends.map((backend, b) => ({ id: `b${b}`, label: backend, key: (r) => r.worst[b], down: true })),
  { id: "cpu", label: "CPU", key: (r) => r.cpu, down: true, opt: true, num: true },
  { id: "failing", label: "failing", key: (r) => r.failing, down: true, opt: true, num: true },
];

function entry(label, family, members, isType) {
  const row = { label, family, members, isType, cpu: 0, failing: 0, tallies: [], worst: [] };
  for (const m of members) { row.cpu += m.cpu; row.failing += m.failing; }
  for (let b = 0; b < D.backends.length; b++) {
    const counts = tally(members.map((m) => m.tones[b]));
    row.tallies.push(counts);
    // a type by how many of its models aren't verified, a single one by how bad it is; one without a report last
    row.worst.push(isType ? (counts.total ? counts.bad + counts.part : -1) : members[0].tones[b] ? TONES.indexOf(members[0].tones[b]) % 3 : -1);
  }
  return row;
}
const classRows = models.map((m) => entry(m.name, m.type, [m], false));
models.forEach((m, i) => (classRows[i].model = m));

function matches(m) {
  if (state.family && m.family !== state.family) return false;
  if (state.outcome && !m.tones.some((t, b) => (state.outcome.startsWith(">") ? m.cells[b] && m.cells[b][STAGE] === state.outcome.slice(1) : t === state.outcome))) return false;
  if (state.cluster >= 0 && !m.cells.some((p) => p && p[CLUSTER] === state.cluster)) return false;
  return state.query.split(/\s+/).every((word) => m.text.includes(word));
}

function filter() {
  const kept = models.filter(matches);
  const column = COLUMNS.find((c) => c.id === state.sort);
  const order = by(column.key, state.down ? -1 : 1), name = by((r) => r.label.toLowerCase());
  const sort = (rows) => rows.sort((a, b) => order(a, b) || name(a, b));
  if (state.byType) {
    const types = sort([...groups(kept, (m) => m.type)].map(([type, members]) => entry(type, members[0].family, members, true)));
    const unfold = state.query || state.cluster >= 0 ? types.length <= 12 : false;
    state.rows = types.flatMap((row) => (state.open.has(row.label) !== unfold ? [row, ...sort(row.members.map((m) => classRows[m.index])).map((r) => ({ ...r, child: true }))] : [row]));
    state.unfold = unfold;
  } else state.rows = sort(kept.map((m) => classRows[m.index]));
  state.focus = Math.min(state.focus, Math.max(0, state.rows.length - 1));
  $("shown").textContent = kept.length === models.length ? count(kept.length, "model") : `${number.format(kept.length)} of ${count(models.length, "model")}`;
  const only = $("f-cluster");
  only.hidden = state.cluster < 0;
  only.textContent = state.cluster < 0 ? "" : `one cause: ${D.clusters[state.cluster][2].slice(0, 40)}…  ✕`;
  $("grid").setAttribute("aria-rowcount", String(state.rows.length + 1));
  $("by-type").setAttribute("aria-pressed", String(state.byType));
  $("by-class").setAttribute("aria-pressed", String(!state.byType));
  drawHead();
  $("scroll").scrollTop = 0;
  drawRows(true);
}

function drawHead() {
  $("head").replaceChildren(...COLUMNS.map((c) => h("div", { role: "columnheader", class: [c.opt && "opt", c.num && "num"].filter(Boolean).join(" "), "aria-sort": state.sort !== c.id ? "none" : state.down ? "descending" : "ascending" },
    h("button", { type: "button", "data-column": c.id, onclick: () => { state.down = state.sort === c.id ? !state.down : c.down; state.sort = c.id; filter(); } },
      c.id === "name" && !state.byType ? "model class" : c.label, state.sort === c.id ? (state.down ? " ↓" : " ↑") : ""))));
}

let drawn = [0, 0];
/** Only the rows in sight, and a few beside them. */
function drawRows(anew = false) {
  const view = $("scroll");
  const first = Math.max(0, Math.floor(view.scrollTop / ROW) - 8), last = Math.min(state.rows.length, Math.ceil((view.scrollTop + view.clientHeight - HEAD) / ROW) + 8);
  if (!anew && first === drawn[0] && last === drawn[1]) return;
  drawn = [first, last];
  const rows = $("rows");
  const hadFocus = rows.contains(document.activeElement);
  rows.style.height = `${state.rows.length * ROW}px`;
  rows.replaceChildren(...state.rows.slice(first, last).map((row, i) => drawRow(row, first + i)));
  if (!state.rows.length) rows.replaceChildren(h(".empty", { role: "row" }, h("span", { role: "gridcell" }, "No model fits. "), h("button.more", { type: "button", onclick: clear }, "Show all")));
  if (hadFocus) focusRow(false);
}

function drawRow(row, index) {
  const open = row.isType && state.open.has(row.label) !== state.unfold;
  return h(`.row${row.child ? ".child" : row.isType ? "" : ".flat"}`, { role: "row", "aria-rowindex": index + 2, "aria-level": row.child ? 2 : 1, "aria-expanded": row.isType && String(open), tabindex: index === state.focus ? 0 : -1,
    "data-index": index, style: `top:${index * ROW}px`, onclick: () => { state.focus = index; row.isType ? fold(row) : openDetail(row.model); } },
    h("div.name", { role: "rowheader", title: row.label }, row.isType && h("span.fold", { "aria-hidden": "true" }, open ? "▾" : "▸"), row.label, !row.child && h("span.fam", null, row.isType ? row.family : row.model.type)),
    h("div.opt.num.note", { role: "gridcell" }, row.isType ? row.members.length : ""),
    ...D.backends.map((backend, b) => h("div", { role: "gridcell" }, cell(row, b))),
    h("div.opt.num.note", { role: "gridcell" }, row.cpu ? seconds(row.cpu) : "–"),
    h("div.opt.num", { role: "gridcell" }, row.failing ? (row.isType ? row.failing : since(row.model)) : h("span.note", null, "–")));
}

const since = (model) => (Number.isFinite(model.since) ? h("span.note", { title: `failing since ${moment(model.since)}` }, `since ${day(model.since).replace(` ${new Date(D.at * 1000).getUTCFullYear()}`, "")}`) : "–");

function cell(row, b) {
  const counts = row.tallies[b];
  if (!counts.total) return h("span.note", null, "");
  if (row.isType) return h(".cell", null, stack(counts, counts.total, words(counts)), h("span", { class: counts.good === counts.total ? "note" : counts.bad || counts.part ? "bad" : "idle" }, `${counts.good}/${counts.total}`));
  const p = row.model.cells[b], t = row.model.tones[b];
  const text = t === "good" ? D.outcomes[p[OUTCOME]] : t === "bad" ? p[STAGE] : p[STAGE] ? `${D.outcomes[p[OUTCOME]]}: ${p[KIND]}` : D.outcomes[p[OUTCOME]];
  return h(`.cell.${t}`, { title: p[MESSAGE] || text }, h("span.glyph", { "aria-hidden": "true" }, GLYPHS[t]), h("span", null, text));
}

function fold(row, want) {
  const open = state.open.has(row.label) !== state.unfold;
  if (want === open) return;
  state.open.has(row.label) ? state.open.delete(row.label) : state.open.add(row.label);
  const place = $("scroll").scrollTop;
  filter();
  $("scroll").scrollTop = place;
  drawRows(true);
  focusRow(true);
}

function focusRow(scroll) {
  const view = $("scroll"), top = state.focus * ROW;
  if (scroll) {
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + ROW > view.scrollTop + view.clientHeight - HEAD) view.scrollTop = top + ROW + HEAD - view.clientHeight;
    drawRows(true);
  }
  const row = $("rows").querySelector(`[data-index="${state.focus}"]`);
  if (row) row.focus({ preventScroll: true });
}

$("scroll").addEventListener("scroll", () => drawRows());
addEventListener("resize", () => drawRows(true));
$("rows").addEventListener("keydown", (event) => {
  const row = state.rows[state.focus], page = Math.max(1, Math.floor(($("scroll").clientHeight - HEAD) / ROW) - 1);
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
  if (step !== undefined) {
    state.focus = Math.max(0, Math.min(state.rows.length - 1, state.focus + step));
    focusRow(true);
  } else if (event.key === "ArrowRight" && row.isType) fold(row, true);
  else if (event.key === "ArrowLeft" && row.isType) fold(row, false);
  else if (event.key === "ArrowLeft" && row.child) {
    while (state.focus > 0 && !state.rows[state.focus].isType) state.focus--;
    focusRow(true);
  } else if (event.key === "Enter" || event.key === " ") row.isType ? fold(row) : openDetail(row.model);
  else return;
  event.preventDefault();
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.ctrlKey && !event.metaKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName) && !$("detail").open) {
    event.preventDefault();
    $("matrix").scrollIntoView();
    $("q").focus();
  }
});
$("q").addEventListener("input", () => { state.query = $("q").value.trim().toLowerCase(); state.open.clear(); state.focus = 0; filter(); });
$("q").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" || !state.rows.length) return;
  event.preventDefault();
  state.focus = 0;
  focusRow(true);
});

function clear() {
  Object.assign(state, { query: "", outcome: "", family: "", cluster: -1, focus: 0 });
  $("q").value = $("f-outcome").value = $("f-family").value = "";
  filter();
}

function drawFilters() {
  const stages = [...new Set(D.partitions.map((p) => p[STAGE]).filter(Boolean))].sort();
  $("f-outcome").replaceChildren(h("option", { value: "" }, "any outcome"), ...TONES.map((t) => h("option", { value: t }, TONE_WORDS[t])),
    stages.length ? h("optgroup", { label: "stops at" }, ...stages.map((stage) => h("option", { value: `>${stage}` }, stage))) : null);
  const families = [...new Set(models.map((m) => m.family).filter(Boolean))].sort();
  $("f-family").replaceChildren(h("option", { value: "" }, "any family"), ...families.map((family) => h("option", { value: family }, family)));
  for (const name of ["outcome", "family"]) $(`f-${name}`).addEventListener("change", (event) => { state[name] = event.target.value; state.focus = 0; filter(); });
  $("f-cluster").addEventListener("click", () => { state.cluster = -1; filter(); });
  for (const which of ["type", "class"]) $(`by-${which}`).addEventListener("click", () => { state.byType = which === "type"; state.focus = 0; filter(); });
}

// ── Details ──────────────────────────────────────────────────────────────────

function openDetail(model) {
  const dialog = $("detail"), from = document.activeElement;
  dialog.replaceChildren(
    h("button.close", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕"),
    h("h2", { id: "d-title" }, model.name), h("p.note", null, [model.type, model.family].filter(Boolean).join(" · ")),
    ...model.cells.map((p, b) => p && aboutExport(model, p, b)).filter(Boolean));
  dialog.showModal();
  dialog.addEventListener("close", () => (state.rows[state.focus] && from.closest && from.closest("#rows") ? focusRow(false) : from.focus()), { once: true });
}
$("detail").addEventListener("click", (event) => { if (event.target === $("detail")) $("detail").close(); });

function aboutExport(model, p, b) {
  const t = tone(p), made = p[STAGES];
  return h("article", null,
    h("h3", null, D.backends[b], h("span", { class: t }, GLYPHS[t], " ", D.outcomes[p[OUTCOME]], p[STAGE] && ` at ${p[STAGE]}`)),
    h("p.note", null, [p[AT] && `exported ${moment(p[AT])}`, p[SINCE] && `failing since ${day(p[SINCE])}`, p[DIFF] != null && `largest difference from eager ${difference(p[DIFF])}`, p[SHAPES] === "static" && "static shapes"].filter(Boolean).join(" · ")),
    (p[KIND] || p[MESSAGE]) && h("pre", { class: p[STAGE] ? "err" : false }, [p[KIND], p[MESSAGE]].filter(Boolean).join(": ")),
    made.length ? h("table", null, h("thead", null, h("tr", null, ...["stage", "CPU", "memory", "size", "found cached"].map((name, i) => h(i ? "th.num" : "th", null, name)))),
      h("tbody", null, ...made.map(([stage, cached, cpu, rss, size]) => h("tr", null, h("td.mono", null, stage), h("td.num", null, seconds(cpu)), h("td.num", null, memory(rss)), h("td.num", null, bytes(size)), h("td.num", null, cached ? "yes" : "–"))))) : null,
    h("pre", null, `zooport export ${model.name} --backend ${D.backends[b]}`));
}

// ── Trends ───────────────────────────────────────────────────────────────────

function drawTrend() {
  const box = $("trend");
  if (D.trend.length < 2) return void box.replaceChildren(h("p.note", null, "One snapshot so far: the lines begin with the second."));
  const width = Math.max(300, box.clientWidth), height = 220, left = 44, right = Math.min(190, width * 0.3), top = 12, bottom = 26;
  const share = ([, verified, total], backend) => (total[backend] ? (100 * verified[backend]) / total[backend] : null);
  const values = D.trend.flatMap((point) => D.backends.map((backend) => share(point, backend)).filter((v) => v != null));
  const span = D.trend[D.trend.length - 1][0] - D.trend[0][0];
  const low = Math.max(0, Math.floor((Math.min(...values) - 2) / 10) * 10);
  const x = (at) => left + ((at - D.trend[0][0]) / Math.max(1, span)) * (width - left - right);
  const y = (v) => top + ((100 - v) / Math.max(1, 100 - low)) * (height - top - bottom);
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Share of exports that are verified, by backend, over time" });
  const step = 100 - low > 50 ? 20 : 100 - low > 20 ? 10 : 5;
  for (let v = Math.ceil(low / step) * step; v <= 100; v += step) svg.append(s("line", { class: "axis", x1: left, x2: width - right, y1: y(v), y2: y(v) }), s("text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, `${v} %`));
  const marks = Math.max(2, Math.min(D.trend.length, Math.floor((width - left - right) / 90)));
  for (let i = 0; i < marks; i++) {
    const at = D.trend[Math.round((i * (D.trend.length - 1)) / (marks - 1))][0];
    svg.append(s("text", { x: x(at), y: height - 8, "text-anchor": i ? "middle" : "start" }, span < 3 * 86400 ? moment(at).replace(/ \d{4}| UTC/g, "") : day(at).replace(/ \d{4}$/, "")));
  }
  const ends = D.backends.map((backend, b) => {
    const points = D.trend.map((point) => [point, share(point, backend)]).filter(([, v]) => v != null);
    const color = `var(--s${b % 5})`, [last, value] = points[points.length - 1];
    svg.append(s("polyline", { fill: "none", stroke: color, "stroke-width": 2, "stroke-linejoin": "round", points: points.map(([point, v]) => `${x(point[0]).toFixed(1)},${y(v).toFixed(1)}`).join(" ") }));
    for (const [point, v] of points) svg.append(s("circle", { cx: x(point[0]), cy: y(v), r: 2.5, fill: color }, s("title", null, `${backend}, ${moment(point[0])}: ${point[1][backend]} of ${point[2][backend]} verified (${v.toFixed(1)} %)`)));
    return { backend, color, y: y(value), text: `${value.toFixed(1)} % ${backend}`, x: x(last[0]) };
  });
  ends.sort(by((e) => e.y));
  for (let i = 1; i < ends.length; i++) ends[i].y = Math.max(ends[i].y, ends[i - 1].y + 14);
  for (const e of ends) svg.append(s("text", { x: width - right + 10, y: e.y + 4, style: `fill:${e.color};font-weight:600` }, e.text));
  box.replaceChildren(svg);
}

// ── Cost ─────────────────────────────────────────────────────────────────────

function drawCosts() {
  if (!D.costs.length) return void $("costs").replaceChildren(h("p.note", null, "No stage has been made yet."));
  const plot = 220, most = Math.max(...D.costs.map((c) => c[4][0])), top = Math.max(...D.costs.map((c) => c[4][3]), 1);
  const log = (v) => 6 + ((Math.log10(Math.max(v, 0.01)) + 2) / (Math.log10(top) + 2)) * (plot - 14);
  const range = ([, median, p90, largest]) => s("svg", { width: plot, height: 16, role: "img", "aria-label": `median ${seconds(median)}, 90 % below ${seconds(p90)}, most ${seconds(largest)}` },
    s("title", null, `median ${seconds(median)}, 90 % below ${seconds(p90)}, most ${seconds(largest)}`),
    s("line", { class: "axis", x1: 0, x2: plot, y1: 8, y2: 8 }), s("line", { class: "plot-range", x1: log(median), x2: Math.max(log(median) + 1, log(p90)), y1: 8, y2: 8 }),
    s("line", { class: "plot-median", x1: log(median), x2: log(median), y1: 2, y2: 14 }), s("circle", { class: "plot-max", cx: log(largest), cy: 8, r: 3 }));
  const bar = (v) => s("svg", { width: 90, height: 10, "aria-hidden": "true" }, s("rect", { class: "plot-bar", x: 0, y: 1, height: 8, rx: 1.5, width: Math.max(1, (90 * v) / most) }));
  const head = ["backend", "stage", "models", "CPU in all", "", "CPU of one: median, 90 %, most (log)", "median", "most", "memory, median", "most", "bytes in all", "median"];
  const numeric = new Set([2, 3, 6, 7, 8, 9, 10, 11]);
  $("costs").replaceChildren(
    h("p.note", null, "Of making and saving each artifact, by whichever run made it; memory is the process' peak at the stage's end."),
    h(".wide", null, h("table", null, h("thead", null, h("tr", null, ...head.map((name, i) => h(numeric.has(i) ? "th.num" : "th", null, name)))),
      h("tbody", null, ...D.costs.map(([backend, stage, n, cached, cpu, rss, size, model], i) => h("tr", null,
        h("td", null, i && D.costs[i - 1][0] === backend ? "" : backend), h("td.mono", null, stage), h("td.num", { title: `${cached} found cached by the last export` }, number.format(n)), h("td.num", null, seconds(cpu[0])), h("td", null, bar(cpu[0])),
        h("td", null, range(cpu)), h("td.num", null, seconds(cpu[1])), h("td.num", { title: model }, seconds(cpu[3])), h("td.num", null, memory(rss[1])), h("td.num", null, memory(rss[3])), h("td.num", null, bytes(size[0])), h("td.num", null, bytes(size[1]))))))),
    h("p.note", { style: "margin:10px 0 2px" }, "Most CPU: "), h(".models", null, ...[...models].sort(by((m) => -m.cpu)).slice(0, 10).filter((m) => m.cpu).map((m) => h("span", null, modelButton(m.name), h("span.note", null, ` ${seconds(m.cpu)}`)))));
}

// ── Workarounds, known issues ────────────────────────────────────────────────

/** A table whose columns sort; rows are arrays, columns [label, index, draw, is a number]. */
function sortable(rows, columns, first, most) {
  let column = first, down = true, all = false;
  const box = h(".wide");
  const draw = () => {
    const [, index] = columns[column];
    const sorted = [...rows].sort((a, b) => by((r) => r[index], down ? -1 : 1)(a, b) || by((r) => r[0])(a, b));
    box.replaceChildren(h("table", null,
      h("thead", null, h("tr", null, ...columns.map(([label, , , numeric], i) => h(numeric ? "th.num" : "th", { "aria-sort": i !== column ? "none" : down ? "descending" : "ascending" },
        h("button", { type: "button", onclick: () => { down = i === column ? !down : Boolean(numeric); column = i; draw(); } }, label, i === column ? (down ? " ↓" : " ↑") : ""))))),
      h("tbody", null, ...sorted.slice(0, all ? Infinity : most).map((row) => h("tr", null, ...columns.map(([, i, show, numeric]) => h(numeric ? "td.num" : "td", null, show ? show(row[i], row) : String(row[i]))))))),
      ...(!all && rows.length > most ? [h("button.more-button", { type: "button", onclick: () => { all = true; draw(); } }, `show all ${rows.length}`)] : []));
  };
  draw();
  return box;
}

function drawRest() {
  const idle = D.reach.filter((r) => !r[4]).length;
  $("reach").replaceChildren(h("p.note", null, `${count(D.reach.length, "workaround")}; ${number.format(idle)} did nothing in the last exports`),
    sortable(D.reach, [["workaround", 0, (v) => h("code", null, v)], ["kind", 1, (v) => v || "not registered any more"], ["models", 4, (v) => number.format(v), true], ["times", 5, (v) => number.format(v), true],
      ["backends", 6, (v) => v.join(", ") || "–"], ["where", 2, (v) => h("code", null, v)], ["upstream", 3, upstream]], 2, 15));
  const passing = D.known.filter((k) => k[4]).length;
  $("issues").replaceChildren(h("p.note", null, D.known.length ? (passing ? h("b.good", null, `${count(passing, "export")} listed as impossible ${passing === 1 ? "passes" : "pass"} now: the entry in exporters/known_issues.py can go.`)
    : "No listed issue passes now. They are skipped unless they are tried: zooport export MODEL --try-known") : "None of these exports is listed in exporters/known_issues.py."),
    D.known.length ? sortable(D.known, [["model", 0, modelButton], ["backend", 1], ["now", 4, (v, row) => (v ? h("b.good", null, "passes") : row[3])], ["why it is listed", 2]], 2, 30) : "");
}

function upstream(text) {
  const match = /([\w.-]+\/[\w.-]+)#(\d+)/.exec(text);
  if (!match) return /^https:\/\/\S+/.test(text) ? h("a", { href: text.match(/^https:\/\/\S+/)[0].replace(/[,.;]$/, ""), rel: "noreferrer" }, "link") : text || "–";
  return h("a", { href: `https://github.com/${match[1]}/issues/${match[2]}`, rel: "noreferrer" }, match[0]);
}

// ── All of it ────────────────────────────────────────────────────────────────

root.style.setProperty("--backends", D.backends.length);
$("asof").append(moment(D.at), h("span", null, ` · ${count(D.headline.models, "model")} · ${count(D.headline.exports, "export")}`));
drawChanges();
drawBackends();
drawClusters();
drawFilters();
filter();
drawTrend();
drawCosts();
drawRest();
let narrow = innerWidth;
addEventListener("resize", () => { if (innerWidth !== narrow) { narrow = innerWidth; drawTrend(); } });
