"""The driver with dynamics and probes of a user's own, and what it refuses."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import ArrayLike
from own_networks import first_weight

import flowsim
from flowsim.solvers.choice import stepper_for


class HeavyBall(flowsim.Descent):
    """W ← W + v with v ← βv − η∇R(W) (Polyak 1964)."""

    learning_rate: ArrayLike
    momentum: ArrayLike = 0.9

    def remember(self, weights):
        return jax.tree.map(jnp.zeros_like, weights)

    def step(self, weights, gradient, memory):
        velocity = jax.tree.map(lambda v, g: self.momentum * v - self.learning_rate * g, memory, gradient)
        return jax.tree.map(jnp.add, weights, velocity), velocity


class Plain(flowsim.Descent):
    """Gradient descent, whose learning rate is that of every descent."""

    def remember(self, weights):
        return None

    def step(self, weights, gradient, memory):
        return jax.tree.map(lambda w, g: w - self.learning_rate * g, weights, gradient), memory


class Around(Plain):
    """A descent with the learning rate of another."""

    inner: flowsim.Descent

    @property
    def learning_rate(self):
        return 2 * self.inner.learning_rate


class LayerNorms(flowsim.Probe):
    """‖W_k‖_F of every layer."""

    label = flowsim.Label("layer_norms", "norm of each layer", r"$\Vert W_k \Vert$")

    def measure(self, moment):
        return jnp.stack([jnp.linalg.norm(weight) for weight in moment.network.weights])


@pytest.fixture(scope="module")
def least_squares():
    return flowsim.LinearRegression(np.ones((1, 1)), np.ones(1))


def test_a_descent_of_a_user_follows_its_recursion_and_compiles_once_for_all_its_numbers(least_squares, compiled):
    network, steps = flowsim.DeepLinear([np.array([[0.3]])]), 40
    for eta, beta in ((0.05, 0.8), (0.03, 0.5)):
        before = compiled()
        run = flowsim.descend(network, least_squares, optimizer=HeavyBall(eta, beta), steps=steps)
        w, v = 0.3, 0.0
        for _ in range(steps):
            v = beta * v - eta * 2 * (w - 1)
            w = w + v
        np.testing.assert_allclose(run.network.weights[0][0, 0], w, rtol=1e-13)
        assert run.dynamics.endswith("test_dynamics:HeavyBall")
        assert run.method == "heavy ball"
        assert float(run.time) == pytest.approx(eta * steps)
    assert compiled() == before


def test_a_descent_inherits_its_learning_rate_or_declares_it_or_computes_it(least_squares):
    network = flowsim.DeepLinear([np.array([[0.3]])])
    descents = Plain(0.1), HeavyBall(0.1, momentum=0.0), Around(inner=Plain(0.05)), flowsim.GradientDescent(0.1)
    ends = [flowsim.descend(network, least_squares, optimizer=descent, steps=3).final_risk for descent in descents]
    np.testing.assert_allclose(ends, ends[-1], rtol=1e-14)


def test_a_heavy_ball_with_velocity_left_has_not_come_to_rest(least_squares):
    """Velocity below the last digit of a weight moves nothing in one step, and is not lost: it is no fixed point."""
    network = flowsim.DeepLinear([np.array([[0.5]])])
    run = flowsim.descend(network, least_squares, optimizer=HeavyBall(1e-17, 0.9), steps=40)
    assert run.outcome is flowsim.Outcome.STEP_LIMIT


@pytest.mark.slow
def test_a_probe_is_recorded_with_its_label_along_flow_and_descent(least_squares):
    network = flowsim.DeepLinear([np.array([[0.3]]), np.array([[0.7]])])
    flow = flowsim.integrate(network, least_squares, ts=[0.5, 1.0], probes=[LayerNorms(), first_weight], t1=1.5)
    descent = flowsim.descend(network, least_squares, learning_rate=0.02, steps=20, probes=[LayerNorms()])
    norms = flow.diagnostics["layer_norms"]
    assert (norms.shape, descent.diagnostics["layer_norms"].shape) == ((3, 2), (21, 2))
    np.testing.assert_allclose(norms[-1], [np.linalg.norm(weight) for weight in flow.network.weights], rtol=1e-14)
    assert flow.diagnostics["first_weight"][-1] == first_weight(flow.network)
    assert flow.labels["layer_norms"].symbol == r"$\Vert W_k \Vert$"


class Twice(eqx.Module):
    def vector_field(self, field):
        return lambda t, weights, args: jax.tree.map(lambda slope: 2 * slope, field(t, weights, args))


def test_a_gradient_flow_of_another_field_is_refused():
    with pytest.raises(TypeError, match=r"Hurried replaces vector_field of GradientFlow, .* expected a subclass of"):

        class Hurried(Twice, flowsim.GradientFlow):
            pass


class Halved(flowsim.DescentModel):
    learning_rate: ArrayLike = 0.1

    def checked(self, dtype):
        return self

    def vector_field(self, field):
        return lambda t, weights, args: jax.tree.map(lambda slope: slope / 2, field(t, weights, args))

    def stepper(self, field, point):
        return stepper_for(field, point, None, None, jnp.asarray(1e-6), jnp.asarray(1e-9))

    def observe(self, field, state):
        return field.objective(state.point), jnp.zeros(())


DESCEND, INTEGRATE = flowsim.descend, flowsim.integrate


@pytest.mark.parametrize(
    ("run", "options", "message"),
    [
        (DESCEND, {"steps": 5}, "either a learning_rate, .* or an optimizer"),
        (DESCEND, {"optimizer": flowsim.GradientFlow(), "steps": 5}, "must be a flowsim.Descent, .* got GradientFlow"),
        (DESCEND, {"optimizer": HeavyBall(-1.0), "steps": 5}, "learning_rate must be"),
        (INTEGRATE, {"model": HeavyBall(0.1)}, "model must be a flow, .* HeavyBall"),
        (INTEGRATE, {"model": flowsim.GradientFlow(), "rtol": 1e-5}, "with a model, give solver"),
        (INTEGRATE, {"model": Halved(), "t1": 1.0}, "was filled in for a GradientField and would not step along"),
        (
            INTEGRATE,
            {"model": Halved(None), "t1": 1.0},
            r"Halved has no learning rate: write Halved\(learning_rate=0.1\)",
        ),
        (INTEGRATE, {"probes": [3]}, "a probe is a flowsim.Probe"),
        (INTEGRATE, {"probes": [LayerNorms()] * 2}, "'layer_norms' is recorded already"),
        (INTEGRATE, {"diagnostics": {"risk": lambda n: 1.0}}, "'risk' is recorded"),
        (INTEGRATE, {"diagnostics": {"prints": lambda n: None}}, "'prints' returns None: expected real numbers"),
        (INTEGRATE, {"diagnostics": {"words": lambda n: "much"}}, "'words' returns str: expected real numbers"),
        (INTEGRATE, {"diagnostics": {"turns": lambda n: 1j}}, "'turns' returns complex"),
    ],
)
def test_what_cannot_be_right_is_refused_at_the_call(run, options, message, least_squares):
    with pytest.raises((ValueError, TypeError), match=message):
        run(flowsim.DeepLinear([np.array([[0.5]])]), least_squares, **options)


def test_a_kind_that_declares_another_field_before_its_learning_rate_is_told_so():
    with pytest.raises(TypeError, match="declares momentum before learning_rate: write learning_rate first, or leave"):

        class Late(flowsim.Descent):
            momentum: float
            learning_rate: float


class Forgetful(Plain):
    def step(self, weights, gradient, memory):
        return super().step(weights, gradient, memory)[0]


@pytest.mark.parametrize("run", [flowsim.descend, lambda *a, optimizer, **o: flowsim.compare(*a, [optimizer], **o)])
def test_a_step_that_leaves_out_its_memory_is_told_what_to_return(run, least_squares):
    with pytest.raises(
        TypeError, match=r"Forgetful\.step returns .*: expected the weights and the memory after a step"
    ):
        run(flowsim.DeepLinear([np.array([[0.5]])]), least_squares, optimizer=Forgetful(0.1), steps=3)
