"""Networks that are linear in their input, above all deep linear ones x ↦ pᵀ W_L ⋯ W_1 x."""

import abc
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from . import layers
from .layered import Layered
from .weights import Fixed


class LinearNetwork(eqx.Module):
    """A network x ↦ πᵀx, whose risk on least squares depends on its regressor π alone.

    To add one, subclass it, put the weights into its fields, and define `regressor`; `__call__` maps one sample. The
    abilities that follow tell `LinearRegression` more, or spare it derivatives of the regressor: a network without one
    of them returns `None`.
    """

    @abc.abstractmethod
    def __call__(self, x: Float[Array | np.ndarray, " features"], /) -> Float[Array, "*outputs"]:
        """Return the output πᵀx for one sample."""

    @abc.abstractmethod
    def regressor(self) -> Float[Array, " features"] | Float[Array, "features outputs"]:
        """Return π: (d,), or (d, m) for several outputs."""

    def regressor_jacobian(self) -> PyTree | None:
        """Return J = ∂π/∂W as the weights with a leading axis of rows, or `None`: then it is differentiated."""
        return None

    def regressor_gram(self) -> Float[Array, "m m"] | None:
        """Return JJᵀ in closed form, without forming J, or `None`."""
        return None

    def largest_rank(self) -> int | None:
        """Return the largest rank that the regressor can have, if all regressors up to it are products of free layers.

        Then every local minimum of least squares in the weights is a global one. `None` where that is not known.
        """
        return None


