// ── Links ────────────────────────────────────────────────────────────────────

// The address says what is shown: first a section or a kind of change, then what was chosen, as in `#slower&since=4+weeks` or
// `#matrix&q=bert&outcome=bad`. What stands at its default is left out.
const PLACES = [...document.querySelectorAll("main > section")].map((section) => section.id);
let place = "", writing = null;

function address() {
  const p = new URLSearchParams(), put = (name, value, otherwise = "") => value !== otherwise && p.set(name, value);
  if (comparison) put("since", comparison.label, D.comparisons[0].label);
  if (kind && place !== kind && place && comparison) put("kind", kind, preferred());
  put("q", state.query);
  put("outcome", state.outcome);
  put("family", state.family);
  if (state.cluster >= 0) p.set("cause", D.clusters[state.cluster][C.id]);
  put("rows", state.byType ? "type" : "class", "type");
  put("sort", `${state.down ? "-" : ""}${state.sort}`, "-failing");
  put("model", detailed);
  return [place, p.toString()].filter(Boolean).join("&");
}

/** Soon, and not with every letter: browsers allow an address to change only so often. */
function write() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    try {
      const now = address();
      history.replaceState(null, "", location.href.split("#")[0] + (now ? `#${now}` : ""));
    } catch { /* a browser that lets no script change a file's address: the page works without */ }
  }, 120);
}

/** Show what the address says. A section alone, as in the bar at the top, or a kind alone leaves the rest as it is. */
function follow() {
  const [first, ...rest] = location.hash.slice(1).split("&"), named = PLACES.includes(first) || first in D.kinds;
  const p = new URLSearchParams(named ? rest.join("&") : location.hash.slice(1));
  place = named ? first : "";
  if (!named || rest.length) {
    comparison = D.comparisons.find((c) => c.label === p.get("since")) || D.comparisons[0];
    kind = p.get("kind") in D.kinds ? p.get("kind") : null;
    const sort = p.get("sort") || "-failing", column = COLUMNS.find((c) => c.id === sort.replace(/^-/, ""));
    Object.assign(state, { query: (p.get("q") || "").toLowerCase(), outcome: p.get("outcome") || "", family: p.get("family") || "", byType: p.get("rows") !== "class",
      cluster: D.clusters.findIndex((c) => c[C.id] === p.get("cause")), sort: column ? column.id : "failing", down: column ? sort.startsWith("-") : true });
    for (const [id, name] of [["q", "query"], ["f-outcome", "outcome"], ["f-family", "family"]]) {
      $(id).value = state[name];
      if ($(id).value !== state[name]) state[name] = $(id).value = ""; // an outcome or a family of another report
    }
  }
  if (first in D.kinds) kind = first;
  drawChanges();
  drawBackends();
  drawClusters();
  filter();
  const model = byName.get(p.get("model"));
  if (model) openDetail(model);
  if (PLACES.includes(place)) $(place).scrollIntoView({ behavior: "instant" });
  write();
}

addEventListener("hashchange", follow);

// ── All of it ────────────────────────────────────────────────────────────────

root.style.setProperty("--backends", D.backends.length);
$("asof").append(moment(D.at), h("span", null, ` · ${count(D.headline.models, "model")} · ${count(D.headline.exports, "export")}`));
drawFilters();
drawTrend();
drawCosts();
drawRest();
follow();
let narrow = innerWidth;
addEventListener("resize", () => { if (innerWidth !== narrow) { narrow = innerWidth; drawTrend(); } });
