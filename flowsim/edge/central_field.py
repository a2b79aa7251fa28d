"""The field of the central flow: the gradient flow, held where descent oscillates.

Cohen, Damian, Talwalkar, Kolter and Lee (2024, "Understanding optimization in deep learning with central flows") follow
the mean of descent's iterates, over an oscillation whose covariance Σ is what keeps every curvature at 2/η or below:

    dW/dt = −∇R − ½ ∇⟨H, Σ⟩,    Σ = Uᵀ X U ⪰ 0,    0 ⪯ X ⊥ 2/η − H_U ⪰ 0,

with the rows U of eigenvectors at the edge and H_U = U H Uᵀ. Along the flow dH_U/dt = A − B[X], with
T_ij = ∇(u_iᵀHu_j), A_ij = −⟨T_ij, ∇R⟩ and B_ij,kl = ½⟨T_ij, T_kl⟩. So X is the solution of

    0 ⪯ X ⊥ (2/η − H_U)/τ + (2/η)' − A + B[X] ⪰ 0.

At the edge H_U = 2/η, and this is the complementarity problem of the paper. Off it, where rounding, a step or the
initialization has led, it is that of the paper's own implementation, in which τ is the length of a step: eigenvalues
above 2/η come back at a rate 1/τ, and those below may rise until they are there.

In order two in η, ∇R and ∇⟨H, Σ⟩ are multiplied by M = 1 + (η/2)H, wherever the flow goes along them: for a still
oscillation that is all of the second order of the centre (`flowsim.edge.edge_flow`). So A_ij = −⟨T_ij, M∇R⟩ and
B_ij,kl = ½⟨T_ij, M T_kl⟩, and what comes to the edge is held once its oscillation has grown
(`flowsim.edge.central_onset`).
"""

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int, PyTree

from ..curvature import vectors
from ..curvature.davidson import RitzSpace, ritz_space
from ..curvature.eigenpair import decomposition
from ..curvature.third_derivative import contraction
from ..dynamics.flow import DescentModel
from ..solvers.field import GradientField, norm
from .central_onset import Growth
from .complementarity import complementary_covariance, from_basis, in_basis


class Edge(eqx.Module):
    """The top of the spectrum at a point: k rows of `vectors` and their `values`, in decreasing order.

    The first `active` are held at the edge, the first `near` ≥ `active` are worth following. `ritz` are orthonormal
    rows, and `curvatures` the Ritz values on them, of a matrix A near the Hessian; zeros where nothing is known.
    """

    vectors: PyTree
    values: Float[Array, " k"]
    active: Int[Array, ""]
    near: Int[Array, ""]
    ritz: PyTree
    curvatures: Float[Array, " m"]

    @classmethod
    def unknown(cls, weights: PyTree, most: int, *, scouts: int, spare: int = 3) -> "Edge":
        """Return the spectrum before anything is known of it, with room for `most` eigenvalues at the edge.

        So many `scouts` search for all others, and `spare` rows are for the refinement of what they find.
        """
        size, dtype, none = vectors.size_of(weights), vectors.dtype_of(weights), jnp.array(0)
        count = min(most + 1, size)
        rows = min(count + scouts + spare, size)
        below = jnp.full(count, -jnp.inf, dtype)
        return cls(empty_rows(weights, count), below, none, none, empty_rows(weights, rows), jnp.zeros(rows, dtype))

    def room(self, most: int) -> int:
        """Return how many eigenvalues may be held at once: `most`, or the number of weights if that is less."""
        return min(most, len(self.values))

    def correction(self, residual: PyTree, value: Float[Array, ""], *, least_apart: float = 0.05) -> PyTree:
        """Return (A − θ)⁻¹r, with no difference of eigenvalues below the part `least_apart` of θ."""
        value = jnp.where(jnp.abs(value) > 0, value, 1)
        apart, least = self.curvatures - value, least_apart * jnp.abs(value)
        apart = jnp.where(jnp.abs(apart) < least, jnp.where(apart < 0, -least, least), apart)
        known = vectors.combination((1 / apart + 1 / value) * vectors.inner_products(self.ritz, residual), self.ritz)
        return jax.tree.map(lambda a, r: a - r / value.astype(r.dtype), known, residual)


