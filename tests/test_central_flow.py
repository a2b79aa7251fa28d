"""The central flow against closed forms of constrained flows, and against descent itself."""

import dataclasses
import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from test_edge_flow import FOREVER, edge_of_stability, flat

import flowsim
from flowsim.edge.central_field import CentralField, Edge
from flowsim.edge.central_onset import Growth
from flowsim.edge.complementarity import complementary_covariance, symmetric_basis
from flowsim.solvers.field import gradient_field

ETA = 0.2
EDGE = 2 / ETA


class AtTheEdge(flowsim.Probe):
    """What the flow knows of the edge, and what it predicts from it."""

    model: flowsim.CentralFlow
    label = flowsim.Label("edge", "what is held at the edge", "edge", logarithmic=False)

    def measure(self, moment):
        state = moment.state.stepper.solver
        rows = moment.oscillation
        return {
            "active": state.edge.active.astype(float),
            "switches": state.switches.astype(float),
            "values": state.edge.values,
            "covariance": state.covariance,
            "oscillation": jax.vmap(lambda row: ravel_pytree(row)[0])(rows),
            "risk": self.model.mean_risk(moment.state, moment.problem(moment.network)),
            "squares": self.model.mean_squared_gradient_norm(moment.state, moment.gradient_norm),
        }


def central(start, risk, *, eta=ETA, rtol=1e-8, t1=float("inf"), most=4, **options):
    """Return a run with all that it knows of the edge at each record."""
    model = flowsim.CentralFlow(eta, rtol=rtol, most=most)
    options = {"records": 200, "weights": True} | options
    # With a learning rate that is an array, another one or another tolerance compiles nothing.
    probe = AtTheEdge(flowsim.CentralFlow(jnp.asarray(eta)))
    run = flowsim.integrate(start, risk, model=model, t1=t1, probes=[probe], **options)
    return run, {name: np.asarray(value) for name, value in run.diagnostics["edge"].items()}


# --- the field ------------------------------------------------------------------------------------------------------


def test_the_field_of_order_two_holds_an_eigenvalue_at_an_edge_that_moves():
    """R = ½(8 + x)y² − x − z + xz/4 at y = 0, held along y: T = ∇S is that of x, and x' = (2/η)' − (x − 2)/τ.

    With M = 1 + ηH/2, −M∇R has 1 − z/4 + (η/8)(1 − x/4) along x, and M T has 1 there and η/8 along z.
    """
    field, _ = gradient_field(
        jnp.zeros(3), flowsim.Risk(lambda w: (8 + w[0]) * w[1] ** 2 / 2 - w[0] - w[2] + w[0] * w[2] / 4)
    )

    @jax.jit
    def reading(x, z, relaxation, drift):
        weights, eta = jnp.array([x, 0, z]), jnp.array(ETA)
        edge = Edge.unknown(weights, 1, scouts=2)
        rows, values = edge.vectors.at[0, 1].set(1), edge.values.at[0].set(8 + x)
        edge = dataclasses.replace(edge, vectors=rows, values=values, active=jnp.array(1), near=jnp.array(1))
        options = {"most": 1, "near": 0.9, "scouts": 2, "order": 2, "drift": drift}
        options |= {"growth": Growth.unknown(eta), "steps": eta, "waits": jnp.array(False), "missed": eta}
        options |= {"relaxation": relaxation, "rtol": jnp.array(1e-9), "met": jnp.array(1e-10), "edge": edge}
        central = CentralField(field, flowsim.CentralFlow(eta), **options)
        there, _, _ = central.reading(weights, edge, look=jnp.array(False), ends=jnp.array(False))
        return there.slope, there.covariance, there.objective, there.gradient_norm

    for x, z, relaxation, drift in ((2.0, 1.0, 0.2, 0.0), (2.01, 0.5, 0.3, 0.0), (2.0, 1.0, 0.2, 0.01)):
        slope, covariance, objective, norm = reading(x, z, relaxation, drift)
        moves = -2 * drift / ETA**2 - (x - 2) / relaxation
        variance = 2 * (1 - z / 4 + ETA / 8 * (1 - x / 4) - moves)
        along = 1 - x / 4 + ETA / 8 * (1 - z / 4) - ETA / 16 * variance
        assert float(covariance[0, 0]) == pytest.approx(variance, rel=1e-9)
        np.testing.assert_allclose(slope, [moves, 0, along], atol=1e-9)
        assert float(objective) == pytest.approx(-x - z + x * z / 4, rel=1e-12)
        assert float(norm) == pytest.approx(np.hypot(1 - x / 4, 1 - z / 4), rel=1e-12)


