"""The page in a real browser: it opens from a disk, says values, and its slider and switches move all plots.

It takes a Chromium, found on the path or named by CHROMIUM; without one these tests are passed over.
"""

import csv
import os
import re
import shutil
from dataclasses import replace
from xml.etree import ElementTree

import jax.numpy as jnp
import numpy as np
import pytest
from made_runs import made_comparison, made_sweep, with_runs, write_without_figures
from matplotlib.figure import Figure

import flowsim
from flowsim.report.page import Entry, index_page
from flowsim.results import ResultFolder

sync_api = pytest.importorskip("playwright.sync_api")
BROWSER = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium is here")]
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
FIGURES = "Bokeh.documents[0].roots()"
DRAWN = f"{FIGURES}.every((figure) => Bokeh.index.find_one(figure)?.has_finished())"
# Where the slider points: of the plots in the order of the page.
NOW = f"{FIGURES}.map((f) => f.center.find((p) => p.type === 'Span' && p.dimension === 'height'))"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The pages of a flow beside descents, beside one that goes on, both side by side, a sweep, and a slider."""
    place = tmp_path_factory.mktemp("pages")
    pages = {"runs": made_comparison([0.1, 0.4]), "long": replace(made_comparison([3.0]), bounds=None)}
    pages["moving"] = with_runs(made_comparison([0.1], paths=True), with_a_spectrum)
    for name, runs in pages.items():
        write_without_figures(runs.to_dataset(), place / name)
    ResultFolder(place / "both").write("report.html", flowsim.side_by_side(place / "runs", place / "long").page())
    write_without_figures(made_sweep(), place / "sweep", "sweep.nc")
    flowsim.slider(made_comparison(paths=True), place / "slider" / "report.html")
    return place


def with_a_spectrum(run):
    nodes = run.sharpness[:, None] * jnp.array([[0.0, 0.1, 0.3, 1.0]])
    labels = run.labels | {"spectrum": flowsim.probes.SpectralDensity().label}
    return replace(run, diagnostics=run.diagnostics | {"spectrum": {"nodes": nodes}}, labels=labels)


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser, folder):
    """Return a function that opens a page, and hold that nothing is asked of a network and nothing complains."""
    asked, complaints, contexts = [], [], []

    def open_page(name, viewport=DESK, **options):
        contexts.append(browser.new_context(viewport=viewport, offline=True, **options))
        page = contexts[-1].new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.goto((folder / name / "report.html").as_uri())
        page.wait_for_selector("html[data-ready=yes]")
        page.wait_for_function(DRAWN)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert complaints == []


def slide(page, share):
    slider = page.locator("input[type=range]")
    slider.fill(str(round(1000 * share)))
    return page.locator("output").inner_text()


@pytest.mark.parametrize(
    ("name", "viewport", "scheme"),
    [("runs", PHONE, "dark"), ("sweep", DESK, "light"), ("both", PHONE, "light")],
)
def test_a_page_opens_without_a_network_and_without_a_complaint(opened, name, viewport, scheme):
    page = opened(name, viewport, color_scheme=scheme)
    plots = page.locator(".canvas")
    assert plots.count() >= 2
    for plot in plots.all():
        assert plot.locator("canvas").count() >= 1
        assert plot.bounding_box()["height"] >= 300
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    ink = page.evaluate(
        f"{FIGURES}[0].below[0].axis_label_text_color.value ?? {FIGURES}[0].below[0].axis_label_text_color"
    )
    assert ink == ("#ececec" if scheme == "dark" else "#1a1a1a")


def test_a_touch_of_a_curve_shows_its_values(opened):
    page = opened("runs")
    plot = page.locator(".canvas").first
    plot.scroll_into_view_if_needed()
    place = page.evaluate(
        """() => {
          const figure = Bokeh.documents[0].roots()[0];
          const { frame } = Bokeh.index.find_one(figure);
          const lines = figure.renderers.filter((one) => one.glyph.type === "Line" && one.data_source.data.label[0]);
          const { x, y, label } = lines.at(-1).data_source.data;
          const { x_range, y_range } = figure;
          const inside = (at) => y[at] > y_range.start && y[at] < y_range.end && x[at] < x_range.end;
          const places = Array.from(x.keys()).filter(inside);
          const at = places[Math.floor(places.length / 2)];
          return { left: frame.x_scale.compute(x[at]), top: frame.y_scale.compute(y[at]), label: label[at],
                   value: String(Number(y[at].toPrecision(6))) };
        }"""
    )
    box = plot.locator(".bk-Canvas").bounding_box()
    page.mouse.move(box["x"] + place["left"] + 2, box["y"] + place["top"] + 2)
    page.mouse.move(box["x"] + place["left"], box["y"] + place["top"])
    page.wait_for_selector(".bk-Tooltip", state="attached")
    tips = page.evaluate("[...document.querySelectorAll('.bk-Tooltip')].map((tip) => tip.shadowRoot.textContent)")
    assert any(place["label"] in tip and place["value"] in tip for tip in tips), tips
    assert page.evaluate(f"{FIGURES}.every((f) => f.renderers.every((one) => one.hover_glyph === null))")


def test_paths_and_the_spectrum_go_through_time_with_the_slider(opened, folder):
    page = opened("moving")
    descent = flowsim.open_results(folder / "moving").trajectories.isel(run=1)
    figure = "Bokeh.documents[0].get_model_by_name"
    gone = f"{figure}('plane').renderers.filter((one) => one.glyph.type === 'Line' && !one.data_source.data.label)"
    ahead = f"{gone}.map((one) => one.data_source.data.x.length)"
    steps = f"{figure}('spectrum').renderers.filter((one) => one.glyph.type === 'Step')"
    shares = f"{steps}.map((one) => Array.from(one.data_source.data.y))"
    lengths, last = page.evaluate(ahead), page.evaluate(shares)
    slide(page, 0.02)  # these runs are at their limit soon
    time = float(page.locator("output").inner_text().removeprefix("t = "))
    passed = int((descent["time"] <= time * (1 + 1e-4)).sum())
    assert page.evaluate(ahead)[1] == passed < lengths[1]
    for then, now in zip(last, page.evaluate(shares), strict=True):
        assert now != then
        of_one = 0.9 / descent.sizes["spectrum_nodes_0"]  # empty bins stand at half the share of one eigenvalue
        assert sum(share for share in now if share > of_one) == pytest.approx(1)
    slide(page, 1.0)
    assert page.evaluate(ahead) == lengths
    assert page.evaluate(shares)[0] == last[0]  # the flow stays at its limit


def test_the_bounds_of_one_folder_have_its_colour_and_go_with_its_flow(opened):
    page = opened("both")
    dotted = "one.type === 'Span' && String(one.line_dash) === '2,3'"
    bounds = f"Bokeh.documents[0].get_model_by_name('sharpness').center.filter((one) => {dotted})"
    flow = page.locator("label", has_text="runs: GF")
    colour = flow.locator("line").get_attribute("stroke")
    assert page.evaluate(f"{bounds}.map((one) => one.line_color.value ?? one.line_color)") == [colour, colour]
    flow.locator("input").uncheck()
    assert page.evaluate(f"{bounds}.map((one) => one.visible)") == [False, False]


def test_the_slider_moves_all_plots_marks_their_curves_and_tells_the_values_there(opened, folder):
    page = opened("runs")
    count = page.locator(".canvas").count()
    assert not any(page.evaluate(f"{NOW}.map((now) => now.visible)"))
    time = slide(page, 0.5)
    places = page.evaluate(f"{NOW}.map((now) => now.location)")
    assert len(places) == count
    assert len(set(places)) == 1
    assert float(time.removeprefix("t = ")) == pytest.approx(places[0], rel=1e-4)
    assert all(page.evaluate(f"{NOW}.map((now) => now.visible)"))
    slide(page, 0.27)
    later = page.evaluate(f"{NOW}.map((now) => now.location)")
    assert later[0] < places[0]
    names, values = (page.locator(f".readout tbody {one}").all_inner_texts() for one in ("th", "td:nth-of-type(1)"))
    readout = dict(zip(names, values, strict=True))
    flow = flowsim.open_results(folder / "runs").trajectories.isel(run=0)
    record = int(np.searchsorted(flow["time"].values[: int(flow["records"])], later[0] * (1 + 1e-9), side="right")) - 1
    for name in ("risk", "sharpness"):
        assert float(readout[name.capitalize()]) == pytest.approx(float(flow[name][record]), rel=1e-4)
    on_a_curve = page.evaluate(
        f"""{FIGURES}.flatMap((f) => {{
          const marks = f.renderers.at(-1).data_source.data;
          const curves = f.renderers.filter((one) => one.glyph.type === "Line").map((one) => one.data_source.data);
          const has = ({{ x, y }}, place) => x.some((at, k) => at === marks.x[place] && y[k] === marks.y[place]);
          return Array.from(marks.x.keys()).filter((k) => Number.isFinite(marks.y[k]))
            .map((place) => curves.some((curve) => has(curve, place)));
        }})"""
    )
    assert len(on_a_curve) > 6
    assert all(on_a_curve)
    page.evaluate(f"{FIGURES}[0].x_range.setv({{start: 0.1, end: 0.2}})")
    assert page.evaluate(f"{FIGURES}.map((f) => f.x_range.end)") == [0.2] * count


def test_a_curve_is_switched_off_in_all_plots_and_on_again(opened):
    page = opened("sweep")
    hidden = f"{FIGURES}.map((f) => f.renderers.filter((one) => one.visible).length)"
    before = page.evaluate(hidden)
    box = page.locator("[data-key]").nth(1)
    box.uncheck()
    after = page.evaluate(hidden)
    assert sum(less < more for less, more in zip(after, before, strict=True)) >= len(before) - 1
    box.check()
    assert page.evaluate(hidden) == before


def test_scales_are_switched_between_linear_and_logarithmic(opened):
    page = opened("runs")
    kinds = f"{FIGURES}.map((f) => [f.x_scale.type, f.y_scale.type, f.y_range.start])"
    before = page.evaluate(kinds)
    scale, time = page.locator("[data-scale-of]").nth(1), page.locator("[data-time-scale]")
    assert scale.input_value() == "logarithmic"
    scale.select_option("linear")
    after = page.evaluate(kinds)
    assert before[1][1] != after[1][1]
    assert (before[0], before[2:]) == (after[0], after[2:])
    now = slide(page, 0.3)
    assert time.input_value() == "linear"
    time.select_option("logarithmic")
    assert page.locator("output").inner_text() == now
    assert all(new[0] != old[0] for new, old in zip(page.evaluate(kinds), before, strict=True))
    assert float(slide(page, 0.0).removeprefix("t = ")) > 0
    page.wait_for_function(DRAWN)


def test_all_of_time_can_be_seen_where_runs_go_on_beyond_the_flow(opened, folder):
    page, runs = opened("long"), flowsim.open_results(folder / "long").trajectories
    end = float(runs["end_time"].max())
    ends = f"{FIGURES}.map((f) => f.x_range.end)"
    assert max(page.evaluate(ends)) < end / 2
    page.locator("[data-time-scale]").select_option("linear, all")
    assert page.evaluate(ends) == pytest.approx([end] * page.locator(".canvas").count())
    assert float(slide(page, 1.0).removeprefix("t = ")) == pytest.approx(end, rel=1e-4)


def test_every_level_has_a_name_in_the_margin_apart_from_the_others(opened):
    page = opened("runs")
    axis = f"{FIGURES}[0].right[0]"
    names = f"[...{axis}.major_label_overrides].map(([at, name]) => [name, at])"
    levels = dict(page.evaluate(names))
    low, high = page.evaluate(f"[{FIGURES}[0].y_range.start, {FIGURES}[0].y_range.end]")
    assert page.locator("#runs h3").first.inner_text() == "Sharpness"
    assert {"S_min ≥ 4", "2/η = 5"} <= set(levels)
    assert (np.diff(sorted(levels.values())) >= 0.0599 * (high - low)).all()
    page.locator("[data-key]").last.uncheck()
    assert set(dict(page.evaluate(names))) == set(levels) - {"2/η = 5"}
    page.evaluate(f"{FIGURES}[0].y_range.setv({{start: 1e3, end: 2e3}})")
    assert page.evaluate(names) == []


def test_a_logarithmic_axis_has_labels_however_short_it_is(opened):
    page = opened("runs")
    for low, high in ((0.094, 1.1), (1e-7, 1.0), (2.0, 9.0), (0.41, 0.44)):
        page.evaluate(f"{FIGURES}[1].y_range.setv({{start: {low}, end: {high}}})")
        page.wait_for_function(DRAWN)
        ticks = page.evaluate(
            """() => {
              const figure = Bokeh.documents[0].roots()[1];
              const { ticker } = figure.left.find((one) => one.visible);
              const { start, end } = figure.y_range;
              return Array.from(ticker.get_ticks(start, end, figure.y_range, NaN).major);
            }"""
        )
        assert len([tick for tick in ticks if low <= tick <= high]) >= 3, ticks


def test_no_column_of_a_table_is_cut_on_paper_and_no_number_broken(opened):
    page = opened("both", {"width": 718, "height": 1000})  # A4 between its margins
    page.emulate_media(media="print")
    cut = "[...document.querySelectorAll('.tables figure')].filter((one) => one.scrollWidth > one.clientWidth).length"
    assert page.evaluate(cut) == 0
    page.set_viewport_size({"width": 400, "height": 1000})  # where all else is broken
    lines = """(cell) => { const words = document.createRange(); words.selectNodeContents(cell);
        return new Set(Array.from(words.getClientRects(), (line) => Math.round(line.top))).size }"""
    numbers = page.locator(".tables td").filter(has_text=re.compile(r"^[\d.]+(e-\d+)?$")).all()
    assert {number.evaluate(lines) for number in numbers} == {1}


def test_the_index_shows_the_pictures_beside_it(browser, folder):
    ResultFolder(folder / "runs").write_figure("risk", Figure(figsize=(1, 1)))
    (folder / "index.html").write_text(index_page([Entry("runs", True, (), "risk")]))
    page = browser.new_page()
    page.goto((folder / "index.html").as_uri())
    page.wait_for_function("document.images.length === 1 && document.images[0].naturalWidth > 0")
    page.close()


def test_a_page_on_paper_is_dark_on_white_two_sheets_with_pictures_of_its_plots(opened):
    page = opened("runs", color_scheme="dark")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    ink = "[...document.querySelectorAll('.canvas > svg')].map((one) => one.outerHTML.includes('#1a1a1a'))"
    assert page.evaluate(ink) == [True] * page.locator(".canvas").count()
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator(".through input").is_visible()
    assert page.locator(".through output").is_visible()  # without the time a spectrum says nothing
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.locator(".canvas > svg").count() == 0
    assert len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4"))) == 2


def test_time_is_played_and_paused(opened):
    page = opened("runs")
    play = page.locator(".play")
    play.focus()
    page.keyboard.press("Enter")
    assert play.get_attribute("aria-label") == "Pause"
    page.wait_for_function("document.querySelector('input[type=range]').value > 50")
    page.keyboard.press("Enter")
    slider = page.locator("input[type=range]")
    place = slider.input_value()
    assert 0 < int(place) < 1000
    page.wait_for_timeout(200)
    assert slider.input_value() == place
    assert play.get_attribute("aria-label") == "Play through time"


def test_where_motion_is_reduced_time_goes_step_by_step(opened):
    page = opened("runs", reduced_motion="reduce")
    slider = page.locator("input[type=range]")
    for place in ("100", "200"):
        page.locator(".play").click()
        assert slider.input_value() == place
    page.wait_for_timeout(200)
    assert slider.input_value() == "200"


def test_a_table_is_copied_with_tabs_also_where_the_clipboard_is_not_given_away(opened):
    page = opened("runs", permissions=["clipboard-read", "clipboard-write"])
    page.locator(".tables button").first.click()
    page.get_by_text("Copied").wait_for()
    rows = [row.split("\t") for row in page.evaluate("navigator.clipboard.readText()").splitlines()]
    assert {len(row) for row in rows} == {len(rows[0])}
    assert [row[0] for row in rows] == ["", "GF", "GD", "GD"]
    assert rows[2][1] == "0.1"
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error()); }")
    page.locator(".readout button").click()
    page.locator(".readout").get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("\tGF\tη = 0.1\tη = 0.4\nt of the record\t")


def saved(page, kind):
    with page.expect_download() as waited:
        page.locator("[data-tools-of=sharpness]").get_by_text(kind).click()
    assert waited.value.suggested_filename == f"runs-sharpness.{kind.lower()}"
    return waited.value.path()


def test_a_plot_is_saved_as_numbers_and_as_a_picture_for_paper_without_what_is_switched_off(opened):
    page = opened("runs", color_scheme="dark")
    page.locator("[data-key]").nth(1).uncheck()
    with open(saved(page, "CSV"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    flow = made_comparison().flow
    drawn = [row for row in rows if row["curve"] == "GF"]
    for column, values in (("sharpness S", flow.sharpness), ("time t = ηk", flow.times)):
        assert [float(row[column]) for row in drawn] == values.tolist()
    picture = ElementTree.parse(saved(page, "SVG")).getroot()
    words = {text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert "sharpness S" in words
    for names in ({row["curve"] for row in rows}, words):
        assert names >= {"GF", "η = 0.4", "2/η = 5"}
        assert not {"η = 0.1", "2/η = 20"} & names
    lines = {path.get("stroke") for path in picture.iter("{http://www.w3.org/2000/svg}path")}
    assert "#000000" in lines
    assert "#f2f2f2" not in lines


def test_a_link_keeps_the_view(opened):
    page = opened("runs")
    page.locator("[data-key]").nth(1).uncheck()
    page.locator("[data-scale-of=risk]").select_option("linear")
    page.locator("[data-time-scale]").select_option("logarithmic")
    now = slide(page, 0.4)
    page.wait_for_function("location.hash.startsWith('#view=')")
    page.wait_for_timeout(400)
    length = page.evaluate("history.length")
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator("output").inner_text() == now
    assert [box.is_checked() for box in page.locator("[data-key]").all()] == [True, False, True]
    assert page.locator("[data-scale-of=risk]").input_value() == "linear"
    assert page.evaluate(f"{FIGURES}.find((f) => f.name === 'risk').y_scale.type") == "LinearScale"
    assert page.locator("[data-time-scale]").input_value() == "logarithmic"
    assert page.evaluate("history.length") == length
    page.locator("nav a").first.click()
    page.go_back()
    assert page.locator("output").inner_text() == now
    page.evaluate("location.hash = '#view=curve.run-2:false'")
    page.wait_for_function("document.querySelectorAll('[data-key]')[1].checked")
    assert not page.locator("[data-key]").nth(2).is_checked()
    assert page.locator("[data-time-scale]").input_value() == "linear"


def test_a_wrong_view_is_passed_over(opened):
    page = opened("runs")
    before = page.locator("output").inner_text()
    for wrong in ("%", "time.runs:soon;axis.runs:round;curve.run-1:maybe", "curve.run-9:false;:;;a:b"):
        page.evaluate("(wrong) => { location.hash = '#view=' + wrong; }", wrong)
        page.wait_for_timeout(50)
        assert page.locator("output").inner_text() == before
        assert all(box.is_checked() for box in page.locator("[data-key]").all())


def test_the_slider_shows_the_runs_of_one_learning_rate(opened):
    page = opened("slider", PHONE)
    drawn = """() => Bokeh.documents[0].roots().find((f) => f.name === "plane").renderers
      .filter((one) => one.glyph.type === "Line" && one.glyph.line_alpha.value !== 0 && one.visible)
      .map((one) => one.data_source.data.label[0])"""
    for place, rate in enumerate(("0.1", "0.4", "3")):
        page.locator("input[type=range]").fill(str(place))
        assert page.locator("output").inner_text() == f"η = {rate}"
        assert {label.removesuffix(", diverged") for label in page.evaluate(drawn)} == {"GF", f"η = {rate}"}
    page.wait_for_url("**#view=rate:2")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.reload()
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator("output").inner_text() == "η = 3"
