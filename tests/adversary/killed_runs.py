"""Runs of every kind of problem, network and dynamics, each killed in its middle by `park` and ended by `resume`."""

import sys
import threading
from functools import partial
from pathlib import Path

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import flowsim
from flowsim.data import gaussian_teacher
from flowsim.dynamics import driver
from flowsim.dynamics.checkpoint import Checkpoint

jax.config.update("jax_enable_x64", True)
# Some steps for each call, so that a run has many moments at which it can be killed.
driver.CallLength = partial(driver.CallLength, seconds=1e-9, seconds_per_gradient=1.0)

X, Y = gaussian_teacher(np.random.default_rng(0), 10, 3)
LINEAR = flowsim.LinearRegression(X, Y)
KEY = jax.random.key(0)
DELTA = 0.5


def huber(residual):
    return DELTA**2 * (jnp.sqrt(1 + (residual / DELTA) ** 2) - 1)


class Quartic(flowsim.Problem):
    target: jax.Array
    names: frozenset = eqx.field(static=True, default=frozenset({"one", "two", "three"}))

    def __call__(self, network):
        return jnp.mean((network.weight - self.target) ** 4) + 0.1 * jnp.sum(network.weight**2)


class Vector(eqx.Module):
    weight: jax.Array


class Gated(eqx.Module):
    inner: jax.Array
    outer: jax.Array
    gate: object = eqx.field(static=True)
    open_: object = jax.nn.relu

    def __call__(self, x):
        return jnp.dot(self.outer, self.gate(self.inner @ x) + self.open_(0.1))


class HeavyBall(flowsim.Descent):
    learning_rate: float
    momentum: float = 0.9

    def remember(self, weights):
        return jax.tree.map(jnp.zeros_like, weights)

    def step(self, weights, gradient, memory):
        velocity = jax.tree.map(lambda v, g: self.momentum * v - self.learning_rate * g, memory, gradient)
        return jax.tree.map(jnp.add, weights, velocity), velocity


def flowing(network, problem, **options):
    options = {"max_steps": 60, "ts": [], "checkpoint_seconds": 0.0} | options
    return lambda path: flowsim.integrate(network, problem, solver=diffrax.Heun(), checkpoint=path, **options)


def descending(network, problem, **options):
    options = {"steps": 60, "checkpoint_seconds": 0.0} | (options or {"learning_rate": 0.01})
    return lambda path: flowsim.descend(network, problem, checkpoint=path, **options)


MLP = flowsim.DeepLinear.gaussian(widths=[3, 3, 3, 1], scale=0.5, key=KEY)
SMOOTH = flowsim.Perceptron.gaussian(widths=[3, 4, 1], scale=0.5, key=KEY, biases=True)
GATED = Gated(jax.random.normal(KEY, (4, 3)), jnp.ones(4), lambda x: jnp.tanh(x) * DELTA)
# A flow compiles longer than a descent, and what is kept of a network or a problem is the same for both.
RUNS = {
    "a flow": flowing(MLP, LINEAR),
    "a problem and an optimizer of a user": descending(
        Vector(jnp.arange(3.0)), Quartic(jnp.ones(3)), optimizer=HeavyBall(0.01)
    ),
    "a network of a user": descending(GATED, flowsim.EmpiricalRisk(X, Y)),
    "minibatches, and a loss of a user": descending(
        SMOOTH, flowsim.EmpiricalRisk(X, Y, lambda p, t: huber(p - t)), optimizer=flowsim.SGD(0.01, 2)
    ),
    "a transformation of Optax": descending(MLP, LINEAR, optimizer=optax.adam(0.01)),
}


def park(folder):
    """Begin every run, leave it standing after its third checkpoint, and wait to be killed."""
    standing, forever, saved = threading.Semaphore(0), threading.Event(), {}
    save = Checkpoint.save_if_due

    def save_and_stand(checkpoint, state, *, ended):
        save(checkpoint, state, ended=ended)
        saved[checkpoint.path] = saved.get(checkpoint.path, 0) + 1
        if saved[checkpoint.path] == 3 and not ended:
            standing.release()
            forever.wait()

    Checkpoint.save_if_due = save_and_stand
    for number, run in enumerate(RUNS.values()):
        threading.Thread(target=run, args=(folder / str(number),), daemon=True).start()
        assert standing.acquire(timeout=60)
    print("all stand", flush=True)
    forever.wait()


def resume(folder):
    """End every run, and print the steps it found done, those of one undisturbed, and whether both end the same."""
    load, found = Checkpoint.load, {}

    def load_and_tell(checkpoint, fresh):
        state = load(checkpoint, fresh)
        found[checkpoint.path] = int(state.attempts)
        return state

    Checkpoint.load = load_and_tell
    for number, (name, run) in enumerate(RUNS.items()):
        resumed, whole = run(folder / str(number)), run(folder / f"whole-{number}")
        ends = [
            [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(end) if eqx.is_array(leaf)]
            for end in (resumed, whole)
        ]
        same = ends[0] == ends[1]
        print(name, found[folder / str(number)], found[folder / f"whole-{number}"], int(whole.steps), same, sep="; ")


if __name__ == "__main__":
    {"park": park, "resume": resume}[sys.argv[1]](Path(sys.argv[2]))