# --- in closed form -------------------------------------------------------------------------------------------------


class Tide(flowsim.Problem):
    """Σ ½(floor + steep·x)y² − drive·x − pull·(z − xz/4), over three copies that do not see each other.

    At y = 0 the curvature along y is 8 + x, and x' = 1 − z/4, z' = 1 − x/4 below the edge. From x = z = x₀ < 2:
    4 − x = 4 − z = (4 − x₀)e^{−t/4}, until x = 2 at t₁ = 4 ln(2 − x₀/2). There x stays, z = 2 + (t − t₁)/2 and
    X = 2(1 − z/4), until z = 4 at t₁ + 4. Then x = 4 − 2 cosh(s/4) and z = 4 + 2 sinh(s/4), s later.
    """

    pull: jax.Array
    drive: jax.Array
    floor: jax.Array
    steep: jax.Array

    def __call__(self, w):
        x, y, z = w["x"], w["y"], w["z"]
        return jnp.sum((self.floor + self.steep * x) * y**2 / 2 - self.drive * x - self.pull * (z - x * z / 4))


def tide(*, pull=(1, 1, 0), drive=(1, 1, 0), floor=(8, 8, 4), steep=(1, 1, 1)):
    """Return two tides, and beside them a copy at rest."""
    return Tide(*(jnp.array(numbers, float) for numbers in (pull, drive, floor, steep)))


TIMES = np.linspace(0, 9, 209)


def tide_run(heights, risk, times, **options):
    """Return a run from x = z = heights with room for two eigenvalues: all of these runs are one program."""
    heights = jnp.array(heights)
    start = {"x": heights, "y": 0 * heights, "z": heights}
    assert len(times) == len(TIMES)
    return central(start, risk, ts=times, records=None, most=2, **options)


def arrival(height):
    return 4 * np.log(2 - height / 2)


def exact_tide(height, times):
    """Return x, z and X at the times."""
    before = 4 - (4 - height) * np.exp(-times / 4)
    s = np.maximum(times - arrival(height) - 4, 0)
    at_edge = times >= arrival(height)
    x = np.where(~at_edge, before, np.where(s > 0, 4 - 2 * np.cosh(s / 4), 2))
    z = np.where(~at_edge, before, np.where(s > 0, 4 + 2 * np.sinh(s / 4), 2 + (times - arrival(height)) / 2))
    return x, z, np.where(at_edge & (s == 0), 2 * (1 - z / 4), 0)


def check_complementarity(edge):
    """Σ ⪰ 0, H ⪯ 2/η, and ⟨Σ, 2/η − H⟩ = 0, each to 1e-8 of its size."""
    values, covariance = edge["values"], edge["covariance"]
    size = np.abs(covariance).max()
    assert (values[:, 0] <= EDGE * (1 + 1e-8)).all()
    assert np.linalg.eigvalsh(covariance).min() >= -1e-8 * size
    apart = EDGE - values[:, None, : covariance.shape[1]]
    apart = np.where(np.isfinite(apart), apart, 0)  # nothing is known of eigenvalues that are not followed
    assert np.abs(covariance * apart).max() <= 1e-8 * EDGE * size


