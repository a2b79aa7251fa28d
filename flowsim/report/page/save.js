"use strict";
// A plot as a file: its numbers as CSV, its picture as SVG with the names of its curves below.
const files = (() => {
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const [ROW, MARGIN, SWATCH] = [18, 12, 44];

  // A spreadsheet takes text that begins with one of these signs for a formula, and runs it: OWASP puts ' before it.
  function quoted(value) {
    const words = typeof value === "number" ? (Number.isNaN(value) ? "" : String(value)) : String(value ?? "");
    const text = typeof value !== "number" && /^\s*[=+\-@\t\r]/.test(words) ? `'${words}` : words;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  // The points of the curves that are seen, as they are drawn, and the levels: a row for each.
  function csv({ plot, keys, hidden }) {
    const extra = ["t", "low", "high", "place", "side"].filter((name) => plot.curves.some(({ columns }) => columns[name]));
    const rows = [["curve", plot.across, plot.up, ...extra]];
    for (const { key, columns } of plot.curves.filter((curve) => !hidden.has(curve.key))) {
      const label = keys.get(key)?.label ?? "";
      Array.from(columns.x, (x, at) => rows.push([label, x, columns.y[at], ...extra.map((name) => columns[name]?.[at])]));
    }
    for (const { value, key, words, line } of plot.levels) {
      if (line && value !== null && !hidden.has(key)) rows.push([words || "level", "", value, ...extra.map(() => "")]);
    }
    return rows.map((row) => row.map(quoted).join(",") + "\r\n").join("");
  }

  function drawn(name, properties) {
    const made = document.createElementNS(NAMESPACE, name);
    for (const [property, value] of Object.entries(properties)) made.setAttribute(property, value);
    return made;
  }

  // The names of the curves in rows below the picture, beside the marks that they have on the page.
  function svg(one) {
    const picture = one.picture();
    const [width, height] = ["width", "height"].map((side) => Number(picture.getAttribute(side)));
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = "12px sans-serif";
    let [left, top] = [MARGIN, height + ROW];
    for (const [name, key] of one.keys) {
      if (one.hidden.has(name)) continue;
      const room = SWATCH + pen.measureText(key.label).width + MARGIN;
      if (left > MARGIN && left + room > width) [left, top] = [MARGIN, top + ROW];
      const place = drawn("g", { transform: `translate(${left},${top - 11})` });
      for (const mark of document.querySelector(`[data-swatch="${CSS.escape(name)}"]`).children) {
        const copied = mark.cloneNode();
        for (const tint of ["stroke", "fill"]) if (copied.hasAttribute(tint)) copied.setAttribute(tint, key.light);
        place.append(copied);
      }
      const words = drawn("text", { x: SWATCH, y: 11, "font-family": "sans-serif", "font-size": 12, fill: "#1a1a1a" });
      words.textContent = key.label;
      place.append(words);
      picture.append(place);
      left += room;
    }
    const whole = top + MARGIN;
    picture.setAttribute("height", whole);
    picture.setAttribute("viewBox", `0 0 ${width} ${whole}`);
    return new XMLSerializer().serializeToString(picture);
  }

  function save(text, name, type) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  const KINDS = { CSV: [csv, "text/csv"], SVG: [svg, "image/svg+xml"] };

  // Return buttons that save a plot.
  function buttons(one) {
    return Object.entries(KINDS).map(([words, [make, type]]) => {
      const made = Object.assign(document.createElement("button"), { type: "button", textContent: words });
      made.setAttribute("aria-label", `Save ${one.plot.heading} as ${words}`);
      const name = `${document.querySelector("h1").textContent}-${one.plot.name}.${words.toLowerCase()}`;
      made.addEventListener("click", () => save(make(one), name, type));
      return made;
    });
  }

  return { buttons };
})();
