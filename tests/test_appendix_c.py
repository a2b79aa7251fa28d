"""Nonlinear networks on noisy data (Marion and Chizat 2024, Appendix C): the figure, its claims, and the scenario."""

from pathlib import Path

import numpy as np
import pytest
import xarray

import flowsim
from flowsim import Outcome, cli
from flowsim.papers.marion_chizat_2024.edge_claims import noisy_claims
from flowsim.papers.marion_chizat_2024.measures import over_edge
from flowsim.papers.marion_chizat_2024.panels import sharpness_over_edge
from flowsim.report.sweeps import runs

SHIPPED = Path(__file__).parents[1] / "scenarios" / "appendix_c.yaml"
RATES, SCALES, REPETITIONS = (0.01, 0.05), (0.4, 0.6), 4
SMALL = ["network.depth=2", "sweep.over={network.scale: [0.6]}", "sweep.repetitions=2"]
SMALL += ["sweep.descent=[{learning_rates: [0.05], steps: 100}]"]


def swept(risk=0.01):
    """A sweep whose descents all end at 2/η, with a `risk` beside 1 of the best linear regressor."""
    dims, shape = ("scale", "repetition", "run"), (len(SCALES), REPETITIONS, len(RATES))
    return xarray.Dataset(
        {
            "outcome": (dims, np.full(shape, int(Outcome.STEP_LIMIT))),
            "final_sharpness": (dims, 2 / np.array(RATES) * np.ones(shape)),
            "final_risk": (dims, np.full(shape, risk)),
            "initial_risk": (dims[:2], np.ones(shape[:2])),
            "minimal_risk": ("scale", np.ones(len(SCALES))),
        },
        {"scale": list(SCALES), "dynamics": ("run", ["gradient_descent"] * 2), "learning_rate": ("run", list(RATES))},
    )


def with_half(*places):
    """The sweep with some of its runs (scale, repetition, run) at half of 2/η."""
    changed = swept()
    changed["final_sharpness"].values[places] *= 0.5
    return changed


def test_the_sharpness_is_measured_in_parts_of_the_edge_of_each_learning_rate():
    lost = with_half(0, 0)
    lost["outcome"][1, 1, 0] = int(Outcome.DIVERGED)
    for run, end in zip(runs.descents(lost), (np.nan, 1), strict=True):
        expected = [[0.5, 1, 1, 1], [1, end, 1, 1]]
        np.testing.assert_allclose(over_edge(lost, run).values, expected, rtol=1e-12)


def test_every_claim_holds_of_runs_at_the_edge_and_fails_of_others():
    few = noisy_claims(with_half(0, 0, 0))
    assert [claim.holds for claim in few] == [True, False, True, True]
    assert few[1].numbers == {"η = 0.01": 7 / 8, "η = 0.05": 1, "diverged": 0, "stationary": 0}
    assert [claim.holds for claim in noisy_claims(swept())] == [True, True, False, True]
    most = noisy_claims(with_half(0, slice(3), 0))[0]
    assert (most.holds, most.numbers["η = 0.01, share"]) == (False, 0.5)
    assert noisy_claims(with_half(0, 0, 1))[2].holds is False
    assert noisy_claims(swept(risk=0.2))[3].holds is False
    lost = swept()  # with runs that diverged, or stopped away from a minimum
    lost["outcome"][0, 0, 0], lost["outcome"][1, :2, 1] = int(Outcome.STATIONARY), int(Outcome.DIVERGED)
    numbers = noisy_claims(lost)[1].numbers
    assert (numbers["stationary"], numbers["diverged"]) == (1, 2)
    lost["outcome"][:] = int(Outcome.DIVERGED)
    assert [claim.holds for claim in noisy_claims(lost)] == [None] * 4


def test_the_panel_shows_every_run_and_the_median_of_each_learning_rate():
    dots, line, others, _ = sharpness_over_edge(with_half(0, slice(3), 0)).curves
    assert sorted(dots.y) == [0.5] * 3 + [1.0] * 5
    np.testing.assert_allclose(line.y, [0.5, 1.0], rtol=1e-12)
    assert len({*dots.x, *others.x}) == 4  # side by side


@pytest.mark.slow
def test_the_scenario_is_run_by_the_command_line(tmp_path):
    options = [f"--set={setting}" for setting in SMALL]
    assert cli.main([str(SHIPPED), *options, "--out", str(tmp_path), "--jobs", "1"]) == 0
    assert len(flowsim.open_results(tmp_path / "appendix_c").summary["claims"]) == 4
    assert (tmp_path / "appendix_c" / "figures" / "appendix_c.png").stat().st_size > 5000
