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
  drawBackends();
  drawClusters();
  write();
}

const failingNew = () => comparison.changes.filter((c) => c[0] === "new" && c[7] >= 0 && D.partitions[c[7]][STAGE]);

/** The kind that is shown unless another is chosen: the gravest. */
function preferred() {
  const n = comparison.counts;
  return (!n.broken && failingNew().length ? "new" : Object.keys(D.kinds).find((k) => n[k])) || "broken";
}

function choose(k) {
  kind = place = k;
  drawChanges();
  write();
}

function drawChanges() {
  drawSince();
  const headline = $("headline");
  if (!comparison) {
    const failing = D.headline.failed + D.headline.unverified;
    headline.replaceChildren(`${number.format(D.headline.verified)} of ${count(D.headline.exports, "export")} verified`,
      failing ? h("span.bad", null, `, ${number.format(failing)} not`) : "", h("small", null, "The first report: changes show from the next one on."));
    $("upgraded").replaceChildren();
    $("changed").replaceChildren();
    return;
  }
  const n = comparison.counts;
  const newFailing = failingNew().length;
  headline.replaceChildren(...[
    h("span", { class: n.broken ? "bad" : "good" }, n.broken ? `${number.format(n.broken)} broke` : "Nothing broke"), ", ",
    h("span", { class: n.fixed ? "good" : false }, n.fixed ? `${number.format(n.fixed)} fixed` : "none fixed"),
    newFailing ? [", ", h("span.bad", null, `${count(newFailing, "new one fails", "new ones fail")}`)].flat() : "",
    h("small", null, `since ${moment(comparison.at)} (${ago(comparison.at)}); counted are exports, each of one model to one backend`)].flat());
  const upgrades = comparison.upgrades.map((each) => each.replaceAll("->", "→"));
  $("upgraded").replaceChildren(h("span.note", null, "Upgraded since: "), h("span", { class: /^no/.test(upgrades[0]) ? "note" : false }, upgrades.join(" · ")));
  if (!n[kind]) kind = null;
  kind = kind || preferred();
  const kinds = Object.keys(D.kinds), none = kinds.filter((k) => !n[k]).map((k) => VERBS[k]);
  $("kinds").replaceChildren(...kinds.filter((k) => n[k]).map((k) =>
    h("button", { type: "button", "data-kind": k, "aria-pressed": String(k === kind), onclick: () => choose(k) }, h("b", null, number.format(n[k])), VERBS[k])),
    none.length ? h("span.note", null, `none ${none.length > 1 ? `${none.slice(0, -1).join(", ")} or ` : ""}${none[none.length - 1]}`) : "");
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
    const same = g.every((c) => c[4] === message), said = cluster && !same ? cluster[C.cause] : message;
    const text = why(g[0]) ? `${cluster && cluster[C.error] ? `${cluster[C.error]}: ` : ""}${said}` : "";
    const turn = before && after ? `${before} → ${after}` : after || (before ? `was ${before}` : "");
    return h(".group", null,
      h(".where", null, backend, h("code", null, stage || (after === "skipped" ? "skipped" : turn))),
      h(".n", null, number.format(g.length), h("small", null, g.length === 1 ? "model" : "models")),
      h(".why", null, text && h(".cause", null, text), text && said !== message && example(message, g[0][2]), text && cluster && h("p.note", null, ofCause(clusterOf(g[0]))), h(".models", null, ...capped(g.map((c) => c[2]), 14, modelButton))));
  });
}

/** One message as it was, where what a cause's messages have in common leaves something out. */
const example = (message, model) => h(".cause.example", null, h("span", null, `${model ? `in ${model}` : "one of them"}: `), message);

/** A cause that was there before calls for something else than one that has come. */
function ofCause(index) {
  const all = D.clusters[index][C.models].length, older = comparison.older[index];
  return older ? `${all > older ? number.format(all - older) : "none"} new to this cause, ${number.format(older)} older` : "a new cause";
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
  $("backends").replaceChildren(...D.backends.map((backend) => {
    const counts = { total: D.tallies[backend].reduce((sum, n) => sum + n, 0), ...Object.fromEntries(TONES.map((t, i) => [t, D.tallies[backend][i]])) };
    const then = comparison && comparison.tallies[backend], delta = then ? counts.good - then[0] : 0;
    const since = comparison && `since ${day(comparison.at).replace(/ \d{4}$/, "")}`;
    return h(".backend", null,
      h("h3", null, backend),
      h(".share", null, `${number.format(counts.good)} / ${number.format(counts.total)} `, h("span.note", null, percent(counts.good, counts.total))),
      stack(counts, counts.total, words(counts)),
      h("span.note", null, Object.entries(SHORT_WORDS).filter(([t]) => counts[t]).map(([t, word]) => `${number.format(counts[t])} ${word}`).join(" · ") || "all verified",
        comparison ? [h("br"), !then ? `new since then` : h("span", { class: delta > 0 ? "up" : delta < 0 ? "down" : false, title: `verified ${since}` }, delta ? `${delta > 0 ? "▲" : "▼"} ${number.format(Math.abs(delta))} verified ${since}` : `as many verified ${since}`)] : ""));
  }));
}

// ── Causes ───────────────────────────────────────────────────────────────────

function drawClusters() {
  const most = D.clusters.length ? D.clusters[0][6].length : 1;
  const rows = capped(D.clusters.map((c, index) => [c, index]), 12, ([[stage, error, cause, message, , backends, members, alone, exports_], index]) => {
    const body = h(".body", { hidden: true });
    const toggle = h("button", { type: "button", "aria-expanded": "false", onclick: () => {
      const open = body.hidden;
      body.hidden = !open;
      toggle.setAttribute("aria-expanded", String(open));
      if (open && !body.childElementCount) body.append(h("pre", null, message || cause || "no message"), h(".models", null, ...capped(members.map((m) => D.models[m][0]), 60, modelButton)));
    } }, "models");
    return h(".cluster", null,
      h(".gain", null, h("b", null, `unlocks ${count(members.length, "model")}`), h("div.note", null, `${alone === members.length ? (alone === 1 ? "its" : "their") + " only failure" : alone ? `for ${number.format(alone)} the only failure` : "each fails elsewhere too"} · ${count(exports_, "export")}`),
        h(".track", null, h("i", { style: `width:${Math.max(1, (100 * members.length) / most)}%` }))),
      h("div", null, h("code", null, stage), h("span.note", null, ` ${backends.join(", ")}`), h(".cause", null, h("em", null, error ? `${error}: ` : ""), cause || "no message"), message && example(message), comparison && h("p.note", null, ofCause(index))),
      h(".act", null, toggle, h("button", { type: "button", onclick: () => filterByCluster(index) }, "in the table")),
      body);
  });
  $("clusters").replaceChildren(...(rows.length ? [h("p.note", null, "Repairing a cause lets these models go on, to verified or to what stops them next. All that isn't verified once more: ", h("code", null, "zooport fleet --failed")), ...rows] : [h("p.note", null, "Nothing fails.")]));
}

function filterByCluster(index) {
  state.cluster = index;
  $("matrix").scrollIntoView();
  refilter();
}
