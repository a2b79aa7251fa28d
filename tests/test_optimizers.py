"""Descents with memory: their recursions, the time of their steps, and the curvature up to which they are stable."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import flowsim
from flowsim.curvature import preconditioned_eigenpair
from flowsim.dynamics.descent import DescentState

NEVER = flowsim.Stopping(gradient_norm=None)
CURVATURES = np.array([0.5, 2.0])


def quadratic(weights):
    return jnp.sum(jnp.asarray(CURVATURES) * weights**2) / 2


BOWL = flowsim.Risk(quadratic, infimum=0.0)
# Where the way to the limit is measured by the size of the weights, these are not zero.
ASIDE = flowsim.Risk(lambda weights: quadratic(weights - 1.0), infimum=0.0)
START = np.array([1.0, -0.7])


def end_of(optimizer, steps):
    run = flowsim.descend(jnp.asarray(START), BOWL, optimizer=optimizer, steps=steps, record_steps=[0], stopping=NEVER)
    return np.asarray(run.network), run


# -- the recursions, as the papers write them


def heavy_ball(w, gradient, steps, eta, beta):
    v = np.zeros_like(w)
    for _ in range(steps):
        v = beta * v + gradient(w)
        w = w - eta * v
    return w


def nesterov(w, gradient, steps, eta, beta):
    """In Nesterov's own variables: x is the iterate, and w the extrapolated point at which the gradient is taken."""
    x = w
    for _ in range(steps):
        after = w - eta * gradient(w)
        w, x = after + beta * (after - x), after
    return w


def rmsprop(w, gradient, steps, eta, beta, eps, square=np.square):
    nu = 0.0
    for _ in range(steps):
        g = gradient(w)
        nu = beta * nu + (1 - beta) * square(g)
        w = w - eta * g / np.sqrt(nu + eps)
    return w


def adam(w, gradient, steps, eta, b1, b2, eps):
    m, nu = np.zeros_like(w), np.zeros_like(w)
    for t in range(1, steps + 1):
        g = gradient(w)
        m, nu = b1 * m + (1 - b1) * g, b2 * nu + (1 - b2) * g**2
        w = w - eta * (m / (1 - b1**t)) / (np.sqrt(nu / (1 - b2**t)) + eps)
    return w


@pytest.mark.parametrize(
    ("optimizer", "recursion", "options"),
    [
        (flowsim.HeavyBall(0.05, 0.8), heavy_ball, (0.05, 0.8)),
        (flowsim.SGD(0.05, 5, momentum=0.8), heavy_ball, (0.05, 0.8)),
        (flowsim.Nesterov(0.05, 0.8), nesterov, (0.05, 0.8)),
        (flowsim.RMSProp(0.01, 0.95, 1e-6), rmsprop, (0.01, 0.95, 1e-6)),
        (flowsim.ScalarRMSProp(0.01, 0.95, 1e-6), rmsprop, (0.01, 0.95, 1e-6, lambda g: g @ g)),
        (flowsim.Adam(0.02, 0.8, 0.99, 1e-7), adam, (0.02, 0.8, 0.99, 1e-7)),
    ],
    ids=["heavy ball", "sgd", "nesterov", "rmsprop", "scalar rmsprop", "adam"],
)
def test_each_follows_the_recursion_of_its_paper(optimizer, recursion, options):
    expected = recursion(START, lambda w: CURVATURES * w, 60, *options)

    @jax.jit
    def end():
        def step(_, here):
            weights, memory = here
            gradient = jnp.asarray(CURVATURES) * weights
            return optimizer.advanced(quadratic, DescentState(weights, memory, quadratic(weights), gradient))

        return jax.lax.fori_loop(0, 60, step, (jnp.asarray(START), optimizer.remember(jnp.asarray(START))))[0]

    # A thousand roundings.
    np.testing.assert_allclose(end(), expected, rtol=1e-12, atol=1e-13)


CLIPPED = optax.chain(optax.clip_by_global_norm(0.1), optax.adam(lambda count: jnp.where(count < 10, 0.05, 0.01)))