class Reading(eqx.Module):
    """The field at a point and what it is made of: X and T.

    `tangents` has a row T_ij for i ≤ j: those of the eigenvalues that may be held at once, in `symmetric_basis`, and
    then those of one eigenvalue more; zero where not asked for. `slack` is the least eigenvalue of X, and less than
    zero where X has lost rank. `excess` and `comes`, known after a look around, are by how much the largest eigenvalue
    that was not held is beyond the edge, and how many have come to it.
    """

    slope: PyTree
    objective: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    covariance: Float[Array, "m m"]
    slack: Float[Array, ""]
    tangents: PyTree
    excess: Float[Array, ""]
    comes: Int[Array, ""]
    growth: Growth

    @classmethod
    def none(cls, weights: PyTree, edge: Edge, room: int) -> "Reading":
        """Return zeros in the shape of a reading with so much `room` at the edge."""
        count, zero = len(edge.values), jnp.zeros((), edge.values.dtype)
        square, tangents = jnp.zeros((room, room), zero.dtype), empty_rows(weights, _slots(room, count))
        return cls(weights, zero, zero, square, zero, tangents, zero, jnp.array(0), Growth.unknown(zero))


def _slots(room: int, count: int) -> int:
    """Return the number of pairs i ≤ j with i below `room` and j below `count`, at most one more."""
    return room * (room + 1) // 2 + room * (count - room)


