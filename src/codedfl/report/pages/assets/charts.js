"use strict";
// Charts of a report: each takes the place of a static picture, and draws what the data block of the page holds.
const charts = (() => {
  const { element, seconds, number, style, swatch, redrawn } = page;
  // groups may have no label of their own by the rules of ARIA: the picture has one, and the tables have the values
  function plot(options) {
    const drawn = Plot.plot(options);
    for (const group of drawn.querySelectorAll("g[aria-label]")) {
      group.dataset.mark = group.getAttribute("aria-label");
      group.removeAttribute("aria-label");
    }
    drawn.setAttribute("role", "img");
    return drawn;
  }
  const formatted = d3.format(".4~g");
  const plain = (value) => (kept(value) ? d3.format(value >= 1e6 || value < 1e-3 ? ".1~e" : ",~r")(+value.toPrecision(9)) : "");
  // on a logarithmic axis, of all ticks only 1, 2 and 5 times a power of ten are labelled
  const kept = (value) => !value || ["1", "2", "5"].includes(value.toExponential()[0]);

  function toggles(title, labels, hidden, draw) {
    const boxes = labels.map((label, i) => {
      const box = element("input", { type: "checkbox", checked: true });
      box.addEventListener("change", () => {
        box.checked ? hidden.delete(i) : hidden.add(i);
        draw();
      });
      return element("label", {}, box, swatch(i), label);
    });
    return element("fieldset", {}, element("legend", {}, title), ...boxes);
  }

  function choice(title, name, values, chosen, change) {
    const buttons = values.map(([value, words]) => {
      const radio = element("input", { type: "radio", name, value, checked: value === chosen });
      radio.addEventListener("change", () => change(value));
      return element("label", {}, radio, words);
    });
    return element("fieldset", {}, element("legend", {}, title), ...buttons);
  }

  const buttons = (pairs) => pairs.map(([words, label, action]) => element("button", { type: "button", "aria-label": label, onclick: action }, words));

  // ---- score against time
  function curves(host, { curves: given, targets, metric }) {
    const hidden = new Set();
    const rows = given.map((curve, i) => curve.time.map((time, k) => ({ i, label: curve.label, time, mean: curve.mean[k], low: curve.low[k], high: curve.high[k] })));
    const positive = rows.flat().map((row) => row.time).filter((time) => time > 0);
    if (!positive.length) return;
    const extent = { log: [d3.min(positive), d3.max(positive)], linear: [0, d3.max(positive)] };
    let kind = "log", domain = null;
    const area = element("div", { class: "chart", tabindex: 0, role: "group", "aria-label": `${metric} against time; arrow keys move, plus and minus zoom, 0 shows everything` });

    const decades = () => { const [from, to] = domain || extent[kind]; return to >= 10 * from; };
    const scaled = () => (kind === "log" ? d3.scaleLog : d3.scaleLinear)().domain(domain || extent[kind]).range([0, 1]);
    function zoom(factor, shift = 0) {
      const scale = scaled(), middle = 0.5 + shift, half = 0.5 * factor;
      const wanted = [middle - half, middle + half].map(scale.invert);
      const [least, most] = extent[kind];
      const next = [Math.max(wanted[0], least), Math.min(wanted[1], most)];
      domain = next[0] >= next[1] || (next[0] <= least && next[1] >= most) ? null : next;
      draw();
    }
    const reset = () => { domain = null; draw(); };

    function yDomain(shown) {
      const [from, to] = domain || extent[kind];
      const inside = shown.flat().filter((row) => row.time >= from && row.time <= to);
      const best = d3.max(inside, (row) => row.high) ?? 1, least = d3.min(inside, (row) => row.low) ?? 0;
      const room = Math.max(best - Math.max(least, best - 0.45), 0.01);
      return [best - room * 1.04, best + room * 0.06];
    }

    function draw() {
      const width = area.clientWidth, narrow = width < 560;
      if (!width) return; // not laid out: drawn when it is
      const shown = rows.filter((_, i) => !hidden.has(i));
      const parts = shown.map((row) => row[0]?.i).filter((i) => i != null);
      const chart = plot({
        width, height: narrow ? 300 : Math.min(560, Math.max(360, width * 0.42)),
        marginRight: narrow ? 12 : 150, marginLeft: 52, marginBottom: 48, marginTop: 16,
        style: { background: "transparent", color: "var(--fg)", fontSize: narrow ? "11px" : "12px" },
        ariaLabel: `${metric} against time in ${given[0].clock} seconds, ${parts.map((i) => given[i].label).join(", ")}`,
        x: { type: kind, domain: domain || extent[kind], label: `training time in ${given[0].clock} seconds (${kind === "log" ? "logarithmic" : "linear"})`, grid: true, ticks: narrow ? 4 : 8, tickFormat: kind === "log" && decades() ? plain : (value) => d3.format(",~r")(+value.toPrecision(9)), labelAnchor: "center", labelArrow: "none" },
        y: { domain: yDomain(shown), label: metric, grid: true, labelArrow: "none" },
        marks: [
          Plot.ruleY(targets.filter((t) => t >= yDomain(shown)[0]), { stroke: "var(--muted)", strokeDasharray: "2 3" }),
          ...shown.map((row) => Plot.areaY(row, { x: "time", y1: "low", y2: "high", fill: style(row[0].i).colour, fillOpacity: 0.18, clip: true })),
          ...shown.map((row) => Plot.lineY(row, { x: "time", y: "mean", stroke: style(row[0].i).colour, strokeDasharray: style(row[0].i).dash, strokeWidth: 2, clip: true, className: `curve-${row[0].i}`, marker: row.length < 16 ? "dot" : null })),
          Plot.tip(shown.flat(), Plot.pointerX({ maxRadius: 300, x: "time", y: "mean", fill: "var(--bg)", stroke: "var(--muted)", title: (row) => `${row.label}\n${seconds(row.time)}: ${formatted(row.mean)}\n95%: ${formatted(row.low)} to ${formatted(row.high)}` })),
        ],
      });
      if (!narrow) labels(chart, shown, width);
      brush(chart, width, narrow);
      area.replaceChildren(chart);
    }

    function labels(chart, shown, width) {
      const x = chart.scale("x"), y = chart.scale("y"), to = (domain || extent[kind])[1], bottom = y.range[0];
      const placed = shown.map((row) => {
        const last = row.filter((each) => each.time <= to).at(-1) || row[0];
        return { i: row[0].i, label: row[0].label, x: x.apply(Math.min(last.time, to)), y: y.apply(last.mean), want: 0 };
      }).sort((a, b) => a.y - b.y);
      placed.forEach((each, k) => { each.want = Math.max(each.y, k ? placed[k - 1].want + 15 : 12); });
      const over = Math.max(0, (placed.at(-1)?.want ?? 0) - bottom);
      const group = d3.select(chart).append("g").attr("font-size", 12).attr("aria-hidden", "true");
      for (const each of placed) {
        group.append("path").attr("d", `M${each.x},${each.y}L${width - 150},${each.want - over}`).style("stroke", style(each.i).colour).attr("stroke-opacity", 0.45);
        group.append("text").attr("x", width - 146).attr("y", each.want - over).attr("dy", "0.32em").style("fill", style(each.i).colour).text(each.label.length > 22 ? `${each.label.slice(0, 21)}…` : each.label);
      }
    }

    function brush(chart, width, narrow) {
      const x = chart.scale("x"), [left, right] = [52, width - (narrow ? 12 : 150)], height = +chart.getAttribute("height");
      let from = null;
      const band = d3.select(chart).append("rect").attr("y", 16).attr("height", height - 64).attr("fill-opacity", 0.15).style("fill", "var(--fg)").attr("width", 0);
      const place = (event) => Math.max(left, Math.min(right, d3.pointer(event, chart)[0]));
      // in the capture phase, because tips keep the event for themselves
      chart.addEventListener("pointerdown", (event) => { if (event.pointerType !== "touch") from = place(event); }, true);
      d3.select(chart)
        .on("pointermove.zoom", (event) => { if (from != null) band.attr("x", Math.min(from, place(event))).attr("width", Math.abs(place(event) - from)); })
        .on("pointerleave.zoom", () => { from = null; band.attr("width", 0); })
        .on("pointerup.zoom", (event) => {
          const to = place(event);
          if (from != null && Math.abs(to - from) > 8) {
            domain = [Math.min(from, to), Math.max(from, to)].map((value) => x.invert(value));
            draw();
          }
          from = null;
          band.attr("width", 0);
        })
        .on("dblclick.zoom", reset);
    }

    area.addEventListener("keydown", (event) => {
      const action = { "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: reset, ArrowLeft: () => domain && zoom(1, -0.2), ArrowRight: () => domain && zoom(1, 0.2) }[event.key];
      if (action) { event.preventDefault(); action(); }
    });
    const zooms = buttons([["+", "zoom in", () => zoom(0.6)], ["−", "zoom out", () => zoom(1 / 0.6)], ["◀", "move left", () => domain && zoom(1, -0.2)], ["▶", "move right", () => domain && zoom(1, 0.2)], ["everything", "show everything", reset]]);
    host.append(
      element("div", { class: "controls" }, toggles("Show", given.map((curve) => curve.label), hidden, draw)),
      element("div", { class: "controls" }, choice("Time axis", `axis-${host.id}`, [["log", "logarithmic"], ["linear", "linear"]], kind, (value) => { kind = value; domain = null; draw(); }), ...zooms),
      area,
      element("p", { class: "muted" }, "Drag across the chart to zoom, double-click to see everything; point at a curve for its values."),
    );
    redrawn(area, draw);
    host.chart = { get domain() { return domain || extent[kind]; }, get kind() { return kind; }, rows };
  }

  // the unit in which so many bytes are a number of a few digits, and its size in bits
  const size = (bytes) => [["gigabytes", 1e9], ["megabytes", 1e6], ["kilobytes", 1e3], ["bytes", 1]].map(([unit, each]) => [unit, 8 * each]).find(([unit, bits]) => 8 * bytes >= bits || unit === "bytes");

  // ---- what each device sends, receives and multiplies
  function devices(host, { devices: given }) {
    const hidden = new Set();
    const quantities = [["up", "sent to the server"], ["down", "received from the server"], ["d2d", "sent to other devices"], ["macs", "multiplications"]];
    let chosen = "up";
    const area = element("div", { class: "chart" });
    function draw() {
      const [name, words] = quantities.find(([each]) => each === chosen);
      const [unit, scale] = name === "macs" ? ["multiplications", 1] : size(d3.max(given, (run) => d3.max(run[name])) / 8);
      const rows = given.flatMap((run, i) => (hidden.has(i) ? [] : run[name].map((value, device) => ({ i, label: run.label, device, value: value / scale }))));
      const width = area.clientWidth;
      if (!width) return;
      const many = d3.max(given, (run) => run[name].length) > 80;
      area.replaceChildren(plot({
        width, height: Math.min(420, Math.max(260, width * 0.32)), marginLeft: 60, marginBottom: 40,
        style: { background: "transparent", color: "var(--fg)", fontSize: "12px" }, ariaLabel: `${words} by device, in ${unit}`,
        x: { label: "device", labelArrow: "none", labelAnchor: "center", tickFormat: "d", interval: many ? undefined : 1, ticks: many ? 10 : undefined },
        y: { label: `${words} (${unit})`, grid: true, labelArrow: "none", zero: true, tickFormat: name === "macs" ? "~s" : undefined },
        marks: [
          Plot.ruleY([0], { stroke: "var(--muted)" }),
          ...given.map((_, i) => Plot.lineY(rows.filter((row) => row.i === i), { x: "device", y: "value", stroke: style(i).colour, strokeDasharray: style(i).dash, strokeOpacity: 0.6 })),
          Plot.dot(rows, { x: "device", y: "value", fill: (row) => style(row.i).colour, r: many ? 1.5 : 3 }),
          Plot.tip(rows, Plot.pointer({ x: "device", y: "value", fill: "var(--bg)", stroke: "var(--muted)", title: (row) => `${row.label}\ndevice ${row.device}: ${number(row.value)} ${unit}` })),
        ],
      }));
    }
    host.append(
      element("div", { class: "controls" }, toggles("Show", given.map((run) => run.label), hidden, draw)),
      element("div", { class: "controls" }, choice("Quantity", `quantity-${host.id}`, quantities.map(([name, words]) => [name, words]), chosen, (value) => { chosen = value; draw(); })),
      area,
    );
    redrawn(area, draw);
  }

  // ---- who hands over to whom: each arrow from sender to recipient, in the epoch after which it happens
  function handovers(host, { handovers: given }) {
    let run = given[0];
    const area = element("div", { class: "chart" });
    function draw() {
      const width = area.clientWidth;
      if (!width) return;
      const epochs = [...new Set(run.rows.map(([epoch]) => epoch))];
      const counts = d3.rollup(run.rows, (each) => each.length, ([epoch]) => epoch), seen = new Map();
      const rows = run.rows.map(([epoch, sender, recipient, fresh]) => {
        const place = seen.get(epoch) || 0;
        seen.set(epoch, place + 1);
        return { epoch, sender, recipient, fresh, x: epochs.indexOf(epoch) + (place + 0.5) / counts.get(epoch) * 0.8 + 0.1 };
      });
      area.replaceChildren(plot({
        width, height: Math.max(260, Math.min(700, 18 * run.devices)), marginLeft: 46, marginBottom: 40,
        style: { background: "transparent", color: "var(--fg)", fontSize: "12px" }, ariaLabel: `hand-overs of ${run.label}: ${rows.length}`,
        x: { domain: [0, epochs.length], ticks: epochs.map((_, i) => i + 0.5), tickFormat: (place) => String(epochs[Math.floor(place)]), label: "epoch after which devices hand over (dot: sender, arrow head: recipient)", labelAnchor: "center", labelArrow: "none" },
        y: { domain: [-0.5, run.devices - 0.5], reverse: true, label: "device", grid: true, tickFormat: "d", labelArrow: "none" },
        marks: [
          Plot.ruleX(epochs.map((_, i) => i), { stroke: "var(--line)" }),
          Plot.arrow(rows, { x1: "x", x2: "x", y1: "sender", y2: "recipient", stroke: (row) => (row.fresh ? "var(--c1)" : "var(--c0)"), strokeWidth: 1.6, headLength: 6 }),
          Plot.dot(rows, { x: "x", y: "sender", r: 3.5, fill: (row) => (row.fresh ? "var(--c1)" : "var(--c0)"), symbol: (row) => (row.fresh ? "circle" : "square") }),
          Plot.tip(rows, Plot.pointer({ x: "x", y: "sender", fill: "var(--bg)", stroke: "var(--muted)", title: (row) => `after epoch ${row.epoch}\ndevice ${row.sender} to device ${row.recipient}\n${row.fresh ? run.fresh : "forwards what it holds"}` })),
        ],
      }));
    }
    host.append(selector("Run", given, (each) => { run = each; draw(); }), area, element("p", { class: "muted" }, `Circles: ${run.fresh}; squares: forwards what it holds.`));
    redrawn(area, draw);
  }

  function selector(title, given, change) {
    if (given.length < 2) return element("p", { class: "muted" }, given[0].label);
    const select = element("select", {}, ...given.map((each, i) => element("option", { value: i }, each.label)));
    select.addEventListener("change", () => change(given[+select.value]));
    return element("div", { class: "controls" }, element("label", {}, title, select));
  }

  return { curves, devices, handovers, selector, choice, toggles, buttons, plain, plot };
})();
