"""The page with a slider through learning rates: what it holds, and in a browser, if there is one, what it shows."""

import base64
import json
import os
import re
import shutil

import numpy as np
import pytest
from made_runs import made_comparison

import flowsim
from flowsim.results.store import ResultFolder, StoreError

RATES = [0.1, 0.4, 3.0]  # descent follows the flow, meets its edge of stability, diverges
BROWSER = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)


@pytest.fixture(scope="module")
def both():
    return made_comparison(RATES, paths=True)


@pytest.fixture(scope="module")
def page(both, tmp_path_factory):
    return flowsim.slider(both, tmp_path_factory.mktemp("slider") / "slider.html", title="Two <weights>")


def content(path):
    found = re.search(r'<script type="application/json" id="content">(.*?)</script>', path.read_text())
    return json.loads(found[1])


def numbers(column):
    return np.frombuffer(base64.b64decode(column["doubles"]), "<f8")


def test_each_learning_rate_has_its_runs_and_their_ends(both, page):
    rates = content(page)["rates"]
    assert [one["rate"] for one in rates] == RATES
    for one, run in zip(rates, both.descents, strict=True):
        (name,) = one["keys"]
        ended = run.trajectory.outcome.name.lower().replace("_", " ")
        assert ended in one["said"]
        if ended != "diverged":
            assert one["ends"][name] == pytest.approx(run.trajectory.final_sharpness)
    assert rates[1]["said"].endswith("S = 4.9 at the end, edge 5")
    assert "diverged" in rates[-1]["said"]


def test_the_plane_of_two_weights_is_that_of_the_weights(both, page):
    (plane,) = [plot for plot in content(page)["plots"] if plot["name"] == "plane"]
    drawn = {curve["key"]: curve["columns"] for curve in plane["curves"]}
    for one, run in zip(content(page)["rates"][:2], both.descents, strict=False):
        path = np.asarray(run.trajectory.diagnostics["path"]["weights"])
        shown = np.stack([numbers(drawn[one["keys"][0]][axis]) for axis in "xy"], axis=1)
        np.testing.assert_allclose(shown, path)
        for axis, (low, high) in zip(path.T, (plane["x"], plane["linear"]), strict=True):
            assert low <= axis.min() <= axis.max() <= high


def test_the_ends_lie_below_the_edge_and_what_diverged_has_none(page):
    (ends,) = [plot for plot in content(page)["plots"] if plot["name"] == "ends"]
    sharpness, edge = (curve["columns"] for curve in ends["curves"])
    np.testing.assert_allclose(numbers(edge["y"]), 2 / numbers(edge["x"]))
    assert set(RATES) <= set(numbers(edge["x"]))
    assert numbers(sharpness["x"]).tolist() == RATES[:2]
    assert (numbers(sharpness["y"]) < 2 / np.array(RATES[:2])).all()


def test_the_page_of_a_folder_is_that_of_the_runs(both, page, tmp_path):
    ResultFolder(tmp_path / "runs").write_dataset(both.to_dataset())
    stored = flowsim.slider(tmp_path / "runs", tmp_path / "stored.html", title="Two <weights>")
    assert content(stored) == content(page)


def test_the_page_is_one_light_file_that_asks_for_nothing(page):
    text = page.read_text()
    assert len(text.encode()) < 5e6
    assert "<h1>Two &lt;weights&gt;</h1>" in text
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!data:,)', markup) == []


@pytest.mark.slow
def test_other_descents_have_their_own_edge_and_more_weights_the_plane_of_two_components(tmp_path):
    import jax.numpy as jnp

    bowl = flowsim.Risk(lambda w: w[0] ** 2 + 3 * w[1] ** 2 + w[2] ** 2, infimum=0.0)
    rates, path = [0.1, 0.3, flowsim.HeavyBall(0.3, 0.5)], flowsim.probes.Path(count=2)
    both = flowsim.compare(jnp.array([1.0, 1.0, 0.5]), bowl, rates, steps=200, probes=[path])
    plots = {plot["name"]: plot for plot in content(flowsim.slider(both, tmp_path / "a.html"))["plots"]}
    descent, _, heavy_ball, edge = (curve["columns"] for curve in plots["ends"]["curves"])
    assert numbers(descent["x"]).tolist() == [0.1, 0.3]
    np.testing.assert_allclose(numbers(heavy_ball["y"]), [6.0])
    np.testing.assert_allclose(numbers(edge["y"]), [2 * (1 + 0.5) / 0.3])
    shares = [int(re.search(r"(\d+)% of the variance", plots["plane"][side])[1]) for side in ("across", "up")]
    assert 100 >= shares[0] >= shares[1] >= 0


def test_without_paths_there_is_no_plane_and_what_has_no_two_learning_rates_is_refused(tmp_path):
    assert "plane" not in [
        plot["name"] for plot in content(flowsim.slider(made_comparison(RATES), tmp_path / "a.html"))["plots"]
    ]
    with pytest.raises(ValueError, match=r"two learning rates or more, found 0\.1"):
        flowsim.slider(made_comparison(RATES[:1]), tmp_path / "c.html")
    with pytest.raises(StoreError, match="nowhere"):
        flowsim.slider(tmp_path / "nowhere", tmp_path / "c.html")
    assert not (tmp_path / "c.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium is here")
def test_the_slider_shows_the_runs_of_one_learning_rate(page):
    sync_api = pytest.importorskip("playwright.sync_api")
    complaints = []
    seen = """() => Object.fromEntries(Bokeh.documents[0].roots().map((f) => [f.name,
      f.renderers.filter((one) => one.glyph.type === "Line" && one.glyph.line_alpha.value !== 0 && one.visible)
        .map((one) => one.data_source.data.label[0])]))"""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        opened = browser.new_context(viewport={"width": 390, "height": 844}, offline=True).new_page()
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        opened.goto(page.as_uri())
        opened.wait_for_selector("html[data-ready=yes]")
        slider = opened.locator("input[type=range]")
        for place, rate in enumerate(RATES):
            slider.fill(str(place))
            assert opened.locator("output").inner_text() == f"η = {rate:g}"
            shown = opened.evaluate(seen)["plane"]
            assert {label.removesuffix(", diverged") for label in shown} == {"GF", f"η = {rate:g}"}
        opened.wait_for_url("**#view=rate:2")
        assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")
        opened.reload()
        opened.wait_for_selector("html[data-ready=yes]")
        assert opened.locator("output").inner_text() == f"η = {RATES[-1]:g}"
        browser.close()
    assert complaints == []
