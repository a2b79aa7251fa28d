"""The stochastic edge (Andreyev and Beneventano 2024): curvatures of minibatches, the figures, and their claims."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from andreyev_2024 import (
    FULL,
    BatchCurvatures,
    Course,
    Curvatures,
    Plateau,
    Plateaus,
    batch_of,
    course_claims,
    courses,
    plateau_claims,
    plateaus,
)

import flowsim
from flowsim import cli
from flowsim.probes import BatchSharpness, MeanSquareSharpness, Moment, SharpnessGap
from flowsim.scenarios import ScenarioError, parse_overrides, read_scenario
from flowsim.theory.statement import Verdict

SHIPPED = Path(__file__).parents[1] / "papers" / "andreyev_2024" / "stochastic_edge.yaml"
SGD = "optimizer: {kind: sgd, batch: %d, replacement: true}"
FEW = [
    "sweep.repetitions=5",
    "sweep.descent=[{learning_rates: [0.17], steps: 8000}, "
    + f"{{learning_rates: [0.17], steps: 8000, {SGD % 4}}}, {{learning_rates: [0.170001], steps: 8000, {SGD % 32}}}, "
    + f"{{learning_rates: [0.170002], steps: 600, {SGD % 4}}}, {{learning_rates: [0.170003], steps: 600, {SGD % 32}}}]",
]
HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.NOT_MEASURED
BATCHES = (4, 8, 16, 32)


def course(level, *, batch=8, rate=0.5, begins=0.0, before=None, diverged=False):
    """Return records from `begins` to t = 100, all at `level` times 2/η, until t = 10 at `before`."""
    t = np.linspace(begins, 100, 201)
    values = 2 / rate * np.where(t <= 10, level if before is None else before, level)
    return Curvatures(batch, rate, begins, diverged, t, 0.7 * values, values, 0.98 * values)


SMALL, FULL_BATCH = course(1.0), course(1.0 / 0.7, batch=FULL)
LOWER, LARGER = course(0.95, rate=0.25, begins=10.0), course(0.95 / 0.7, batch=32, begins=10.0)


def verdicts(small=SMALL, full=FULL_BATCH, lower=LOWER, larger=LARGER):
    return [claim.verdict for claim in course_claims(small, full, lower, larger)]


def test_the_claims_on_a_course_hold_where_curvatures_follow_the_edge_and_fail_or_are_not_measured_elsewhere():
    assert verdicts() == [HOLDS] * 4
    assert verdicts(full=course(1.2 / 0.7, batch=FULL))[0] is FAILS
    for level in (0.8 * 0.5 + 0.2, 1.4):  # a part of the way from half of the new edge, and beyond it
        assert verdicts(lower=course(level, rate=0.25, begins=10.0))[1:3] == [FAILS, FAILS]
    assert verdicts(larger=course(1.0, batch=32, begins=10.0))[3] is FAILS

    lost = dataclasses.replace(FULL_BATCH, diverged=True)
    assert verdicts(full=lost)[0] is UNKNOWN
    assert verdicts(lower=dataclasses.replace(LOWER, diverged=True))[1:3] == [UNKNOWN, UNKNOWN]
    assert verdicts(small=course(1.0, before=1.9))[1:3] == [UNKNOWN, UNKNOWN]  # at the new edge already
    assert verdicts(small=course(1.0 / 0.7))[3] is UNKNOWN  # no gap


def test_late_means_are_over_the_second_half_of_the_own_run():
    run = course(1.0, begins=10.0)
    rising = dataclasses.replace(run, sharpness=np.where(run.t < 55, 0.0, 4.0))
    assert rising.late(rising.sharpness) == pytest.approx(1.0)
    assert run.before(np.where(run.t < 15, 0.0, 3.0), 30.0) == pytest.approx(3.0)


def plateau(batch, S, *, mean_square=0.96, batch_sharpness=0.95, share=1.0, steps=8000):
    """Return where eight starts end, spread by 2 %; the gap predicted is a `share` of that of S."""
    around = np.linspace(0.98, 1.02, 8)
    values = [around * level for level in (S, mean_square, batch_sharpness)]
    return Plateau(batch, steps, 0.17, *values, 1 - values[0], share * (1 - values[0]))


def found(S=(0.5, 0.7, 0.85, 0.94), full=0.99, share=1.0, **levels):
    ends = [plateau(batch, level, share=share, **levels) for batch, level in zip(BATCHES, S, strict=True)]
    first = [plateau(batch, 0.9 * level, share=share, steps=600) for batch, level in zip(BATCHES, S, strict=True)]
    return [*first, *ends, plateau(FULL, full, share=0.0)]


def ends(given):
    return [claim.verdict for claim in plateau_claims(given)]


def test_the_claims_on_plateaus_hold_at_the_edge_and_fail_or_are_not_measured_elsewhere():
    assert ends(found()) == [HOLDS] * 7
    assert ends(found(full=0.85))[0] is FAILS
    for S in ((0.7, 0.5, 0.85, 0.94), (0.5, 0.7, 0.85, 1.01)):
        assert ends(found(S=S))[1] is FAILS
    assert ends(found(mean_square=0.85, batch_sharpness=0.85))[2:4] == [FAILS, FAILS]
    assert ends([dataclasses.replace(one, batch_sharpness=one.sharpness) for one in found()])[3:5] == [FAILS, FAILS]
    for share in (0.15, 3.0):
        assert ends(found(share=share))[5:] == [FAILS, FAILS]

    unknown = [dataclasses.replace(one, predicted=np.full(8, np.nan)) for one in found()]
    assert ends(unknown)[5:] == [UNKNOWN, UNKNOWN]
    lost = [dataclasses.replace(one, sharpness=one.sharpness * [1, 1, 1, 1, 1, 1, 1, np.nan]) for one in found()]
    assert ends(lost) == [UNKNOWN] * 7
    assert ends(found()[4:])[5] is UNKNOWN  # nothing early


def test_what_a_batch_is_called_by_its_optimizer():
    sgd = {"kind": "sgd", "batch": 8, "replacement": True, "momentum": None}
    assert batch_of(sgd) == 8
    assert batch_of({"kind": "gradient_descent"}) == FULL
    for other in (sgd | {"replacement": False}, sgd | {"momentum": 0.9}, {"kind": "adam"}):
        assert batch_of(other) is None


@pytest.mark.slow
def test_the_probe_measures_the_probes_of_flowsim_and_where_a_run_ends_the_noise_of_single_samples():
    X = np.random.default_rng(0).standard_normal((5, 2))
    problem = flowsim.EmpiricalRisk(X, np.tanh(X[:, :1]) + 0.1)
    network = flowsim.Perceptron.gaussian(widths=[2, 2, 1], scale=1.0, key=jax.random.key(0), activation=jnp.tanh)
    moment = Moment(network, problem, None, jnp.array(jnp.nan), jnp.array(1.0), learning_rate=jnp.array(0.3))

    @eqx.filter_jit
    def measured(moment):
        own = BatchCurvatures(batches=(2,), along=(2,)).measure(moment)
        drawn = BatchSharpness(2, replacement=True).measure(moment)["mean"]
        gap = SharpnessGap(2, replacement=True).measure(moment)
        return own, drawn, MeanSquareSharpness(2, replacement=True).measure(moment), gap

    own, drawn, mean_square, gap = jax.tree.map(float, measured(moment))
    assert own["sharpness_2"] == pytest.approx(drawn, rel=1e-12)  # over all batches, so of no draws
    assert own["mean_square_2"] == pytest.approx(mean_square, rel=1e-12)
    np.testing.assert_allclose(0.3 / 2 * own["noise"], gap["predicted"], rtol=1e-9)
    assert own["centre"] == pytest.approx(2 / 0.3 - gap["measured"], rel=1e-9)


def test_the_probe_refuses_what_is_no_batch():
    with pytest.raises(ValueError, match="batch"):
        BatchCurvatures(batches=(0,))


@pytest.mark.slow
def test_the_scenario_measures_them(tmp_path):
    assert cli.main([str(SHIPPED), *(f"--set={one}" for one in FEW), "--out", str(tmp_path), "--jobs", "1"]) == 0
    results = flowsim.open_results(tmp_path / "stochastic_edge")
    small, full, lower, larger = courses(results)
    assert [one.batch for one in (small, full, lower, larger)] == [8, FULL, 8, 32]
    assert (lower.rate, lower.begins, lower.t[0]) == pytest.approx((0.17, 68.0, 68.0), abs=0.4)
    assert [claim.verdict for claim in Course().claims(results)] == [HOLDS] * 4
    found = plateaus(results.required("sweep"))
    assert [(one.batch, one.steps) for one in found] == [(4, 600), (4, 8000), (32, 600), (32, 8000), (FULL, 8000)]
    assert all(one.sharpness == pytest.approx(1 - one.gap, abs=0.05) for one in found if one.steps == 8000)
    claims = [claim.verdict for claim in Plateaus().claims(results)]
    assert [claims[place] for place in (0, 1, 2, 4)] == [HOLDS] * 4
    assert HOLDS not in claims[5:]
    for figure in (Course(), Plateaus()):
        assert (tmp_path / "stochastic_edge" / "figures" / f"{figure.name}.png").stat().st_size > 5000


FORKS = f"{{step: 1, optimizer: gradient_descent}}, {{step: 9, learning_rates: [0.5]}}, {{step: 9, {SGD % 4}}}"
RECORD = '{kind: "andreyev_2024:BatchCurvatures", batches: [4, 16], along: [8]}'


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (f"descent.forks=[{FORKS}]", "forks: full batch, other, other; expected sgd with replacement at one rate"),
        ("sweep.descent=[{learning_rates: [0.17], steps: 10}]", "sweep: found a sweep with 1 descents"),
        (f"record=[{RECORD}]", "record: found no record of the curvatures of batches of 8, 32; expected one of every"),
    ],
)
def test_a_scenario_without_what_the_figures_show_is_refused(setting, message):
    with pytest.raises(ScenarioError, match=message):
        read_scenario(SHIPPED, parse_overrides([setting]))
