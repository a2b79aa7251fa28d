"""The operations of PyTorch's core ATen set that networks and losses are made of, as functions of JAX arrays.

Each has the arguments of its schema in PyTorch. Types of results are none of its concern: who calls them converts
(`Program`). At a kink the derivative is the one that PyTorch takes.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from ..networks import Convolution


def _of_one_rank(*parts: Any) -> list[Any]:
    """Return arrays with axes in front, as many as the largest rank asks for; numbers as they are."""
    rank = max(map(jnp.ndim, parts))
    return [jnp.expand_dims(part, tuple(range(rank - jnp.ndim(part)))) if jnp.ndim(part) else part for part in parts]


def _broadcasting(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *parts: function(*_of_one_rank(*parts))


def _add(one: Any, other: Any, *, alpha: float = 1) -> Array:
    return jnp.add(*_of_one_rank(one, other if alpha == 1 else alpha * other))


def _divide(one: Any, other: Any, *, rounding_mode: str | None = None) -> Array:
    quotient = jnp.true_divide(*_of_one_rank(one, other))
    return {None: lambda x: x, "floor": jnp.floor, "trunc": jnp.trunc}[rounding_mode](quotient)


def _power(base: Any, exponent: Any) -> Array:
    # As a whole number, whose derivatives are finite at 0.
    whole = isinstance(exponent, float) and exponent.is_integer()
    return jnp.power(*_of_one_rank(base, int(exponent) if whole else exponent))


def _clamp(x: Array, least: Any = None, most: Any = None) -> Array:
    for bound, beyond in ((least, jnp.less), (most, jnp.greater)):
        if bound is not None:
            x, limit = _of_one_rank(x, bound)
            x = jnp.where(beyond(x, limit), limit, x)
    return x


def _hardtanh(x: Array, least: float = -1, most: float = 1) -> Array:
    return jnp.where(x <= least, least, jnp.where(x >= most, most, x))


def _elu(x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    return scale * jnp.where(x > 0, x, alpha * jnp.expm1(input_scale * jnp.where(x > 0, 0, x)))


def _softplus(x: Array, beta: float = 1, threshold: float = 20) -> Array:
    large = beta * x > threshold
    return jnp.where(large, x, jnp.log1p(jnp.exp(beta * jnp.where(large, 0, x))) / beta)


def _matrix_sum(added: Array, one: Array, other: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    return jnp.add(*_of_one_rank(beta * added, alpha * (one @ other)))


def _reduced(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return a reduction that takes axes as PyTorch does, where none stands for all."""

    def reduction(x: Array, dim: Any = None, keepdim: bool = False, **_: Any) -> Array:
        return function(x, axis=dim if isinstance(dim, int) or dim else None, keepdims=keepdim)

    return reduction


def _variance(x: Array, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = 1) -> Array:
    return jnp.var(x, axis=dim or None, ddof=(correction if unbiased else 0), keepdims=keepdim)


