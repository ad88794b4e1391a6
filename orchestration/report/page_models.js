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
  only.textContent = state.cluster < 0 ? "" : `one cause: ${D.clusters[state.cluster][C.cause].slice(0, 40)}…  ✕`;
  $("grid").setAttribute("aria-rowcount", String(state.rows.length + 1));
  $("by-type").setAttribute("aria-pressed", String(state.byType));
  $("by-class").setAttribute("aria-pressed", String(!state.byType));
  drawHead();
  $("scroll").scrollTop = 0;
  drawRows(true);
}

/** What was chosen has changed: the address follows. */
function refilter() {
  place = "matrix";
  filter();
  write();
}

function drawHead() {
  $("head").replaceChildren(...COLUMNS.map((c) => h("div", { role: "columnheader", class: [c.opt && "opt", c.num && "num"].filter(Boolean).join(" "), "aria-sort": state.sort !== c.id ? "none" : state.down ? "descending" : "ascending" },
    h("button", { type: "button", "data-column": c.id, onclick: () => { state.down = state.sort === c.id ? !state.down : c.down; state.sort = c.id; refilter(); } },
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
$("q").addEventListener("input", () => { state.query = $("q").value.trim().toLowerCase(); state.open.clear(); state.focus = 0; refilter(); });
$("q").addEventListener("keydown", (event) => {
  if (event.key !== "ArrowDown" || !state.rows.length) return;
  event.preventDefault();
  state.focus = 0;
  focusRow(true);
});

function clear() {
  Object.assign(state, { query: "", outcome: "", family: "", cluster: -1, focus: 0 });
  $("q").value = $("f-outcome").value = $("f-family").value = "";
  refilter();
}

function drawFilters() {
  const stages = [...new Set(D.partitions.map((p) => p[STAGE]).filter(Boolean))].sort();
  $("f-outcome").replaceChildren(h("option", { value: "" }, "any outcome"), ...TONES.map((t) => h("option", { value: t }, TONE_WORDS[t])),
    stages.length ? h("optgroup", { label: "stops at" }, ...stages.map((stage) => h("option", { value: `>${stage}` }, stage))) : null);
  const families = [...new Set(models.map((m) => m.family).filter(Boolean))].sort();
  $("f-family").replaceChildren(h("option", { value: "" }, "any family"), ...families.map((family) => h("option", { value: family }, family)));
  for (const name of ["outcome", "family"]) $(`f-${name}`).addEventListener("change", (event) => { state[name] = event.target.value; state.focus = 0; refilter(); });
  $("f-cluster").addEventListener("click", () => { state.cluster = -1; refilter(); });
  for (const which of ["type", "class"]) $(`by-${which}`).addEventListener("click", () => { state.byType = which === "type"; state.focus = 0; refilter(); });
}

// ── Details ──────────────────────────────────────────────────────────────────

let detailed = "";

function openDetail(model) {
  const dialog = $("detail"), from = document.activeElement;
  dialog.replaceChildren(
    h("button.close", { type: "button", "aria-label": "Close", onclick: () => dialog.close() }, "✕"),
    h("h2", { id: "d-title" }, model.name), h("p.note", null, [model.type, model.family].filter(Boolean).join(" · ")),
    ...model.cells.map((p, b) => p && aboutExport(model, p, b)).filter(Boolean));
  if (!dialog.open) dialog.showModal();
  detailed = model.name;
  write();
  dialog.addEventListener("close", () => { detailed = ""; write(); }, { once: true });
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
