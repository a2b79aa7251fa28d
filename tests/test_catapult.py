"""The catapult of Lewkowycz et al. (2020): its recursion, and the phase diagram that a scenario makes."""

from pathlib import Path

import jax
import numpy as np
import pytest
from lewkowycz_2020 import OneSample, Phases, Start, TwoLayers, descents_of, ends, peak_claim, phase_claims, single_of
from numpy.testing import assert_allclose

import flowsim
from flowsim import EmpiricalRisk, Outcome, Stopping, cli

WIDTH = 64
SHIPPED = Path(__file__).parents[1] / "papers" / "lewkowycz_2020" / "catapult.yaml"
DESCENT = "{learning_rates: [1.0, 2.9, 4.6], steps: 400}"
SMALL = ["network.width=64", "sweep.over={network.width: [64]}", "sweep.repetitions=2"]
SMALL += [f"descent={DESCENT}", f"sweep.descent=[{DESCENT}]"]


@pytest.fixture(scope="module")
def model():
    """The risk f² of one sample, two layers, and their λ and f at the start."""
    data = OneSample().load(np.random.default_rng(0), Path())
    problem, network = EmpiricalRisk(*data.training), TwoLayers(1, WIDTH, key=jax.random.key(1))
    kernel = float((np.sum(network.first**2) + np.sum(network.last**2)) / WIDTH)
    return problem, network, kernel, float(network(np.ones(1)))


@pytest.mark.slow
def test_the_sharpness_of_the_model_has_a_closed_form_and_its_flow_conserves_one(model):
    # ½∇²f² = ggᵀ + fP/√n, g = ∇f and P the exchange of the layers: in the plane of g and Pg, where gᵀPg = 2f/√n, its
    # trace is λ and its determinant −3f²/n.
    problem, network, kernel, f = model
    exact = kernel + np.sqrt(kernel**2 + 12 * f**2 / WIDTH)
    assert flowsim.sharpness(network, problem) == pytest.approx(exact, rel=1e-12)
    # λ² − 4f²/n stays, as f' = −2fλ and λ' = −8f²/n; some 100 steps, each off by rtol.
    tight = Stopping(gradient_norm=None, risk=1e-24)
    flow = flowsim.integrate(network, problem, rtol=1e-10, ts=[], stopping=tight)
    assert flow.final_sharpness == pytest.approx(2 * np.sqrt(kernel**2 - 4 * f**2 / WIDTH), rel=1e-8)


@pytest.mark.parametrize("product", [1.5, 3.7])
@pytest.mark.slow
def test_the_recursion_ends_where_descent_does(product, model):
    problem, network, kernel, f = model
    rate = product / (2 * kernel)
    exact = ends(Start.of(np.array(f**2), np.array(2 * abs(f) * kernel**0.5), WIDTH, rate), 150)
    stopping = Stopping(gradient_norm=None)
    run = flowsim.descend(network, problem, learning_rate=rate, steps=150, stopping=stopping)
    reached = float((np.sum(run.network.first**2) + np.sum(run.network.last**2)) / WIDTH)
    # Rounding grows with the risk on its way up, by less than 10⁵ here.
    assert_allclose(reached / kernel, exact.kernel, rtol=1e5 * np.finfo(float).eps * 10)
    assert_allclose(np.max(run.risk) / run.risk[0], exact.peak, rtol=1e-9)


def test_the_recursion_diverges_beyond_four_and_only_there():
    products = np.array([1.0, 2.0, 3.9, 3.99, 4.01, 5.0])
    kernel, risk = 2.0, np.array(0.04)
    start = Start.of(risk, np.sqrt(4 * risk * kernel), WIDTH, products / (2 * kernel))
    np.testing.assert_allclose(start.product, products, rtol=1e-14)
    end = ends(start, 4000)
    np.testing.assert_array_equal(end.diverged, products > 4)
    assert np.isinf(end.peak[end.diverged]).all()
    assert (np.diff(end.kernel[:2]) < 0).all()
    # At four exactly the output swings, and a' = a + φ²(a − 4) = a without rounding, from numbers that are exact.
    swings = ends(Start(np.array([4.0]), np.array([0.0625])), 1000)
    assert not swings.diverged.any()
    assert swings.kernel[0] == 1


def test_descents_of_several_lengths_stop_where_each_of_them_ends():
    start = Start(np.array([2.5]), np.array([0.01]))
    kernel = ends(Start(np.repeat(start.product, 2), np.repeat(start.move, 2)), np.array([3, 60])).kernel
    assert_allclose(kernel, np.concatenate([ends(start, 3).kernel, ends(start, 60).kernel]), rtol=0)
    assert kernel[0] > kernel[1]


@pytest.mark.slow
def test_the_scenario_finds_the_three_phases_and_each_claim_fails_where_the_runs_say_otherwise(tmp_path):
    options = [f"--set={setting}" for setting in SMALL]
    assert cli.main([str(SHIPPED), *options, "--out", str(tmp_path), "--jobs", "1"]) == 0
    results = flowsim.open_results(tmp_path / "catapult")
    claims = Phases().claims(results)
    assert [claim.holds for claim in claims] == [True] * 5
    assert claims[0].numbers["other_outcome"] == 0
    assert claims[0].numbers["resting"] == 4  # two starts, two learning rates that do not diverge
    assert (results.folder / "figures" / "phases.png").stat().st_size > 5000

    sweep = results.required("sweep")  # runs: the flow, and descents that are lazy, thrown, and lost
    # Which claim fails if a run ended at so many times its sharpness, or diverged.
    broken = [(0, 1, 1 + 1e-5), (1, 1, 0.5), (2, 2, 1e3), (0, 2, None), (1, 1, None), (2, 2, None), (3, 2, None)]
    for number, run, factor in broken:
        changed = sweep.copy(deep=True)
        changed["final_sharpness"][..., run] *= factor or 1
        if factor is None:
            changed["outcome"][..., run] = int(Outcome.DIVERGED)
        assert phase_claims(descents_of(changed))[number].holds is False
    assert phase_claims(descents_of(sweep.isel(run=slice(0, 3))))[3].holds is None
    single = results.required("trajectories").copy(deep=True)
    assert peak_claim(single_of(single, WIDTH)).holds is True
    single["risk"][1, 3] = 1e3
    assert peak_claim(single_of(single, WIDTH)).holds is False
