"use strict";
// A slider through the learning rates: the plots show the runs of one of them, and what belongs to none.
(async () => {
  const content = flowsim.decoded(JSON.parse(document.getElementById("content").textContent));
  const { rates } = content;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const plots = (await flowsim.draw([content], dark.matches)).get(content.name);
  const [slider, now, said] = ["rate", "now", "said"].map((name) => document.getElementById(name));
  const owned = new Set(rates.flatMap(({ keys }) => keys));
  const ends = plots.find(({ plot }) => plot.name === "ends");
  const view = new View();

  function show(place) {
    const { rate, keys, ends: sharpness, said: words } = rates[place];
    for (const plot of plots) {
      for (const name of owned) if (plot.hidden.has(name) === keys.includes(name)) plot.show(name, keys.includes(name));
    }
    const values = content.keys.map(({ name }) => sharpness[name] ?? NaN);
    ends.point(rate, values.map(() => rate), values);
    slider.value = place;
    now.textContent = `η = ${Number(rate.toPrecision(5))}`;
    slider.setAttribute("aria-valuetext", now.textContent);
    said.textContent = words;
  }

  const first = 0;
  slider.addEventListener("input", () => {
    show(Number(slider.value));
    view.remember();
  });
  view.keep("rate", () => (Number(slider.value) === first ? "" : slider.value), (text) => {
    show(Math.min(Math.max(Math.round(Number(text)) || first, 0), rates.length - 1));
  });
  window.addEventListener("hashchange", () => view.restore());
  dark.addEventListener("change", () => plots.forEach((plot) => plot.showIn(dark.matches)));
  // On paper stand pictures of the plots, which fit its width.
  window.addEventListener("beforeprint", () => {
    for (const plot of plots) document.getElementById(`plot-${plot.plot.name}`).append(plot.picture());
  });
  window.addEventListener("afterprint", () => {
    for (const picture of document.querySelectorAll(".canvas > svg")) picture.remove();
  });
  show(first);
  view.restore();
  document.documentElement.dataset.ready = "yes";
})();
