"""A nonlinear network at the edge of stability: the figure, its claims, and the scenario that makes them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import xarray
from marion_2026 import AtTheEdge, Descent, Model, descents_of, edge_claims

import flowsim
from flowsim import cli
from flowsim.scenarios import ScenarioError, parse_overrides, read_scenario

SHIPPED = Path(__file__).parents[1] / "papers" / "marion_2026" / "edge_nonlinear.yaml"
RATE, COUNT = 0.1, 30
SMALL = ["network.depth=3", "flow={models: [gradient, edge], t1: 30.0}", "descent.learning_rates=[0.02, 0.25]"]


def followed(name="η = 0.1", *, rate=RATE, over=1.0, amplitude=0.02, glides=False, model_distance=0.01):
    """A descent whose sharpness is `over` times 2/η, of period two or gliding, with one model."""
    flat = np.ones(COUNT)
    model = Model("edge", 2 / rate * over * flat, amplitude * flat, model_distance * flat)
    along = {"sharpness": 2 / rate * over * flat, "amplitude": amplitude * flat, "flow_distance": flat}
    along["step"] = (1e3 if glides else 2) * along["amplitude"]
    return Descent(name=name, learning_rate=rate, times=np.arange(1.0, COUNT + 1), models=(model,), **along)


BELOW = followed("η = 0.01", rate=0.01, over=0.6, glides=True)


def test_a_quadratic_mode_is_of_period_two_where_its_factor_is_minus_one():
    """w_k = f^k: |2 − f − 1/f|/2 over |f − 1| is |1 − f|/(2|f|), one at f = −1 alone of all f < 1/3."""
    for factor in (-1.0, -0.9, 0.5):
        weights = factor ** np.arange(3.0)
        amplitude = abs(2 * weights[1] - weights[0] - weights[2]) / 4
        one = dataclasses.replace(BELOW, amplitude=np.array([amplitude]), step=np.abs(np.diff(weights))[1:])
        np.testing.assert_allclose(one.period_two, abs(1 - factor) / (2 * abs(factor)), rtol=1e-12)


def trajectories():
    """Stored runs of one descent with centres at two of four records, and a model that ends before the second."""
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
    return xarray.Dataset(variables, {"dynamics": ("run", runs), "learning_rate": ("run", [nan, RATE, RATE])})


def test_descents_are_measured_at_their_centres_and_models_at_the_same_times():
    (one,) = descents_of(trajectories())
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
        (0, [dataclasses.replace(BELOW, learning_rate=0.2, sharpness=0.6 * BELOW.sharpness / 20), good]),
        (1, [BELOW, followed(over=1.2)]),
        (2, [BELOW, followed(glides=True)]),
        (2, [followed("η = 0.01", rate=0.01, over=0.6), good]),
        (3, [BELOW, followed(model_distance=0.2)]),
        (3, [BELOW, dataclasses.replace(good, models=(dataclasses.replace(model, distance=np.full(COUNT, np.nan)),))]),
        (4, [BELOW, dataclasses.replace(good, models=(dataclasses.replace(model, amplitude=1.2 * good.amplitude),))]),
    ]:
        assert edge_claims(broken)[number].holds is False
    assert [claim.holds for claim in edge_claims([BELOW])] == [False, *[None] * 4]


@pytest.mark.slow
def test_the_shipped_scenario_finds_a_learning_rate_at_the_edge_and_a_model_that_follows(tmp_path):
    assert cli.main([str(SHIPPED), *(f"--set={one}" for one in SMALL), "--out", str(tmp_path), "--jobs", "1"]) == 0
    results = flowsim.open_results(tmp_path / "edge_nonlinear")
    assert [claim.holds for claim in AtTheEdge().claims(results)] == [True] * 5
    assert results.summary["claims"][0]["holds"] is True
    assert (tmp_path / "edge_nonlinear" / "figures" / "at_the_edge.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("flow.models=[gradient]", "found no model of descent beside the gradient flow"),
        ("sharpness=false", "found the sharpness at the end of the runs alone"),
    ],
)
def test_the_figure_refuses_what_it_is_not_about(setting, message):
    with pytest.raises(ScenarioError, match=message):
        read_scenario(SHIPPED, parse_overrides([setting]))
