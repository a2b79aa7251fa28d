"""Descent at its edge beside models of it (Marion 2026): two figures, their claims, and the scenarios behind them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray
from marion_2026 import AtTheEdge, Descent, Model, descents_of, edge_claims
from which_model import Seen, Told, model_claims, seen

import flowsim
from flowsim import cli
from flowsim.columns import NOT_ASKED
from flowsim.scenarios import read_scenario

FOLDER = Path(__file__).parents[1] / "papers" / "marion_2026"
SHIPPED = sorted(FOLDER.glob("which_model*.yaml"))
COUNT = 10
ONES = np.ones(COUNT)
RATE, CENTRES = 0.1, 30
SMALL = ["network.depth=3", "flow={models: [gradient, edge], t1: 30.0}", "descent.learning_rates=[0.1, 0.25]"]
SMALL += ["sharpness.records=100"]


def model_with(name, *, distance=0.01, sharpness=1.0, amplitude=1.0, onset=1.0):
    columns = (1 / distance, distance, sharpness, amplitude, onset, 3)
    return Told(name, *(value * ONES for value in columns))


def measured(*models, oscillates=True):
    return Seen(1.5 * ONES, np.full(COUNT, oscillates), models or tuple(map(model_with, ("central", "rod", "edge"))))


def verdicts(*models, **options):
    return {claim.text.split(" (")[0]: claim.holds for claim in model_claims(measured(*models, **options))}


def test_every_claim_holds_of_models_that_are_close_and_fails_of_others():
    assert list(verdicts().values()) == [True] * 8
    assert set(verdicts(oscillates=False).values()) == {None}
    for edge, failing in [
        ({"distance": 2.0}, "the edge flow is closer to descent than the gradient flow where descent oscillates"),
        ({"distance": 0.02}, "the edge flow follows descent at least as closely as the central flow"),
        ({"sharpness": 1.03}, "the models tell the sharpness at the centre"),
        ({"amplitude": 0.85}, "the models tell the amplitude of the oscillation"),
        ({"onset": 1.2}, "the models tell when the oscillation begins"),
    ]:
        assert verdicts(model_with("central"), model_with("edge", **edge))[failing] is False
    # A model that ended before in more than a tenth of the descents is not closer.
    ended = replace(model_with("edge"), closer=np.where(np.arange(COUNT) < 2, np.nan, 100.0))
    (claim, *_) = model_claims(measured(ended))
    assert (claim.holds, claim.numbers["share"]) == (False, 0.8)
    assert "2 ended before" in claim.measured


def test_descents_are_taken_together_and_those_that_diverged_left_out():
    """From two starts at two rates with two models: the second rate diverges from the second start."""
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
    ends = seen(xarray.Dataset(variables, coordinates))
    np.testing.assert_allclose(ends.reach, [1.5, 0.5, 3.0])
    assert ends.oscillates.tolist() == [True, False, True]  # of the second, 1e-9 is none
    central, edge = ends.models
    assert (central.name, edge.name) == ("central", "edge")
    np.testing.assert_allclose(central.closer, [4, 1, 3])
    np.testing.assert_allclose(edge.closer, [10, 2, 2])
    np.testing.assert_allclose(central.sharpness, [1.05, 1, 1])
    np.testing.assert_allclose(central.amplitude, [1.1, np.nan, 1])
    np.testing.assert_allclose(edge.onset, [1, np.nan, np.nan])
    np.testing.assert_allclose(central.work, [1.0, 0.2, 2.0])


def test_the_central_flows_of_several_outputs_have_room_for_eight_eigenvalues():
    models = read_scenario(FOLDER / "which_model_digits.yaml").flow.of_descent
    assert [(models[name].most, models[name].order) for name in ("central", "central_2")] == [(8, 1), (8, 2)]


def test_scenarios_are_valid_and_end_one_step_after_the_time_of_the_flow():
    for scenario in map(read_scenario, SHIPPED):
        for entry in scenario.sweep.descent:
            assert [(entry.steps - 1) * rate for rate in entry.learning_rates] == [scenario.flow.t1]


@pytest.mark.slow
def test_the_scenario_measures_them(tmp_path):
    sets = ["network.depth=4", "network.scale=0.5", "flow.models=[gradient, central, edge]"]
    sets += ["sweep.repetitions=1", "sweep.descent=[{learning_rates: [0.25], steps: 161}]"]
    cli.main([str(SHIPPED[0]), "--out", str(tmp_path), "--jobs", "1", *(f"--set={one}" for one in sets)])
    results = flowsim.open_results(tmp_path / "which_model", trust=True)
    ends = seen(results.required("sweep"))
    assert ends.oscillates.all()
    assert all((model.closer > 3).all() for model in ends.models)
    assert (tmp_path / "which_model" / "figures" / "which_model.png").stat().st_size > 5000


def followed(name="η = 0.1", *, rate=RATE, over=1.0, glides=False, model_distance=0.01):
    """A descent whose sharpness is `over` times 2/η, of period two or gliding, with one model."""
    flat = np.ones(CENTRES)
    along = {"sharpness": 2 / rate * over * flat, "amplitude": 0.02 * flat}
    model = Model("edge", **along, distance=model_distance * flat)
    along |= {"flow_distance": flat, "step": (1e3 if glides else 2) * along["amplitude"]}
    return Descent(name=name, learning_rate=rate, times=np.arange(1.0, CENTRES + 1), models=(model,), **along)


BELOW = followed("η = 0.01", rate=0.01, over=0.6, glides=True)


def test_a_quadratic_mode_is_of_period_two_where_its_factor_is_minus_one():
    """w_k = f^k: |2 − f − 1/f|/2 over |f − 1| is |1 − f|/(2|f|), one at f = −1 alone of all f < 1/3."""
    for factor in (-1.0, -0.9, 0.5):
        weights = factor ** np.arange(3.0)
        amplitude = abs(2 * weights[1] - weights[0] - weights[2]) / 4
        one = replace(BELOW, amplitude=np.array([amplitude]), step=np.abs(np.diff(weights))[1:])
        np.testing.assert_allclose(one.period_two, abs(1 - factor) / (2 * abs(factor)), rtol=1e-12)


def test_descents_are_measured_at_their_centres_and_models_at_the_same_times():
    """Of one descent with centres at two of four records, and a model that ends before the second."""
    nan = np.nan
    rows = {
        "time": [[0.0, 0.1, 0.2, 0.3]] * 2 + [[0.1, 0.15, nan, nan]],
        "gradient_norm": [[1.0] * 4, [2.0] * 4, [1.0] * 4],
        "sharpness": [[1.0] * 4, [19.0, 21.0, 19.0, 21.0], [18.0, 17.0, nan, nan]],
        "centre_sharpness": [[nan] * 4, [nan, 20.0, 20.5, nan], [nan] * 4],
        "oscillation": [[nan] * 4, [nan, 0.1, 0.2, nan], [0.11, 0.12, nan, nan]],
        "centre_distance": [[nan] * 4, [nan, 0.5, 0.6, nan], [0.05, nan, nan, nan]],
    }
    variables = {name: (("run", "record"), np.array(values, float)) for name, values in rows.items()}
    variables["records"] = ("run", [4, 4, 2])
    runs = ["gradient_flow", "gradient_descent", "edge"]
    coordinates = {"dynamics": ("run", runs), "learning_rate": ("run", [nan, RATE, RATE])}
    (one,) = descents_of(xarray.Dataset(variables, coordinates))
    np.testing.assert_array_equal(one.times, [0.1, 0.2])
    np.testing.assert_allclose(one.over_threshold, [1.0, 1.025], rtol=1e-12)
    np.testing.assert_allclose(one.period_two, [1.0, 2.0], rtol=1e-12)  # steps are η‖∇R‖ = 0.2
    np.testing.assert_array_equal(one.flow_distance, [0.5, 0.6])
    (model,) = one.models
    assert model.name == "edge"
    np.testing.assert_array_equal(model.sharpness, [18.0, np.nan])
    np.testing.assert_array_equal(model.amplitude, [0.11, np.nan])


def test_every_claim_holds_of_descents_at_the_edge_and_fails_of_others():
    good = followed()
    assert [claim.holds for claim in edge_claims([BELOW, good])] == [True] * 5
    (model,) = good.models
    for number, broken in [
        (0, [good]),  # none stays below
        (0, [replace(BELOW, learning_rate=0.2, sharpness=0.6 * BELOW.sharpness / 20), good]),
        (1, [BELOW, followed(over=1.2)]),
        (2, [BELOW, followed(glides=True)]),
        (2, [followed("η = 0.01", rate=0.01, over=0.6), good]),
        (3, [BELOW, followed(model_distance=0.2)]),
        (3, [BELOW, replace(good, models=(replace(model, distance=np.full(CENTRES, np.nan)),))]),
        (4, [BELOW, replace(good, models=(replace(model, amplitude=1.2 * good.amplitude),))]),
    ]:
        assert edge_claims(broken)[number].holds is False
    assert [claim.holds for claim in edge_claims([BELOW])] == [False, *[None] * 4]


@pytest.mark.slow
def test_the_shipped_scenario_finds_a_learning_rate_at_the_edge_and_a_model_that_follows(tmp_path):
    options = [*(f"--set={one}" for one in SMALL), "--out", str(tmp_path), "--jobs", "1"]
    assert cli.main([str(FOLDER / "edge_nonlinear.yaml"), *options]) == 0
    results = flowsim.open_results(tmp_path / "edge_nonlinear")
    assert [claim.holds for claim in AtTheEdge().claims(results)] == [True] * 5
    assert (tmp_path / "edge_nonlinear" / "figures" / "at_the_edge.png").stat().st_size > 5000
