"""Grokking as a slow flow (Boursier, Pesme and Dragomir 2025): the figure, its claims, and the flow for λ → 0."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from boursier_2025 import Course, Diagonal, Grokking, SparseTeacher, claims, courses

import flowsim
from flowsim import cli
from flowsim.theory.statement import Verdict

SHIPPED = Path(__file__).parents[1] / "papers" / "boursier_2025" / "grokking.yaml"
FEW = "sweep.over={weight_decay: [0, 1.0e-3, 1.0e-4], flow.t1: {start: 0.01, stop: 1.0e+6, count: 17, spacing: log}}"


def course(decay, *, late=1.0):
    """Return a course that fits at t = 1, and generalizes at `late`/λ down to λ²."""
    t = np.geomspace(1e-2, 1e7, 200)
    falls = np.exp(-((t * decay / late) ** 4)) if decay else np.ones_like(t)
    risk = np.exp(-((20 * t) ** 2)) + 1e-16
    return Course(decay, t, risk, falls + decay**2, np.full_like(t, 6 * (1 + decay)))


def test_the_claims_hold_for_the_slow_flow_and_fail_for_another():
    def verdicts(measured, nonzero=3):
        return [claim.verdict for claim in claims(measured, nonzero)]

    slow = [course(decay) for decay in (0.0, 1e-5, 1e-4, 1e-3)]
    assert verdicts(slow) == [Verdict.HOLDS] * 5
    early = [*slow[:1], *(replace(one, test_risk=course(1e-3).test_risk) for one in slow[1:])]
    assert verdicts(early)[2] is Verdict.FAILS
    assert verdicts([replace(slow[0], test_risk=slow[3].test_risk), *slow[1:]])[0] is Verdict.FAILS
    assert verdicts(slow, nonzero=2)[-1] is Verdict.FAILS
    assert verdicts([replace(one, test_risk=np.ones(200)) for one in slow])[1:3] == [Verdict.NOT_MEASURED] * 2


def test_a_fall_is_timed_between_records_and_counts_for_good_alone():
    one = replace(course(1e-3), t=np.array([1.0, 10.0, 100.0, 1000.0]))
    assert one.time_of_fall(np.array([1.0, 1e-4, 1e-1, 1e-3]), 1e-2) == pytest.approx(10**2.5)
    assert np.isnan(one.time_of_fall(np.ones(4), 1e-2))


@pytest.mark.slow
def test_the_scenario_measures_them_and_its_curves_are_those_of_the_norm_flow(tmp_path):
    assert cli.main([str(SHIPPED), "--set", FEW, "--out", str(tmp_path), "--jobs", "1"]) == 0
    results = flowsim.open_results(tmp_path / "grokking")
    assert [claim.verdict for claim in Grokking().claims(results)] == [Verdict.HOLDS] * 5
    assert (tmp_path / "grokking" / "figures" / "grokking.png").stat().st_size > 5000
    least = courses(results.required("sweep"))[1]
    data = SparseTeacher(kind="boursier_2025:SparseTeacher").load(flowsim.kinds.seeds.generator(0, "data"), SHIPPED)
    problem, test = flowsim.EmpiricalRisk(*data.training), flowsim.EmpiricalRisk(*data.held_out)
    limit = flowsim.integrate(Diagonal(40), problem, rtol=1e-10, ts=[])
    slow_time = least.decay * least.t
    when = (slow_time > 0.09) & (slow_time < 3)
    options = {"ts": slow_time[when], "diagnostics": {"test": lambda network: test(network)}}
    slow = flowsim.integrate(limit.network, problem, model=flowsim.NormFlow(), **options)
    np.testing.assert_allclose(np.asarray(slow.diagnostics["test"])[: when.sum()], least.test_risk[when], rtol=0.01)
    np.testing.assert_allclose(jnp.abs(slow.network.first * slow.network.last), [1] * 3 + [0] * 37, atol=1e-7)


def test_probes_of_weight_decay_tell_risk_and_norm_apart():
    problem = flowsim.EmpiricalRisk(np.eye(3), np.arange(3.0))
    decayed = flowsim.RegularizedRisk(flowsim.RegularizedRisk(problem, 0.2), 0.1)

    @jax.jit
    def measured(weights):
        moment = flowsim.Moment(flowsim.DeepLinear([weights]), decayed, None, jnp.zeros(()), jnp.zeros(()))
        probes = flowsim.probes.UnregularizedRisk(), flowsim.probes.SquaredNorm()
        return [probe.measure(moment) for probe in probes]

    w = np.array([2.0, -1.0, 0.5])
    risk, norm = measured(w[None])
    assert float(risk) == pytest.approx(np.mean((w - np.arange(3)) ** 2), rel=1e-12)
    assert float(norm) == pytest.approx(w @ w, rel=1e-12)
