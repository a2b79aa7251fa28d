"""Which model of descent at the edge: the figure over many starts, its claims, and the scenarios that make them."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import xarray
from which_model import Central, Central_2, Seen, Told, model_claims, seen

import flowsim
from flowsim import cli
from flowsim.results.schema import NOT_ASKED
from flowsim.scenarios import ScenarioError, read_scenario

FOLDER = Path(__file__).parents[1] / "papers" / "marion_2026"
SHIPPED = [FOLDER / f"which_model{which}.yaml" for which in ("", "_gelu", "_digits")]
COUNT = 10
ONES = np.ones(COUNT)


def told(name, *, distance=0.01, sharpness=1.0, amplitude=1.0, onset=1.0):
    columns = (1 / distance, distance, sharpness, amplitude, onset, 3)
    return Told(name, *(value * ONES for value in columns))


def found(*models, oscillates=True):
    return Seen(1.5 * ONES, np.full(COUNT, oscillates), models or tuple(map(told, ("central", "rod", "edge"))))


def verdicts(measured):
    return {claim.text.split(" (")[0]: claim.holds for claim in model_claims(measured)}


def test_every_claim_holds_of_models_that_are_close_and_fails_of_others():
    assert list(verdicts(found()).values()) == [True] * 8
    assert set(verdicts(found(oscillates=False)).values()) == {None}
    for edge, failing in [
        ({"distance": 2.0}, "the edge flow is closer to descent than the gradient flow where descent oscillates"),
        ({"distance": 0.02}, "the edge flow follows descent at least as closely as the central flow"),
        ({"sharpness": 1.03}, "the models tell the sharpness at the centre"),
        ({"amplitude": 0.85}, "the models tell the amplitude of the oscillation"),
        ({"onset": 1.2}, "the models tell when the oscillation begins"),
    ]:
        assert verdicts(found(told("central"), told("edge", **edge)))[failing] is False
    # A model that ended before in more than a tenth of the descents is not closer.
    ended = dataclasses.replace(told("edge"), closer=np.where(np.arange(COUNT) < 2, np.nan, 100.0))
    (claim, *_) = model_claims(found(ended))
    assert claim.holds is False
    assert "in 80% of 10" in claim.measured
    assert "2 ended before" in claim.measured


def sweep():
    """Two starts at two rates with two models: the second rate diverges from the second start."""
    nan = np.nan
    central = "which_model:Central"  # as of one with more room
    runs = ["gradient_flow", "gradient_descent", "gradient_descent", central, central, "edge", "edge"]
    rates = [nan, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2]
    rows = {
        "final_sharpness": [[30.0, 25, 9, 25, 9, 25, 9], [10.0, 10, nan, 10, nan, 10, nan]],
        "final_centre_distance": [[nan, 0.4, 0.6, 0.1, 0.2, 0.04, 0.3], [nan, 0.2, nan, 0.2, nan, 0.1, nan]],
        "final_centre_sharpness": [[nan, 20, 10, 21, 10, 20, 10], [nan, 10, nan, 10, nan, 10, nan]],
        "final_oscillation": [[nan, 0.1, 0.2, 0.11, 0.2, 0.1, 0.1], [nan, 1e-9, nan, 0, nan, 1e-6, nan]],
        "final_oscillation_onset": [[nan, 4, 2, 5, 2, 4, nan], [nan, 3, nan, nan, nan, nan, nan]],
        "gradients": [[nan, nan, nan, 50, 50, 90, 90], [nan, nan, nan, 20, nan, 40, nan]],
        "products": [[nan, nan, nan, 50, 50, 10, 10], [nan, nan, nan, 0, nan, 0, nan]],
    }
    variables = {name: (("repetition", "run"), np.array(values, float)) for name, values in rows.items()}
    variables["initial_squared_norm"] = ("repetition", np.array([4.0, 4.0]))
    variables["steps"] = (("repetition", "run"), np.array([[9, 100, 50, 9, 9, 9, 9]] * 2))
    outcome = np.full((2, 7), int(flowsim.Outcome.TIME_LIMIT))
    outcome[1, 2], outcome[1, [4, 6]] = int(flowsim.Outcome.DIVERGED), NOT_ASKED
    variables["outcome"] = (("repetition", "run"), outcome)
    modelled = ["", "", "", *["gradient_descent"] * 4]
    coordinates = {"dynamics": ("run", runs), "learning_rate": ("run", rates), "models": ("run", modelled)}
    return xarray.Dataset(variables, coordinates)


def test_descents_are_taken_together_and_those_that_diverged_left_out():
    measured = seen(sweep())
    np.testing.assert_allclose(measured.reach, [1.5, 0.5, 3.0])
    assert measured.oscillates.tolist() == [True, False, True]  # of the second, 1e-9 is none
    central, edge = measured.models
    assert (central.name, edge.name) == ("central", "edge")
    np.testing.assert_allclose(central.closer, [4, 1, 3])
    np.testing.assert_allclose(edge.closer, [10, 2, 2])
    np.testing.assert_allclose(central.sharpness, [1.05, 1, 1])
    np.testing.assert_allclose(central.amplitude, [1.1, np.nan, 1])
    np.testing.assert_allclose(edge.onset, [1, np.nan, np.nan])
    np.testing.assert_allclose(central.work, [1.0, 0.2, 2.0])


def test_the_central_flows_of_several_outputs_have_room_for_eight_eigenvalues():
    for kind, order in ((Central, 1), (Central_2, 2)):
        model = kind.of(flowsim.GradientDescent(0.1))
        assert (model.most, model.order, float(model.learning_rate)) == (8, order, 0.1)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_scenarios_are_valid_and_end_one_step_after_the_time_of_the_flow(path):
    scenario = read_scenario(path)
    for entry in scenario.sweep.descent:
        assert [(entry.steps - 1) * rate for rate in entry.learning_rates] == [scenario.flow.t1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((r"  descent:(.|\n)*figure", "figure"), "no sweep of the flow and of gradient descents with two models"),
        (("record: .*", "record: [risk]"), "no squared_norm among what is recorded"),
    ],
)
def test_a_scenario_that_the_figure_does_not_show_is_refused(tmp_path, monkeypatch, change, message):
    monkeypatch.syspath_prepend(FOLDER)
    file = tmp_path / "other.yaml"
    file.write_text(re.sub(*change, SHIPPED[0].read_text()))
    with pytest.raises(ScenarioError, match=message):
        read_scenario(file)


@pytest.mark.slow
def test_the_scenario_measures_them(tmp_path):
    sets = ["sweep.repetitions=1", "flow.models=[gradient, central, edge]"]
    sets += ["sweep.descent=[{learning_rates: [0.125], steps: 321}]"]
    cli.main([str(SHIPPED[0]), "--out", str(tmp_path), "--jobs", "1", *(f"--set={one}" for one in sets)])
    results = flowsim.open_results(tmp_path / "which_model", trust=True)
    measured = seen(results.required("sweep"))
    assert measured.oscillates.all()
    assert all((model.closer > 3).all() for model in measured.models)
    assert (tmp_path / "which_model" / "figures" / "which_model.png").stat().st_size > 5000
