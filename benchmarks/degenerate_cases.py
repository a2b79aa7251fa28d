"""Flows from small starts, and to degenerate and half-stable limits. Importing this switches JAX to float64."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import flowsim
from flowsim import Outcome

jax.config.update("jax_enable_x64", True)

FLOAT64, FLOAT32 = np.dtype("float64"), np.dtype("float32")
# The learning rate of models of descent: 2/η is 40, beyond the sharpness of 10 to 20 of these problems.
LEARNING_RATE = 0.05


@dataclass(frozen=True)
class Precision:
    """The precision of the weights, and whether JAX has 64 bits, in which flowsim then looks at a limit."""

    name: str
    dtype: np.dtype
    x64: bool


DOUBLE, SINGLE = Precision("float64", FLOAT64, True), Precision("float32", FLOAT32, False)
SINGLE_BESIDE_DOUBLE = Precision("float32, x64 on", FLOAT32, True)
EVERY = (DOUBLE, SINGLE, SINGLE_BESIDE_DOUBLE)


@dataclass(frozen=True)
class Case:
    """A start and a problem, built from arrays, which are rounded to a precision first.

    `build` takes the arrays, and returns the network and the problem.
    """

    name: str
    arrays: Sequence[Any]
    build: Callable[..., tuple[Any, flowsim.Problem]]
    precisions: tuple[Precision, ...] = EVERY

    def at(self, dtype: np.dtype, computed_in: np.dtype | None = None) -> tuple[Any, flowsim.Problem]:
        """Return network and problem with numbers of a precision, in arrays of that precision or of another."""

        def rounded(numbers: Any) -> np.ndarray:
            return np.asarray(numbers, dtype).astype(computed_in or dtype)

        return self.build(*jax.tree.map(rounded, list(self.arrays)))


@dataclass(frozen=True)
class Jump(Case):
    """A flow from a small start to the time `t1`, at which weights change fast.

    `exact` maps start and time to the weights, where a closed form is known. `model` is that of a descent: the gradient
    flow of R + `correction`·‖∇R‖² where nothing oscillates, or for `None` its own reference, at a finer tolerance.
    """

    precisions: tuple[Precision, ...] = (DOUBLE, SINGLE)
    t1: float = 0.0
    exact: Callable[[np.ndarray, float], np.ndarray] | None = None
    model: Callable[..., Any] | None = None
    correction: float | None = 0.0
    outcome: Outcome = Outcome.TIME_LIMIT


@dataclass(frozen=True)
class Limit(Case):
    """A flow to its limit.

    `limit` is a vector, or a time at which the flow is there. `clock` maps the distance x that `along` takes from the
    weights to the time at which the flow passes x.
    """

    limit: np.ndarray | float = np.nan
    outcome: Outcome = Outcome.CONVERGED
    order: int = 4
    along: Callable[[jax.Array], jax.Array] | None = None
    clock: Callable[[jax.Array], jax.Array] | None = None


class Pairs(eqx.Module):
    """½(v₀v₁ − c₀)² + ½(v₂v₃ − c₁)² + `stiff`·(v₄ − 1)² of v = Qw."""

    targets: jax.Array
    stiff: jax.Array
    rotation: jax.Array

    def __call__(self, weights: jax.Array) -> jax.Array:
        v = self.rotation @ weights
        products = jnp.stack([v[0] * v[1], v[2] * v[3]])
        return jnp.sum((products - self.targets) ** 2) / 2 + self.stiff * (v[4] - 1) ** 2


class Drifting(eqx.Module):
    """½(w₀w₁ − 1)² beside six weights of size one that drift to two at a rate."""

    rate: jax.Array

    def __call__(self, weights: jax.Array) -> jax.Array:
        return (weights[0] * weights[1] - 1) ** 2 / 2 + self.rate * jnp.sum((weights[2:] - 2) ** 2) / 2


class Powers(eqx.Module):
    """Σ cₖxᵏ over k = 3, 4, 6 and 20 of the only weight x."""

    coefficients: jax.Array

    def __call__(self, weights: jax.Array) -> jax.Array:
        return powers(self.coefficients, weights[0])


class Valley(eqx.Module):
    """Σ cₖxᵏ + a(xz)² + b(xyz − d)² + `stiff`·(y − 1 − `bent`·x²)² of (x, y, z) = Qw."""

    coefficients: jax.Array
    product: jax.Array
    triple: jax.Array
    target: jax.Array
    stiff: jax.Array
    bent: jax.Array
    rotation: jax.Array

    def __call__(self, weights: jax.Array) -> jax.Array:
        x, y, z = self.rotation @ weights
        products = self.product * (x * z) ** 2 + self.triple * (x * y * z - self.target) ** 2
        return powers(self.coefficients, x) + products + self.stiff * (y - 1 - self.bent * x**2) ** 2


def powers(coefficients: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.dot(coefficients, jnp.stack([x**3, x**4, x**6, x**20]))


class Tanh(eqx.Module):
    """A network with one hidden layer of tanh."""

    first: jax.Array
    second: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.dot(self.second, jnp.tanh(self.first @ x))


class Squares(eqx.Module):
    """A diagonal network with one weight for each feature, which enters by its square."""

    weights: jax.Array

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.dot(self.weights**2, x)


def of_risk(risk: type[eqx.Module]) -> Callable[..., tuple[jax.Array, flowsim.Risk]]:
    """Return the function that builds a start and a risk of the terms that follow it."""
    return lambda start, *terms: (jnp.asarray(start), flowsim.Risk(risk(*map(jnp.asarray, terms))))


def of_network(network: Callable, problem: type) -> Callable[..., tuple[eqx.Module, flowsim.Problem]]:
    """Return the function that builds a network of its weights, and a problem of samples and targets."""
    return lambda weights, X, y: (network(jax.tree.map(jnp.asarray, weights)), problem(X, y))


def balanced(start: np.ndarray, t: float) -> np.ndarray:
    """Return the weights of balanced pairs with targets c, beside a stiff direction that is at one: u' = 2u(c − u)."""
    squares, targets = start[:4:2] ** 2, np.array([2.0, 1.0])
    products = targets / (1 + (targets / squares - 1) * np.exp(-2 * targets * t))
    return np.append(np.repeat(products**0.5, 2), 1)


