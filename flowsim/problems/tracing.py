"""What traces of a risk tell of a model: weights without a derivative, numbers that are left out, random numbers."""

import pickle
import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal
from jax.interpreters.partial_eval import dce_jaxpr
from jaxtyping import PyTree

from ..networks import Fixed, cast, split, weight_dtype
from ..runtime.compiling import MOST_PROGRAMS
from .problem import Problem, check_problem, has_identity_curvature

Tree = TypeVar("Tree")

_REMEDY = "hold what is not trained as flowsim.Fixed(array), which the network reads as .value"


def check_weights(network: Tree, problem: Problem, *, decays: bool = False) -> Tree:
    """Return a network of whose weights the risk is a differentiable function, the same in each compiled program.

    Traces of the risk tell, of which nothing is compiled. They are made once for networks and problems of the same
    structure. A warning names numbers that the risk depends on and that are no weights, as they are no floating-point
    arrays: numbers of Python and arrays of integers or booleans. Those that the risk cannot be differentiated in, such
    as indices, need none, nor do whole numbers of Python and booleans in the fields of an Equinox module.

    The risk may read traced values of the code around it, as in `jax.vmap(lambda k: integrate(w, Risk(lambda w: k * w @
    w)))`. Then the weights are returned as traced values too: the whole run is under that transformation.

    Args:
        network: The network.
        problem: The risk.
        decays: Whether the weights decay apart from the risk.

    Returns:
        The network.

    Raises:
        TypeError: For what is no problem.
        ValueError: For weights that the risk depends on without a derivative, as behind `jax.lax.stop_gradient`; with
            weight decay, also for weights that it does not depend on; and if two traces differ.
    """
    check_problem(problem, network)
    traces = _traces(network, problem.without_decay())
    if traces is None:  # the risk fails, and whoever computes it reports why
        return network
    if traces.differ:
        raise ValueError(
            "two traces of the model differ: draw no random numbers in it, as np.random and random do, and read no "
            "clock; each compiled program would hold other numbers. Draw them before, and hold them in the network as "
            "flowsim.Fixed(numbers)"
        )
    if traces.stopped:
        raise ValueError(
            f"the risk depends on the weights {', '.join(traces.stopped)} and has no derivative in them: they are "
            f"behind jax.lax.stop_gradient, or in a comparison or a rounding; {_REMEDY}"
        )
    if traces.unused and (decays or has_identity_curvature(problem)):
        raise ValueError(
            f"the risk does not depend on the weights {', '.join(traces.unused)}, and weight decay would move them: "
            f"leave them out, or {_REMEDY}"
        )
    if traces.numbers:
        warnings.warn(
            f"the network holds numbers that are not trained, although the risk depends on them: "
            f"{', '.join(traces.numbers)}; weights are arrays of floating-point numbers. To train a number, write it "
            "as jnp.array(0.0), or an array as array.astype(float); to hold it without this warning, write "
            "flowsim.Fixed(number), which the network reads as .value, or eqx.field(static=True)",
            stacklevel=1,
        )
    if traces.surroundings:
        # Both choices are the weight itself, so that its digits stay.
        chosen = jnp.stack([jnp.all(value == value) for value in traces.surroundings]).all()
        weights, rest = split(network)
        network = eqx.combine(jax.tree.map(lambda leaf: jnp.where(chosen, leaf, leaf), weights), rest)
    return network


@dataclass(frozen=True)
class _Traces:
    """What traces of a risk tell: names of weights and numbers, and the traced values around it that it reads.

    `stopped` are weights that the risk depends on without a derivative, `unused` those that it does not depend on.
    """

    differ: bool
    stopped: tuple[str, ...]
    unused: tuple[str, ...]
    numbers: tuple[str, ...]
    surroundings: tuple[Tracer, ...]


_TRACES: dict[Any, _Traces | None] = {}


def _traces(network: PyTree, problem: Problem, *, most: int = MOST_PROGRAMS, most_traces: int = 8) -> _Traces | None:
    """Return what traces tell, kept for the last structures, so many `most`; `None` for a risk that fails."""
    leaves, structure = jax.tree.flatten((network, problem))
    shapes = tuple((leaf.shape, leaf.dtype) if eqx.is_array(leaf) else (type(leaf), leaf) for leaf in leaves)
    key = structure, shapes, jnp.result_type(float)
    try:
        if key in _TRACES:
            return _TRACES[key]
    except TypeError:  # what has no hash cannot be compiled either
        return None
    traces = None
    try:
        first, states, differ = _trace(network, problem), [], False
        # A few random bits may agree by chance: while the state of a generator changes, more traces follow.
        while not differ and len(states) <= most_traces and (len(states) < 2 or states[-1] != states[-2]):
            differ = bool(states) and not _same(first, _trace(network, problem))
            # The generators of NumPy and Python that all code shares.
            states.append((pickle.dumps(np.random.get_state(legacy=False)), random.getstate()))  # noqa: NPY002
        places = jax.tree_util.tree_leaves_with_path(split(network)[0])
        values, derivatives = _dependence(first, len(places))
        stopped, unused = [], []
        for (path, leaf), value, derivative in zip(places, values, derivatives, strict=True):
            # A risk without any derivative is no matter of single weights: its runs end as stationary.
            if leaf.size and not derivative and any(derivatives):
                (stopped if value else unused).append(jax.tree_util.keystr(path) or "themselves")
        surroundings = tuple(value for value in first.consts if isinstance(value, Tracer))
        traces = _Traces(differ, tuple(stopped), tuple(unused), _numbers(network, problem), surroundings)
    except Exception:  # whatever the code of a user does
        pass
    if traces is None or not traces.surroundings:  # a traced value must not outlive its transformation
        _TRACES[key] = traces
        if len(_TRACES) > most:
            del _TRACES[next(iter(_TRACES))]
    return traces


