"use strict";
// The timeline of devices on a canvas: bars are kept as whole ticks in typed arrays, sorted by device and begin. Panning
// moves a strip that is drawn once, wider than the window, so it costs the same however many bars there are.
const timeline = (() => {
  const { element, seconds } = page;
  const LANE = 20, TOP = 24, LEFT = 92, WIDER = 3;
  const colours = { "receive model": "--receive", compute: "--compute", "send reply": "--reply", grant: "--receive", encrypt: "--encrypt", send: "--send", absorb: "--absorb", request: "--receive", waited: "--compute" };

  async function unpacked({ packed, rows }) {
    const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
    const plain = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
    let offset = 0;
    const take = (type) => { const array = new type(plain, offset, rows); offset += array.byteLength; return array; };
    return { begin: take(Uint32Array), length: take(Uint32Array), epoch: take(Uint32Array), bits: take(Float32Array), device: take(Uint16Array), peer: take(Int16Array), activity: take(Uint8Array) };
  }

  async function view(host, given) {
    const canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": `timeline of ${given.devices} devices over ${seconds(given.end)}; arrow keys move, plus and minus zoom, 0 shows everything; the table below has the sums` });
    const tooltip = element("div", { class: "tooltip hidden" }), area = element("div", { class: "chart" }, canvas, tooltip);
    const bars = await unpacked(given), tick = given.end / given.ticks;
    const first = new Uint32Array(given.devices + 1); // bars of device i: first[i] to first[i + 1]
    for (const device of bars.device) first[device + 1]++;
    for (let i = 0; i < given.devices; i++) first[i + 1] += first[i];
    const longest = new Uint32Array(given.devices);
    bars.device.forEach((device, k) => { longest[device] = Math.max(longest[device], bars.length[k]); });
    let from = 0, span = given.ticks, width = 0, strip = null, asked = 0, paints = 0, later = 0;
    const height = TOP + LANE * given.devices + 4;

    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    function from_(device, ticks) { // first bar of a device that may end after ticks
      let low = first[device], high = first[device + 1];
      const least = ticks - longest[device];
      while (low < high) { const middle = (low + high) >> 1; bars.begin[middle] < least ? (low = middle + 1) : (high = middle); }
      return low;
    }

    function paint(context, start, per, wide) { // bars from tick `start` on, `per` ticks a pixel
      const fills = given.activities.map((name) => colour(colours[name] || "--c3"));
      const until = start + wide * per;
      for (let device = 0; device < given.devices; device++) {
        const y = TOP + LANE * device + 2, painted = new Float64Array(fills.length).fill(-1);
        for (let k = from_(device, start); k < first[device + 1] && bars.begin[k] < until; k++) {
          const x = (bars.begin[k] - start) / per, w = bars.length[k] / per, kind = bars.activity[k];
          const right = x + Math.max(w, 0.6);
          if (right <= painted[kind] || right < 0) continue; // the pixel has this activity already
          const left = Math.max(x, painted[kind]);
          context.fillStyle = fills[kind];
          context.fillRect(left, y + (given.thin.includes(kind) ? 4 : 0), Math.max(right - left, 0.6), given.thin.includes(kind) ? LANE - 12 : LANE - 4);
          painted[kind] = Math.ceil(right * 2) / 2;
        }
      }
    }

    function drawn(per, plot, ratio) {
      const start = Math.max(0, Math.min(from - span, given.ticks - WIDER * span));
      const surface = new OffscreenCanvas(Math.round(plot * WIDER * ratio), Math.round(height * ratio)), context = surface.getContext("2d");
      context.scale(ratio, ratio);
      paint(context, start, per, plot * WIDER);
      paints++;
      return { surface, start, per, width: plot };
    }

    function render() {
      asked = 0;
      if (!width) return; // the first resize asks again
      const ratio = window.devicePixelRatio || 1, plot = width - LEFT, per = span / plot;
      const context = canvas.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      clearTimeout(later);
      if (strip && strip.width === plot && strip.per !== per) { // while zooming only what is seen is drawn
        context.save();
        context.beginPath();
        context.rect(LEFT, 0, plot, height);
        context.clip();
        context.translate(LEFT, 0);
        paint(context, from, per, plot);
        context.restore();
        later = setTimeout(() => { strip = null; request(); }, 150);
      } else {
        if (!strip || strip.width !== plot || from < strip.start || from + span > strip.start + WIDER * span) strip = drawn(per, plot, ratio);
        const shift = (from - strip.start) / per;
        context.drawImage(strip.surface, Math.round(shift * ratio), 0, Math.round(plot * ratio), Math.round(height * ratio), LEFT, 0, plot, height);
      }
      axes(context, plot);
    }

    function axes(context, plot) {
      context.font = "12px system-ui, sans-serif";
      context.fillStyle = colour("--fg");
      context.strokeStyle = colour("--line");
      context.textBaseline = "middle";
      const scale = d3.scaleLinear([from * tick, (from + span) * tick], [LEFT, LEFT + plot]);
      context.textAlign = "center";
      for (const time of scale.ticks(Math.max(2, Math.floor(plot / 110)))) {
        const x = Math.round(scale(time)) + 0.5;
        context.beginPath(); context.moveTo(x, TOP - 5); context.lineTo(x, height); context.globalAlpha = 0.4; context.stroke(); context.globalAlpha = 1;
        context.fillText(`${d3.format("~r")(+time.toPrecision(9))} s`, Math.min(Math.max(x, LEFT + 16), width - 24), 9);
      }
      context.textAlign = "left";
      given.names.forEach((name, device) => {
        context.fillText(name.length > 12 ? `${name.slice(0, 11)}…` : name, 2, TOP + LANE * device + LANE / 2);
        context.beginPath(); context.moveTo(0, TOP + LANE * device + 0.5); context.lineTo(width, TOP + LANE * device + 0.5); context.globalAlpha = 0.5; context.stroke(); context.globalAlpha = 1;
      });
    }

    const request = () => { asked = asked || requestAnimationFrame(render); };
    function move(next, wide = span) {
      span = Math.max(20, Math.min(given.ticks, wide));
      from = Math.max(0, Math.min(given.ticks - span, next));
      request();
    }
    const zoom = (factor, at = 0.5) => move(from + span * at - span * factor * at, span * factor);
    const everything = () => move(0, given.ticks);

    function resize() {
      width = Math.max(280, area.clientWidth);
      const ratio = window.devicePixelRatio || 1;
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
      strip = null;
      request();
    }

    function at(event) {
      const [x, y] = d3.pointer(event, canvas), device = Math.floor((y - TOP) / LANE);
      if (x < LEFT || device < 0 || device >= given.devices) return null;
      const per = span / (width - LEFT), ticks = from + (x - LEFT) * per;
      let found = null;
      for (let k = from_(device, ticks); k < first[device + 1] && bars.begin[k] <= ticks + per; k++)
        if (bars.begin[k] + Math.max(bars.length[k], per) >= ticks) found = k;
      return { device, ticks, bar: found };
    }

    function point(event) {
      const found = at(event);
      if (!found) { tooltip.classList.add("hidden"); return; }
      const k = found.bar, where = given.names[found.device];
      const to = k != null && bars.peer[k] >= 0 ? ` to ${given.names[bars.peer[k]]}` : "";
      tooltip.textContent = k == null
        ? `${where}\nwaits at ${seconds(found.ticks * tick)}`
        : `${where}, epoch ${bars.epoch[k]}\n${given.activities[bars.activity[k]]}${to}: ${seconds(bars.begin[k] * tick)} to ${seconds((bars.begin[k] + bars.length[k]) * tick)}${bars.bits[k] ? `\n${page.number(bars.bits[k] / 8e6)} MB` : ""}`;
      tooltip.classList.remove("hidden");
      const [x, y] = d3.pointer(event, area);
      tooltip.style.left = `${Math.min(x + 14, width - 190)}px`;
      tooltip.style.top = `${y + 14}px`;
    }

    let grabbed = null;
    canvas.addEventListener("pointerdown", (event) => { grabbed = { x: event.clientX, from }; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (grabbed) move(grabbed.from - (event.clientX - grabbed.x) * (span / (width - LEFT)));
      else point(event);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { grabbed = null; });
    canvas.addEventListener("pointerleave", () => tooltip.classList.add("hidden"));
    canvas.addEventListener("wheel", (event) => {
      if (!(event.ctrlKey || event.metaKey || document.activeElement === canvas)) return; // else the page scrolls
      event.preventDefault();
      zoom(2 ** (event.deltaY / 300), Math.max(0, (d3.pointer(event, canvas)[0] - LEFT) / (width - LEFT)));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const action = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: everything, ArrowLeft: () => move(from - span / 5), ArrowRight: () => move(from + span / 5), Home: () => move(0), End: () => move(given.ticks) }[event.key];
      if (action) { event.preventDefault(); action(); }
    });
    const controls = charts.buttons([["+", "zoom in", () => zoom(0.5)], ["−", "zoom out", () => zoom(2)], ["◀", "earlier", () => move(from - span / 2)], ["▶", "later", () => move(from + span / 2)], ["first epochs", "show the first epochs", () => move(0, given.first)], ["everything", "show everything", everything]]);
    const legend = given.activities.map((name) => {
      const box = element("span", { class: "swatch" });
      box.style.background = `var(${colours[name] || "--c3"})`;
      return element("span", { class: "controls" }, box, name);
    });
    host.replaceChildren(element("div", { class: "controls" }, ...controls), element("div", { class: "controls" }, ...legend, element("span", { class: "muted" }, "empty: waits, or has left")), area);
    page.redrawn(area, resize);
    move(0, given.first);
    host.chart = { bars, tick, move, zoom, get window() { return [from * tick, (from + span) * tick]; }, get paints() { return paints; }, at };
  }

  function draw(host, { timelines }) {
    const place = element("div");
    host.append(charts.selector("Run", timelines, (each) => view(place, each).then(() => { host.chart = place.chart; })), place,
      element("p", { class: "muted" }, "Drag to move; + and − or Ctrl with the wheel zoom; point at a bar for what it is."));
    return view(place, timelines[0]).then(() => { host.chart = place.chart; });
  }

  return { draw };
})();