def small_starts() -> list[Jump]:
    """Return gradient flows from small starts, in the middle of a jump."""
    rotation = np.linalg.qr(np.random.default_rng(3).standard_normal((5, 5)))[0]
    pairs, mixed, equal = of_risk(Pairs), np.array([1, 0.5, 0.8, 1.2, 0]), np.array([1, 1, 1, 1, 0])
    targets, straight = np.array([2.0, 1.0]), np.eye(5)
    cases = [
        Jump(f"two products, {s:g}", (s * mixed, targets, 0.0, straight), pairs, t1=np.log(1 / s))
        for s in (1e-3, 1e-6, 1e-9, 3e-15)
    ]
    # Half of the slower one: the faster one has arrived.
    cases += [
        Jump(f"balanced, stiff, {s:g}", (s * equal, targets, 300.0, straight), pairs, t1=np.log(1 / s), exact=balanced)
        for s in (1e-6, 1e-10, 3e-15)
    ]
    # Beside these, steps are stabilized ones of order four.
    cases += [
        Jump(
            f"balanced, curvature {2 * stiff:g}, {s:g}",
            (s * equal, targets, stiff, straight),
            pairs,
            t1=np.log(1 / s),
            exact=balanced,
        )
        for stiff in (5.0, 20.0)
        for s in (1e-6, 3e-15)
    ]
    # Beside weights of size one, float32 rounds parts of 1e-8.
    cases += [
        Jump(
            f"rotated, {s:g}",
            (s * rotation.T @ mixed, targets, 20.0, rotation),
            pairs,
            (DOUBLE, SINGLE) if s > 1e-6 else (DOUBLE,),
            t1=np.log(1 / s),
        )
        for s in (1e-4, 1e-8)
    ]
    cases += [
        Jump(
            f"triple product, {s:g}",
            (s * np.array([1, 1.1, 1.2]), np.zeros(4), 0.0, 0.5, 1.0, 0.0, 0.0, np.eye(3)),
            of_risk(Valley),
            t1=0.758 / s,
        )
        for s in (1e-2, 1e-4)
    ]
    cases += [
        Jump(
            f"drifting neighbours, rate {rate:g}",
            (np.array([1e-10] * 2 + [1] * 6), rate),
            of_risk(Drifting),
            t1=np.log(1e10),
        )
        for rate in (0.01, 0.1)
    ]
    return cases + small_networks()