class CentralField(eqx.Module):
    """The right-hand side of the central flow next to a point of which the `edge` is known.

    `rtol` is that of the eigenvectors, and an eigenvalue has come to the edge that is nearer to 2/η than the part `met`
    of it; from the part `near` on it is worth following. A Krylov space of so many `scouts` searches for others. τ is
    the `relaxation`. In `order` two, the oscillation has the `growth` where a step begins that ends so many `steps` of
    descent later; where one `waits`, it is held as soon as no more than `missed` is missing. The
    learning rate of the `model` is a number here, and `drift` is η', where it changes in time.
    """

    field: GradientField
    model: DescentModel
    relaxation: Float[Array, ""]
    rtol: Float[Array, ""]
    met: Float[Array, ""]
    edge: Edge
    most: int = eqx.field(static=True)
    near: float = eqx.field(static=True)
    scouts: int = eqx.field(static=True)
    order: int = eqx.field(static=True)
    growth: Growth
    steps: Float[Array, ""]
    waits: Bool[Array, ""]
    missed: Float[Array, ""]
    drift: Float[Array, ""] | None = None

    @property
    def _speed(self) -> Float[ArrayLike, ""]:
        """The speed of the edge, (2/η)'."""
        return 0.0 if self.drift is None else -2 * self.drift / self.model.learning_rate**2

    def reading(
        self, weights: PyTree, edge: Edge, *, look: Bool[Array, ""], ends: Bool[Array, ""]
    ) -> tuple[Reading, Edge, Int[Array, ""]]:
        """Return the field at `weights` next to an `edge`, the edge there, and the products that it took.

        A `look` around finds eigenvalues that come near from anywhere. Where a step `ends`, T of those that are held
        with those that are near is read, too.
        """
        (objective, gradient), both = jax.linearize(jax.value_and_grad(self.field.objective), weights)

        def product(vector: PyTree) -> PyTree:
            return both(vector)[1]

        def scout() -> PyTree:
            return _scout(gradient)

        space = ritz_space(
            product,
            edge.vectors,
            self.edge.correction,
            begun=edge.near,
            wanted=edge.active,
            rtol=self.rtol,
            dimension=len(edge.curvatures),
            scout=scout,
            scouts=jnp.where(look, self.scouts, 0),
            above=jnp.where(look, self.near * 2 / self.model.learning_rate, jnp.inf),
        )

        def grown(edge: Edge) -> Growth:
            return self._grown(weights, edge, downhill, product)

        downhill = gradient if self.order == 1 else self._steeper(gradient, product)
        edge, growth, excess, comes = self._edge_of(space, edge, look, grown)
        tangents, passes = self._tangents(weights, edge, ends)
        room = self.edge.room(self.most)
        held = jax.tree.map(lambda leaf: leaf[: room * (room + 1) // 2], tangents)
        steep, products = self._of_order(held, edge, product, look)
        covariance, slack, pushed = self._covariance(edge, held, downhill, steep)
        slope = jax.tree.map(lambda g, t: -g - t, downhill, pushed)
        reading = Reading(slope, objective, norm(gradient), covariance, slack, tangents, excess, comes, growth)
        return reading, edge, space.products + passes + products

    def _edge_of(
        self, space: RitzSpace, edge: Edge, look: Bool[Array, ""], grown: Callable[[Edge], Growth]
    ) -> tuple[Edge, Growth, Array, Array]:
        """Return the edge of a space, how far an oscillation has `grown`, and of what comes by how much and how many.

        Those are by how much others than what is held are beyond, and how many of them have come.
        """
        pairs = space.pairs(self.rtol)
        index = jnp.arange(len(pairs.values))
        # What was held is followed down.
        near = jnp.where(
            look, jnp.maximum(jnp.sum(pairs.values >= self.near * 2 / self.model.learning_rate), edge.active), edge.near
        )
        seen = look | (index < near)
        found = jax.tree.map(lambda new, old: jnp.where(column(seen, new), new, old), pairs.vectors, edge.vectors)
        values = jnp.where(seen, pairs.values, edge.values)
        own = jnp.where(index < near, overlaps(found, self.edge.vectors, self.edge.active), -1)
        free = (jnp.argsort(jnp.argsort(-own)) >= self.edge.active) & (index < near)
        beyond = jnp.max(jnp.where(free, values, -jnp.inf))
        comes = jnp.sum(free & (values >= (1 - self.met) * 2 / self.model.learning_rate))
        # A loop of one round at most: unlike a conditional, it copies no rows where there is nothing to do.
        ritz = jax.lax.fori_loop(0, look.astype(int), lambda _, rows: space.vectors(), edge.ritz)
        curvatures = jnp.where(look, jnp.where(jnp.isfinite(space.values), space.values, 0), edge.curvatures)
        edge = Edge(found, values, edge.active, near, ritz, curvatures)
        growth = self.growth
        if self.order > 1:
            growth = jax.lax.cond(look & self._is_free, grown, lambda _: self.growth, edge)
            comes = jnp.where(self.waits & (growth.missing > self.missed), 0, comes)
        active = jnp.where(look, self.edge.active + comes, edge.active)
        return dataclasses.replace(edge, active=active), growth, beyond - 2 / self.model.learning_rate, comes

    def _grown(self, weights: PyTree, edge: Edge, downhill: PyTree, product: Callable[[PyTree], PyTree]) -> Growth:
        """Return the growth of an oscillation along the first eigenvector, up to the end of a step."""
        first = vectors.row(edge.vectors, 0)
        _, tangent = contraction(self.field.objective, weights, first, first)
        square = vectors.inner_product(tangent, self._steeper(tangent, product))
        rate = -vectors.inner_product(tangent, downhill)
        eta = self.model.learning_rate
        slope = eta**2 * rate if self.drift is None else eta**2 * rate + eta * self.drift * edge.values[0]
        growth = self.growth.after(self.steps, eta * edge.values[0] - 1, slope)
        wanted = growth.turning(rate - self._speed, edge.values[0] - 2 / eta, eta)
        return growth.beside(2 * wanted / jnp.where(square > 0, square, jnp.inf))

    @property
    def _is_free(self) -> Bool[Array, ""]:
        """Whether an oscillation grows or decays by itself, as nothing is held."""
        return self.edge.active == 0

    def _steeper(self, vector: PyTree, product: Callable[[PyTree], PyTree]) -> PyTree:
        """Return M v."""
        return jax.tree.map(lambda v, a: v + self.model.learning_rate / 2 * a, vector, product(vector))

    def _tangents(self, weights: PyTree, edge: Edge, ends: Bool[Array, ""]) -> tuple[PyTree, Int[Array, ""]]:
        """Return T, zero beyond what is asked for, and the passes that it took."""
        count, active = len(edge.values), edge.active
        table = jnp.array([(i, j) for j in range(count) for i in range(j + 1)])
        own = active * (active + 1) // 2
        others = jnp.where(ends, active * (edge.near - active), 0)

        def add(index: Array, tangents: PyTree) -> PyTree:
            behind = jnp.maximum(index - own, 0)
            across = jnp.stack([behind % active, active + behind // active])
            i, j = jnp.where(index < own, table[index], across)
            rows = edge.vectors
            _, tangent = contraction(self.field.objective, weights, vectors.row(rows, i), vectors.row(rows, j))
            factor, slot = jnp.where(i == j, 1, jnp.sqrt(2.0)), j * (j + 1) // 2 + i
            return jax.tree.map(lambda all, t: all.at[slot].set(factor.astype(t.dtype) * t), tangents, tangent)

        empty = empty_rows(weights, _slots(self.edge.room(self.most), count))
        return jax.lax.fori_loop(0, own + others, add, empty), 3 * (own + others)

    def _of_order(
        self, tangents: PyTree, edge: Edge, product: Callable[[PyTree], PyTree], look: Bool[Array, ""]
    ) -> tuple[PyTree, Int[Array, ""]]:
        """Return M T, and the passes that order two took in all: for M∇R, M T, and the growth of an oscillation."""
        if self.order == 1:
            return tangents, jnp.array(0)
        own = edge.active * (edge.active + 1) // 2

        def turn(index: Array, rows: PyTree) -> PyTree:
            steeper = self._steeper(vectors.row(rows, index), product)
            return jax.tree.map(lambda all, new: all.at[index].set(new), rows, steeper)

        return jax.lax.fori_loop(0, own, turn, tangents), own + 1 + 4 * (look & self._is_free)

    def _covariance(
        self, edge: Edge, tangents: PyTree, gradient: PyTree, steep: PyTree
    ) -> tuple[Float[Array, "m m"], Float[Array, ""], PyTree]:
        """Return X, its least eigenvalue, and ½⟨M T, X⟩, from M∇R and M T.

        Where the least eigenvalue is zero, it is the largest of Y in units of X, below zero.
        """
        room = self.edge.room(self.most)
        active = jnp.arange(room) < edge.active

        def held() -> tuple[Array, Array, PyTree]:
            gram = vectors.gram(tangents, steep) / 2
            rate = -from_basis(vectors.inner_products(tangents, gradient), room)
            beyond = jnp.where(active, edge.values[:room] - 2 / self.model.learning_rate, 0)
            drive = rate + jnp.diag(beyond) / self.relaxation - jnp.diag(jnp.where(active, self._speed, 0))
            found = complementary_covariance(gram, drive, edge.active)
            left = from_basis(gram @ in_basis(found), room) - drive
            unit = jnp.max(jnp.diag(gram))
            signed = found - left / jnp.where(unit > 0, unit, 1)
            far = jnp.diag(jnp.full(room, 2 * jnp.max(jnp.abs(signed))))
            least = decomposition(jnp.where(active[:, None] & active[None], signed, far))[0][0]
            return found, least, vectors.combination(in_basis(found) / 2, steep)

        def free() -> tuple[Array, Array, PyTree]:
            nothing = jnp.zeros((room, room), edge.values.dtype)
            return nothing, nothing[0, 0], jax.tree.map(jnp.zeros_like, gradient)

        return jax.lax.cond(edge.active > 0, held, free)


def bends(reading: Reading, edge: Edge, value: Float[Array, ""], *, least_apart: float = 1e-5) -> PyTree:
    """Return what bends the edge most where a step ends, in rows.

    The second derivative of an eigenvalue λᵢ holds 2 T_ij T_ijᵀ / (λᵢ − λⱼ) for each other one (Kato 1980, II.2.2);
    those of the active ones are weighted by X, and of the others those that are near count, taken to be the part
    `least_apart` of 2/η, the `value` at the edge, apart at least.
    """
    room, count = len(reading.covariance), len(edge.values)
    sizes, turn = decomposition(reading.covariance)
    apart = jnp.maximum(value - edge.values, least_apart * value)
    index = jnp.arange(count)
    # T has a factor √2 off its diagonal.
    factors = jnp.sqrt(jnp.maximum(sizes, 0)[:, None] / (2 * apart)[None])
    factors = jnp.where((index >= edge.active) & (index < edge.near), factors, 0)
    slots = np.array([[max(i, j) * (max(i, j) + 1) // 2 + min(i, j) for j in range(count)] for i in range(room)])
    chosen = np.eye(_slots(room, count))[slots]
    turned = jnp.einsum("ai,ij,ajs->ijs", turn, factors, chosen.astype(turn.dtype))
    return vectors.combination(turned.reshape(room * count, -1), reading.tangents)


def _scout(gradient: PyTree, *, share: float = 0.3) -> PyTree:
    """Return the direction of the gradient and a `share` of all directions."""
    length = norm(gradient)
    unit = vectors.divided(gradient, jnp.where(length > 0, length, 1))
    scattered = vectors.scattered_like(unit, 0)
    return jax.tree.map(lambda a, b: a + share / norm(scattered) * b, unit, scattered)


def overlaps(rows: PyTree, others: PyTree, count: Int[Array, ""]) -> Float[Array, " k"]:
    """Return how much of each row lies in the span of the first `count` others, which are orthonormal."""
    inner = vectors.gram(rows, others)
    return jnp.sum(jnp.where(jnp.arange(inner.shape[1])[None] < count, inner, 0) ** 2, axis=1)


def empty_rows(weights: PyTree, count: int) -> PyTree:
    """Return so many rows of zeros."""
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), weights)


def column(values: Array, like: Array) -> Array:
    """Return numbers as a column beside the rows of an array."""
    return values.reshape(-1, *[1] * (like.ndim - 1))
