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


def descending(network, problem, **options):
    return lambda path: flowsim.descend(network, problem, steps=30, checkpoint=path, checkpoint_seconds=0.0, **options)


def flowing(network, problem):
    options = {"solver": diffrax.Heun(), "max_steps": 30, "ts": [], "checkpoint_seconds": 0.0}
    return lambda path: flowsim.integrate(network, problem, checkpoint=path, **options)


GATED = Gated(jax.random.normal(KEY, (4, 3)), jnp.ones(4), lambda x: jnp.tanh(x) * DELTA)
# What is kept of a network or a problem is the same for flows and descents.
RUNS = {
    "a flow, with a problem of a user": flowing(Vector(jnp.arange(3.0)), Quartic(jnp.ones(3))),
    "minibatches, and a network and a loss of a user": descending(
        GATED, flowsim.EmpiricalRisk(X, Y, lambda p, t: huber(p - t)), optimizer=flowsim.SGD(0.01, 2)
    ),
    "a transformation of Optax": descending(
        flowsim.DeepLinear.gaussian(widths=[3, 3, 1], scale=0.5, key=KEY),
        flowsim.LinearRegression(X, Y),
        optimizer=optax.adam(0.01),
    ),
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
    load, done = Checkpoint.load, {}

    def load_and_tell(checkpoint, fresh):
        state = load(checkpoint, fresh)
        done[checkpoint.path.name] = int(state.attempts)
        return state

    Checkpoint.load = load_and_tell
    for number, (name, run) in enumerate(RUNS.items()):
        ends = run(folder / str(number)), run(folder / f"undisturbed-{number}")
        leaves = [[np.asarray(one).tobytes() for one in jax.tree.leaves(end) if eqx.is_array(one)] for end in ends]
        same = leaves[0] == leaves[1]
        print(name, done[str(number)], done[f"undisturbed-{number}"], int(ends[1].steps), same, sep="; ")


if __name__ == "__main__":
    {"park": park, "resume": resume}[sys.argv[1]](Path(sys.argv[2]))
