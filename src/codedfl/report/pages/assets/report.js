"use strict";
// Puts the charts of a report in the place of its static pictures.
(async () => {
  const draws = { curves: charts.curves, devices: charts.devices, handovers: charts.handovers, timeline: timeline.draw };
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const host = page.element("div", { id: `chart-${figure.dataset.chart}` });
    const still = figure.querySelector(".static");
    figure.insertBefore(host, still || figure.firstChild);
    try {
      await draws[figure.dataset.chart](host, page.data);
      if (still) still.remove();
    } catch (error) { // the static picture stays
      host.remove();
      console.error(error);
    }
  }
  document.documentElement.dataset.ready = "yes";
})();
