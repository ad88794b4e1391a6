"use strict";
// Draws the report from the data in the page. Everything that comes from the data goes into the page as text, never as markup.

const D = JSON.parse(document.getElementById("data").textContent);
// a partition's and a cause's fields, as page.py writes them
const MODEL = 0, BACKEND = 1, OUTCOME = 2, STANDING = 3, STAGE = 4, KIND = 5, MESSAGE = 6, DIFF = 7, AT = 8, CLUSTER = 9, SINCE = 10, STAGES = 11, SHAPES = 12;
const C = { stage: 0, error: 1, cause: 2, example: 3, id: 4, backends: 5, models: 6, alone: 7, exports: 8 };
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

/** Three digits; all of them where there are more before the point. */
const three = (n) => (n >= 99.95 ? number.format(Math.round(n)) : n >= 9.995 ? n.toFixed(1) : n.toFixed(2));

function bytes(n) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= size) return `${three(n / size)} ${unit}`;
  return `${n} B`;
}

/** CPU time. In seconds whatever it is, so that rows compare; a column of sums has a unit of its own (`inOneUnit`). */
const seconds = (n) => `${three(n)} s`;

function inOneUnit(values) {
  const most = Math.max(...values);
  const [unit, size] = most >= 36000 ? ["h", 3600] : most >= 6000 ? ["min", 60] : ["s", 1];
  return (n) => `${three(n / size)} ${unit}`;
}

const memory = (mib) => bytes(mib * 1048576);
// cut, not rounded: only all of them are 100 %
const percent = (part, whole) => `${(Math.floor((1000 * part) / Math.max(1, whole)) / 10).toFixed(1)} %`;
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
