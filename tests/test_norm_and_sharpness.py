"""Norm against sharpness (Matveev et al. 2025): closed forms of the diagonal network, the figure, and its claims."""

from dataclasses import replace
from pathlib import Path

import equinox as eqx
import numpy as np
import pytest
from matveev_2025 import Diagonal, Limits, NormAndSharpness, Teacher, claims, limits_of

import flowsim
from flowsim import cli
from flowsim.theory.statement import Verdict

SHIPPED = Path(__file__).parents[1] / "papers" / "matveev_2025" / "norm_and_sharpness.yaml"
HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.NOT_MEASURED
X, Y = np.array([[2.0, -1.0, 0.5]]), np.array([1.0])


def data_of(draw, **fields):
    teacher = Teacher(kind="matveev_2025:Teacher", draw=draw, **fields)
    return teacher.load(flowsim.kinds.seeds.generator(0, "data"), SHIPPED)


def with_regressor(beta):
    """Return the network of this regressor that has the least norm and the least sharpness."""
    root = np.sqrt(np.abs(beta))
    layers = root, root * np.sign(beta)
    return eqx.tree_at(lambda network: (network.first, network.last), Diagonal(len(beta)), layers)


def squared_norm(network):
    return float(np.sum(np.square(network.first)) + np.sum(np.square(network.last)))


def test_where_the_samples_are_fitted_the_sharpness_has_a_closed_form():
    inputs, labels = data_of(0, samples=5, features=9).training
    beta = np.linalg.lstsq(inputs, labels)[0]
    kernel = (inputs * 2 * np.abs(beta)) @ inputs.T
    sharpness = float(flowsim.sharpness(with_regressor(beta), flowsim.EmpiricalRisk(inputs, labels)))
    assert sharpness == pytest.approx(2 / 5 * np.linalg.eigvalsh(kernel)[-1], rel=1e-10)


def betas(*networks):
    return [np.asarray(one.first * one.last) for one in networks]


def test_of_one_sample_norm_and_sharpness_choose_opposite_features_and_the_test_risk_neither():
    # ‖W‖² = 2‖β‖₁ and S = 4Σ x_i²|β_i| with ⟨β, x⟩ = y: both are linear programs, solved at the feature of the largest
    # and of the smallest |x_i|. Over teachers N(0, I) with that label, the mean of w* is yx/‖x‖².
    x, y = X[0], float(Y[0])
    problem = flowsim.EmpiricalRisk(X, Y)
    candidates = [with_regressor(beta) for beta in (np.eye(3)[0] * y / x[0], y * x / (x @ x), np.eye(3)[2] * y / x[2])]
    norms = [squared_norm(one) for one in candidates]
    sharpnesses = [float(flowsim.sharpness(one, problem)) for one in candidates]
    np.testing.assert_allclose(norms, [2 / 2.0, 2 * 3.5 / 5.25, 2 / 0.5], rtol=1e-12)
    np.testing.assert_allclose(sharpnesses, [4 * 2.0, 4 * (8 + 1 + 0.125) / 5.25, 4 * 0.5], rtol=1e-9)
    rng = np.random.default_rng(0)
    teachers = rng.standard_normal((20_000, 3))
    teachers += (y - teachers @ x)[:, None] * x / (x @ x)
    assert (2 * np.abs(teachers).sum(axis=1)).min() >= norms[0]
    assert (4 * np.abs(teachers) @ x**2).min() >= sharpnesses[2]
    of_norm, of_mean, of_sharpness = (np.mean(np.sum((teachers - one) ** 2, axis=1)) for one in betas(*candidates))
    assert of_norm - of_mean == pytest.approx(1 / 4 - 1 / 5.25, abs=0.02)  # ‖β‖² less that of the mean
    assert of_sharpness - of_mean == pytest.approx(4 - 1 / 5.25, abs=0.05)


@pytest.mark.slow
def test_of_one_sample_the_flow_has_the_least_norm_and_descent_above_the_critical_rate_the_sharpness_of_the_edge():
    problem, start = flowsim.EmpiricalRisk(X, Y), Diagonal(3, scale=1e-3)
    limit = flowsim.integrate(start, problem, ts=[]).network
    np.testing.assert_allclose(betas(limit)[0], [0.5, 0, 0], atol=2e-3)
    assert squared_norm(limit) == pytest.approx(1.0, rel=5e-3)
    critical = 2 / float(flowsim.sharpness(limit, problem))
    assert critical == pytest.approx(0.25, rel=5e-3)
    ends = [flowsim.descend(start, problem, learning_rate=share * critical, steps=4000) for share in (0.5, 1.3)]
    slow, fast = (float(flowsim.sharpness(end.network, problem)) for end in ends)
    assert slow == pytest.approx(8.0, rel=0.01)
    assert 0.95 < fast / (2 / (1.3 * critical)) <= 1
    assert squared_norm(ends[0].network) < 1.01 < squared_norm(ends[1].network)
    # The flow conserves u² − v², and descent nearly does, so that ‖W‖² = 2‖β‖₁ up to scale² for each entry.
    for end in ends:
        assert squared_norm(end.network) == pytest.approx(2 * np.abs(betas(end.network)[0]).sum(), abs=3e-6)


