"use strict";
// Follows a training: the newest state replaces the page's, epochs are added to those that it has.
(() => {
  const { data: about, element, seconds, number, redrawn } = page;
  const at = (id) => document.getElementById(`live-${id}`);
  const state = { phase: "starting", note: "", run: null, result: null };
  let rows = [], lostConnection = false, source = null, timer = null, waiting = false;

  const metric = () => ((state.run && state.run.metric) === "r2" ? "R²" : "accuracy");
  const score = (value) => (value == null ? "not known" : value.toFixed(4));
  const time = (value) => (value == null ? "-" : `${seconds(value)} ${about.clock}`);
  const bytes = (value) => {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let place = 0;
    for (; value >= 1000 && place < 4; place += 1) value /= 1000;
    return `${place ? value.toFixed(1) : value} ${units[place]}`;
  };

  // of long trainings some epochs have no row, but the newest has
  function course() {
    const newest = state.run && state.run.newest, last = rows[rows.length - 1];
    return newest && last && newest[0] > last[0] ? [...rows, newest] : rows;
  }

  // -- the stream -------------------------------------------------------------------------------------------------
  function connect() {
    source = new EventSource("events");
    source.addEventListener("message", (event) => { lostConnection = false; take(JSON.parse(event.data)); });
    source.addEventListener("error", () => {
      if (state.phase === "finished") return source.close();
      lostConnection = true;
      show();
      if (source.readyState === EventSource.CLOSED) {  // browsers try again by themselves unless something else replied
        clearTimeout(timer);
        timer = setTimeout(connect, 1000);
      }
    });
  }

  function take(event) {
    let run = event.run;
    if (run && run.epoch === 0 && rows.length) run = { ...state.run, stage: run.stage, done: run.done, total: run.total };  // it is about to resume
    else if (run) {
      rows = [...rows.slice(0, run.first_row), ...run.epochs];
      if (run.devices.length === 0 && state.run) run.devices = state.run.devices;
    }
    Object.assign(state, event, { run: run || state.run });
    if (state.phase === "finished") source.close();
    show();
  }

  // -- texts ------------------------------------------------------------------------------------------------------
  function write(host, text) {
    if (host.textContent !== text) host.textContent = text;  // screen readers hear of changes only
  }

  function stageText() {
    const epoch = state.run ? state.run.epoch : 0;
    if (lostConnection) return `${state.phase === "stopped" ? "stopped" : "connection lost"} at epoch ${number(epoch)}, waiting for the training to come back`;
    if (state.phase === "finished") return "finished";
    if (state.phase === "stopped") return `stopped at epoch ${number(epoch)}`;
    return state.run ? state.run.stage : "the training starts";
  }

  function showState() {
    const run = state.run, text = stageText();
    write(at("stage"), text);
    at("stage").dataset.phase = lostConnection ? "lost" : state.phase;
    const notice = at("connection"), words = lostConnection && state.phase !== "stopped" ? "Give the same command again if the training was killed: this page continues by itself." : state.note;
    if (notice.textContent !== words) notice.replaceChildren(...(words ? [element("p", { class: state.phase === "stopped" || lostConnection ? "notice bad" : "muted" }, words)] : []));
    const bar = at("progress"), over = state.phase === "finished", total = run ? run.total : 0;
    if (total || over) bar.value = over ? 1 : run.done / total;
    else bar.removeAttribute("value");
    write(at("done"), over ? "100%" : total ? `${number(run.done)} of ${number(total)}` : "");
    document.title = `${lostConnection ? "connection lost" : over ? "finished" : run ? `epoch ${number(run.epoch)}` : "starting"}: ${about.name}`;
  }

  function facts() {
    const run = state.run;
    if (!run) return [];
    const [last, before = [0, 0]] = course().slice(-2).reverse();
    const found = [
      ["epoch", `${number(run.epoch)} of ${number(about.epochs)}`],
      ["time", time(run.seconds)],
      [`mean time of an epoch`, run.epoch ? time(run.seconds / run.epoch) : "-"],
      [`time of the newest scored epoch`, last ? time((last[1] - before[1]) / (last[0] - before[0])) : "-"],
      [metric(), score(state.result ? state.result.score : run.score)],
      ["lost devices", number(run.devices.filter((row) => row.state === "lost").length)],
    ];
    if (run.survives_losses_left != null) found.push(["survives further losses", number(run.survives_losses_left)]);
    if (run.parcels != null) found.push(
      ["parcels sent", `${number(run.parcels)}, ${bytes(run.parcel_bytes)}`],
      ["hand-overs", number(run.handovers.length)],
      ["replaced devices", number(run.replacements.length)],
      ["payload down, up, between devices", ["down", "up", "d2d"].map((link) => bytes(Math.floor(run.bits_sent[link] / 8))).join(", ")],
    );
    if (run.spoilt_epochs) found.push(["epochs computed again", number(run.spoilt_epochs)]);
    if (run.lies && run.lies.length) found.push(["wrong replies", number(run.lies.length)]);
    return found;
  }

  function showFacts() {
    const host = at("facts"), found = facts();
    if (host.children.length !== found.length) host.replaceChildren(...found.map(() => element("div", {}, element("dt"), element("dd"))));
    found.forEach(([name, value], i) => {
      write(host.children[i].children[0], name);
      write(host.children[i].children[1], value);
    });
  }

  // -- tables: cells are changed in place, so that reading positions and selections stay ----------------------------
  function table(host, header, lines) {
    let body = host.querySelector("tbody");
    if (!body) {
      body = element("tbody");
      host.replaceChildren(element("table", {}, element("thead", {}, element("tr", {}, ...header.map((name) => element("th", { scope: "col" }, name)))), body));
    }
    while (body.children.length > lines.length) body.lastChild.remove();
    lines.forEach((cells, i) => {
      let line = body.children[i];
      if (!line) body.append(line = element("tr", {}, ...cells.map((cell, k) => (k ? element("td") : element("th", { scope: "row" })))));
      cells.forEach((cell, k) => fill(line.children[k], cell));
    });
  }

  function fill(host, cell) {
    const [text, kind] = Array.isArray(cell) ? cell : [cell, ""];
    if (kind === "number") host.className = "number";
    const inner = kind && kind !== "number" ? host.firstElementChild || host.appendChild(element("span")) : host;
    if (inner !== host) inner.className = `verdict ${kind}`;
    write(inner, text);
  }

  const kinds = { waiting: "none", working: "warn", replied: "good", "handed over": "none", lost: "bad" };
  const signs = { waiting: "○", working: "◔", replied: "●", "handed over": "→", lost: "✕" };
  const words = { working: "computing" };

  function notes(row, index) {
    const run = state.run, found = row.reason ? [row.reason] : [];
    const moved = (run.handovers || []).filter(([, sender]) => sender === index);
    if (moved.length) found.push(`handed over to ${name(moved[moved.length - 1][2])}`);
    if ((run.replacements || []).some(([, device]) => device === index)) found.push("replaces a lost device");
    const others = row.holds_data_of.length - 1;
    if (others > 0) found.push(`computes for ${number(others)} more`);
    return found.join("; ");
  }

  const name = (index) => (state.run.devices[index] ? state.run.devices[index].site : `device ${index + 1}`);
  const short = (value) => (value == null ? "" : value < 1 ? `${(1e3 * value).toFixed(1)} ms` : seconds(value));

  function showDevices() {
    const devices = state.run ? state.run.devices : [];
    if (!devices.length) return;
    const counted = Object.keys(kinds).map((kind) => [kind, devices.filter((row) => row.state === kind).length]);
    write(at("counts"), `${number(devices.length)} devices: ${counted.filter(([, count]) => count).map(([kind, count]) => `${number(count)} ${words[kind] || kind}`).join(", ")}`);
    table(at("devices"), ["device", "state", "epoch", "replied in", "samples held", "parcels out, in", "notes"], devices.map((row, i) => [
      row.site,
      [`${signs[row.state] || ""} ${words[row.state] || row.state}`, kinds[row.state] || "none"],
      [row.last_epoch == null ? "" : number(row.last_epoch), "number"],
      [short(row.last_seconds), "number"],
      [number(row.samples_held), "number"],
      [`${number(row.parcels_sent)}, ${number(row.parcels_taken)}`, "number"],
      notes(row, i),
    ]));
  }

  function showEvents() {
    const run = state.run;
    if (!run || !run.handovers) return;
    const found = [
      ...run.devices.filter((row) => row.state === "lost").map((row) => [row.lost_in_epoch, `${row.site} was lost${row.reason ? `: ${row.reason}` : ""}`]),
      ...run.handovers.map(([epoch, sender, recipient]) => [epoch, `${name(sender)} handed over to ${name(recipient)}`]),
      ...run.replacements.map(([epoch, device]) => [epoch, `${name(device)} replaced a lost device`]),
      ...run.lies.map(([epoch, device, how]) => [epoch, `${name(device)} replied wrong numbers: ${how}`]),
    ].sort((one, other) => one[0] - other[0]);
    if (found.length) table(at("events"), ["epoch", "what happened"], found.map(([epoch, what]) => [number(epoch), what]));
  }

  function showResult() {
    const result = state.result;
    if (!result || at("result").dataset.shown) return;
    at("result").dataset.shown = "yes";
    const found = [
      [`final ${result.metric}`, score(result.score) + (result.scored_on ? `, on ${result.scored_on}` : "")],
      ["epochs", number(result.epochs)],
      ["time", time(result.seconds)],
      ...Object.entries(result.time_to_accuracy).map(([target, value]) => [`${about.clock === "virtual" ? "mean time" : "time"} to ${result.metric} ${target}`, value == null ? (result.score == null ? "not known" : "never") : time(value)]),
    ];
    at("result").replaceChildren(
      element("dl", { class: "facts" }, ...found.map(([key, value]) => element("div", {}, element("dt", {}, key), element("dd", {}, value)))),
      ...result.remarks.map((sentence) => element("p", { class: "notice" }, sentence)),
      element("p", {}, "run directory: ", element("code", {}, result.directory)),
      element("p", {}, "a report to keep: ", element("code", {}, result.report)),
    );
  }

  // -- charts -----------------------------------------------------------------------------------------------------
  function chart(host, marks, options, label) {
    const drawing = Plot.plot({ width: Math.max(260, host.clientWidth), marginLeft: 56, marginBottom: 40, style: { background: "none", color: "var(--fg)", fontSize: "12px", overflow: "visible" }, ...options, marks });
    drawing.setAttribute("role", "img");
    drawing.setAttribute("aria-label", label);
    for (const group of drawing.querySelectorAll("g[aria-label]")) group.removeAttribute("aria-label");  // an image has one label
    host.replaceChildren(drawing);
  }

  function drawScore() {
    const known = course().filter((row) => row[2] != null), host = at("score");
    if (!known.length) {
      host.replaceChildren();
      write(at("score-caption"), rows.length ? `${metric()} is not known: the server has no test data` : "no epoch is scored yet");
      return;
    }
    const last = known[known.length - 1], text = `${metric()} against ${about.clock} seconds; epoch ${number(last[0])} has ${score(last[2])}`;
    const targets = about.targets.filter((target) => Number.isFinite(target));
    chart(host, [
      Plot.ruleY(targets, { stroke: "var(--muted)", strokeDasharray: "4 4" }),
      Plot.lineY(known, { x: (row) => row[1], y: (row) => row[2], stroke: "var(--c0)", strokeWidth: 2 }),
      Plot.dot([last], { x: (row) => row[1], y: (row) => row[2], fill: "var(--c0)", r: 4 }),
    ], { height: Math.min(380, Math.max(220, host.clientWidth / 3)), x: { label: `${about.clock} seconds →` }, y: { label: `↑ ${metric()}`, grid: true, zero: false } }, text);
    write(at("score-caption"), `${text}${targets.length ? "; dashed: targets" : ""}`);
  }

  function drawDurations() {
    const host = at("durations"), found = course().map((row, i, all) => [row[0], (row[1] - (i ? all[i - 1][1] : 0)) / (row[0] - (i ? all[i - 1][0] : 0))]);
    if (found.length < 2) return write(at("durations-caption"), "");
    const text = `${about.clock} seconds of each epoch`;
    chart(host, [Plot.lineY(found, { x: (row) => row[0], y: (row) => row[1], stroke: "var(--c1)", strokeWidth: 1.5, curve: "step" })],
      { height: 160, x: { label: "epoch →" }, y: { label: "↑ seconds", grid: true, zero: true } }, text);
    write(at("durations-caption"), text);
  }

  function draw() {
    waiting = false;
    drawScore();
    drawDurations();
    table(at("epochs"), ["epoch", `end (${about.clock})`, metric()], course().slice(-20).reverse().map(([epoch, end, value]) => [number(epoch), [seconds(end), "number"], [score(value), "number"]]));
  }

  function show() {
    showState();
    showFacts();
    showDevices();
    showEvents();
    showResult();
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  }

  redrawn(at("score"), draw);
  connect();
})();
