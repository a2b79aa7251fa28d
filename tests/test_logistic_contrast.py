"""Large steps on separable classes (Wu et al. 2024): the figure, its claims, and the scenario that makes them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from wu_2024 import RiskCurve, RiskOverTime, logistic_claims, margin_of, risk_curves_of

import flowsim
from flowsim import Outcome, cli

SHIPPED = Path(__file__).parents[1] / "papers" / "wu_2024" / "logistic.yaml"
SMALL = ["data.samples=40", "flow.gradient_norm=1e-4", "descent.learning_rates=[2, 150]", "sharpness=false"]


def curve(risk, *, rate=0.5, times=None):
    times = rate * np.arange(len(risk)) if times is None else times
    return RiskCurve(f"η = {rate:g}", rate, times, np.asarray(risk), 0.5, Outcome.NO_MINIMIZER, len(risk) - 1)


def test_the_stable_phase_begins_where_the_risk_is_low_for_good():
    one = curve([1, 0.1, 3, 2, 0.3, 0.2, 0.1])
    assert one.stable_from(2) == 4  # ln 2/2 = 0.35 is passed at first, but the risk rises again
    assert one.stable_from(5) == 6  # ln 2/5 = 0.14
    assert one.stable_from(10) == 7
    assert curve([1, 0.3, 0.2, 0.09], rate=10).stable_from(1) == 3  # 1/η
    assert curve([0.1, 0.2, 0.1]).stable_from(1) == 0


def test_the_product_of_risk_and_time_is_counted_from_the_stable_phase():
    # R = 1/(γ²(t − 4)) from t = 5 on, γ = 2: with the true start, the product is (t − 5)/(t − 4).
    times = np.arange(40.0)
    risk = np.where(times < 5, 9.0, 1 / (4 * np.maximum(times - 4, 1)))
    assert curve(risk, rate=1.0, times=times).largest_product(2.0, 1) == pytest.approx(34 / 35, rel=1e-12)
    assert curve([3.0, 2.0], rate=1.0).largest_product(2.0, 1) == np.inf


@pytest.mark.slow
def test_the_scenario_finds_that_no_learning_rate_is_critical_and_each_claim_fails_of_other_runs(tmp_path):
    options = [f"--set={setting}" for setting in SMALL]
    assert cli.main([str(SHIPPED), *options, "--out", str(tmp_path), "--jobs", "1"]) == 1  # there is no limit
    results = flowsim.open_results(tmp_path / "logistic")
    assert (results.required("trajectories").outcome == Outcome.NO_MINIMIZER).all()
    assert [claim.holds for claim in RiskOverTime().claims(results)] == [True] * 4
    assert (results.folder / "figures" / "risk_over_time.png").stat().st_size > 5000

    flow, (small, large) = risk_curves_of(results.required("trajectories"))
    assert large.risk.max() > 10 * large.risk[0]  # it swings
    margin = margin_of([flow, small, large])
    for number, broken in [
        (0, replace(large, outcome=Outcome.STEP_LIMIT)),
        (0, replace(large, risk=np.append(large.risk[:-1], large.risk[0]))),
        (2, replace(large, risk=np.arange(1.0, len(large.risk) + 1))),
        (3, replace(large, steps=small.steps)),
    ]:
        assert logistic_claims(flow, [small, broken], 40)[number].holds is False
    slow = replace(small, risk=np.minimum(small.risk[0], 9 / (margin**2 * np.maximum(small.times, 1e-9))))
    assert logistic_claims(flow, [slow, large], 40)[1].holds is False