def test_draws_differ_and_teachers_of_one_draw_share_their_inputs():
    sparse, dense, other = (data_of(draw, nonzero=k).training for draw, k in ((3, 2), (3, 40), (4, 2)))
    np.testing.assert_array_equal(sparse[0], dense[0])
    assert not np.allclose(sparse[0], other[0])
    solved = np.linalg.lstsq(sparse[0][:, :2], sparse[1])[0]
    np.testing.assert_allclose(np.abs(solved), [0.5**0.5] * 2, rtol=1e-12)


def limits(nonzero, *, draws=4, largest=1.9):
    """Return limits that do what the paper says, of draws whose η_c lie apart by a part of a bin."""
    ratio = np.geomspace(0.2, largest, 25) * np.linspace(1, 1.1, draws)[:, None]
    beyond = np.maximum(ratio, 1)
    risk = beyond**2 if nonzero < 10 else 1 + (beyond - 1) * (beyond - 1.5)
    lost = np.where(ratio > 1.7, np.nan, 1.0)
    values = {"norm": beyond + 0.01 * ratio, "sharpness": 0.99 / beyond, "test_risk": risk}
    return Limits(nonzero, ratio, **{name: one * lost for name, one in values.items()})


def verdicts(*measured):
    return [claim.verdict for claim in claims(list(measured))]


def test_the_claims_hold_for_two_biases_that_conflict_and_fail_or_are_not_measured_for_others():
    sparse, dense = limits(2), limits(40)
    known = np.where(sparse.converged, 1, np.nan)
    assert verdicts(sparse, dense) == [HOLDS] * 6
    for place, changed in [
        (0, {"norm": sparse.norm * 1.2}),
        (1, {"sharpness": sparse.sharpness * 0.9}),
        (2, {"norm": sparse.norm[:, ::-1] * known}),
        (3, {"sharpness": known}),
        (4, {"test_risk": sparse.test_risk}),
        (4, {"test_risk": 1 / sparse.test_risk}),
        (5, {"test_risk": dense.test_risk}),
        (5, {"test_risk": np.where(sparse.ratio > 0.5, 4.0, 1.0) * known}),
    ]:
        assert verdicts(replace(sparse, **changed), replace(dense, **changed))[place] is FAILS
    dense = limits(40, draws=8)  # where the risk is least is not chosen by the draws that it is measured on
    lucky = np.where(np.arange(8)[:, None] % 2 == 0, dense.test_risk, np.maximum(dense.test_risk, 1))
    assert verdicts(sparse, replace(dense, test_risk=lucky))[4] is FAILS

    below = [limits(nonzero, largest=0.9) for nonzero in (2, 40)]  # nothing on the other side of the critical rate
    assert verdicts(*below) == [HOLDS, *[UNKNOWN] * 5]
    assert verdicts(*(replace(one, norm=one.norm * np.nan) for one in below))[:4] == [UNKNOWN] * 4


def test_a_course_has_a_run_of_every_draw_in_each_bin_and_ends_where_too_few_converge():
    one = limits(2, draws=8)
    places, edge = one.course(one.edge)
    assert (places > 1).any()
    assert places[-1] < 1.75
    np.testing.assert_allclose(edge.estimate[places > 1], 0.99, rtol=1e-12)
    np.testing.assert_allclose(edge.low[places < 1] / places[places < 1], 0.99, rtol=0.06)  # half a bin
    assert len(np.unique(np.round(np.diff(np.log(places)), 9))) == 1


@pytest.mark.slow
def test_the_scenario_measures_them(tmp_path):
    settings = [
        "sweep.over={data.nonzero: [1, 40], data.draw: [0, 1, 2, 3, 4, 5]}",
        "sweep.descent=[{learning_rates: {start: 0.16, stop: 1.6, count: 10, spacing: log}, steps: 4000}]",
    ]
    assert cli.main([str(SHIPPED), *(f"--set={one}" for one in settings), "--out", str(tmp_path), "--jobs", "1"]) == 0
    results = flowsim.open_results(tmp_path / "norm_and_sharpness")
    *others, sparse = NormAndSharpness().claims(results)
    assert [claim.verdict for claim in others] == [HOLDS] * 5
    assert sparse.numbers["factor"] > 1.5  # of six draws alone
    assert (tmp_path / "norm_and_sharpness" / "figures" / "norm_and_sharpness.png").stat().st_size > 5000
    assert [one.nonzero for one in limits_of(results.required("sweep"))] == [1, 40]


@pytest.mark.slow
def test_from_small_weights_the_flow_has_the_least_norm_of_all_that_fit():
    from scipy.optimize import linprog

    # min ‖β‖₁ with Xβ = y is a linear program in β = β₊ − β₋; what is above it falls with the scale, if slowly.
    inputs, labels = data_of(3, nonzero=40).training
    problem, stopping = flowsim.EmpiricalRisk(inputs, labels), flowsim.Stopping(risk=1e-16)
    least = 2 * linprog(np.ones(80), A_eq=np.hstack([inputs, -inputs]), b_eq=labels).fun
    limits = [
        flowsim.integrate(Diagonal(40, scale=scale), problem, ts=[], stopping=stopping).network
        for scale in (1e-1, 1e-2, 1e-4, 1e-8)
    ]
    above = [squared_norm(limit) / least - 1 for limit in limits]
    assert above == sorted(above, reverse=True)
    np.testing.assert_allclose(above, [0.176, 0.0407, 0.0078, 0.0012], rtol=0.05)
