"""From saddle to saddle (Jacot et al. 2021): the figure, its claims, the saddles' Hessians, and aligned starts."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jacot_2021 import Course, SaddleCourse, ScaledStart, WhitenedTeacher, claims, courses_of, saddle_to_saddle
from scipy.special import expit

import flowsim
from flowsim import cli
from flowsim.curvature import dense_hessian
from flowsim.kinds import seeds
from flowsim.probes import Moment
from flowsim.theory.statement import Verdict

SHIPPED = Path(__file__).parents[1] / "papers" / "jacot_2021" / "saddle_to_saddle.yaml"
FEW = "sweep.over={network.depth: [3], network.scale: [0.01, 0.001], network.draw: [0]}"
TEACHER = np.array([9.0, 3.0, 1.0])
WIDTH = 5
HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.NOT_MEASURED


def problem_and_directions():
    """The problem of the scenario shipped, with U (m, k) and Vᵀ (k, d) of its teacher."""
    data = WhitenedTeacher(kind="jacot_2021:WhitenedTeacher").load(seeds.generator(0, "data"), SHIPPED)
    problem = flowsim.LinearRegression(*data.training)
    left, _, right = np.linalg.svd(np.asarray(problem.optimum).T, full_matrices=False)
    return problem, left[:, :3], right[:3]


def balanced(values, depth, left, right):
    """The balanced network whose end-to-end matrix has the singular `values` in these directions."""
    root = np.zeros((WIDTH, WIDTH))
    root[: len(values), : len(values)] = np.diag(np.asarray(values) ** (1 / depth))
    rows = len(values)
    return flowsim.DeepLinear([root[:, :rows] @ right, *[root] * (depth - 2), left @ root[:rows]])


def course(depth, scale, *, power=None, order=(0, 1, 2), spectrum=1.0, level=1.0):
    """A flow as the theory has it, with jump times of order scale^-`power` and L − 2 for eigenvalues."""
    power = depth - 2 if power is None else power
    jumps = (3 - np.log(scale)) / (2 * TEACHER) if depth == 2 else np.array([1.0, 5.0, 20.0]) / scale**power
    jumps = jumps[list(order)]
    time = np.sort(np.append(0.0, jumps + np.linspace(-1, 1, 12)[:, None] / TEACHER))
    values = TEACHER * expit(4 * TEACHER * (time[:, None] - jumps))
    lowest = np.full((4, 20), -1e-9)
    for rank in range(3):
        exact = -2 * np.repeat(TEACHER[rank:], WIDTH - rank)
        lowest[rank, : exact.size if depth == 2 else 1] = exact if depth == 2 else exact[0] * scale ** (depth - 2)
    levels = np.append(np.cumsum(TEACHER[::-1] ** 2)[::-1], 0.0)
    stops = {name: np.arange(4.0) + 1 for name in ("stop_time", "stop_gradient")}
    stops |= {"stop_risk": levels * level, "stop_distance": scale * np.ones(4), "stop_eigenvalues": lowest * spectrum}
    return Course(depth, scale, 0, WIDTH, TEACHER, time, np.sum((values - TEACHER) ** 2, axis=1), values, **stops)


def flows():
    return [course(depth, scale) for depth in (2, 3, 5) for scale in (0.1, 0.01, 0.001)]


def verdicts(courses):
    return [claim.verdict for claim in claims(courses)]


def test_the_claims_hold_for_the_theory_and_each_fails_for_flows_that_do_otherwise():
    assert verdicts(flows()) == [HOLDS] * 7
    two = course(2, 0.001)
    for number, broken in [
        (0, [*flows()[:-1], course(5, 0.001, order=(0, 2, 1))]),
        (1, [*flows()[:-1], course(5, 0.001, level=1.02)]),
        (2, [*flows()[:-1], replace(course(5, 0.001), stop_distance=np.full(4, 0.02))]),
        (3, [course(2, 0.01), replace(two, time=1.006 * two.time)]),
        (4, [course(3, 0.01, power=1.1), course(3, 0.001, power=1.1)]),
        (5, [course(2, 0.01), course(2, 0.001, spectrum=1.05)]),
        (5, [course(2, 0.01), course(2, 0.001, spectrum=0.4)]),
        (6, [course(3, 0.01), course(3, 0.001, spectrum=1.15)]),
    ]:
        assert verdicts(broken)[number] is FAILS, number


def test_what_flows_do_not_tell_is_not_measured():
    assert verdicts([]) == verdicts([course(2, 0.1)]) == [UNKNOWN] * 7
    assert verdicts([course(2, 0.1), course(2, 0.01)])[4::2] == [UNKNOWN] * 2
    assert verdicts([course(3, 0.1), course(3, 0.01)])[3::2] == [UNKNOWN] * 2
    assert verdicts([course(3, 0.1), course(3, 0.01, spectrum=-1.0)])[6] is UNKNOWN
    unseen = replace(course(3, 0.001), stop_risk=np.array([91.0, np.nan, 1.0, 0.0]))
    assert verdicts([course(3, 0.01), unseen])[1:3] == [UNKNOWN] * 2


def test_jumps_are_timed_between_records():
    for scale in (0.1, 0.001):
        np.testing.assert_allclose(course(2, scale).jumps, (3 - np.log(scale)) / (2 * TEACHER), rtol=1e-12)
        np.testing.assert_allclose(course(5, scale).jumps, np.array([1, 5, 20]) / scale**3, rtol=1e-9)


def test_the_figure_is_drawn_of_what_is_there():
    assert [len(saddle_to_saddle(some).axes) for some in (flows(), flows()[3:4], [])] == [6, 2, 2]


def test_inputs_are_white_and_the_teacher_has_its_singular_values():
    problem, *_ = problem_and_directions()
    np.testing.assert_allclose(problem.covariance, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(np.linalg.svd(problem.optimum, compute_uv=False), [*TEACHER, 0.0], atol=1e-12)


def test_starts_differ_by_their_scale_alone_and_by_their_draw():
    def start(scale, draw, key):
        recipe = ScaledStart(kind="jacot_2021:ScaledStart", depth=3, scale=scale, draw=draw)
        return recipe.build(5, 4, key=jax.random.key(key), shared=partial(seeds.key, 0)).weights

    for one, other, third in zip(start(0.1, 0, 1), start(0.01, 0, 2), start(0.1, 1, 1), strict=True):
        np.testing.assert_allclose(one, 10 * other, rtol=1e-15)
        assert not np.allclose(one, third)


def test_the_hessian_at_a_saddle_of_two_layers_has_the_negative_eigenvalues_of_the_theory():
    """−2s_i, i > r, each h − r times."""
    problem, left, right = problem_and_directions()
    hessian = jax.jit(lambda network: dense_hessian(problem.objective, network))
    for rank in range(4):
        saddle = balanced(np.where(np.arange(3) < rank, TEACHER, 0), 2, left, right)
        spectrum = np.linalg.eigvalsh(hessian(saddle))
        expected = course(2, 0.1).expected_spectrum(rank)
        np.testing.assert_allclose(spectrum[: expected.size], expected, rtol=1e-12)
        assert spectrum[expected.size] > -1e-10


@pytest.mark.slow
def test_aligned_starts_follow_their_closed_form():
    """da/dt = 2L a^(2−2/L) (s − a) for each singular value a, twice the rate of Saxe et al., whose risk is half."""
    from scipy.integrate import quad

    depth = 3
    problem, left, right = problem_and_directions()

    @eqx.filter_jit
    def measured(network):
        columns = SaddleCourse(eigenvalues=4).measure(Moment(network, problem, None, jnp.zeros(()), jnp.zeros(())))
        return {name: columns[name] for name in ("time", "risk", "singular_values", "stop_distance")}

    start = 0.1**depth
    flow = {name: np.asarray(column) for name, column in measured(balanced([start] * 3, depth, left, right)).items()}

    def time_of(value, target):
        def of_logarithm(x):
            return 1 / (2 * depth * np.exp(x) ** (1 - 2 / depth) * (target - np.exp(x)))

        return quad(of_logarithm, np.log(start), np.log(value), epsabs=0, epsrel=1e-12, limit=400)[0]

    known = np.isfinite(flow["time"])
    values, time = flow["singular_values"][known][:, :3], flow["time"][known]
    jumps = replace(course(depth, 0.1), time=time, values=values).jumps
    np.testing.assert_allclose(jumps, [time_of(s / 2, s) for s in TEACHER], rtol=1e-6)
    for column, target in zip(values.T, TEACHER, strict=True):
        near = np.flatnonzero((column > 0.01 * target) & (column < 0.99 * target))[::4]
        np.testing.assert_allclose(time[near], [time_of(column[k], target) for k in near], rtol=1e-6)
    np.testing.assert_allclose(flow["stop_distance"][3], 0, atol=1e-6)
    assert np.isnan(flow["stop_distance"][4])


@pytest.mark.slow
def test_a_stop_does_not_depend_on_where_steps_end():
    problem, *_ = problem_and_directions()
    recipe = ScaledStart(kind="jacot_2021:ScaledStart", depth=3, scale=0.01)
    network = recipe.build(5, 4, key=jax.random.key(0), shared=partial(seeds.key, 0))

    def stops(records):
        probe = SaddleCourse(records=records)
        columns = eqx.filter_jit(probe.measure)(Moment(network, problem, None, jnp.zeros(()), jnp.zeros(())))
        return np.stack([columns["stop_gradient"][1:3], columns["stop_eigenvalues"][1:3, 0]])

    np.testing.assert_allclose(stops(64), stops(512), rtol=0.01)


@pytest.mark.slow
def test_the_scenario_measures_the_claims(tmp_path):
    assert cli.main([str(SHIPPED), "--set", FEW, "--out", str(tmp_path), "--jobs", "1"]) == 0
    courses = courses_of(flowsim.open_results(tmp_path / "saddle_to_saddle").required("sweep"))
    assert verdicts(courses) == [HOLDS, HOLDS, HOLDS, UNKNOWN, HOLDS, UNKNOWN, HOLDS]  # what is not is of two layers
    assert (tmp_path / "saddle_to_saddle" / "figures" / "saddle_to_saddle.png").stat().st_size > 5000
    assert [(one.depth, one.scale) for one in courses] == [(3, 0.01), (3, 0.001)]
    for one in courses:
        np.testing.assert_allclose(one.risk[0], one.levels[0], rtol=1e-3)
        assert (np.diff(one.stop_time) > 0).all()


def test_saddles_are_refused_of_other_networks():
    problem, left, right = problem_and_directions()
    network = balanced(TEACHER, 2, left, right)
    with pytest.raises(ValueError, match="eigenvalues is 46: expected from 1 to 45"):
        SaddleCourse(eigenvalues=46).check(network, problem)
    with pytest.raises(ValueError, match="deep linear networks of several outputs"):
        SaddleCourse().check(network, flowsim.EmpiricalRisk(np.eye(5), np.eye(5)[:, :4]))
