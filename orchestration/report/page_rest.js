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
    for (const [point, v] of points) svg.append(s("circle", { cx: x(point[0]), cy: y(v), r: 2.5, fill: color }, s("title", null, `${backend}, ${moment(point[0])}: ${point[1][backend]} of ${point[2][backend]} verified (${percent(point[1][backend], point[2][backend])})`)));
    return { backend, color, y: y(value), text: `${percent(last[1][backend], last[2][backend])} ${backend}`, x: x(last[0]) };
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
  const all = inOneUnit(D.costs.map((c) => c[4][0]));
  const numeric = new Set([2, 3, 6, 7, 8, 9, 10, 11]);
  $("costs").replaceChildren(
    h("p.note", null, "Of making and saving each artifact, by whichever run made it; memory is the process' peak at the stage's end."),
    h(".wide", null, h("table", null, h("thead", null, h("tr", null, ...head.map((name, i) => h(numeric.has(i) ? "th.num" : "th", null, name)))),
      h("tbody", null, ...D.costs.map(([backend, stage, n, cached, cpu, rss, size, model], i) => h("tr", null,
        h("td", null, i && D.costs[i - 1][0] === backend ? "" : backend), h("td.mono", null, stage), h("td.num", { title: `${cached} found cached by the last export` }, number.format(n)), h("td.num", null, all(cpu[0])), h("td", null, bar(cpu[0])),
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
  const registered = D.reach.filter((r) => r[1]), gone = D.reach.filter((r) => !r[1]), idle = registered.filter((r) => !r[4]).length;
  const told = D.partitions.length ? `${number.format(idle)} did nothing in the last exports` : "nothing was exported here yet";
  $("reach").replaceChildren(h("p.note", null, `${count(registered.length, "workaround")}; ${told}`),
    sortable(registered, [["workaround", 0, (v) => h("code", null, v)], ["kind", 1], ["models", 4, (v) => number.format(v), true], ["times", 5, (v) => number.format(v), true],
      ["backends", 6, (v) => v.join(", ") || "–"], ["where", 2, (v) => h("code", null, v)], ["upstream", 3, upstream]], 2, 15),
    gone.length ? h("p.note.gone", null, "Registered no more, though the last exports of some models still had them: ", gone.map((r) => `${r[0]} (${count(r[4], "model")})`).join(", ")) : "");
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
