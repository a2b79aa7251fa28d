"""The weight matrices along a run: singular values, effective rank, norms, and how balanced layers are."""

from dataclasses import replace
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float, PyTree

from ..networks import DeepLinear, numbered_layers, split
from ..networks.layers import scan_layers
from ..networks.weights import norm
from ..problems import Problem
from .probe import PROBES, Label, Moment, Probe


# As LAPACK decomposes a batch at once, see `flowsim.curvature.eigenpair`.
@sequential_vmap
def _singular_values(matrix: Float[Array, "out in"]) -> Float[Array, " rank"]:
    return jnp.linalg.svd(matrix, compute_uv=False)


def _of_matrices(network: PyTree) -> list[Float[Array, "matrices rank"]]:
    """Return the singular values of the matrices in each array of weights, as rows in decreasing order.

    The kernels of a convolution are the matrix (out, everything else). Vectors, as biases, have none.
    """
    weights, found = split(network)[0], []
    for leaf, numbers in zip(jax.tree.leaves(weights), jax.tree.leaves(numbered_layers(network).numbers), strict=True):
        stack = leaf if np.ndim(numbers) else leaf[None]
        is_vector = stack.ndim < 3 or (stack.ndim > 3 and np.prod(stack.shape[2:]) == 1)  # a bias (out, 1, 1), too
        if not is_vector:
            found.append(jax.vmap(_singular_values)(stack.reshape(*stack.shape[:2], -1)))
    return found


def _check_matrices(network: PyTree) -> None:
    if not eqx.filter_eval_shape(_of_matrices, network):
        raise ValueError(f"{type(network).__name__} has no weight matrices: expected arrays of two axes or more")


@PROBES.register("singular_values")
class SingularValues(Probe):
    """The singular values of each weight matrix, as `matrices`, and of a deep linear network of their `product`.

    Each row is in decreasing order, with NaN behind those of a matrix that has fewer than the largest one.
    """

    label = Label(
        "singular_values",
        "singular values of the weight matrices",
        "singular values",
        parts=(
            Label(
                "singular_values_matrices",
                "singular values of each weight matrix, in decreasing order",
                r"singular values $\sigma_i(W_k)$",
            ),
            Label(
                "singular_values_product",
                "singular values of the product of all weight matrices",
                r"singular values $\sigma_i(W_L \cdots W_1)$",
            ),
        ),
    )

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for a network without weight matrices."""
        _check_matrices(network)

    def measure(self, moment: Moment) -> dict[str, Float[Array, "..."]]:
        """Return the singular values of the matrices, (matrices, rank), and of the product, (rank,)."""
        self.check(moment.network, moment.problem)
        found = _of_matrices(moment.network)
        most = max(rows.shape[1] for rows in found)
        padded = [jnp.pad(rows, ((0, 0), (0, most - rows.shape[1])), constant_values=jnp.nan) for rows in found]
        values = {"matrices": jnp.concatenate(padded)}
        if isinstance(moment.network, DeepLinear):
            values["product"] = _singular_values(_product(moment.network))
        return values


def _product(network: DeepLinear) -> Float[Array, "outputs features"]:
    """Return W_L ⋯ W_1."""
    features = jnp.eye(network.stacks[0].shape[-1], dtype=network.stacks[0].dtype)
    return scan_layers(lambda below, weight: weight @ below, features, network.stacks)


@PROBES.register("effective_rank")
class EffectiveRank(Probe):
    """The effective rank of each weight matrix, exp(−Σ_i p_i log p_i) for p_i = σ_i/Σ_j σ_j (Roy and Vetterli 2007).

    Between one, for a matrix of rank one, and the number of singular values, where all are equal. NaN for W = 0.
    """

    label = Label(
        "effective_rank",
        "effective rank of each weight matrix",
        r"effective rank of $W_k$",
        logarithmic=False,
        drawn="matrices",
    )

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for a network without weight matrices."""
        _check_matrices(network)

    def measure(self, moment: Moment) -> Float[Array, " matrices"]:
        """Return the effective rank of each matrix."""
        self.check(moment.network, moment.problem)

        def of_row(values: Float[Array, " rank"]) -> Float[Array, ""]:
            shares = values / jnp.sum(values)
            return jnp.exp(-jnp.sum(jax.scipy.special.xlogy(shares, shares)))

        return jnp.concatenate([jax.vmap(of_row)(rows) for rows in _of_matrices(moment.network)])