def beside_optax(optimizer, rule, *, steps):
    """Yield the weights after each step along random gradients, by the optimizer and by the rule of Optax."""
    theirs, state = jnp.asarray(START), rule.init(jnp.asarray(START))
    ours, memory = theirs, optimizer.remember(theirs)
    for number in range(steps):
        gradient = jnp.asarray(np.random.default_rng(number).standard_normal(2))
        updates, state = rule.update(gradient, state, theirs)
        theirs = optax.apply_updates(theirs, updates)
        ours, memory = optimizer.step(ours, gradient, memory)
        yield ours, theirs


@pytest.mark.parametrize(
    ("optimizer", "rule"),
    [
        (flowsim.HeavyBall(0.05), optax.sgd(0.05, momentum=0.9)),
        (flowsim.Nesterov(0.05), optax.sgd(0.05, momentum=0.9, nesterov=True)),
        (flowsim.RMSProp(0.01), optax.rmsprop(0.01)),
        (flowsim.RMSProp(0.01, momentum=0.5), optax.rmsprop(0.01, momentum=0.5)),
        (flowsim.Adam(0.01), optax.adam(0.01)),
        (flowsim.Adam(0.01, 0.7, 0.9, 1e-4, 1e-5), optax.adam(0.01, 0.7, 0.9, 1e-4, 1e-5)),
        (flowsim.Optax(CLIPPED), CLIPPED),
    ],
    ids=["heavy ball", "nesterov", "rmsprop", "rmsprop with momentum", "adam", "adam's options", "schedule and chain"],
)
def test_steps_are_those_of_optax_bit_for_bit(optimizer, rule):
    for ours, theirs in beside_optax(optimizer, rule, steps=20):
        np.testing.assert_array_equal(ours, theirs)


def test_adam_with_decoupled_decay_is_adamw():
    ours, rule = flowsim.DecoupledDecay(flowsim.Adam(0.02), 0.3), optax.adamw(0.02, weight_decay=0.3)
    *_, (here, there) = beside_optax(ours, rule, steps=5)
    np.testing.assert_allclose(here, there, rtol=1e-13)


# -- any transformation of Optax


def test_a_bare_transformation_counts_its_steps_and_other_options_of_a_kind_compile_nothing(compiled):
    bare, run = end_of(optax.adam(0.02), 50)
    assert float(run.time) == 50.0
    assert run.dynamics == "optax"
    named, run = end_of(flowsim.Adam(0.02), 50)
    np.testing.assert_array_equal(bare, named)
    assert float(run.time) == pytest.approx(1.0, rel=1e-15)
    assert int(run.gradients) == 51
    before = compiled()
    end_of(optax.adam(0.02), 30)
    end_of(flowsim.Adam(0.04, b1=0.5, b2=0.9, eps=1e-5), 30)
    assert compiled() == before


def test_a_function_of_optax_with_its_hyperparameters_compiles_nothing_for_others(compiled):
    start, risk = jnp.array([0.2, -0.4]), flowsim.Risk(lambda w: jnp.sum((w - 1.0) ** 2))

    def run(eta, decay, **options):
        made = flowsim.Optax(optax.adamw, learning_rate=eta, weight_decay=decay, nesterov=True, **options)
        return flowsim.descend(start, risk, optimizer=made, steps=9)

    first = run(1e-3, 0.1)
    before = compiled()
    second = run(2e-3, 0.3, time_per_step=0.5)
    assert compiled() == before
    for found, eta, decay in ((first, 1e-3, 0.1), (second, 2e-3, 0.3)):
        rule = optax.adamw(eta, weight_decay=decay, nesterov=True)
        np.testing.assert_array_equal(found.network, flowsim.descend(start, risk, optimizer=rule, steps=9).network)
    mapped = jax.vmap(lambda eta: run(eta, 0.1).final_risk)(jnp.array([1e-3, 2e-3]))
    np.testing.assert_allclose(mapped[0], first.final_risk, rtol=1e-12)