def _extremum(argument: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    def extremum(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
        places = argument(x, axis=dim, keepdims=True)
        values = jnp.take_along_axis(x, places, axis=dim)
        return (values, places) if keepdim else (jnp.squeeze(values, dim), jnp.squeeze(places, dim))

    return extremum


def _expanded(x: Array, size: Sequence[int], **_: Any) -> Array:
    own = (1,) * (len(size) - x.ndim) + x.shape
    return jnp.broadcast_to(x, [old if new == -1 else new for old, new in zip(own, size, strict=True)])


def _squeezed(x: Array, dims: int | Sequence[int]) -> Array:
    dims = [dims] if isinstance(dims, int) else dims
    return jnp.squeeze(x, tuple(axis % x.ndim for axis in dims if x.shape[axis] == 1))


def _place(x: Array, dim: int, part: Any) -> tuple[Any, ...]:
    return (*[slice(None)] * (dim % x.ndim), part)


def _slice(x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Array:
    return x[_place(x, dim, slice(start, end, step))]


def _with_slice(
    x: Array, source: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    return x.at[_place(x, dim, slice(start, end, step))].set(source)


def _split(x: Array, sizes: Sequence[int], dim: int = 0) -> list[Array]:
    return jnp.split(x, np.cumsum(sizes)[:-1], axis=dim)


def _padded(x: Array, pad: Sequence[int], value: float = 0) -> Array:
    sides = [(pad[i], pad[i + 1], 0) for i in range(0, len(pad), 2)]
    return lax.pad(x, jnp.asarray(value, x.dtype), [(0, 0, 0)] * (x.ndim - len(sides)) + sides[::-1])


def _gathered(x: Array, dim: int, index: Array, **_: Any) -> Array:
    cut = [slice(None) if axis == dim % x.ndim else slice(size) for axis, size in enumerate(index.shape)]
    return jnp.take_along_axis(x[tuple(cut)], index, axis=dim)


def _embedding(weight: Array, indices: Array, padding_index: int = -1, *_: Any) -> Array:
    if padding_index >= 0:  # a row that is not trained
        weight = weight.at[padding_index].set(lax.stop_gradient(weight[padding_index]))
    return jnp.take(weight, indices, axis=0)  # NaN of an index that is none


def _of_channels(numbers: Array, x: Array) -> Array:
    """Return one number for each channel of x, its second axis, so that the two can be joined."""
    return numbers.reshape(1, -1, *[1] * (x.ndim - 2))


def _affine(x: Array, weight: Array | None, bias: Array | None) -> Array:
    x = x if weight is None else x * _of_channels(weight, x)
    return x if bias is None else x + _of_channels(bias, x)


def _normalized(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    centred = x - jnp.mean(x, axis=axes, keepdims=True)
    return centred * lax.rsqrt(jnp.mean(centred**2, axis=axes, keepdims=True) + epsilon)


def _layer_norm(x: Array, shape: Sequence[int], weight: Any, bias: Any, epsilon: float) -> tuple[Array]:
    normal = _normalized(x, tuple(range(x.ndim - len(shape), x.ndim)), epsilon)
    normal = normal if weight is None else jnp.multiply(*_of_one_rank(normal, weight))
    return (normal if bias is None else jnp.add(*_of_one_rank(normal, bias)),)


def _group_norm(x: Array, weight: Any, bias: Any, *sizes: Any) -> tuple[Array]:
    batch, _, _, groups, epsilon = sizes
    normal = _normalized(x.reshape(batch, groups, -1), (2,), epsilon)
    return (_affine(normal.reshape(x.shape), weight, bias),)


def _held_batch_norm(x: Array, weight: Any, bias: Any, mean: Array, variance: Array, *rest: float) -> tuple[Array]:
    _, epsilon = rest
    return (_affine(_affine(x - _of_channels(mean, x), lax.rsqrt(variance + epsilon), None), weight, bias),)


def _instance_norm(x: Array, weight: Any, bias: Any, *rest: Any) -> tuple[Array]:
    *_, epsilon = rest
    return (_affine(_normalized(x, (0, *range(2, x.ndim)), epsilon), weight, bias),)


def _convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Array:
    equal = len(set(stride)) == len(set(padding)) == len(set(weight.shape[2:])) == 1
    plain = not transposed and groups == 1 and set(dilation) == {1} and weight.ndim == 4
    if equal and plain and jax.default_backend() == "cpu":
        offsets = jnp.zeros(weight.shape[0], weight.dtype) if bias is None else bias
        return jax.vmap(Convolution(weight, offsets, stride[0], padding[0]))(x)
    spatial = range(len(stride))
    if transposed:
        lead, out, *sizes = weight.shape
        grouped = jnp.swapaxes(weight.reshape(groups, lead // groups, out, *sizes), 1, 2)
        kernel = jnp.flip(grouped.reshape(groups * out, lead // groups, *sizes), tuple(range(2, weight.ndim)))
        around = [dilation[i] * (sizes[i] - 1) - padding[i] for i in spatial]
        sides = [(around[i], around[i] + output_padding[i]) for i in spatial]
        steps, spread = (1,) * len(stride), tuple(stride)
    else:
        kernel, sides, steps, spread = weight, [(side, side) for side in padding], tuple(stride), None
    made = lax.conv_general_dilated(
        x, kernel, steps, sides, lhs_dilation=spread, rhs_dilation=tuple(dilation), feature_group_count=groups
    )
    return _affine(made, None, bias)


def _windows(
    x: Array,
    kernel: Sequence[int],
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    fill: tuple[float, float],
) -> Array:
    """Return what each place of a pooling looks at, along a new last axis; `fill` stands in the padding, and beyond."""
    stride, padding, dilation = ([*part] * (len(kernel) // len(part)) for part in (stride or kernel, padding, dilation))
    first = x.ndim - len(kernel)
    for axis, size, step, around, apart in zip(range(first, x.ndim), kernel, stride, padding, dilation, strict=True):
        length, reach = x.shape[axis], apart * (size - 1) + 1
        steps = (length + 2 * around - reach) / step
        count = 1 + (math.ceil(steps) if ceil_mode else math.floor(steps))
        if ceil_mode and (count - 1) * step >= length + around:  # none that begins beyond the entries
            count -= 1
        beyond = max(0, (count - 1) * step + reach - length - 2 * around)
        for value, sides in zip(fill, ((around, around), (0, beyond)), strict=True):
            there = [(sides[0], sides[1], 0) if i == axis else (0, 0, 0) for i in range(x.ndim)]
            x = lax.pad(x, jnp.asarray(value, x.dtype), there)
        last = (count - 1) * step + 1
        seen = [lax.slice_in_dim(x, apart * i, apart * i + last, step, axis) for i in range(size)]
        x = jnp.stack(seen, axis=-1)
    return x.reshape(*x.shape[: first + len(kernel)], -1)


def _max_pool(
    x: Array,
    kernel: Sequence[int],
    stride: Any = (),
    padding: Any = (0,),
    dilation: Any = (1,),
    ceil_mode: bool = False,
) -> tuple[Array, None]:
    seen = _windows(x, kernel, stride, padding, dilation, ceil_mode, (-jnp.inf, -jnp.inf))
    # Of equal entries the first, as in PyTorch: a maximum would divide the derivative among them.
    return jnp.take_along_axis(seen, jnp.argmax(seen, axis=-1, keepdims=True), axis=-1)[..., 0], None


def _average_pool(
    x: Array,
    kernel: Sequence[int],
    stride: Any = (),
    padding: Any = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    shape = (kernel, stride, padding, (1,), ceil_mode)
    total = jnp.sum(_windows(x, *shape, (0, 0)), axis=-1)
    if divisor_override is not None:
        return total / divisor_override
    counted = jnp.ones_like(x[(0,) * (x.ndim - len(kernel))])
    counts = jnp.sum(_windows(counted, *shape, (1 if count_include_pad else 0, 0)), axis=-1)
    return jnp.divide(*_of_one_rank(total, counts))


def _adaptive_average(x: Array, sizes: Sequence[int]) -> Array:
    for axis, size in zip(range(x.ndim - len(sizes), x.ndim), sizes, strict=True):
        length, places = x.shape[axis], np.arange(x.shape[axis])
        starts = np.arange(size)[:, None] * length // size
        ends = -(-(np.arange(size)[:, None] + 1) * length // size)
        inside = (places >= starts) & (places < ends)
        means = jnp.asarray(inside / inside.sum(axis=1, keepdims=True), x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, means, (axis, 1)), -1, axis)
    return x


def _of_jax(*names: str) -> dict[str, Callable[..., Array]]:
    return {name: getattr(jnp, name) for name in names}


OPERATIONS: dict[str, Callable[..., Any]] = {
    **_of_jax("abs", "ceil", "cos", "cosh", "exp", "expm1", "floor", "isinf", "isnan", "log", "log10", "log1p", "log2"),
    **_of_jax("reciprocal", "round", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
    **{name: getattr(jnp, "arc" + name[1:]) for name in ("acos", "acosh", "asin", "asinh", "atan", "atanh")},
    **{name: _broadcasting(function) for name, function in _of_jax("maximum", "minimum", "fmod", "remainder").items()},
    **{f"logical_{name}": _broadcasting(getattr(jnp, f"logical_{name}")) for name in ("and", "or", "xor", "not")},
    **{f"bitwise_{name}": _broadcasting(getattr(jnp, f"bitwise_{name}")) for name in ("and", "or", "xor", "not")},
    "eq": _broadcasting(jnp.equal),
    "ne": _broadcasting(jnp.not_equal),
    "lt": _broadcasting(jnp.less),
    "le": _broadcasting(jnp.less_equal),
    "gt": _broadcasting(jnp.greater),
    "ge": _broadcasting(jnp.greater_equal),
    "neg": jnp.negative,
    "erf": lax.erf,
    "rsqrt": lax.rsqrt,
    "sigmoid": jax.nn.sigmoid,
    "relu": jax.nn.relu,
    "gelu": lambda x, *, approximate="none": jax.nn.gelu(x, approximate == "tanh"),
    "elu": _elu,
    "softplus": _softplus,
    "hardtanh": _hardtanh,
    "leaky_relu": lambda x, slope=0.01: jnp.where(x > 0, x, slope * x),
    "clamp": _clamp,
    "add": _add,
    "sub": lambda one, other, *, alpha=1: _add(one, other, alpha=-alpha),
    "mul": _broadcasting(jnp.multiply),
    "div": _divide,
    "pow": _power,
    "atan2": _broadcasting(jnp.arctan2),
    "where": _broadcasting(jnp.where),
    "mm": jnp.matmul,
    "bmm": jnp.matmul,
    "addmm": _matrix_sum,
    "_softmax": lambda x, dim, _: jax.nn.softmax(x, dim),
    "_log_softmax": lambda x, dim, _: jax.nn.log_softmax(x, dim),
    "sum": _reduced(jnp.sum),
    "mean": _reduced(jnp.mean),
    "prod": _reduced(jnp.prod),
    "amax": _reduced(jnp.max),
    "amin": _reduced(jnp.min),
    "any": _reduced(jnp.any),
    "argmax": _reduced(jnp.argmax),
    "argmin": _reduced(jnp.argmin),
    "max": _extremum(jnp.argmax),
    "min": _extremum(jnp.argmin),
    "var": _variance,
    "cumsum": lambda x, dim, **_: jnp.cumsum(x, axis=dim),
    "view": jnp.reshape,
    "permute": jnp.transpose,
    "expand": _expanded,
    "squeeze": _squeezed,
    "unsqueeze": jnp.expand_dims,
    "select": lambda x, dim, index: lax.index_in_dim(x, index, dim, keepdims=False),
    "select_scatter": lambda x, source, dim, index: x.at[_place(x, dim, index)].set(source),
    "slice": _slice,
    "slice_scatter": _with_slice,
    "split_with_sizes": _split,
    "cat": lambda parts, dim=0: jnp.concatenate(parts, axis=dim),
    "constant_pad_nd": _padded,
    "flip": jnp.flip,
    "repeat": jnp.tile,
    "diagonal": jnp.diagonal,
    "gather": _gathered,
    "index": lambda x, indices: x.at[tuple(slice(None) if one is None else one for one in indices)].get(mode="fill"),
    "index_select": lambda x, dim, index: jnp.take(x, index, axis=dim),
    "embedding": _embedding,
    "arange": lambda start, end, step=1, **_: jnp.arange(start, end, step),
    "full": lambda size, value, **_: jnp.full(size, value),
    "full_like": lambda x, value, **_: jnp.full(x.shape, value),
    "scalar_tensor": lambda value, **_: jnp.asarray(value),
    "copy": lambda x, source, *_: jnp.broadcast_to(source, x.shape),
    **{name: lambda x, *_, **__: x for name in ("alias", "clone", "_to_copy", "lift_fresh_copy")},
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "_native_batch_norm_legit_no_training": _held_batch_norm,
    "_native_batch_norm_legit": _instance_norm,
    "convolution": _convolution,
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), _max_pool),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d"), _average_pool),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d"), _adaptive_average),
    "getitem": lambda parts, index: parts[index],
}
"""By the names of PyTorch's operations, without `aten` in front and the overload behind."""