def small_networks() -> list[Jump]:
    """Return flows of deep linear networks and of a network of tanh from small weights."""
    X = whitened()
    Y = X * [1, 0.6, 0.3]
    cases = []
    for depth, scale, t1, problem in (
        (2, 1e-3, 3.6, flowsim.LinearRegression),
        (2, 1e-8, 9.38, flowsim.LinearRegression),
        (2, 1e-8, 9.38, flowsim.EmpiricalRisk),
        (2, 1e-8, 16.2, flowsim.LinearRegression),
        (2, 1e-12, 13.99, flowsim.LinearRegression),
        (2, 1e-12, 13.99, flowsim.EmpiricalRisk),
        (3, 1e-2, 54.2, flowsim.LinearRegression),
        (3, 1e-2, 54.2, flowsim.EmpiricalRisk),
        (3, 1e-4, 5504.0, flowsim.LinearRegression),
        (3, 1e-4, 5504.0, flowsim.EmpiricalRisk),
    ):
        start = flowsim.DeepLinear.gaussian(widths=[3] * (depth + 1), scale=scale, key=jax.random.key(5))
        name = f"{depth} layers, {scale:g}, t = {t1:g}, {problem.__name__}"
        arrays = (list(start.weights), X, Y)
        cases.append(Jump(name, arrays, of_network(flowsim.DeepLinear, problem), t1=t1))
    rng = np.random.default_rng(1)
    X = rng.standard_normal((30, 3))
    first, second = rng.standard_normal((8, 3)), rng.standard_normal(8)
    build = of_network(lambda weights: Tanh(*weights), flowsim.EmpiricalRisk)
    return cases + [
        Jump(f"tanh, {s:g}", ([s * first, s * second], X, np.sin(X.sum(1))), build, t1=t1)
        for s, t1 in ((1e-2, 5.2), (1e-5, 15.1), (1e-9, 27.7))
    ]


def whitened() -> np.ndarray:
    """Return 20 samples of three features without correlations."""
    return np.linalg.qr(np.random.default_rng(9).standard_normal((20, 3)))[0] * 20**0.5


def of_descent() -> list[Jump]:
    """Return models of descent from small starts, at a learning rate with which nothing comes to the edge."""
    second = LEARNING_RATE / 4
    models = {
        "central flow": (flowsim.CentralFlow, 0.0),
        "central flow of order 2": (lambda rate, **to: flowsim.CentralFlow(rate, order=2, **to), second),
        "edge flow": (flowsim.EdgeFlow, second),
        # It has terms of higher order.
        "rod flow": (flowsim.RodFlow, None),
    }
    start, terms = np.array([1, 1, 1, 1, 0]), (np.array([2.0, 1.0]), 5.0, np.eye(5))
    return [
        Jump(
            f"{name}, {s:g}",
            (s * start, *terms),
            of_risk(Pairs),
            t1=np.log(1 / s),
            model=lambda model=model, **to: model(LEARNING_RATE, **to),
            exact=balanced if correction == 0 else None,
            correction=correction,
        )
        for name, (model, correction) in models.items()
        for s in (1e-6, 1e-12)
    ]


def degenerate() -> list[Limit]:
    """Return flows to minima at which the risk is flat to an order above two, most of them at x = 0."""
    cases = [power(k) for k in (4, 6, 20)]
    cases += [power(k, stiff=stiff) for k, stiff in ((4, 100.0), (6, 1.0), (20, 1.0))]
    rotation = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]
    cases += [power(4, stiff=100.0, rotation=rotation), power(6, stiff=1.0, rotation=rotation)]
    # Here and below float32 hides what is left: rounding beside a floor at one, or of two weights that are equal.
    cases.append(valley("x⁴ in a bent valley", [1, 1, 0], 4, (DOUBLE,), quartic=1.0, stiff=30.0, bent=1.0))
    # Along the geometric mean: how much weights of one product differ is conserved, and counts more as they decay.
    for name, start, stiff in (("(xz)²", [1, 1, 1], 0.0), ("(xz)², stiff", [1, 0, 1], 100.0)):
        clock = {"along": lambda w: jnp.sqrt(w[0] * w[2]), "clock": lambda x: (x**-2 - 1) / 4}
        cases.append(valley(name, start, 4, (DOUBLE,), product=1.0, stiff=stiff, **clock))
    clock = {"along": lambda w: jnp.prod(w) ** (1 / 3), "clock": lambda x: (x**-4 - 1) / 8}
    cases.append(valley("(xyz)²", [1, 1, 1], 6, (DOUBLE,), limit=[0, 0, 0], triple=1.0, **clock))
    return [*cases, *degenerate_networks()]


def half_stable() -> list[Limit]:
    """Return flows of x³ + x⁴ from x = 1, which come to rest at x = 0, above the minimum at −¾."""
    rotation = np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]
    return [power(3), power(3, stiff=100.0), power(3, stiff=100.0, rotation=rotation)]


