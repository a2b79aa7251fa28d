"use strict";
// Plots from the numbers of a page, drawn with Bokeh: axes that change their scale, curves that can be hidden.
const flowsim = (() => {
  const HEIGHT = 320;
  const DIGITS = "return Number.isFinite(value) ? String(Number(value.toPrecision(6))) : '–'";
  // A finger that moves up or down over a plot moves the page.
  const TOUCH = "@media (pointer: coarse) { .bk-events, .bk-canvas-events { touch-action: pan-y !important; } }";
  const INK = "ink";
  // How wide a line is to a hand that looks for it: one that nobody sees lies under each.
  const REACH = 12;
  // How many plots are shown while others are not drawn yet: the first row, which is what a reader sees at first.
  const ABOVE = 2;
  // How strong the part of a path is that lies ahead.
  const FAINT = 0.3;
  // How high a line of text is, as a share of a plot.
  const LINE = 0.06;

  function decoded(value) {
    if (Array.isArray(value)) return value.map(decoded);
    if (value === null || typeof value !== "object") return value;
    if (typeof value.doubles === "string") {
      const bytes = Uint8Array.from(atob(value.doubles), (letter) => letter.charCodeAt(0));
      return new Float64Array(bytes.buffer);
    }
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, decoded(part)]));
  }

  const tints = (dark) => ({ ink: dark ? "#ececec" : "#1a1a1a", grid: dark ? "#4a4d52" : "#d5d5d5" });

  function scale(logarithmic) {
    return logarithmic ? new Bokeh.LogScale() : new Bokeh.LinearScale();
  }

  // What labels a logarithmic axis: of less than two decades the coarsest of these with three labels or more.
  const MANTISSAS = [[1], [1, 3], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]];

  function logTicker(low, high) {
    if (!(low > 0 && high > low) || high / low > 100) return new Bokeh.LogTicker();
    const decades = [0, 1, 2, 3].map((more) => 10 ** (Math.floor(Math.log10(low)) + more));
    for (const mantissas of MANTISSAS) {
      const ticks = decades.flatMap((decade) => mantissas.map((mantissa) => mantissa * decade));
      const seen = ticks.filter((tick) => low <= tick && tick <= high);
      if (seen.length >= 3) return new Bokeh.FixedTicker({ ticks: seen });
    }
    return new Bokeh.BasicTicker();  // on so short a piece it is nearly linear
  }

  // Heights in ascending order, moved as little as possible to stand `space` apart, in the sense of least squares.
  function apart(heights, space) {
    const blocks = [];
    heights.forEach((height, place) => {
      let block = { mean: height - space * place, count: 1 };
      while (blocks.length > 0 && blocks.at(-1).mean > block.mean) {
        const { mean, count } = blocks.pop();
        block = { mean: (mean * count + block.mean * block.count) / (count + block.count), count: count + block.count };
      }
      blocks.push(block);
    });
    return blocks.flatMap(({ mean, count }) => Array(count).fill(mean)).map((base, place) => base + space * place);
  }

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

  // A plot in a page: its figure, and what belongs to each key.
  class Drawn {
    constructor(plot, keys, xRange, xLog, dark) {
      this.plot = plot;
      this.keys = new Map(keys.map((key) => [key.name, key]));
      this.parts = new Map([...this.keys.keys(), INK].map((name) => [name, []]));
      this.axes = [];
      this.moving = [];
      this.hidden = new Set();
      const [start, end] = plot.logarithmic ? plot.log : plot.linear;
      this.figure = Bokeh.Plotting.figure({
        name: plot.name, height: HEIGHT, sizing_mode: "stretch_width", x_range: xRange,
        y_range: new Bokeh.Range1d({ start, end }), x_axis_type: null, y_axis_type: null,
        tools: "pan,box_zoom,wheel_zoom,reset,save", active_scroll: null, toolbar_location: "above",
        background_fill_alpha: 0, border_fill_alpha: 0, outline_line_color: null, min_border_right: 16,
        stylesheets: [TOUCH],
      });
      this.figure.toolbar.logo = null;
      this.figure.x_scale = scale(xLog);
      this.figure.y_scale = scale(plot.logarithmic);
      this.addAxes(0, "below", plot.across, xLog);
      this.addAxes(1, "left", plot.up, plot.logarithmic);
      this.hover = this.hoverTool();
      this.figure.add_tools(this.hover);
      for (const curve of plot.curves) this.addCurve(curve);
      this.levels = plot.levels.filter(({ value }) => value !== null);  // a bound may be infinite
      for (const level of this.levels) if (level.line) this.addLevel(level);  // others name a curve that is no level
      this.addNames();
      this.name();
      this.addNow(keys);
      this.showIn(dark);
    }

    addAxes(dimension, side, axis_label, logarithmic) {
      const axis = new Bokeh.LinearAxis({ axis_label, axis_label_text_font_style: "normal" });
      const grid = new Bokeh.Grid({ axis, dimension, grid_line_alpha: 0.5 });
      this.figure.add_layout(axis, side);
      this.figure.add_layout(grid);
      const range = dimension === 0 ? this.figure.x_range : this.figure.y_range;
      const one = { dimension, axis, grid, range, logarithmic };
      this.axes.push(one);
      if (dimension === 0 && this.plot.ticks) {
        const { at, names } = this.plot.ticks;
        axis.setv({ ticker: new Bokeh.FixedTicker({ ticks: at }), major_label_overrides: new Map(names.map(
          (name, place) => [at[place], name])) });
        return;
      }
      for (const end of ["start", "end"]) range.properties[end].change.connect(() => {
        if (one.logarithmic) axis.ticker = logTicker(range.start, range.end);
      });
      this.label(one);
    }

    // Have an axis, unless it has names of its own, show the ticks of its scale.
    label({ dimension, axis, range, logarithmic }) {
      if (dimension === 0 && this.plot.ticks) return;
      axis.setv(logarithmic
        ? { ticker: logTicker(range.start, range.end), formatter: new Bokeh.LogTickFormatter() }
        : { ticker: new Bokeh.BasicTicker(), formatter: new Bokeh.BasicTickFormatter() });
    }

    // Draw a glyph at the columns of a source. It looks the same whether selected or not: nothing on the page is.
    add(kind, data_source, options, view = new Bokeh.CDSView()) {
      const up = kind === "VArea" ? { y1: { field: "low" }, y2: { field: "high" } } : { y: { field: "y" } };
      const glyph = new Bokeh[kind]({ x: { field: "x" }, ...up, ...options });
      const drawn = new Bokeh.GlyphRenderer({ data_source, view, glyph, selection_glyph: glyph,
        nonselection_glyph: glyph, muted_glyph: glyph });
      this.figure.add_renderers(drawn);
      return drawn;
    }

    hoverTool() {
      const isText = (column) => this.plot.curves.some(({ columns }) => Array.isArray(columns[column]));
      const numbers = this.plot.told.map(([, column]) => column).filter((column) => !isText(column));
      const formatters = new Map(numbers.map((column) => [`@${column}`, new Bokeh.CustomJSHover({ code: DIGITS })]));
      const shown = this.plot.told.map(([title, column]) =>
        [title, isText(column) ? `@${column}` : `@${column}{custom}`]);
      return new Bokeh.HoverTool({
        tooltips: [["", "@label"], ...shown], formatters, line_policy: "nearest", renderers: [],
      });
    }

    addCurve(curve) {
      const { key, columns, line, marks, size, alpha, dash, told, times, frames } = curve;
      const known = this.keys.get(key);
      const label = Array.from(columns.x, () => known?.label ?? "");
      const source = new Bokeh.ColumnDataSource({ data: { ...columns, label } });
      if (frames) this.setShares(source, columns.y);
      const parts = this.parts.get(key);
      if (columns.low !== undefined) {
        parts.push(this.add("VArea", source, { fill_alpha: 0.16 }));
      }
      if (line) {
        const kind = frames ? "Step" : "Line";
        const look = { line_width: known?.width ?? 1.4, line_dash: dash ?? known?.dash ?? [],
          ...(frames ? { mode: "center" } : {}) };
        const moves = this.plot.moving && times;
        const past = moves && !frames ? new Bokeh.ColumnDataSource({ data: { x: columns.x, y: columns.y } }) : source;
        if (past !== source) parts.push(this.add(kind, source, { ...look, line_alpha: FAINT }));
        parts.push(this.add(kind, past, { ...look, line_alpha: alpha }));
        if (told) this.tell(this.add("Line", source, { line_alpha: 0, line_width: REACH }), parts);
        if (moves) this.moving.push({ curve, source, past, stays: known.stays });
      }
      if (marks.length > 0) {
        const view = new Bokeh.CDSView({ filter: new Bokeh.IndexFilter({ indices: marks }) });
        const drawn = this.add("Scatter", source, { size, fill_alpha: alpha, line_alpha: alpha,
          marker: known?.marker || "circle" }, view);
        if (told && !line) this.tell(drawn, parts); else parts.push(drawn);
      }
    }

    // Have a touch of what is drawn say the values there.
    tell(drawn, parts) {
      parts.push(drawn);
      this.hover.renderers = [...this.hover.renderers, drawn];
    }

    addLevel({ value, key, dotted }) {
      const level = new Bokeh.Span({ location: value, dimension: "width", line_width: 1.4,
        line_dash: dotted ? [2, 3] : [7, 4] });
      this.figure.add_layout(level);
      this.parts.get(key ?? INK).push(level);
    }

    // The names of the levels in the margin on the right, where no curve ends: labels of an axis without a line.
    addNames() {
      if (this.levels.every(({ words }) => words === "")) return;
      this.names = new Bokeh.LinearAxis({ axis_line_color: null, major_tick_line_color: null, major_tick_in: 0,
        major_tick_out: 0, major_label_standoff: 4, minor_tick_line_color: null });
      this.figure.add_layout(this.names, "right");
      for (const end of ["start", "end"]) this.figure.y_range.properties[end].change.connect(() => this.name());
    }

    // Have the names stand beside the levels that are in view, a line of text apart at least.
    name() {
      if (this.names === undefined) return;
      const { y_range, y_scale } = this.figure;
      const [measure, value] = y_scale.type === "LogScale" ? [Math.log, Math.exp] : [Number, Number];
      const [low, high] = [measure(y_range.start), measure(y_range.end)];
      const height = (level) => (measure(level.value) - low) / (high - low);
      const known = new Map(this.levels.map((level) => [level.words, level]));  // one name for what is one line
      const seen = [...known.values()].filter((level) => level.words && !this.hidden.has(level.key)
        && height(level) >= 0 && height(level) <= 1).sort((one, other) => one.value - other.value);
      const ticks = apart(seen.map(height), Math.min(LINE, 1 / seen.length)).map((at) => value(low + at * (high - low)));
      this.names.setv({ ticker: new Bokeh.FixedTicker({ ticks, minor_ticks: [] }),
        major_label_overrides: new Map(ticks.map((tick, place) => [tick, seen[place].words])) });
    }

    // The line at the time that the slider points at, and a mark on each curve there.
    addNow(keys) {
      this.now = new Bokeh.Span({ dimension: "height", line_width: 1, visible: false });
      this.figure.add_layout(this.now);
      const none = keys.map(() => NaN);
      this.points = new Bokeh.ColumnDataSource({ data: { x: none, y: none, colour: keys.map((key) => key.light) } });
      this.marks = this.add("Scatter", this.points, { size: 9, fill_color: { field: "colour" } });
      this.marks.visible = false;
    }

    colour(dark) {
      const { ink, grid } = tints(dark);
      const tint = (name) => (name === INK ? ink : this.keys.get(name)[dark ? "dark" : "light"]);
      for (const { axis, grid: lines } of this.axes) {
        axis.setv({ axis_label_text_color: ink, major_label_text_color: ink, axis_line_color: ink,
          major_tick_line_color: ink, minor_tick_line_color: ink });
        lines.grid_line_color = grid;
      }
      this.names?.setv({ major_label_text_color: ink });
      for (const [name, parts] of this.parts) {
        for (const part of parts) {
          for (const property of ["line_color", "fill_color"]) {
            const painted = part.glyph ?? part;
            if (property in painted.properties) painted.setv({ [property]: tint(name) });
          }
        }
      }
      this.now.line_color = ink;
      this.marks.glyph.line_color = ink;
      this.points.data = { ...this.points.data, colour: [...this.keys.keys()].map(tint) };
    }

    // The picture as it is on paper, dark on white, an element of SVG of its own.
    picture() {
      this.colour(false);
      for (const drawn of this.figure.renderers) {  // which take on colours a little later, and printers do not wait
        const { glyph, all_indices } = Bokeh.index.find_one(drawn);
        glyph.set_visuals(drawn.data_source, all_indices);
      }
      const { ctx } = Bokeh.index.find_one(this.figure).export("svg");
      this.colour(this.dark);
      const parsed = new DOMParser().parseFromString(ctx.get_serialized_svg(true), "image/svg+xml");
      const made = document.adoptNode(parsed.documentElement);
      made.setAttribute("viewBox", `0 0 ${made.getAttribute("width")} ${made.getAttribute("height")}`);
      return made;
    }

    // Have the screen show light colours or dark ones.
    showIn(dark) {
      this.dark = dark;
      this.colour(dark);
    }

    // Have a curve of shares show others: a logarithmic axis has no zero, so empty bins stand at its bottom.
    setShares(source, share) {
      const bottom = this.axes.find(({ dimension }) => dimension === 1).logarithmic ? this.plot.log[0] : -Infinity;
      source.data = { ...source.data, share, y: share.map((value) => Math.max(value, bottom)) };
    }

    rescale(dimension, logarithmic) {
      this.figure.setv({ [dimension === 0 ? "x_scale" : "y_scale"]: scale(logarithmic) });
      for (const one of this.axes.filter((axis) => axis.dimension === dimension)) {
        one.logarithmic = logarithmic;
        this.label(one);
      }
      for (const { curve, source } of this.moving) if (curve.frames) this.setShares(source, curve.columns.y);
      this.name();
    }

    show(name, visible) {
      for (const part of this.parts.get(name)) part.visible = visible;
      if (visible) this.hidden.delete(name); else this.hidden.add(name);
      this.name();
    }

    // Point at `time`: there each key has its last record, at `times`, with these values, NaN for none.
    point(time, times, values) {
      this.now.setv({ location: time, visible: true });
      this.marks.visible = true;
      this.points.data = { ...this.points.data, x: times, y: values };
    }

    // Have what moves show `time`: curves their values there, paths how far they have come, with a mark at their head.
    goTo(time) {
      const heads = new Map();
      for (const { curve, source, past, stays } of this.moving) {
        const { key, columns, times, frames } = curve;
        const record = recordAt(times, time, stays);
        if (frames) {
          const count = columns.x.length;
          columns.y = record < 0 ? columns.x.map(() => NaN) : frames.slice(record * count, (record + 1) * count);
          columns.t = columns.x.map(() => (record < 0 ? NaN : times[record]));
          this.setShares(source, columns.y);
        } else {
          const gone = record < 0 && time >= times[0] ? times.length : record + 1;
          past.data = { x: columns.x.slice(0, gone), y: columns.y.slice(0, gone) };
          if (record >= 0 && !this.hidden.has(key)) heads.set(key, record);
        }
      }
      const head = (name) => [...this.keys.keys()].map((key) => {
        const moved = heads.has(key) && this.moving.find(({ curve }) => curve.key === key);
        return moved ? moved.curve.columns[name][heads.get(key)] : NaN;
      });
      this.marks.visible = heads.size > 0;
      this.points.data = { ...this.points.data, x: head("x"), y: head("y") };
    }
  }

  function setRange(range, [start, end]) {
    range.setv({ start, end, reset_start: start, reset_end: end });
  }

  // Let the browser show what is drawn so far: a page that nobody looks at has no frames, and goes on without.
  const later = (wait) => new Promise((next) => { setTimeout(next, wait); });
  const shown = () => Promise.race([later(100), new Promise((next) => { requestAnimationFrame(next); }).then(later)]);

  // Draw the plots of all groups into their places, and return those of each group. The browser shows the
  // first ones while others are not drawn yet.
  async function draw(groups, dark) {
    const drawing = new Bokeh.Document();
    const places = groups.flatMap(({ plots }) => plots.map(({ name }) => document.getElementById(`plot-${name}`)));
    await Bokeh.embed.add_document_standalone(drawing, document.body, places);  // and what is added to it from now on
    const made = new Map(groups.map(({ name }) => [name, []]));
    for (const { name, keys, plots, time } of groups) {
      const shared = time && new Bokeh.Range1d({ start: time.logarithmic ? time.first : time.start, end: time.end });
      for (const plot of plots) {
        const own = !time || plot.moving;
        const range = own ? new Bokeh.Range1d({ start: plot.x[0], end: plot.x[1] }) : shared;
        const drawn = new Drawn(plot, keys, range, own ? plot.x_log : time.logarithmic, dark);
        made.get(name).push(drawn);
        drawing.add_root(drawn.figure);
        const isAbove = drawing.roots().length <= ABOVE;
        do await (isAbove ? shown() : later(0)); while (!Bokeh.index.find_one(drawn.figure));
      }
    }
    return made;
  }

  return { decoded, draw, recordAt, setRange };
})();