@pytest.mark.slow
def test_a_transformation_that_searches_along_a_line_is_given_the_objective():
    """L-BFGS ends at the minimum of a quadratic in two dimensions in a handful of steps."""
    run = flowsim.descend(jnp.asarray(START), ASIDE, optimizer=optax.lbfgs(), steps=40)
    assert run.converged
    assert int(run.steps) < 15
    assert run.gradients is None


# -- the time of a step


@pytest.mark.parametrize(
    ("optimizer", "time"),
    [
        (flowsim.GradientDescent(0.1), 0.1),
        (flowsim.Nesterov(0.1, 0.5), 0.2),
        (flowsim.RMSProp(0.1), 0.1),
        (flowsim.RMSProp(0.1, momentum=0.5), 0.2),
        (flowsim.Adam(0.1), 0.1),
        (flowsim.SGD(0.1, 5), 0.1),
        (flowsim.SGD(0.1, 5, momentum=0.5), 0.2),
        (flowsim.NoisyDescent(0.1, 5, substeps=2), 0.05),
        (flowsim.DecoupledDecay(flowsim.HeavyBall(0.1, 0.5), 0.3), 0.2),
        (flowsim.Optax(optax.sgd(0.1)), 1.0),
        (flowsim.Optax(optax.sgd(0.1), time_per_step=0.1), 0.1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_step_takes_the_time_of_the_flow_that_it_follows(optimizer, time):
    assert float(optimizer.time_of_step()) == pytest.approx(time, rel=1e-15)


def test_the_preconditioner_is_that_of_the_next_step():
    gradients = np.random.default_rng(3).standard_normal((3, 2))
    adam, rms = flowsim.Adam(0.1, 0.8, 0.9, eps=1e-2, eps_root=0.2), flowsim.RMSProp(0.1, 0.9, 1e-2)
    scalar = flowsim.ScalarRMSProp(0.1, 0.9, 1e-2)
    share = 0.1 * 0.9 ** np.arange(2, -1, -1)
    nu, mean = share @ gradients**2, share @ np.sum(gradients**2, axis=1)
    expected = [
        (1 - 0.8**3) * (np.sqrt(nu / (1 - 0.9**3) + 0.2) + 1e-2),
        np.sqrt(nu + 1e-2),
        np.full(2, np.sqrt(mean + 1e-2)),
    ]

    @jax.jit
    def preconditioners():
        known = []
        for optimizer in (adam, rms, scalar):
            weights = jnp.asarray(START)
            memory = optimizer.remember(weights)
            for gradient in gradients[:2]:
                weights, memory = optimizer.step(weights, jnp.asarray(gradient), memory)
            known.append(
                optimizer.preconditioner(DescentState(weights, memory, jnp.zeros(()), jnp.asarray(gradients[2])))
            )
        return known

    np.testing.assert_allclose(preconditioners(), expected, rtol=1e-13)


# -- the threshold of stability


def spectral_radius(optimizer, curvature, memory, aside=1e-7):
    """Return that of the step of `optimizer` itself at the minimum of one mode, over weights and memory."""
    numbers, rest = eqx.partition((np.zeros(1), memory), eqx.is_inexact_array_like)
    leaves, structure = jax.tree.flatten(numbers)
    start, ends = np.concatenate([np.ravel(leaf) for leaf in leaves]), np.cumsum([np.size(leaf) for leaf in leaves])

    def step(vector):
        parts = zip(np.split(vector, ends), leaves, strict=False)
        parts = [jnp.asarray(np.reshape(part, np.shape(leaf))) for part, leaf in parts]
        weights, memory = eqx.combine(jax.tree.unflatten(structure, parts), rest)
        after = optimizer.step(weights, curvature * weights, memory)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(eqx.filter(after, eqx.is_inexact_array))])

    still = step(start)
    columns = [(step(start + aside * unit) - still) / aside for unit in np.eye(start.size)]
    return np.abs(np.linalg.eigvals(np.array(columns).T)).max()


def at_rest(optimizer, nu=1.5, count=2**30):
    """Return the memory after so many steps that means need no correction, in which ν is `nu`, and 1 or P."""
    weights = jnp.zeros(1)
    memory = optimizer.remember(weights)
    if not optimizer.preconditioned:
        return memory, 1.0
    if isinstance(optimizer, flowsim.ScalarRMSProp):
        memory = jnp.full_like(memory, nu)
    else:
        memory = eqx.tree_at(lambda m: m[0].nu, memory, jnp.full_like(weights, nu))
    if isinstance(optimizer, flowsim.Adam):
        memory = eqx.tree_at(lambda m: m[0].count, memory, jnp.array(count, jnp.int32))
    return memory, float(optimizer.preconditioner(DescentState(weights, memory, jnp.zeros(()), weights))[0])


@pytest.mark.parametrize(
    "optimizer",
    [
        flowsim.GradientDescent(0.1),
        flowsim.HeavyBall(0.1, 0.9),
        flowsim.Nesterov(0.1, 0.9),
        flowsim.DecoupledDecay(flowsim.GradientDescent(0.1), 2.0),
        flowsim.DecoupledDecay(flowsim.HeavyBall(0.1, 0.9), 2.0),
        flowsim.DecoupledDecay(flowsim.Nesterov(0.1, 0.9), 2.0),
        flowsim.RMSProp(0.1, momentum=0.8),
        flowsim.ScalarRMSProp(0.1),
        flowsim.Adam(0.1, b1=0.5, b2=0.9, eps=0.1, eps_root=0.2),
    ],
    ids=repr,
)
def test_a_mode_is_stable_up_to_the_threshold_and_no_further(optimizer):
    """In the coordinates P^½ W: at the minimum the gradient is zero, and P stays as it is to first order."""
    memory, preconditioner = at_rest(optimizer)
    threshold = optimizer.stability_threshold() * preconditioner
    for share in (1e-3, 1 - 1e-6):
        assert spectral_radius(optimizer, threshold * share, memory) < 1
    assert spectral_radius(optimizer, threshold * (1 + 1e-6), memory) > 1


def test_adam_is_stable_up_to_38_over_eta_and_what_is_not_known_to_be_stable_says_so():
    """The number of Cohen et al. (2022) for β₁ = 0.9."""
    assert flowsim.Adam(0.01).stability_threshold() == pytest.approx(38 / 0.01, rel=1e-12)
    for optimizer in (flowsim.SGD(0.1, 5), flowsim.Optax(optax.sgd(0.1))):
        assert optimizer.stability_threshold() is None


# -- the preconditioned sharpness


@pytest.mark.slow
def test_the_preconditioned_sharpness_is_that_of_the_dense_matrix():
    X = np.random.default_rng(0).standard_normal((12, 3))
    problem = flowsim.EmpiricalRisk(X, np.sin(X[:, 0]))
    network = eqx.nn.MLP(3, "scalar", 4, 1, jnp.tanh, key=jax.random.key(0))
    probes = [flowsim.probes.PreconditionedSharpness()]
    run = flowsim.descend(network, problem, optimizer=flowsim.Adam(0.01), steps=7, probes=probes, weights=True)
    weights, rest = eqx.partition(run.weights, eqx.is_inexact_array)
    flat = jax.vmap(lambda tree: ravel_pytree(tree)[0])(weights)
    unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], weights))[1]
    risk = lambda vector: problem(eqx.combine(unravel(vector), rest))  # noqa: E731
    slope, hessian = jax.jit(jax.grad(risk)), jax.jit(jax.hessian(risk))
    nu = np.zeros(flat.shape[1])
    for t in range(8):
        nu = 0.999 * nu + 0.001 * np.asarray(slope(flat[t])) ** 2
        root = ((1 - 0.9 ** (t + 1)) * (np.sqrt(nu / (1 - 0.999 ** (t + 1))) + 1e-8)) ** -0.5
        expected = np.linalg.eigvalsh(root[:, None] * np.asarray(hessian(flat[t])) * root)[-1]
        np.testing.assert_allclose(run.diagnostics["preconditioned_sharpness"][t], expected, rtol=1e-8)


