"""Many gradient descents on one problem, run in groups through one compiled program."""

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import ArrayLike, Float, Int, PyTree

from ..dynamics import as_descent
from ..dynamics.descent import Descent, check_learning_rate
from ..dynamics.gradient_descent import GradientDescent
from ..networks import cast, records
from ..problems import Problem, check_problem
from ..solvers.field import checked_parts
from .groups import Lanes, run_to_ends
from .registry import kernel_for

if TYPE_CHECKING:
    import optax

AtRate = Callable[[float], "Descent | optax.GradientTransformation"]


class Ends(eqx.Module):
    """How many descents ended: one lane for each, in the order in which they were given.

    `networks`: the last state of each, the lane axis first. `outcomes`: the numbers of its `Outcome`. `steps`: the
    steps that it took; a fixed point is looked for every 32 steps, and its number is that of the look.
    """

    networks: PyTree
    outcomes: Int[np.ndarray, " lanes"]
    steps: Int[np.ndarray, " lanes"]


def descend_lanes(
    networks: PyTree,
    problem: Problem,
    *,
    learning_rates: ArrayLike,
    steps: ArrayLike,
    optimizer: AtRate = GradientDescent,
    floors: ArrayLike = -np.inf,
) -> Ends:
    """Run gradient descent W ← W − η∇R(W), or another descent, from each of many networks on one problem.

    `networks` is one network whose arrays all have a leading axis of lanes, as from `jax.vmap` of a constructor.
    `learning_rates` holds η for each lane, `steps` one number of steps, or one for each lane. The precision is that
    of the weights. `optimizer` makes the descent, or a transformation of Optax, with a learning rate. A lane ends
    early, RISK_REACHED, where the problem's `objective` is at its entry of `floors`, or below: one number, or one for
    each lane.

    Each lane does what `descend` does without a `stopping`, and its end does not depend, to the last bit, on the lanes
    beside it. It leaves before its last step if its risk diverges (DIVERGED, with the state in which that showed) or
    if a step changes no weight (FIXED_POINT, with the state that it would have at the last step); else it ends at
    STEP_LIMIT. Raises `ValueError` or `TypeError` for arguments that cannot be right.
    """
    check_problem(problem)
    weights, rest, dtype = checked_parts(networks)
    lanes = _lane_count(networks)
    fixed, static = eqx.partition(rest, eqx.is_array)
    rates = _for_each_lane(learning_rates, lanes, "learning_rates")
    for rate in rates.tolist():
        check_learning_rate(rate, dtype)
    rates = rates.astype(dtype)
    limits = _limits(steps, lanes)
    floors = np.broadcast_to(np.asarray(floors, dtype), (lanes,))
    one = jax.eval_shape(lambda tree: jax.tree.map(lambda leaf: leaf[0], tree), eqx.filter(networks, eqx.is_array))
    found: list[tuple[PyTree, np.ndarray, np.ndarray]] = []
    groups = _alike(optimizer, rates, dtype)
    for dynamics, members in groups:
        kernel = kernel_for(eqx.combine(one, static), cast(problem, dtype), dynamics)
        mine, beside = records((weights, fixed), members)
        numbers = (rates[members], limits[members], floors[members])
        end = run_to_ends(kernel, Lanes.starting(kernel.start(mine), beside, *numbers))
        found.append((kernel.end(end.weights), end.codes, end.steps))
    order = np.argsort(np.concatenate([members for _, members in groups]))
    ends, outcomes, made = jax.tree.map(lambda *parts: np.concatenate(parts)[order], *found)
    return Ends(eqx.combine(jax.tree.map(jnp.asarray, ends), rest), outcomes, made)


def _alike(
    optimizer: AtRate, rates: Float[np.ndarray, " lanes"], dtype: jnp.dtype
) -> list[tuple[Descent, Int[np.ndarray, " members"]]]:
    """Return the descents that differ in more than their learning rate, each with the lanes that it is for.

    One program takes a rate for each lane; what else a function makes of a rate, it does not.
    """
    known: dict[Any, tuple[Descent, list[int]]] = {}
    made = {rate: as_descent(optimizer(rate)).checked(dtype) for rate in dict.fromkeys(rates.tolist())}
    keys = {rate: _without_rate(dynamics) for rate, dynamics in made.items()}
    for lane, rate in enumerate(rates.tolist()):
        known.setdefault(keys[rate], (made[rate], []))[1].append(lane)
    return [(dynamics, np.array(members)) for dynamics, members in known.values()]


def _without_rate(dynamics: Descent) -> Any:
    """Return what tells a descent from others but its learning rate."""
    fields = {name: value for name, value in vars(dynamics).items() if name != "learning_rate"}
    leaves, structure = jax.tree.flatten(fields)
    return type(dynamics), structure, tuple(_key(leaf) for leaf in leaves)


def _key(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray | np.generic | jax.Array):
        return str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()
    return leaf if isinstance(leaf, Hashable) else id(leaf)


def _lane_count(networks: PyTree) -> int:
    """Return the length of the leading axis that all arrays share."""
    arrays = jax.tree_util.tree_leaves_with_path(eqx.filter(networks, eqx.is_array))
    found = {f"{jax.tree_util.keystr(path)}: {array.shape}" for path, array in arrays}
    lengths = {array.shape[:1] for _, array in arrays}
    if len(lengths) != 1 or lengths & {(), (0,)}:
        raise ValueError(
            f"every array of the networks needs the same leading axis of lanes, got {', '.join(sorted(found))}: "
            "build them by jax.vmap of a constructor, or stack them by jax.tree.map"
        )
    return lengths.pop()[0]


def _for_each_lane(values: ArrayLike, lanes: int, name: str) -> np.ndarray:
    array = np.asarray(values)
    if array.shape != (lanes,):
        raise ValueError(f"{name} has shape {array.shape}: expected ({lanes},), one for each lane")
    return array


def _limits(steps: ArrayLike, lanes: int) -> np.ndarray:
    limits = np.asarray(steps)
    limits = np.full(lanes, limits) if limits.ndim == 0 else _for_each_lane(limits, lanes, "steps")
    whole = np.issubdtype(limits.dtype, np.integer)
    if not whole or limits.min() < 1 or limits.max() > np.iinfo(np.int32).max // 2:
        raise ValueError(f"steps must be whole numbers from one to {np.iinfo(np.int32).max // 2}, got {steps!r}")
    return limits.astype(np.int32)