class DeepLinear(LinearNetwork, Layered):
    """A deep linear network x ↦ pᵀ W_L ⋯ W_1 x (Marion and Chizat 2024, equation 3).

    Args:
        weights: W_1, …, W_L, with W_k of shape (d_k, d_{k−1}); an entry of shape (n, d, d) stands for n of them, which
            spares a deep network the list.
        projection: p, of shape (d_L,), which the flow does not move. Without it the outputs are W_L ⋯ W_1 x themselves:
            d_L of them, or one number if d_L = 1.

    Raises:
        ValueError: Where shapes do not fit.
    """

    stacks: layers.Stacks
    fixed: Fixed | None

    def __init__(
        self,
        weights: Sequence[ArrayLike],
        projection: ArrayLike | None = None,
    ):
        self.stacks = layers.stack(weights)
        self.fixed = None if projection is None else Fixed(jnp.asarray(projection, self.stacks[0].dtype))

    def __check_init__(self):
        outputs = self.stacks[-1].shape[-2]
        if self.fixed is not None and self.fixed.value.shape[-1:] != (outputs,):
            raise ValueError(
                f"projection has shape {self.fixed.value.shape}, but W_L has {outputs} outputs: expected ({outputs},)"
            )

    @classmethod
    def gaussian(
        cls,
        *,
        widths: Sequence[int],
        scale: ArrayLike,
        fan_in: bool = False,
        key: Array,
        dtype: jnp.dtype | None = None,
    ) -> "DeepLinear":
        """Draw a multi-layer perceptron with independent N(0, scale²) entries.

        Args:
            widths: d_0, …, d_L, from the features of a sample to the outputs.
            scale: The standard deviation of an entry.
            fan_in: Whether the entries of W_k are N(0, scale²/d_{k−1}) instead.
            key: A key of `jax.random`.
            dtype: The type of the weights; by default JAX's own for floats.

        Returns:
            The network, with layers W_k of shape (d_k, d_{k−1}).

        Raises:
            ValueError: For widths that are no positive whole numbers, and a scale that is no number from zero on.

        Examples:
            >>> import flowsim, jax
            >>> network = flowsim.DeepLinear.gaussian(widths=[5, 4, 1], scale=0.5, key=jax.random.key(0))
            >>> [weight.shape for weight in network.weights]
            [(4, 5), (1, 4)]
        """
        return cls(layers.gaussian(widths, scale, key=key, dtype=dtype, fan_in=fan_in))

    @classmethod
    def residual(
        cls,
        *,
        width: int,
        depth: int,
        scale: ArrayLike,
        projection: ArrayLike | None = None,
        key: Array,
        dtype: jnp.dtype | None = None,
    ) -> "DeepLinear":
        """Draw a residual network, W_k = I + s/√(Ld) N_k with N_k standard Gaussian.

        Equation 2 of Marion and Chizat (2024).

        Args:
            width: d, that of every layer.
            depth: The number of layers L.
            scale: s.
            projection: p, of shape (d,); without it the network has d outputs (their Theorem 5).
            key: A key of `jax.random`.
            dtype: The type of the weights; by default JAX's own for floats.

        Returns:
            The network, with layers of shape (d, d).

        Raises:
            ValueError: For a width or depth that is no positive whole number, and a projection of another shape.

        Examples:
            >>> import flowsim, jax
            >>> network = flowsim.DeepLinear.residual(width=3, depth=4, scale=0.5, key=jax.random.key(0))
            >>> [weight.shape for weight in network.weights]
            [(3, 3), (3, 3), (3, 3), (3, 3)]
        """
        layers.check_widths([width, depth])
        (noise,) = layers.gaussian([width] * (depth + 1), scale, key=key, dtype=dtype)
        stack = np.eye(width, dtype=noise.dtype)[None] + noise / (depth * width) ** 0.5
        return cls([stack], projection)

    def with_zero_layer(self, layer: int) -> "DeepLinear":
        """Return the network with W_k = 0 for k = `layer`, counted from one, and all other weights as they are.

        From such a start the risk is that of the zero network, and its gradient is not zero if no other layer is
        (assumption A1 of Marion and Chizat 2024). Raises `ValueError` for a layer that the network does not have.
        """
        if not 1 <= layer <= self.depth:
            raise ValueError(f"layer is {layer}: expected one of 1, …, {self.depth}")
        weights = [jnp.zeros_like(weight) if k == layer else weight for k, weight in enumerate(self.weights, start=1)]
        return DeepLinear(weights, self.projection)

    @property
    def weights(self) -> tuple[Float[Array, "*batch _out _in"], ...]:
        """W_1, …, W_L."""
        return layers.unstack(self.stacks)

    @property
    def projection(self) -> Float[Array, " outputs"] | None:
        """The fixed vector p, or `None`."""
        return None if self.fixed is None else self.fixed.value

    @property
    def projection_norm(self) -> Float[Array, ""]:
        """‖p‖, which is one for a network without projection."""
        return jnp.ones((), self.stacks[0].dtype) if self.fixed is None else jnp.linalg.norm(self.fixed.value)

    @property
    def depth(self) -> int:
        """The number of layers, L."""
        return layers.depth(self.stacks)

    def layer_numbers(self) -> list[Int[np.ndarray, " layers"]]:
        """Return to which layer, from zero, the matrices of each stack belong."""
        return layers.numbers(self.stacks)

    def regressor(self) -> Float[Array, " features"] | Float[Array, "features outputs"]:
        """Return π = W_1ᵀ ⋯ W_Lᵀ p by matrix–vector products: (d_0,), or (d_0, d_L) for d_L > 1 outputs."""
        start = self._output_directions()
        return layers.scan_layers(lambda state, weight: weight.T @ state, start, self.stacks, reverse=True)

    def regressor_jacobian(self) -> "DeepLinear":
        """Return J = ∂π/∂W as the weights with a leading axis, one row for each entry of π.

        π = A_k W_kᵀ B_k for every k, with A_k = W_1ᵀ ⋯ W_{k−1}ᵀ and B_k = W_{k+1}ᵀ ⋯ W_Lᵀ p.
        """
        rows = [
            jnp.einsum("lao,lbi->iolab", above, below).reshape(-1, *stack.shape)
            for stack, above, below in zip(self.stacks, *self._partial_products(), strict=True)
        ]
        return eqx.tree_at(lambda n: (n.stacks, n.fixed), self, (tuple(rows), None), is_leaf=lambda leaf: leaf is None)

    def regressor_gram(self) -> Float[Array, "m m"]:
        """Return JJᵀ for J = ∂π/∂W, by matrix products alone and without forming J.

        It is the sum over k of the Kronecker products of A_kA_kᵀ and B_kᵀB_k.
        """
        above, below = self._partial_products()
        layers_of = [
            jnp.einsum("lbi,lbj,lao,lap->iojp", low, low, high, high, optimize="optimal")
            for high, low in zip(above, below, strict=True)
        ]
        size = layers_of[0].shape[0] * layers_of[0].shape[1]
        return sum(layers_of[1:], layers_of[0]).reshape(size, size)

    def largest_rank(self) -> int | None:
        """Return the least of all widths."""
        return min(size for stack in self.stacks for size in stack.shape[-2:])

    def _partial_products(self) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Return B_k, (layers, d_k, outputs), and A_kᵀ, (layers, d_{k−1}, d_0), in stacks as the weights."""
        directions = self._output_directions()
        directions = directions.reshape(directions.shape[0], -1)
        features = jnp.eye(self.stacks[0].shape[-1], dtype=self.stacks[0].dtype)
        _, above = layers.states(lambda state, weight: weight.T @ state, directions, self.stacks, reverse=True)
        _, below = layers.states(lambda state, weight: weight @ state, features, self.stacks)
        return above, below

    def __call__(self, x: Float[Array | np.ndarray, " features"]) -> Float[Array, "*outputs"]:
        """Return the output for one sample: a scalar, or (d_L,) for d_L > 1 outputs without projection."""
        hidden = layers.scan_layers(lambda state, weight: weight @ state, x, self.stacks)
        return self._output_directions().T @ hidden

    def _output_directions(self) -> Array:
        if self.fixed is not None:
            # The flow treats p as a constant; a derivative asked for outside flowsim should agree.
            return jax.lax.stop_gradient(self.fixed.value)
        outputs, dtype = self.stacks[-1].shape[-2], self.stacks[-1].dtype
        return jnp.ones(1, dtype) if outputs == 1 else jnp.eye(outputs, dtype=dtype)
