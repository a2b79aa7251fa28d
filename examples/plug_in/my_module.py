"""One kind of everything of one's own, named in scenario.yaml as my_module:Name."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike
from pydantic import Field

import flowsim
from flowsim.columns import runs_of
from flowsim.data import Data, DataSource
from flowsim.networks import NetworkRecipe
from flowsim.results import Figure


class Waves(DataSource):
    """Samples of a sine of a random projection, with outliers among the labels."""

    samples: int = Field(default=40, ge=2, examples=[40])
    """Number of samples."""
    features: int = Field(default=3, ge=1, examples=[3])
    """Number of features."""
    outliers: float = Field(default=0.1, ge=0, le=1, examples=[0.1])
    """The share of the labels that are far off."""

    def load(self, rng, folder):
        """Draw X (samples, features) and y (samples,)."""
        X = rng.standard_normal((self.samples, self.features))
        y = np.sin(X @ rng.standard_normal(self.features))
        far_off = rng.random(self.samples) < self.outliers
        return Data((X, y + 5 * far_off * rng.standard_normal(self.samples)))

    def dimensions(self):
        """Return the numbers of features and labels of a sample."""
        return self.features, 1


class TanhBlocks(eqx.Module):
    """x ↦ pᵀh_L with h_k = h_{k−1} + W_k tanh(h_{k−1}) and h_0 = W_0 x."""

    first: jax.Array
    blocks: jax.Array
    last: jax.Array

    def __call__(self, x):
        """Return the output for one sample, a scalar."""

        def step(hidden, block):
            return hidden + block @ jnp.tanh(hidden), None

        hidden, _ = jax.lax.scan(step, self.first @ x, self.blocks)
        return self.last @ hidden


class ResidualTanh(NetworkRecipe):
    """A small residual network with tanh."""

    depth: int = Field(default=3, ge=1, examples=[3])
    """Number of blocks."""
    width: int = Field(default=5, ge=1, examples=[5])
    """Width of the hidden layers."""
    scale: float = Field(default=0.5, gt=0, examples=[0.5])
    """Standard deviation of the weights at the start, times the root of the width."""

    start_options: ClassVar[frozenset[str]] = frozenset({"scale"})

    def build(self, inputs, outputs, *, key, shared):
        """Draw the network."""
        width, size = self.width, self.scale / self.width**0.5
        first, middle, last = jax.random.split(key, 3)
        return TanhBlocks(
            first=size * jax.random.normal(first, (width, inputs)),
            blocks=size * jax.random.normal(middle, (self.depth, width, width)),
            last=size * jax.random.normal(last, (width,)),
        )


class Huber(flowsim.losses.Loss):
    """r²/2 for |r| ≤ δ, else δ(|r| − δ/2), r = prediction − target (Huber 1964)."""

    delta: float = 1.0

    infimum: ClassVar[float] = 0.0
    attained: ClassVar[bool] = True

    def __call__(self, prediction, target):
        """Return the loss of one sample."""
        size = jnp.abs(prediction - target)
        linear = self.delta * (size - self.delta / 2)
        return jnp.sum(jnp.where(size <= self.delta, size**2 / 2, linear))

    def curvature(self, prediction, target):
        """Return the second derivative: one inside, zero outside."""
        inside = jnp.abs(prediction - target).ravel() <= self.delta
        return jnp.diag(inside.astype(prediction.dtype))


class HeavyBall(flowsim.Descent):
    """W ← W + v with v ← βv − η∇R(W), β the `momentum` (Polyak 1964)."""

    learning_rate: ArrayLike
    momentum: float = 0.9

    def remember(self, weights):
        """Return the velocity at the start, zero."""
        return jax.tree.map(jnp.zeros_like, weights)

    def step(self, weights, gradient, memory):
        """Return the weights after a step, and the velocity."""

        def kept(velocity, slope):
            return self.momentum * velocity - self.learning_rate * slope

        velocity = jax.tree.map(kept, memory, gradient)
        return jax.tree.map(jnp.add, weights, velocity), velocity


class LayerNorms(flowsim.Probe):
    """‖W_k‖_F of every block."""

    label = flowsim.Label(
        "layer_norms",
        "norm of each block",
        r"$\Vert W_k \Vert_F$",
        logarithmic=False,
    )

    def measure(self, moment):
        """Return one number for each block."""
        return jnp.sqrt(jnp.sum(moment.network.blocks**2, axis=(1, 2)))


class NormsFigure(Figure):
    """The norm of every block: along single runs, or at the end of those of a sweep."""

    name = "layer_norms"

    def draw(self, results):
        """Return the figure, from the stored numbers alone."""
        from flowsim.report.panels import Curve, Key, Panel, abscissae, axis_over, ordinates
        from flowsim.report.render_paper import figure_of
        from flowsim.report.style import run_look

        is_sweep = results.sweep is not None
        dataset = results.sweep if is_sweep else results.trajectories
        across = "scale of the initialization" if is_sweep else "time"
        curves = []
        for number, run in enumerate(runs_of(dataset)):
            one = dataset.isel(run=number)
            if is_sweep:
                x, norms = one["scale"], one["final_layer_norms"].mean("repetition").transpose("scale", ...)
            else:
                x, norms = one["time"], one["layer_norms"]
            look = run_look(run) | ({} if is_sweep else {"marker": "none"})
            key = Key("run", run.name, run.label, look)
            for place, norm in enumerate(norms.values.T):
                curves.append(Curve(key, x.values, norm, named=place == 0))
        x = axis_over(across, across, abscissae(curves))
        y = axis_over(LayerNorms.label.symbol, "norm of each block", ordinates(curves))
        heading, description = "Norms", f"norm of each block against the {across}"
        return figure_of([Panel("norms", heading, description, x, y, curves)])
