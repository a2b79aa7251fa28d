"""The page with a slider through learning rates: what it holds. What a browser shows: `test_page_in_a_browser.py`."""

import base64
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from made_runs import made_comparison, with_runs

import flowsim
from flowsim.columns import Edge, Run
from flowsim.results.store import ResultFolder, StoreError

RATES = [0.1, 0.4, 3.0]  # descent follows the flow, meets its edge of stability, diverges


@pytest.fixture(scope="module")
def both():
    return made_comparison(RATES, paths=True)


@pytest.fixture(scope="module")
def page(both, tmp_path_factory):
    return flowsim.slider(both, tmp_path_factory.mktemp("slider") / "slider.html", title="Two <weights>")


def content(path):
    return json.loads(re.search(r'<script type="application/json" id="content">(.*?)</script>', path.read_text())[1])


def numbers(column):
    return np.frombuffer(base64.b64decode(column["doubles"]), "<f8")


def test_each_learning_rate_has_its_runs_and_their_ends(both, page):
    rates = content(page)["rates"]
    assert [one["rate"] for one in rates] == RATES
    for one, run in zip(rates[:2], both.descents, strict=False):
        assert one["ends"] == {one["keys"][0]: pytest.approx(run.trajectory.final_sharpness)}
        assert "converged" in one["said"]
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


def test_other_descents_have_their_own_edge_and_more_weights_the_plane_of_two_components(tmp_path):
    def with_a_third_weight(run):
        path = np.asarray(run.diagnostics["path"]["weights"])
        return replace(run, diagnostics={"path": {"weights": np.column_stack([path, path[:, 0] ** 2 / 5])}})

    runs = with_runs(made_comparison(RATES[:2], paths=True), with_a_third_weight)
    ball = replace(runs.descents[1], run=Run("heavy_ball", RATES[1], edge=Edge(7.5)))
    page = flowsim.slider(replace(runs, descents=(*runs.descents, ball)), tmp_path / "a.html")
    plots = {plot["name"]: plot for plot in content(page)["plots"]}
    descent, _, heavy_ball, edge = (curve["columns"] for curve in plots["ends"]["curves"])
    assert numbers(descent["x"]).tolist() == RATES[:2]
    np.testing.assert_allclose(numbers(heavy_ball["y"]), ball.trajectory.final_sharpness)
    np.testing.assert_allclose(numbers(edge["y"]), [7.5])
    shares = [int(re.search(r"(\d+)% of the variance", plots["plane"][side])[1]) for side in ("across", "up")]
    assert 100 >= shares[0] >= shares[1] >= 0


def test_without_paths_there_is_no_plane_and_what_has_no_two_learning_rates_is_refused(tmp_path):
    plots = content(flowsim.slider(made_comparison(RATES), tmp_path / "a.html"))["plots"]
    assert "plane" not in [plot["name"] for plot in plots]
    with pytest.raises(ValueError, match=r"two learning rates or more, found 0\.1"):
        flowsim.slider(made_comparison(RATES[:1]), tmp_path / "c.html")
    with pytest.raises(StoreError, match="nowhere"):
        flowsim.slider(tmp_path / "nowhere", tmp_path / "c.html")
    assert not (tmp_path / "c.html").exists()