@PROBES.register("layer_norms")
class LayerNorms(Probe):
    """The norm of each layer, over all its weights together: of a matrix the Frobenius norm."""

    label: Label = eqx.field(
        static=True,
        default=Label("layer_norms", "norm of the weights of each layer", r"norm $\Vert W_\ell \Vert$", drawn="layers"),
    )
    """What it is called in tables and figures; its rows bear the names of the layers of the run."""

    def begin(self, network: PyTree) -> Self:
        """Return the probe with the names of the layers."""
        return replace(self, label=replace(self.label, rows=numbered_layers(network).names))

    def measure(self, moment: Moment) -> Float[Array, " layers"]:
        """Return the norm of each layer."""
        weights = split(moment.network)[0]
        return jnp.sqrt(numbered_layers(moment.network).sums(jax.tree.map(jnp.square, weights)))


def _imbalance(network: DeepLinear) -> list[Float[Array, "pairs width width"]]:
    """Return W_{k+1}ᵀW_{k+1} − W_kW_kᵀ for every pair of neighbouring layers, those of equal widths together."""
    inner = [jnp.einsum("koi,koj->kij", stack, stack) for stack in network.stacks]
    outer = [jnp.einsum("koi,kpi->kop", stack, stack) for stack in network.stacks]
    within = [above[1:] - below[:-1] for above, below in zip(inner, outer, strict=True) if len(above) > 1]
    between = [above[:1] - below[-1:] for above, below in zip(inner[1:], outer[:-1], strict=True)]
    return [*within, *between]


@PROBES.register("balancedness")
class Balancedness(Probe):
    """How far a deep linear network is from balanced: the norm of all W_{k+1}ᵀW_{k+1} − W_kW_kᵀ, and its `drift`.

    Gradient flow without weight decay conserves each of these matrices (Du, Hu and Lee 2018, theorem 2.2). The drift is
    the norm of their change since the run began: along that flow the error of the integrator, else what the steps of
    descent, weight decay or a model do. Both are zero for a single layer. The drift is NaN where the start of a run is
    not known.
    """

    start: DeepLinear | None = None
    """The network at which the run began."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "balancedness",
            "how far layers are from balanced",
            "imbalance of the layers",
            parts=(
                Label(
                    "balancedness_gap",
                    "norm of the differences between neighbouring layers, of all W_{k+1}ᵀW_{k+1} − W_kW_kᵀ",
                    r"$\Vert W_{k+1}^\top W_{k+1} - W_k W_k^\top \Vert$",
                ),
                Label(
                    "balancedness_drift",
                    "norm of their change since the run began, zero along a gradient flow without weight decay",
                    r"drift of $W_{k+1}^\top W_{k+1} - W_k W_k^\top$",
                ),
            ),
        ),
    )
    """What it is called in tables and figures."""

    def check(self, network: PyTree, problem: Problem) -> None:
        """Raise `ValueError` for a network that is not deep linear."""
        if not isinstance(network, DeepLinear):
            raise ValueError(f"the network is a {type(network).__name__}: expected a DeepLinear, whose layers balance")

    def begin(self, network: PyTree) -> Self:
        """Return the probe of a run that begins at this network."""
        return self if self.start is not None else replace(self, start=network)

    def measure(self, moment: Moment) -> dict[str, Float[Array, ""]]:
        """Return the norm of the differences, and that of their change."""
        self.check(moment.network, moment.problem)
        none = [jnp.zeros(1, moment.network.stacks[0].dtype)]  # of a single layer
        here = _imbalance(moment.network) or none
        if self.start is None:
            return {"gap": norm(here), "drift": jnp.full_like(norm(here), jnp.nan)}
        return {"gap": norm(here), "drift": norm(jax.tree.map(jnp.subtract, here, _imbalance(self.start) or none))}