@pytest.mark.parametrize("heights", [(0.3, -0.4), (0.0, 0.0)])
@pytest.mark.slow
def test_eigenvalues_come_to_the_edge_slide_along_it_and_leave_as_in_closed_form(heights):
    arrivals = np.array([arrival(height) for height in heights])
    # The first is found to ten digits, another one to the tolerance of a step.
    near = np.where(arrivals == arrivals.min(), 1e-8, 1e-6)
    moments = np.unique(np.concatenate([arrivals - near, arrivals + near, arrivals + 4 - 1e-3, arrivals + 4.05]))
    sampled = np.sort([*np.linspace(0, 9, len(TIMES) - len(moments)), *moments])
    run, edge = tide_run((*heights, 0.0), tide(), sampled, t1=9.0)
    times = np.asarray(run.times)
    exact = [exact_tide(height, times) for height in heights]
    for copy, (x, z, _) in enumerate(exact):
        np.testing.assert_allclose(np.asarray(run.weights["x"])[:, copy], x, atol=1e-6)
        np.testing.assert_allclose(np.asarray(run.weights["z"])[:, copy], z, atol=1e-6)
    variance = sum(one for *_, one in exact)
    np.testing.assert_allclose(np.trace(edge["covariance"], axis1=1, axis2=2), variance, atol=1e-6)
    held = [((arrivals < time) & (time < arrivals + 4)).sum() for time in moments]
    assert edge["active"][np.searchsorted(times, moments)].tolist() == held
    np.testing.assert_allclose(edge["values"][np.searchsorted(times, moments[:2]), 0], EDGE, rtol=2e-9)
    assert edge["switches"][-1] <= 4
    check_complementarity(edge)


@pytest.mark.slow
def test_the_tighter_the_tolerance_the_smaller_the_error():
    """Through arrivals at the edge and departures, all of them kinks of the solution."""
    heights = np.array([0.3, -0.4])
    exact = np.stack(exact_tide(heights, 9.0)[:2])

    def error(rtol):
        run, _ = tide_run((*heights, 0.0), tide(), TIMES, t1=9.0, rtol=rtol)
        end = np.stack([run.network["x"][:2], run.network["z"][:2]])
        return np.linalg.norm(end - exact) / np.linalg.norm(exact)

    for rtol in (1e-4, 1e-5, 1e-6, 1e-7, 1e-8):
        assert error(rtol) < 10 * rtol


@pytest.mark.slow
def test_more_eigenvalues_at_the_edge_than_there_is_room_for_end_the_run():
    all_three = tide(pull=(1, 1, 1), drive=(1, 1, 1), floor=(8, 8, 8))
    run, _ = tide_run((0.3, 0.0, -0.4), all_three, TIMES, t1=9.0)
    assert run.outcome is flowsim.Outcome.SOLVER_FAILED
    assert float(run.time) == pytest.approx(arrival(-0.4), abs=1e-4)


@pytest.mark.slow
def test_a_flow_that_the_edge_holds_off_every_minimum_predicts_the_two_cycle_of_descent_and_has_not_converged():
    """The curvature rises along x without end, and nothing else moves.

    Descent swings between ±√2 at x = 2, where the risk is 8 and ‖∇R‖² 200; the latter is predicted to order η².
    """
    ramp = tide(pull=(0, 0, 0), drive=(1, 0, 0))
    run, edge = tide_run((0.0, 0.0, 0.0), ramp, TIMES)
    assert run.outcome is flowsim.Outcome.FIXED_POINT
    assert float(run.gradient_norm[-1]) == pytest.approx(1)
    np.testing.assert_allclose(run.network["x"], [2, 0, 0], atol=1e-8)
    assert edge["covariance"][-1].sum() == pytest.approx(2, rel=1e-8)
    start = {"x": jnp.array([2.0, 0, 0]), "y": jnp.array([np.sqrt(2), 0, 0]), "z": jnp.zeros(3)}
    descent = flowsim.descend(start, ramp, learning_rate=ETA, steps=11, stopping=FOREVER)
    assert float(descent.network["y"][0]) == pytest.approx(-np.sqrt(2))
    rows = edge["oscillation"][-1]
    np.testing.assert_allclose(rows.T @ rows, np.diag([0, 0, 0, 2, 0, 0, 0, 0, 0]), atol=1e-6)
    assert edge["risk"][-1] == pytest.approx(float(descent.final_risk), rel=1e-6)
    assert edge["squares"][-1] == pytest.approx(float(descent.gradient_norm[-1]) ** 2, rel=1e-2)


