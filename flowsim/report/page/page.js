"use strict";
// What a reader can do with the plots of a page: hide curves, change scales, go through time.
(async () => {
  const groups = flowsim.decoded(JSON.parse(document.getElementById("content").textContent));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  tint(dark.matches);
  const drawn = await flowsim.draw(groups, dark.matches);
  const view = new View();
  const shown = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(5))) : "–");

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
    ["t of the record", ...group.plots.filter((plot) => !plot.moving).map((plot) => plot.heading)].forEach((title, index) => {
      const values = columns.map((column) => cell("td", shown(column[index])));
      body.insertRow().append(cell("th", title, "row"), ...values);
    });
    table.replaceChildren(table.caption, head, body);
  }

  // Have the view keep a box or a choice, which is as it is now where nothing is said.
  function keep(name, control, property = "value") {
    const usual = String(control[property]);
    const possible = property === "checked" ? ["true", "false"] : Array.from(control.options, (one) => one.value);
    const read = () => String(control[property]);
    view.keep(name, () => (read() === usual ? "" : read()), (text) => {
      const wanted = possible.includes(text) ? text : usual;
      if (wanted === read()) return;
      control[property] = property === "checked" ? wanted === "true" : wanted;
      control.dispatchEvent(new Event("change"));
    });
  }

  // A button that goes through all of time in `seconds`, or where motion is to be reduced a tenth of it at a touch.
  function play(button, slider, goTo, seconds = 10) {
    const reduced = matchMedia("(prefers-reduced-motion: reduce)");
    let [frame, began] = [null, 0];
    const here = () => (slider.value === slider.max ? 0 : slider.value / slider.max);

    function say() {
      const [words, label] = reduced.matches ? ["Step", "One step on through time"]
        : frame === null ? ["Play", "Play through time"] : ["Pause", "Pause"];
      button.textContent = words;
      button.setAttribute("aria-label", label);
    }

    function stop() {
      cancelAnimationFrame(frame);
      frame = null;
      say();
    }

    function advance(now) {
      const share = Math.min((now - began) / (1000 * seconds), 1);
      goTo(share);
      if (share < 1) frame = requestAnimationFrame(advance); else stop();
    }

    button.addEventListener("click", () => {
      if (frame !== null) {
        stop();
      } else if (reduced.matches) {
        goTo(Math.min(here() + 0.1, 1));
      } else {
        began = performance.now() - 1000 * seconds * here();
        frame = requestAnimationFrame(advance);
        say();
      }
    });
    slider.addEventListener("input", stop);
    reduced.addEventListener("change", stop);
    say();
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
        const record = flowsim.recordAt(series.time, time, key.stays);
        const reached = record < 0 ? NaN : series.time[record];
        return [reached, ...group.plots.map((plot) => valueAt(series[plot.name], record))];
      });
      tell(section.querySelector(".readout table"), group, columns);
      const [moving, others] = [true, false].map((one) => drawn.get(group.name).filter(({ plot }) => plot.moving === one));
      for (const plot of moving) plot.goTo(time);
      if (!pointed) return;
      const seen = columns.map((column, index) => (hidden.has(group.keys[index].name) ? column.map(() => NaN) : column));
      others.forEach((plot, place) => {
        plot.point(time, seen.map((column) => column[0]), seen.map((column) => column[place + 1]));
      });
    }

    // Between two places of the slider it stands at the nearest, and the time is what was asked for.
    function follow() {
      time = Math.min(Math.max(time, logarithmic ? first : 0), end);
      slider.value = slider.max * (logarithmic ? Math.log(time / first) / Math.log(end / first) : time / end);
    }

    function goTo(share) {
      time = logarithmic ? first * (end / first) ** share : end * share;
      pointed = true;
      follow();
      move();
      view.remember();
    }

    slider.addEventListener("input", () => goTo(slider.value / slider.max));
    play(section.querySelector(".play"), slider, goTo);
    choice.value = logarithmic ? "logarithmic" : "linear";  // some browsers remember how a page was left
    choice.addEventListener("change", () => {
      logarithmic = choice.value.startsWith("logarithmic");
      end = choice.value.endsWith("all") ? last : group.time.end;
      follow();
      const plots = drawn.get(group.name).filter(({ plot }) => !plot.moving);
      flowsim.setRange(plots[0].figure.x_range, [logarithmic ? first : start, end]);
      for (const plot of plots) plot.rescale(0, logarithmic);
      move();
    });
    keep(`axis.${group.name}`, choice);
    view.keep(`time.${group.name}`, () => (pointed && time < end ? String(Number(time.toPrecision(8))) : ""), (text) => {
      if (text === "" && !pointed) return;
      const asked = Number(text);
      time = text !== "" && Number.isFinite(asked) ? asked : end;
      pointed = true;
      follow();
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
      keep(`curve.${box.dataset.key}`, box, "checked");
      box.addEventListener("change", () => {
        if (box.checked) hidden.delete(box.dataset.key); else hidden.add(box.dataset.key);
        for (const plot of drawn.get(group.name)) plot.show(box.dataset.key, box.checked);
        move();
      });
    }
    for (const plot of drawn.get(group.name)) {
      section.querySelector(`[data-tools-of="${CSS.escape(plot.plot.name)}"]`).append(...files.buttons(plot));
    }
    for (const choice of section.querySelectorAll("[data-scale-of]")) {
      const one = drawn.get(group.name).find(({ plot }) => plot.name === choice.dataset.scaleOf);
      choice.value = one.plot.logarithmic ? "logarithmic" : "linear";
      choice.addEventListener("change", () => {
        const logarithmic = choice.value === "logarithmic";
        flowsim.setRange(one.figure.y_range, logarithmic ? one.plot.log : one.plot.linear);
        one.rescale(1, logarithmic);
      });
      keep(`scale.${choice.dataset.scaleOf}`, choice);
    }
  }

  function colour(isDark) {
    for (const plots of drawn.values()) for (const plot of plots) plot.showIn(isDark);
    tint(isDark);
  }

  // Have the marks beside the names of the curves show light colours or dark ones.
  function tint(isDark) {
    const keys = new Map(groups.flatMap((group) => group.keys).map((key) => [key.name, key]));
    for (const mark of document.querySelectorAll("[data-colour]")) {
      const tint = keys.get(mark.dataset.colour)[isDark ? "dark" : "light"];
      for (const name of ["stroke", "fill"]) if (mark.hasAttribute(name)) mark.setAttribute(name, tint);
    }
  }

  groups.forEach(listen);
  for (const place of document.querySelectorAll(".keys")) {
    place.append(clipboard.button("Copy link", "Copy a link to what is shown", () => view.link()));
  }
  document.addEventListener("change", () => view.remember());
  window.addEventListener("hashchange", () => view.restore());
  view.restore();
  dark.addEventListener("change", () => colour(dark.matches));
  // On paper stand pictures of the plots, which fit its width.
  window.addEventListener("beforeprint", () => {
    colour(false);
    for (const plots of drawn.values()) {
      for (const plot of plots) document.getElementById(`plot-${plot.plot.name}`).append(plot.picture());
    }
  });
  window.addEventListener("afterprint", () => {
    colour(dark.matches);
    for (const picture of document.querySelectorAll(".canvas > svg")) picture.remove();
  });
  document.documentElement.dataset.ready = "yes";
})();
