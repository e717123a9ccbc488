"use strict";
// The explorer: sliders ask for a plan; the answer is drawn as a ranking. Quick answers first, then with all draws.
(() => {
  const { element, seconds, number, data } = page;
  const values = { ...data.initial }, me = `${Date.now()}-${Math.random()}`;
  let asked = 0, shown = null, waiting = null, order = "time";
  const laid = new Set(data.runs.filter((run) => run.given).map((run) => run.label));
  const count = new Set();
  const status = document.getElementById("status"), place = document.getElementById("ranking");

  // ---- sliders
  const position = (slider, value) => (slider.logarithmic ? Math.log(value / slider.low) / Math.log(slider.high / slider.low) : (value - slider.low) / (slider.high - slider.low)) * 1000;
  function valueAt(slider, place) {
    const share = place / 1000;
    const raw = slider.logarithmic ? slider.low * (slider.high / slider.low) ** share : slider.low + (slider.high - slider.low) * share;
    return slider.whole ? Math.round(raw) : +raw.toPrecision(3);
  }
  const clamp = (slider, value) => Math.min(slider.high, Math.max(slider.low, slider.whole ? Math.round(value) : value));

  function control(slider) {
    const id = `slider-${slider.name}`;
    const range = element("input", { type: "range", id, min: 0, max: 1000, step: 1 });
    const exact = element("input", { type: "number", step: "any", min: slider.low, max: slider.high, "aria-label": `${slider.label}, exact value` });
    const show = () => {
      range.value = position(slider, values[slider.name]);
      range.setAttribute("aria-valuetext", `${number(values[slider.name])} ${slider.unit}`);
      exact.value = values[slider.name];
    };
    const set = (value) => { values[slider.name] = clamp(slider, value); show(); ask(); };
    range.addEventListener("input", () => set(valueAt(slider, +range.value)));
    exact.addEventListener("change", () => (Number.isFinite(exact.valueAsNumber) ? set(exact.valueAsNumber) : show()));
    show();
    const words = `${slider.label}${slider.unit ? `, ${slider.unit}` : ""}${slider.recounts ? " *" : ""}`;
    return { show, row: element("div", { class: "range" }, element("label", { for: id }, words), range, exact) };
  }

  const controls = data.sliders.map(control);
  const choices = element("div", { class: "controls" },
    charts.choice("Links between devices", "channel", [["parallel", "each pair has its own"], ["shared", "one channel for all"]], values.channel, (value) => { values.channel = value; ask(); }),
    charts.choice("Recommend", "privacy", Object.keys(data.privacy).map((name) => [name, name]), values.privacy, (value) => { values.privacy = value; ask(); }));
  const reset = element("button", { type: "button", onclick: () => { Object.assign(values, data.initial); controls.forEach((each) => each.show()); ask(); } }, "As the scenario is");
  document.getElementById("sliders").append(...controls.map((each) => each.row), choices, reset,
    element("p", { class: "muted" }, "* a change makes costs be counted again, scheme by scheme, which takes seconds; all else only draws times again."));

  // ---- questions: the newest wins, a quick answer comes before the one with all draws
  async function question(draws) {
    const mine = ++asked;
    clearTimeout(waiting);
    document.documentElement.dataset.busy = "yes";
    let reply;
    try {
      const response = await fetch("plan", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ values, draws, page: me, number: mine, count: [...count] }) });
      reply = await response.json();
    } catch (error) {
      if (mine === asked) status.textContent = "The explorer does not answer; is the command still running?";
      return;
    }
    if (mine !== asked || reply.overtaken) return;
    if (reply.error) {
      status.textContent = reply.error;
      document.documentElement.dataset.busy = "no";
      return;
    }
    shown = { ...reply, draws: reply.plan ? reply.plan.draws : 0 };
    const refines = shown.draws < data.draws && reply.took < 4; // the answer with all draws takes ten times as long
    draw();
    const more = reply.counting.length > 0;
    if (more) waiting = setTimeout(ask, 600);
    else if (refines) waiting = setTimeout(() => question(data.draws), 400);
    document.documentElement.dataset.busy = more ? "counting" : refines ? "refining" : "no";
    document.documentElement.dataset.ready = "yes";
  }
  const ask = () => question(null);

  // ---- the ranking
  const orders = { time: ["time", (row) => row.seconds ?? Infinity], traffic: ["traffic of a device", (row) => row.bits_per_device ?? Infinity], secrecy: ["secrecy", (row) => shown.ranks[row.scheme]], epsilon: ["epsilon", (row) => row.epsilon ?? Infinity] };
  const ranked = () => [...shown.plan.schemes].sort((a, b) => d3.ascending(orders[order][1](a), orders[order][1](b)) || d3.ascending(a.seconds ?? Infinity, b.seconds ?? Infinity));
  const colour = (verdict) => ({ broken: "var(--bad)", "not encrypted": "var(--warn)", "models costs only": "var(--muted)" }[verdict] || "var(--good)");
  const symbol = (verdict) => ({ broken: "times", "not encrypted": "triangle", "models costs only": "square" }[verdict] || "circle");

  const area = element("div", { class: "chart" }), table = element("div"), notes = element("div");
  const sorting = charts.choice("Order by", "order", Object.entries(orders).map(([name, [words]]) => [name, words]), order, (value) => { order = value; draw(); });
  const overlays = data.runs.length ? element("details", {}, element("summary", {}, `Lay runs over (${data.runs.length} found)`), element("div", { class: "controls" }, ...data.runs.map((run) => {
    const box = element("input", { type: "checkbox", checked: run.given });
    box.addEventListener("change", () => { box.checked ? laid.add(run.label) : laid.delete(run.label); draw(); });
    return element("label", {}, box, `${run.label} (${run.scheme}, ${run.devices} devices, to ${run.target})`);
  }))) : null;
  place.append(element("div", { class: "controls" }, sorting), ...(overlays ? [overlays] : []), area, table, notes);

  function chart(rows) {
    const usable = rows.filter((row) => row.seconds != null), width = area.clientWidth;
    if (!width) return; // not laid out: drawn when it is
    const runs = data.runs.filter((run) => laid.has(run.label) && usable.some((row) => row.scheme === run.scheme));
    if (!usable.length) { area.replaceChildren(); return; }
    const marks = { x: "seconds", y: "scheme" };
    area.replaceChildren(charts.plot({
      width, height: 60 + 26 * usable.length, marginLeft: 110, marginRight: 20, marginBottom: 40,
      style: { background: "transparent", color: "var(--fg)", fontSize: "13px" },
      ariaLabel: `predicted time by scheme: ${usable.map((row) => `${row.scheme} ${seconds(row.seconds)}`).join(", ")}`,
      x: { type: "log", label: `predicted virtual seconds to ${shown.plan.target ?? "the target"} (logarithmic): mean and 95% of ${shown.plan.draws} draws`, grid: true, labelAnchor: "center", labelArrow: "none", tickFormat: charts.plain, nice: true },
      y: { domain: usable.map((row) => row.scheme), label: null },
      marks: [
        Plot.ruleY(usable, { y: "scheme", x1: (row) => Math.max(row.low, row.seconds / 1e4), x2: "high", stroke: (row) => colour(row.verdict), strokeWidth: 7, strokeOpacity: 0.35 }),
        Plot.dot(usable, { ...marks, fill: (row) => colour(row.verdict), stroke: (row) => colour(row.verdict), symbol: (row) => symbol(row.verdict), r: 5 }),
        Plot.dot(runs, { ...marks, stroke: "var(--fg)", strokeWidth: 2, r: 8, symbol: "diamond" }),
        Plot.tip(usable, Plot.pointerY({ ...marks, fill: "var(--bg)", stroke: "var(--muted)", title: (row) => `${row.scheme}, ${row.solver}\n${seconds(row.seconds)} (95%: ${seconds(row.low)} to ${seconds(row.high)})\n${row.verdict}` })),
      ],
    }));
  }

  function cells(rows) {
    const head = ["scheme", "solver", "epochs", "time", "95% of draws", "a device sends, MB", "survives losses", "epsilon", "secrecy: the server sees"];
    const line = (row) => {
      const name = element("th", { scope: "row" }, row.scheme + (row.scheme === shown.plan.recommended ? " (recommended)" : ""));
      if (row.refused) return element("tr", { "data-scheme": row.scheme }, name, element("td", { colspan: head.length - 1 }, `cannot be used: ${row.refused}`));
      const texts = [row.solver, number(row.epochs), seconds(row.seconds), `${seconds(row.low)} to ${seconds(row.high)}`, number(row.bits_per_device / 8e6), number(row.survives_losses), row.epsilon == null ? "no noise" : number(row.epsilon), row.verdict];
      return element("tr", { "data-scheme": row.scheme, "data-seconds": row.seconds }, name, ...texts.map((text) => element("td", {}, text)));
    };
    table.replaceChildren(element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "ranking of schemes" },
      element("table", {}, element("thead", {}, element("tr", {}, ...head.map((words) => element("th", { scope: "col" }, words)))), element("tbody", {}, ...rows.map(line)))));
  }

  function remarks() {
    const parts = [];
    if (shown.plan) parts.push(element("p", {}, element("strong", {}, `Recommended: ${shown.plan.recommended ?? "none"}. `), shown.plan.reason));
    const sources = new Set((shown.plan?.schemes ?? []).flatMap((row) => row.solvers.map((each) => `${each.solver}: ${number(each.epochs)} epochs, ${each.epochs_from}`)));
    if (sources.size) parts.push(element("details", {}, element("summary", {}, "How many epochs a target takes is not predicted, but told or assumed"), element("ul", {}, ...[...sources].map((words) => element("li", {}, words)))));
    for (const [name, why] of Object.entries(shown.asleep)) {
      const button = count.has(name) ? null : element("button", { type: "button", onclick: () => { count.add(name); ask(); } }, `count ${name}`);
      parts.push(element("p", {}, `${name} is left out: ${why}. `, button));
    }
    for (const [name, why] of Object.entries(shown.failed)) parts.push(element("p", { class: "notice bad" }, `${name} could not be counted: ${why}`));
    notes.replaceChildren(...parts);
  }

  function draw() {
    if (!shown) return;
    const waits = shown.counting.length ? ` Still counting ${shown.counting.join(", ")}.` : "";
    status.textContent = shown.plan ? `${shown.plan.schemes.length} schemes, ${shown.plan.devices} devices, ${shown.plan.features} features, ${shown.draws} draws, answered in ${number(shown.took)} s.${waits}` : `Counting the costs of ${shown.counting.join(", ")}.`;
    if (shown.plan) { const rows = ranked(); chart(rows); cells(rows); }
    else { area.replaceChildren(); table.replaceChildren(); }
    remarks();
    const link = element("a", { href: URL.createObjectURL(new Blob([shown.toml], { type: "application/toml" })), download: "scenario.toml" }, "Save as TOML");
    const command = document.getElementById("command");
    command.querySelectorAll("a[download]").forEach((old) => URL.revokeObjectURL(old.href));
    command.replaceChildren(element("pre", {}, shown.command), element("p", {}, link));
  }

  page.redrawn(area, draw);
  ask();
  window.explorer = { values, ask, get shown() { return shown; } };
})();