@pytest.mark.slow
def test_a_central_flow_at_rest_is_at_a_fixed_point_at_its_time_limit_whatever_the_tolerance():
    """At rest each step is ten times as long: few fit in before the time limit, at 1e-4 and 300 none."""
    risk = flowsim.Risk(lambda w: 12 * w[0] ** 2 - 2 * w[0] ** 4 + w[1] ** 2 / 2)
    for rtol, t1 in itertools.product((1e-4, 1e-6, 1e-8), (300, 1e3, 1e4)):
        model = flowsim.CentralFlow(0.1, rtol=rtol)
        run = flowsim.integrate(jnp.array([0.1, 1.0]), risk, model=model, t1=t1, ts=[], max_steps=3000)
        assert run.outcome is flowsim.Outcome.FIXED_POINT
        np.testing.assert_allclose(run.network, [6**-0.5, 0], atol=1e-8)


@pytest.mark.slow
def test_a_sharpness_beyond_the_edge_that_falls_below_by_itself_in_one_step_is_let_go():
    """R = 15xy² + x has S = 30x at y = 0, and x falls at the rate of one: from 1.29 to 0.4 of 2/η with Σ = 0."""
    falling = tide(pull=(0, 0, 0), drive=(-1, 0, 0), floor=(0, 8, 4), steep=(30, 1, 1))
    run, edge = tide_run((0.43, 0.0, 0.0), falling, TIMES / 30, t1=0.3)
    assert run.outcome is flowsim.Outcome.TIME_LIMIT
    np.testing.assert_allclose(run.weights["x"][:, 0], 0.43 - run.times, atol=1e-12)
    assert (edge["active"][0], edge["active"][-1]) == (0, 0)
    np.testing.assert_array_equal(edge["oscillation"], 0)


# --- several eigenvalues that see each other ------------------------------------------------------------------------


class Bowl(flowsim.Problem):
    """½ yᵀMy + ½‖M − D‖², over y and a symmetric matrix M given by its coordinates in an orthonormal basis.

    At y = 0 the Hessian is that of M beside ones, and the central flow is the gradient flow of a strongly convex
    function of M on the convex set M ⪯ 2/η. Its limit is the projection of D onto that set, which clips eigenvalues,
    and there Σ is 2(D − 2/η)₊.
    """

    aim: jax.Array

    def __call__(self, w):
        matrix = jnp.tensordot(w["m"], jnp.asarray(symmetric_basis(3)), 1)
        return w["y"] @ matrix @ w["y"] / 2 + jnp.sum((matrix - self.aim) ** 2) / 2


def until(end, begin=0.0):
    """Return the options of a run with few records, which make its steps shorter."""
    return {"t1": end, "ts": np.linspace(begin, end, 4), "records": None, "stopping": FOREVER}


def rotated(values, seed):
    turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(values), len(values))))[0]
    return (turn * np.array(values)) @ turn.T


def start_at(matrix):
    return {"m": jnp.asarray(np.einsum("nij,ij->n", symmetric_basis(3), matrix)), "y": jnp.zeros(3)}


def matrix_of(run):
    return np.einsum("n,nij->ij", np.asarray(run.network["m"]), symmetric_basis(3))


@pytest.mark.slow
def test_eigenvectors_that_turn_into_each_other_end_at_the_projection_onto_what_is_flat_enough():
    """Coupled: M sets out with other eigenvectors than D, so that T₁₂ ≠ 0 and Σ turns all the way.

    The three eigenvalues repel each other: with one held, the next would come ever more slowly, while both eigenvectors
    turn ever faster.
    """
    aim, begin = rotated((17.0, 14.0, 11.0), 0), rotated((8.0, 5.0, 3.0), 1)
    start, problem = start_at(begin), Bowl(jnp.asarray(aim))
    run, edge = central(start, problem, **until(30.0))
    np.testing.assert_allclose(matrix_of(run), EDGE * np.eye(3), atol=1e-7)
    rows = edge["oscillation"][-1][:, -3:]
    np.testing.assert_allclose(rows.T @ rows, 2 * (aim - EDGE * np.eye(3)), atol=1e-6)
    assert edge["active"][-1] == 3
    check_complementarity(edge)
    run, _ = central(start, problem, **until(10.0), rtol=1e-4)
    np.testing.assert_allclose(matrix_of(run), EDGE * np.eye(3), atol=1e-3)
    # 48 measured, with small entries followed to their own digits (16 beside an absolute tolerance). Where the second
    # had to come to ten digits while one alone was held, there were 79 beside an absolute tolerance.
    assert run.steps < 60