def power(k: int, stiff: float = 0.0, rotation: np.ndarray | None = None) -> Limit:
    """Return the flow of xᵏ from x = 1 to 0, for k = 3 of x³ + x⁴; alone, or beside a stiff direction."""
    # In float32 the time passes the largest number.
    precisions = (DOUBLE,) if k == 20 else EVERY
    coefficients = np.array([k == 3, k in (3, 4), k == 6, k == 20], float)
    superscript = {3: "x³ + x⁴", 4: "x⁴", 6: "x⁶", 20: "x²⁰"}[k]
    outcome = Outcome.STATIONARY if k == 3 else Outcome.CONVERGED

    def clock(x: jax.Array) -> jax.Array:
        if k > 3:
            return (x ** (2 - k) - 1) / (k * (k - 2))
        return (1 / x - 1) / 3 - 4 / 9 * (jnp.log(3 / x + 4) - jnp.log(7))

    if not stiff:
        rest = {"limit": np.zeros(1), "along": lambda w: w[0]}
        arrays, build = (np.ones(1), coefficients), of_risk(Powers)
    else:
        turned = np.eye(3) if rotation is None else rotation
        arrays = (turned.T @ [1, 0, 0], coefficients, 0.0, 0.0, 0.0, stiff, 0.0, turned)
        rest = {"limit": turned.T @ [0, 1, 0], "along": lambda w: (turned @ w)[0]}
        build = of_risk(Valley)
    name = superscript + (", stiff" if stiff else "") + (", rotated" if rotation is not None else "")
    return Limit(name, arrays, build, precisions, outcome=outcome, order=k, clock=clock, **rest)


def valley(
    name: str,
    start: Sequence[float],
    order: int,
    precisions: tuple[Precision, ...],
    limit: Sequence[float] = (0, 1, 0),
    quartic: float = 0.0,
    product: float = 0.0,
    triple: float = 0.0,
    stiff: float = 0.0,
    bent: float = 0.0,
    **clock: Any,
) -> Limit:
    """Return the flow of a `Valley` to a limit."""
    terms = (np.array([0, quartic, 0, 0]), product, triple, 0.0, stiff, bent, np.eye(3))
    arrays = (np.array(start), *terms)
    return Limit(name, arrays, of_risk(Valley), precisions, limit=np.array(limit), order=order, **clock)


def degenerate_networks() -> list[Limit]:
    """Return flows of networks whose least risk a weight of zero attains, or a matrix of a lower rank."""
    rng = np.random.default_rng(4)
    X, noise = rng.standard_normal((20, 3)), rng.standard_normal(20)
    noise -= X @ np.linalg.lstsq(X, noise, rcond=None)[0]
    arrays = (np.array([0.7, 0.6, 0.5]), X, X @ [1, 0, 0.5] + 0.3 * noise)
    cases = [
        Limit(
            "sparse diagonal network, noise",
            arrays,
            of_network(Squares, flowsim.EmpiricalRisk),
            limit=np.array([1, 0, 0.5**0.5]),
        )
    ]
    X, singular, scale = whitened(), np.array([1, 0.6, 0]), 1e-2
    turns = [np.linalg.qr(np.random.default_rng(k).standard_normal((3, 3)))[0] for k in range(2)]
    for depth in (2, 3):
        # Balanced layers W_k = U_k Σ U_{k−1}ᵀ; the loss is Σ (σᵢ^L − yᵢ)².
        frames = [np.eye(3), *turns[: depth - 1], np.eye(3)]
        layers = [after @ before.T for before, after in itertools.pairwise(frames)]
        limit = [after @ np.diag(singular ** (1 / depth)) @ before.T for before, after in itertools.pairwise(frames)]
        cases += [
            Limit(
                f"rank two, {depth} balanced layers, {problem.__name__}",
                ([scale * layer for layer in layers], X, X * singular),
                of_network(flowsim.DeepLinear, problem),
                limit=np.concatenate([np.ravel(layer) for layer in limit]),
                order=2 * depth,
                along=lambda w, last=frames[1]: last[:, 2] @ w[:9].reshape(3, 3)[:, 2],
                clock=lambda x, k=2 * depth - 2: (x**-k - scale**-k) / (2 * k),
            )
            for problem in (flowsim.LinearRegression, flowsim.EmpiricalRisk)
        ]
    start = flowsim.DeepLinear.gaussian(widths=[3] * 3, scale=scale, key=jax.random.key(5))
    # What the layers differ by is conserved, and makes the last approach exponential, at a rate of its own size.
    arrays = (list(start.weights), X, X * singular)
    build = of_network(flowsim.DeepLinear, flowsim.LinearRegression)
    return [*cases, Limit("rank two, 2 layers, LinearRegression", arrays, build, limit=1e7, order=2)]
