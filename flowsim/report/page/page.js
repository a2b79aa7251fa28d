"use strict";
// What a reader can do with the plots of a page: hide curves, change scales, go through time.
(async () => {
  const groups = flowsim.decoded(JSON.parse(document.getElementById("content").textContent));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const drawn = await flowsim.draw(groups, dark.matches);
  const shown = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(5))) : "–");

  // The place of the last record made by `time`, −1 for none; a run that rests stays where it is, others have no more.
  function recordAt(times, time, stays) {
    let [low, high] = [0, times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] <= time * (1 + 1e-9)) low = middle + 1; else high = middle;
    }
    const over = low === times.length && times[low - 1] < time * (1 - 1e-9);
    return over && !stays ? -1 : low - 1;
  }

  function valueAt(values, record) {
    let place = values === undefined ? -1 : record;
    while (place >= 0 && !Number.isFinite(values[place])) place -= 1;
    return place < 0 ? NaN : values[place];
  }

  function cell(kind, text, scope) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (scope) made.scope = scope;
    return made;
  }

  // A column for each run, and a row for each quantity: there are more of these.
  function tell(table, group, columns) {
    const head = document.createElement("thead");
    head.insertRow().append(cell("td", ""), ...group.keys.map((key) => cell("th", key.label, "col")));
    const body = document.createElement("tbody");
    ["t of the record", ...group.plots.map((plot) => plot.heading)].forEach((title, index) => {
      const values = columns.map((column) => cell("td", shown(column[index])));
      body.insertRow().append(cell("th", title, "row"), ...values);
    });
    table.replaceChildren(table.caption, head, body);
  }

  function slide(group, section, hidden) {
    const slider = section.querySelector("input[type=range]");
    const said = section.querySelector("output");
    const choice = section.querySelector("[data-time-scale]");
    const { start, first, last } = group.time;
    let { logarithmic, end } = group.time;
    let time = end;
    let pointed = false;

    function move() {
      said.textContent = `t = ${shown(time)}`;
      slider.setAttribute("aria-valuetext", said.textContent);
      const columns = group.keys.map((key) => {
        const series = group.series[key.name];
        const record = recordAt(series.time, time, key.stays);
        const reached = record < 0 ? NaN : series.time[record];
        return [reached, ...group.plots.map((plot) => valueAt(series[plot.name], record))];
      });
      tell(section.querySelector(".readout table"), group, columns);
      if (!pointed) return;
      const seen = columns.map((column, index) => (hidden.has(group.keys[index].name) ? column.map(() => NaN) : column));
      drawn.get(group.name).forEach((plot, place) => {
        plot.point(time, seen.map((column) => column[0]), seen.map((column) => column[place + 1]));
      });
    }

    // Between two places of the slider it stands at the nearest, and the time is what was asked for.
    function follow() {
      time = Math.min(Math.max(time, logarithmic ? first : 0), end);
      slider.value = slider.max * (logarithmic ? Math.log(time / first) / Math.log(end / first) : time / end);
    }

    slider.addEventListener("input", () => {
      const share = slider.value / slider.max;
      time = logarithmic ? first * (end / first) ** share : end * share;
      pointed = true;
      move();
    });
    choice.value = logarithmic ? "logarithmic" : "linear";  // some browsers remember how a page was left
    choice.addEventListener("change", () => {
      logarithmic = choice.value.startsWith("logarithmic");
      end = choice.value.endsWith("all") ? last : group.time.end;
      follow();
      const plots = drawn.get(group.name);
      flowsim.setRange(plots[0].figure.x_range, [logarithmic ? first : start, end]);
      for (const plot of plots) plot.rescale(0, logarithmic);
      move();
    });
    move();
    return move;
  }

  function listen(group) {
    const section = document.getElementById(group.name);
    const hidden = new Set();
    const move = group.time ? slide(group, section, hidden) : () => {};
    for (const box of section.querySelectorAll("[data-key]")) {
      box.checked = true;  // some browsers remember how a page was left
      box.addEventListener("change", () => {
        if (box.checked) hidden.delete(box.dataset.key); else hidden.add(box.dataset.key);
        for (const plot of drawn.get(group.name)) plot.show(box.dataset.key, box.checked);
        move();
      });
    }
    for (const choice of section.querySelectorAll("[data-scale-of]")) {
      const one = drawn.get(group.name).find(({ plot }) => plot.name === choice.dataset.scaleOf);
      choice.value = one.plot.logarithmic ? "logarithmic" : "linear";
      choice.addEventListener("change", () => {
        const logarithmic = choice.value === "logarithmic";
        flowsim.setRange(one.figure.y_range, logarithmic ? one.plot.log : one.plot.linear);
        one.rescale(1, logarithmic);
      });
    }
  }

  function colour(isDark) {
    for (const plots of drawn.values()) for (const plot of plots) plot.colour(isDark);
    const keys = new Map(groups.flatMap((group) => group.keys).map((key) => [key.name, key]));
    for (const mark of document.querySelectorAll("[data-colour]")) {
      const tint = keys.get(mark.dataset.colour)[isDark ? "dark" : "light"];
      for (const name of ["stroke", "fill"]) if (mark.hasAttribute(name)) mark.setAttribute(name, tint);
    }
  }

  groups.forEach(listen);
  colour(dark.matches);
  dark.addEventListener("change", () => colour(dark.matches));
  window.addEventListener("beforeprint", () => colour(false));
  window.addEventListener("afterprint", () => colour(dark.matches));
  document.documentElement.dataset.ready = "yes";
})();
