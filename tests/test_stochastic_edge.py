"""The stochastic edge (Andreyev and Beneventano 2024): curvatures of minibatches, the figures, and their claims."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import andreyev_2024 as paper
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from andreyev_2024 import FULL, Course, Curvatures, Plateau, Plateaus

import flowsim
from flowsim import cli
from flowsim.probes import BatchSharpness, MeanSquareSharpness, Moment, SharpnessGap
from flowsim.scenarios import build, parse_overrides, read_scenario, resolved, run
from flowsim.theory.statement import Verdict

SHIPPED = Path(__file__).parents[1] / "papers" / "andreyev_2024" / "stochastic_edge.yaml"
SGD = "optimizer: {kind: sgd, batch: %d, replacement: true}"
FEW = [
    "descent={learning_rates: []}",
    "figure=andreyev_2024:Plateaus",
    'record=[{kind: "andreyev_2024:BatchCurvatures", batches: [4, 32]}]',
    "sweep.repetitions=3",
    "sweep.descent=[{learning_rates: [0.17], steps: 5000}, "
    + f"{{learning_rates: [0.17], steps: 5000, {SGD % 4}}}, {{learning_rates: [0.170001], steps: 5000, {SGD % 32}}}, "
    + f"{{learning_rates: [0.170002], steps: 600, {SGD % 4}}}, {{learning_rates: [0.170003], steps: 600, {SGD % 32}}}]",
]
HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.NOT_MEASURED


def course(level, *, batch=8, rate=0.5, begins=0.0, before=None, diverged=False):
    """Return records from `begins` to t = 100, all at `level` times 2/η, until t = 10 at `before`."""
    t = np.linspace(begins, 100, 201)
    values = 2 / rate * np.where(t <= 10, level if before is None else before, level)
    return Curvatures(batch, rate, begins, diverged, t, 0.7 * values, values, 0.98 * values)


SMALL, FULL_BATCH = course(1.0), course(1.0 / 0.7, batch=FULL)
LOWER, LARGER = course(0.95, rate=0.25, begins=10.0), course(0.95 / 0.7, batch=32, begins=10.0)


def verdicts(small=SMALL, full=FULL_BATCH, lower=LOWER, larger=LARGER):
    return [claim.verdict for claim in paper.course_claims(small, full, lower, larger)]


def test_the_claims_on_a_course_hold_where_curvatures_follow_the_edge_and_fail_or_are_not_measured_elsewhere():
    assert verdicts() == [HOLDS] * 4
    assert verdicts(full=course(1.2 / 0.7, batch=FULL))[0] is FAILS
    for level in (0.8 * 0.5 + 0.2, 1.4):  # a part of the way from half of the new edge, and beyond it
        assert verdicts(lower=course(level, rate=0.25, begins=10.0))[1:3] == [FAILS, FAILS]
    assert verdicts(larger=course(1.0, batch=32, begins=10.0))[3] is FAILS
    assert verdicts(full=replace(FULL_BATCH, diverged=True))[0] is UNKNOWN
    assert verdicts(lower=replace(LOWER, diverged=True))[1:3] == [UNKNOWN, UNKNOWN]
    assert verdicts(small=course(1.0, before=1.9))[1:3] == [UNKNOWN, UNKNOWN]  # at the new edge already
    assert verdicts(small=course(1.0 / 0.7))[3] is UNKNOWN  # no gap


def test_late_means_are_over_the_second_half_of_the_own_run():
    run = course(1.0, begins=10.0)
    assert run.late(np.where(run.t < 55, 0.0, 4.0)) == pytest.approx(1.0)
    assert run.before(np.where(run.t < 15, 0.0, 3.0), 30.0) == pytest.approx(3.0)


def plateau(batch, S, *, mean_square=0.96, batch_sharpness=0.95, share=1.0, steps=8000):
    """Return where eight starts end, spread by 2 %; the gap predicted is a `share` of that of S."""
    around = np.linspace(0.98, 1.02, 8)
    values = [around * level for level in (S, mean_square, batch_sharpness)]
    return Plateau(batch, steps, 0.17, *values, 1 - values[0], share * (1 - values[0]))


def plateaus(S=(0.5, 0.7, 0.85, 0.94), full=0.99, share=1.0, **levels):
    late = [plateau(batch, level, share=share, **levels) for batch, level in zip((4, 8, 16, 32), S, strict=True)]
    early = [plateau(one.batch, 0.9 * level, share=share, steps=600) for one, level in zip(late, S, strict=True)]
    return [*early, *late, plateau(FULL, full, share=0.0)]


def test_the_claims_on_plateaus_hold_at_the_edge_and_fail_or_are_not_measured_elsewhere():
    def verdicts(given):
        return [claim.verdict for claim in paper.plateau_claims(given)]

    held = plateaus()
    assert verdicts(held) == [HOLDS] * 7
    assert verdicts(plateaus(full=0.85))[0] is FAILS
    for S in ((0.7, 0.5, 0.85, 0.94), (0.5, 0.7, 0.85, 1.01)):
        assert verdicts(plateaus(S=S))[1] is FAILS
    assert verdicts(plateaus(mean_square=0.85, batch_sharpness=0.85))[2:4] == [FAILS, FAILS]
    assert verdicts([replace(one, batch_sharpness=one.sharpness) for one in held])[3:5] == [FAILS, FAILS]
    for share in (0.15, 3.0):
        assert verdicts(plateaus(share=share))[5:] == [FAILS, FAILS]
    assert verdicts([replace(one, predicted=np.full(8, np.nan)) for one in held])[5:] == [UNKNOWN, UNKNOWN]
    one_start_diverges = np.array([1, 1, 1, 1, 1, 1, 1, np.nan])
    assert verdicts([replace(one, sharpness=one.sharpness * one_start_diverges) for one in held]) == [UNKNOWN] * 7
    assert verdicts(held[4:])[5] is UNKNOWN  # nothing early


def test_a_batch_is_that_of_sgd_with_replacement_and_without_momentum_alone():
    sgd = {"kind": "sgd", "batch": 8, "replacement": True, "momentum": None}
    optimizers = [sgd, {"kind": "gradient_descent"}, sgd | {"replacement": False}, sgd | {"momentum": 0.9}]
    assert [paper.batch_of(one) for one in [*optimizers, {"kind": "adam"}]] == [8, FULL, None, None, None]


@pytest.mark.slow
def test_the_probe_measures_the_probes_of_flowsim_and_where_a_run_ends_the_noise_of_single_samples():
    X = np.random.default_rng(0).standard_normal((5, 2))
    problem = flowsim.EmpiricalRisk(X, np.tanh(X[:, :1]) + 0.1)
    network = flowsim.Perceptron.gaussian(widths=[2, 2, 1], scale=1.0, key=jax.random.key(0), activation=jnp.tanh)
    moment = Moment(network, problem, None, jnp.array(jnp.nan), jnp.array(1.0), learning_rate=jnp.array(0.3))

    @eqx.filter_jit
    def measured(moment):
        own = paper.BatchCurvatures(batches=(2,), along=(2,)).measure(moment)
        drawn = BatchSharpness(2, replacement=True).measure(moment)["mean"]
        gap = SharpnessGap(2, replacement=True).measure(moment)
        return own, drawn, MeanSquareSharpness(2, replacement=True).measure(moment), gap

    own, drawn, mean_square, gap = jax.tree.map(float, measured(moment))
    assert own["sharpness_2"] == pytest.approx(drawn, rel=1e-12)  # over all batches, so of no draws
    assert own["mean_square_2"] == pytest.approx(mean_square, rel=1e-12)
    np.testing.assert_allclose(0.3 / 2 * own["noise"], gap["predicted"], rtol=1e-9)
    assert own["centre"] == pytest.approx(2 / 0.3 - gap["measured"], rel=1e-9)


def test_courses_are_read_of_the_descent_of_the_scenario_and_its_forks_judged_and_drawn():
    stored = [SMALL, FULL_BATCH, LOWER, LARGER]
    names = {"time": "t", "sharpness": "sharpness"}
    names |= {"batches_mean_square_8": "mean_square", "batches_sharpness_8": "batch_sharpness"}
    columns = {name: (("run", "record"), [getattr(one, field) for one in stored]) for name, field in names.items()}
    columns |= {"records": ("run", [201] * 4), "outcome": ("run", [int(flowsim.Outcome.STEP_LIMIT)] * 4)}
    coordinates = {
        "dynamics": ("run", ["sgd", "gradient_descent", "sgd", "sgd"]),
        "learning_rate": ("run", [one.rate for one in stored]),
        "branch": ("run", ["", "step 1", "step 200", "step 200"]),
    }
    dataset = xarray.Dataset(columns, coordinates)
    results = SimpleNamespace(scenario=resolved(read_scenario(SHIPPED)), required=lambda _: dataset)
    measured = paper.courses(results)
    assert [one.batch for one in measured] == [8, FULL, 8, 32]
    np.testing.assert_allclose([one.begins for one in measured], [0, 0.34, 68, 68], rtol=1e-12)
    np.testing.assert_array_equal(measured[2].mean_square, LOWER.mean_square)
    assert np.isnan(measured[3].batch_sharpness).all()  # of batches of 32 it is not recorded
    assert [claim.verdict for claim in Course().claims(results)] == [HOLDS] * 4
    assert len(Course().draw(results).axes) == 2


@pytest.mark.slow
def test_the_descent_of_the_scenario_and_its_forks_have_their_courses():
    """The forks make ten steps here: too few for the claims, which the test above judges."""
    curvatures = 'record=[{kind: "andreyev_2024:BatchCurvatures", batches: [8, 32], along: [8]}]'
    settings = ["sweep=null", "figure=andreyev_2024:Course", "flow.t1=2", "descent.steps=210", curvatures]
    scenario = read_scenario(SHIPPED, parse_overrides(settings))
    dataset = run(scenario, *build(scenario, SHIPPED.parent)).to_dataset()
    measured = paper.courses(SimpleNamespace(scenario=resolved(scenario), required=lambda _: dataset))
    runs = [(one.batch, one.rate, round(one.begins / 0.34)) for one in measured]
    assert runs == [(8, 0.34, 0), (FULL, 0.34, 1), (8, 0.17, 200), (32, 0.34, 200)]
    for one in measured:
        assert np.isfinite(one.sharpness).all()
        assert np.isfinite([one.mean_square, one.batch_sharpness]).all() == (one.batch == 8)


@pytest.mark.slow
def test_the_sweep_of_the_scenario_measures_where_curvatures_end(tmp_path):
    assert cli.main([str(SHIPPED), *(f"--set={one}" for one in FEW), "--out", str(tmp_path), "--jobs", "1"]) == 0
    results = flowsim.open_results(tmp_path / "stochastic_edge")
    ends = paper.plateaus(results.required("sweep"))
    assert [(one.batch, one.steps) for one in ends] == [(4, 600), (4, 5000), (32, 600), (32, 5000), (FULL, 5000)]
    assert all(one.sharpness == pytest.approx(1 - one.gap, abs=0.05) for one in ends if one.steps == 5000)
    claims = [claim.verdict for claim in Plateaus().claims(results)]
    assert [claims[place] for place in (0, 1, 2, 4)] == [HOLDS] * 4
    assert HOLDS not in claims[5:]
    assert (tmp_path / "stochastic_edge" / "figures" / "plateaus.png").stat().st_size > 5000