def _trace(network: PyTree, problem: Problem, numbers: Sequence[int] = ()) -> ClosedJaxpr:
    """Return the objective and its derivative along a direction, as a function of weights, directions and all else.

    `numbers` are the places of other leaves, among all but the weights, that count as weights too.
    """
    dtype = weight_dtype(network)
    weights, rest = split(network)
    arrays, static = eqx.partition((rest, problem), eqx.is_array)
    leaves = jax.tree.leaves(rest, is_leaf=lambda leaf: isinstance(leaf, Fixed))
    moved = weights, [jax.ShapeDtypeStruct(np.shape(leaves[place]), dtype) for place in numbers]

    def objective(moved: PyTree, arrays: PyTree) -> Any:
        rest, its_problem = eqx.combine(arrays, static)
        others, structure = jax.tree.flatten(rest, is_leaf=lambda leaf: isinstance(leaf, Fixed))
        for place, value in zip(numbers, moved[1], strict=True):
            others[place] = value
        return cast(its_problem, dtype).objective(eqx.combine(moved[0], structure.unflatten(others)))

    def along(moved: PyTree, direction: PyTree, arrays: PyTree) -> Any:
        return jax.jvp(lambda weights: objective(weights, arrays), (moved,), (direction,))

    moved, arrays = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (moved, arrays))
    return jax.make_jaxpr(along)(moved, moved, arrays)


def _dependence(trace: ClosedJaxpr, count: int) -> tuple[list[bool], list[bool]]:
    """Return of which of the first `count` arguments the objective is a function, and in which it has a derivative."""
    _, for_value = dce_jaxpr(trace.jaxpr, [True, False])
    _, for_derivative = dce_jaxpr(trace.jaxpr, [False, True])
    return for_value[:count], for_derivative[count : 2 * count]


def _numbers(network: PyTree, problem: Problem) -> tuple[str, ...]:
    """Return the names and types of numbers that are no weights, and in which the risk has a derivative."""
    weights, rest = split(network)
    if getattr(problem, "gradient", None) is not None:  # it names the weights itself, and hides what it depends on
        return ()
    leaves = jax.tree_util.tree_leaves_with_path(rest, is_leaf=lambda leaf: isinstance(leaf, Fixed))
    # A node of a module is a leaf here: what is in none has a path of its own.
    outside = jax.tree_util.tree_leaves_with_path(rest, is_leaf=lambda node: isinstance(node, eqx.Module))
    plain = {path for path, leaf in outside if not isinstance(leaf, eqx.Module)}
    count, named = len(jax.tree.leaves(weights)), []
    for place, (path, leaf) in enumerate(leaves):
        if eqx.is_array(leaf):
            kinds = (jnp.integer, jnp.bool_) if path in plain else (jnp.integer,)
            may_be_weight = leaf.size > 0 and any(jnp.issubdtype(leaf.dtype, kind) for kind in kinds)
            name = f"an array of {leaf.dtype}"
        else:
            may_be_weight = isinstance(leaf, float) or (isinstance(leaf, int) and path in plain)
            name = f"a {type(leaf).__name__} of Python"
        if not may_be_weight:
            continue
        try:
            differentiable = _dependence(_trace(network, problem, [place]), count + 1)[1][-1]
        except Exception:  # a number that decides what is computed, such as an index
            continue
        if differentiable:
            named.append(f"{jax.tree_util.keystr(path)} ({name})")
    return tuple(named)


def _same(one: Any, other: Any) -> bool:
    """Tell whether two traces, or parts of them, compute the same; functions and names in them are not compared."""
    if isinstance(one, ClosedJaxpr) and isinstance(other, ClosedJaxpr):
        return _same(one.jaxpr, other.jaxpr) and _same(one.consts, other.consts)
    if isinstance(one, Jaxpr) and isinstance(other, Jaxpr):
        if len(one.eqns) != len(other.eqns):
            return False
        partner = dict(zip([*one.constvars, *one.invars], [*other.constvars, *other.invars], strict=False))

        def alike(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
            for mine, their in zip(ours, theirs, strict=True):
                literal = isinstance(mine, Literal)
                if literal != isinstance(their, Literal):
                    return False
                if not (_same(mine.val, their.val) if literal else partner[mine] is their):
                    return False
            return len(ours) == len(theirs)

        for ours, theirs in zip(one.eqns, other.eqns, strict=True):
            if ours.primitive is not theirs.primitive or len(ours.invars) != len(theirs.invars):
                return False
            if not (alike(ours.invars, theirs.invars) and _same(ours.params, theirs.params)):
                return False
            partner |= zip(ours.outvars, theirs.outvars, strict=True)
        return alike(one.outvars, other.outvars)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    if one is other or isinstance(one, Tracer) or isinstance(other, Tracer):
        return True
    if eqx.is_array_like(one) and eqx.is_array_like(other):
        parts: list[Any] = [one, other]
        for place, part in enumerate(parts):
            is_key = eqx.is_array(part) and jnp.issubdtype(part.dtype, jax.dtypes.prng_key)
            parts[place] = np.asarray(jax.random.key_data(part) if is_key else part)
        first, second = parts
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
    return True