def test_the_preconditioned_sharpness_is_not_known_where_the_state_of_a_run_is_not():
    moment = flowsim.Moment(jnp.asarray(START), BOWL, None, jnp.zeros(()), jnp.zeros(()))
    assert np.isnan(flowsim.probes.PreconditionedSharpness().measure(moment))


# -- errors


SCHEDULE = lambda count: 0.1 / (1 + count)  # noqa: E731


def beside_flow(optimizer):
    return flowsim.compare(jnp.ones(2), flowsim.Risk(jnp.sum), [0.05], optimizer=optimizer, steps=4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flowsim.HeavyBall(0.1, 1.0), "momentum must be a number from 0 to below 1, got 1.0"),
        (lambda: flowsim.RMSProp(0.1, eps=0.0), "eps must be a number above zero, got 0.0"),
        (lambda: flowsim.Adam(0.1, b1=1.0), "b1 must be"),
        (lambda: preconditioned_eigenpair(jnp.asarray(START), BOWL, jnp.ones(3)), "one number for each weight"),
        (lambda: flowsim.Adam(0.1, eps_root=-1.0), "eps_root must be zero or more"),
        (lambda: end_of(optax.adam, 5), "or a transformation of Optax, such as optax.adam.*got function"),
        (lambda: flowsim.Optax(optax.adam(0.1), b1=0.8), "holds its b1 already.*flowsim.Optax\\(optax.adam, learning"),
        (lambda: flowsim.Optax(lambda: 3), "expected a gradient transformation.*got int"),
        (lambda: flowsim.Optax(0.1), "expected a gradient transformation of Optax.*got float"),
        (lambda: flowsim.Optax(optax.adam(0.1), time_per_step=0.0), "time_per_step must be"),
        (lambda: flowsim.Optax(optax.sgd(SCHEDULE), time_per_step=0.1), "follows a schedule"),
        (lambda: beside_flow(lambda eta: optax.sgd(eta)), "write optimizer=lambda eta: flowsim.Optax"),
        (lambda: beside_flow(flowsim.Adam(0.01)), "expected a function that makes a descent of each"),
        (lambda: beside_flow([flowsim.Adam]), "write optimizer=flowsim.Adam"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


HALF = flowsim.Risk(lambda w: jnp.sum((w - 1) ** 2) / 2)


@pytest.mark.slow
def test_a_descent_has_converged_only_where_its_own_step_and_its_memory_leave_it_and_every_direction_is_stable():
    decayed = optax.chain(optax.add_decayed_weights(0.5), optax.sgd(0.1))
    run = flowsim.descend(jnp.ones(2), HALF, optimizer=decayed, steps=500)
    assert not run.converged
    np.testing.assert_allclose(run.network, 2 / 3, rtol=1e-12)
    # A heavy ball passes the minimum.
    run = flowsim.descend(jnp.array([2.0]), HALF, optimizer=flowsim.HeavyBall(1.0, 0.9), steps=3000)
    assert run.outcome is flowsim.Outcome.CONVERGED
    assert run.steps > 100
    # A slow direction does not hide that the minimum is not stable.
    valley = flowsim.Risk(lambda w: (25 * w[0] ** 2 + w[1] ** 2) / 2)
    for aside, outcome in ((1e-12, flowsim.Outcome.DIVERGED), (0.0, flowsim.Outcome.FIXED_POINT)):
        run = flowsim.descend(jnp.array([aside, 1.0]), valley, learning_rate=0.081, steps=20_000)
        assert run.outcome is outcome


def test_a_descent_beside_a_minimum_that_is_not_stable_leaves_it():
    run = flowsim.descend(jnp.array([1 + 5e-9, 1.0]), HALF, learning_rate=2.5, steps=300)
    assert run.outcome is flowsim.Outcome.DIVERGED