@pytest.mark.slow
def test_two_coupled_eigenvalues_are_followed_as_by_scipy_from_dense_matrices():
    """DOP853 on −∇R − ½⟨T, X⟩ with X = B⁻¹A on the two eigenvectors at the edge, all by dense derivatives."""
    import scipy.integrate

    aim, begin = rotated((16.0, 13.0, 4.0), 2), rotated((8.0, 7.0, 3.0), 3)
    start, problem = start_at(begin), Bowl(jnp.asarray(aim))
    run, edge = central(start, problem, **until(1.8, begin=0.9), rtol=1e-9)
    assert edge["active"][0] == 2
    value, path = lambda w: problem(ravel_pytree(start)[1](w)), flat(run.weights)
    derivatives = jax.jit(lambda w: (jax.grad(value)(w), jax.hessian(value)(w), jax.jacfwd(jax.hessian(value))(w)))

    def slope(_, w):
        gradient, hessian, third = map(np.asarray, derivatives(w))
        u = np.linalg.eigh(hessian)[1][:, -2:].T
        t = np.einsum("nab,ai,bj,ijk->nk", symmetric_basis(2), u, u, third)
        return -gradient - t.T @ np.linalg.solve(t @ t.T, -t @ gradient)

    reference = scipy.integrate.solve_ivp(slope, (0.9, 1.8), path[0], method="DOP853", rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(path[-1], reference.y[:, -1], atol=1e-6)


# --- limits ---------------------------------------------------------------------------------------------------------


@flowsim.Risk
def scalar_network(w):
    """Return ½(1 − xyzw)² (Zhu et al. 2022)."""
    return (1 - w["x"] * w["y"] * w["z"] * w["w"]) ** 2 / 2


@pytest.mark.parametrize(("x", "y"), [(2.5, 0.1), (3.0, 0.35)])
@pytest.mark.slow
def test_a_scalar_network_ends_at_the_flattest_minimum_that_descent_can_reach(x, y):
    """x² = ½(√(η⁻² − 4) + 1/η), y = 1/x; the last start lies beyond the edge, at S = 21."""
    start = {"x": jnp.array(x), "y": jnp.array(y), "z": jnp.array(x), "w": jnp.array(y)}
    run, edge = central(start, scalar_network)
    limit = np.sqrt((np.sqrt(ETA**-2 - 4) + 1 / ETA) / 2)
    assert run.outcome is flowsim.Outcome.CONVERGED
    assert float(run.network["x"]) == pytest.approx(limit, abs=1e-6)
    assert float(run.network["y"]) == pytest.approx(1 / limit, abs=1e-6)
    assert edge["switches"][-1] <= 2


# --- a network ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_at_the_edge_of_a_network_the_flow_stays_near_the_mean_of_descent_and_has_a_limit_in_a_fraction_of_its_steps():
    """Against means over 20 steps: 0.046 and 0.042 at t = 20 and 40, where the gradient flow is off by 0.3."""
    network, problem = edge_of_stability()

    @cache
    def to_its_limit(rtol):
        return central(network, problem, eta=0.1, rtol=rtol, ts=[20.0, 40.0], records=None)

    descent = flowsim.descend(
        network, problem, learning_rate=0.1, steps=411, record_steps=np.arange(412), weights=True, stopping=FOREVER
    )
    path = flat(descent.weights)
    means = np.stack([path[k - 10 : k + 10].mean(axis=0) for k in (200, 400)])
    run, edge = to_its_limit(1e-6)
    distances = np.linalg.norm(flat(run.weights)[:2] - means, axis=1)
    np.testing.assert_allclose(distances, [0.046, 0.042], rtol=0.05)
    np.testing.assert_allclose(edge["values"][:2, 0], 20, rtol=1e-8)
    reference = flat(to_its_limit(1e-9)[0].weights)[-1]
    for rtol, gradients in ((1e-4, 400), (1e-6, 900)):
        run, _ = to_its_limit(rtol)
        assert run.converged
        assert np.linalg.norm(flat(run.weights)[-1] - reference) < rtol * np.linalg.norm(reference)
        assert run.final_sharpness == pytest.approx(20, rel=1e-4)
        assert int(run.gradients) < gradients


# --- the complementarity problem ------------------------------------------------------------------------------------

solved = jax.jit(complementary_covariance)


def drawn(seed, size):
    """Return B in `symmetric_basis` and A, whose scales differ by orders of magnitude."""
    rng = np.random.default_rng(seed)
    n = size * (size + 1) // 2
    tangents = rng.normal(size=(n, n + 4)) * np.exp(rng.normal(size=(n, 1)))
    drive = rng.normal(size=(size, size))
    return tangents @ tangents.T / 2, (drive + drive.T + rng.normal() * np.eye(size)) * 10 ** rng.uniform(-3, 3)


@pytest.mark.slow
def test_the_covariance_and_what_it_leaves_over_are_complementary():
    """Both ⪰ 0 and their product zero, to rounding of the largest numbers that meet in them."""
    ranks, size, basis = set(), 4, symmetric_basis(4)
    for seed in range(30):
        gram, drive = drawn(seed, size)
        covariance = np.asarray(solved(gram, drive, size))
        left = np.einsum("n,nij->ij", gram @ np.einsum("nij,ij->n", basis, covariance), basis) - drive
        unit, largest = np.abs(drive).max() / np.diag(gram).max(), np.abs(covariance).max()
        met = np.abs(drive).max() * (1 + largest / unit)
        assert np.linalg.eigvalsh(covariance)[0] >= -1e-12 * largest
        assert np.linalg.eigvalsh(left)[0] >= -1e-12 * met
        assert np.abs(covariance @ left).max() <= 1e-12 * met * max(largest, unit)
        ranks.add(int((np.linalg.eigvalsh(covariance) > 1e-8 * largest).sum()) if covariance.any() else 0)
    assert len(ranks) >= size  # most ranks occur, those between among them


def test_the_covariance_is_the_minimizer_that_scipy_finds_and_only_the_active_block_counts():
    """Over X = LLᵀ, by BFGS from several starts: the problem is convex in X, and the parametrization reaches all X."""
    import scipy.optimize

    ranks, basis = set(), symmetric_basis(2)
    for seed in range(6):
        gram, drive = drawn(seed, 3)
        gram, drive = gram / np.diag(gram[:3, :3]).max(), drive / np.abs(drive[:2, :2]).max()

        def value(x, gram=gram[:3, :3], drive=drive[:2, :2]):
            x = np.einsum("nij,ij->n", basis, x)
            return x @ gram @ x / 2 - x @ np.einsum("nij,ij->n", basis, drive)

        def of_root(entries, value=value):
            return value(entries.reshape(2, 2) @ entries.reshape(2, 2).T)

        covariance = np.asarray(solved(gram, drive, 2))
        assert not covariance[2:].any()
        starts = np.random.default_rng(1).normal(size=(4, 4))
        best = min(scipy.optimize.minimize(of_root, start, tol=1e-12).fun for start in starts)
        assert value(covariance[:2, :2]) == pytest.approx(best, abs=1e-9)
        ranks.add(int(np.sum(np.linalg.eigvalsh(covariance[:2, :2]) > 1e-9)))
    assert ranks == {0, 1, 2}


def test_what_the_gram_matrix_leaves_open_is_zero():
    """Directions that do not see each other: T₁₂ = 0, as for copies of a network."""
    gram, drive = np.diag([2.0, 0.0, 3.0, 1.0, 1.0, 1.0]), np.diag([4.0, 9.0, 5.0])
    np.testing.assert_allclose(solved(gram, drive, 2), np.diag([2.0, 3.0, 0.0]), atol=1e-12)
