"""From modules of PyTorch to networks, and weights back into a module."""

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..data.arrays import numeric_array
from ..kinds import reason_of
from ..networks import Fixed
from .aten import OPERATIONS
from .lowered import Lowered, Operation, Program, Value

# Computed as PyTorch does where its decomposition overflows.
_KEPT_WHOLE = ("softplus",)


def network(module: Any, X: Any, *, checked: int = 8) -> Lowered:
    """Return a `torch.nn.Module` as a network, lowered to JAX: any derivative of it can be taken.

    The precision is that of the module. A parameter with `requires_grad=False` is held, a shared one is there once. The
    module is not changed, nor looked at again.

    Args:
        module: The `torch.nn.Module`, which maps a batch (k, …) to predictions (k, …), each of its own sample alone;
            its weights are float32 or float64.
        X: Samples (n, …), a tensor or an array, which tell the shape of one.
        checked: For so many of them, the first, predictions are compared with PyTorch's own.

    Returns:
        The network, a function of one sample.

    Raises:
        ImportError: Without PyTorch.
        TypeError: For what is no module.
        ValueError: For `checked` below one; where the risk would be no function of the weights: for batch normalization
            in training mode, active dropout and other randomness, buffers that a pass changes, and samples that are not
            independent; for operations that are not known here, control flow that depends on values, weights of other
            types, and float64 where JAX has x64 switched off.
    """
    torch = pytorch()
    _check_module(torch, module)
    if checked < 1:
        raise ValueError(f"checked is {checked}: expected one sample or more")
    _check_normalization(torch, module)
    dtype, device = _type_of_weights(torch, module)
    samples = tensor_of(torch, "X", X, dtype, device)[:checked]
    lowered = lower(torch, module, (samples[:1],), f"the module, a {type(module).__name__},", dtype)
    with torch.no_grad():
        together, apart = module(samples), torch.cat([module(samples[i : i + 1]) for i in range(len(samples))])
    if not are_close(together.cpu(), apart.cpu()):
        raise ValueError(
            "the module predicts another value for a sample alone than among others: expected one that maps every "
            "sample of a batch by itself, or the risk is no mean over samples"
        )
    check_lowered(lowered, (samples,), apart.cpu(), "the module")
    return lowered


def load(module: Any, network: Lowered) -> None:
    """Write the weights of a network into the parameters of the `torch.nn.Module` that it was made of, in place.

    Args:
        module: The module.
        network: What `flowsim.torch.network` or a run returns.

    Raises:
        ImportError: Without PyTorch.
        TypeError: For what was not lowered from a module, or is none.
        ValueError: For a module whose trained parameters have other names, shapes or types; then nothing is written.
    """
    torch = pytorch()
    _check_module(torch, module)
    if not isinstance(network, Lowered):
        raise TypeError(f"the network is a {type(network).__name__}: expected one that flowsim.torch.network returned")
    given = {_joined(part, name): leaf for part, of in network.weights.items() for name, leaf in of.items()}
    parameters = {name: part for name, part in module.named_parameters() if part.requires_grad}
    said = [{name: _said(part) for name, part in each.items()} for each in (given, parameters)]
    if said[0] != said[1]:
        differing = sorted(name for name in {*given, *parameters} if said[0].get(name) != said[1].get(name))
        found = ", ".join(f"{name}, {said[0].get(name)} and {said[1].get(name)}" for name in differing[:3])
        raise ValueError(f"network and module differ in {found}: expected the module that the network was made of")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(np.array(given[name])))


def pytorch() -> Any:
    """Return PyTorch; `ImportError` where it is not installed."""
    try:
        import torch
    except ImportError:
        raise ImportError("flowsim.torch needs PyTorch, which is not there: pip install 'flowsim[torch]'") from None
    return torch


def _check_module(torch: Any, module: Any) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"the module is a {type(module).__name__}: expected an object of a torch.nn.Module")


def _said(part: Any) -> str:
    """Return the type and the shape of a tensor or an array in words."""
    return f"{str(part.dtype).removeprefix('torch.')} {tuple(part.shape)}"


def _joined(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name


def _check_normalization(torch: Any, module: Any) -> None:
    for name, part in module.named_modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and (part.training or part.running_mean is None):
            raise ValueError(
                f"the submodule {name or 'itself'!r}, a {type(part).__name__}, normalizes by the statistics of the "
                "batch, and changes its buffers with every pass, so that the risk would be no function of the weights: "
                "write module.eval(), which holds the statistics, or GroupNorm or LayerNorm in its place"
            )


def _type_of_weights(torch: Any, module: Any) -> tuple[Any, Any]:
    parameters = list(module.parameters())
    found = {parameter.dtype for parameter in parameters}
    if not any(parameter.requires_grad for parameter in parameters):
        raise ValueError("the module has no parameter with requires_grad=True: expected weights to train")
    if len(found) > 1 or not found <= {torch.float32, torch.float64}:
        names = ", ".join(sorted(map(str, found)))
        raise ValueError(f"the parameters are {names}: expected float32 or float64; write module.double()")
    (dtype,) = found
    if dtype == torch.float64 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError(
            "the parameters are torch.float64, and x64 is switched off in JAX: write "
            "jax.config.update('jax_enable_x64', True), or module.float()"
        )
    return dtype, parameters[0].device


def tensor_of(torch: Any, name: str, given: Any, dtype: Any, device: Any) -> Any:
    """Return data as a tensor, real numbers in the type of the weights."""
    tensor = (
        given.detach()
        if isinstance(given, torch.Tensor)
        else torch.from_numpy(np.array(numeric_array(given, place=name)))
    )
    if tensor.ndim < 1 or tensor.shape[0] == 0:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: expected samples along its first axis")
    return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else tensor.dtype)


def array_of(tensor: Any) -> Array:
    """Return a tensor as an array of JAX."""
    return jnp.array(tensor.detach().cpu().numpy())  # a copy: PyTorch writes to its tensors in place


def are_close(one: Any, other: Any, *computed_in: Any) -> bool:
    """Tell whether numbers are the same to rounding, in the least precise of the types that they were `computed_in`.

    Half of their digits tell a mistake from that.
    """
    first, second = (np.asarray(part) for part in (one, other))
    scale = np.max(np.abs(second), initial=np.finfo(second.dtype).tiny)
    apart = np.max(np.abs(first - second), initial=0) if first.shape == second.shape else np.inf
    rounding = max(float(jnp.finfo(dtype).eps) for dtype in (second.dtype, *computed_in))
    return bool(apart <= rounding**0.5 * scale)


def check_lowered(lowered: Lowered, batch: Sequence[Any], expected: Any, name: str) -> None:
    """Raise `ValueError` where what was lowered does not compute what PyTorch does."""
    with jax.default_matmul_precision("highest"):
        found = jax.jit(jax.vmap(lowered))(*map(array_of, batch))
    types = {operation.dtype for operation in lowered.program.operations}
    if not are_close(found, expected, *types & {"float32", "float16", "bfloat16"}):
        first, own = (np.ravel(part)[:3].tolist() for part in (found, expected))
        raise ValueError(
            f"{name} was lowered to something else than PyTorch computes: for the first sample {first} in place of "
            f"{own}; write it with other operations, or as an Equinox module"
        )


def lower(torch: Any, module: Any, sample: tuple[Any, ...], name: str, dtype: Any) -> Lowered:
    """Return a module that maps batches of one sample as a function of one; checked but for what it computes."""
    shapes = tuple(tuple(part.shape[1:]) for part in sample)
    try:
        table = torch.export.default_decompositions()
        for kept in _KEPT_WHOLE:
            table.pop(getattr(torch.ops.aten, kept).default, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of PyTorch 2.13, about its own code
            exported = torch.export.export(module, sample, strict=False).run_decompositions(table)
    except Exception as error:  # whatever the code of a user does
        said = " and ".join(map(str, shapes))
        raise ValueError(
            f"torch.export fails on {name} for one sample of shape {said} ({reason_of(error)}): expected tensor "
            "operations, without control flow that depends on values"
        ) from error
    signature = exported.graph_signature
    if signature.buffers_to_mutate:
        raise ValueError(
            f"{name} changes its buffers {', '.join(sorted(signature.buffers_to_mutate.values()))} with every pass, so "
            "that the risk would be no function of the weights: write module.eval()"
        )
    nodes = [node for node in exported.graph.nodes if node.op == "call_function" and node.users]
    for node in nodes:
        _check_operation(torch, node, name)
    places = _places(exported)
    names = {id(part): key for key, part in reversed(list(module.named_parameters(remove_duplicate=False)))}
    weights: dict[str, dict[str, Array]] = {}
    fixed: dict[str, dict[str, Array]] = {}
    held = []
    for place, tensor in places.values():
        shared = names.get(id(tensor), place)
        trained = isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad
        part, _, own = shared.rpartition(".")
        (weights if trained else fixed).setdefault(part, {})[own] = array_of(tensor)
        held.append(("weights" if trained else "fixed", part, own))
    numbers = {node: Value(i) for i, node in enumerate([*_user_inputs(exported), *places, *nodes])}
    operations = tuple(_operation(torch, node, numbers, dtype) for node in nodes)
    (output,) = next(node for node in exported.graph.nodes if node.op == "output").args
    if len(output) != 1 or output[0].meta["val"].shape[:1] != (1,):
        raise ValueError(
            f"{name} returns no single tensor with an axis of samples in front: return the predictions alone"
        )
    return Lowered(weights, Fixed(fixed), Program(shapes, tuple(held), operations, numbers[output[0]]))


def _user_inputs(exported: Any) -> list[Any]:
    given = exported.graph_signature.user_inputs
    return [node for node in exported.graph.nodes if node.op == "placeholder" and node.name in given]


def _places(exported: Any) -> dict[Any, tuple[str, Any]]:
    """Return the name and the tensor of each parameter, buffer and constant that the graph reads."""
    signature = exported.graph_signature
    named = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    tensors = {**exported.constants, **exported.state_dict}
    nodes = [node for node in exported.graph.nodes if node.op == "placeholder" and node.name in named]
    return {node: (named[node.name], tensors[named[node.name]]) for node in nodes}


def _check_operation(torch: Any, node: Any, name: str) -> None:
    place = next((path for path, _ in reversed((node.meta.get("nn_module_stack") or {}).values()) if path), "")
    where = f"the submodule {place!r} of {name}" if place else name
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        raise ValueError(
            f"{where} draws random numbers ({node.target}), so that the risk would be no function of the weights: "
            "write module.eval(), or p=0 for dropout"
        )
    if _name(node) not in OPERATIONS:
        raise ValueError(
            f"{where} computes {node.target}, which flowsim does not know in JAX: write it with other operations, or "
            "as an Equinox module"
        )


def _name(node: Any) -> str:
    return "getitem" if node.target is operator.getitem else str(node.target).removeprefix("aten.").partition(".")[0]


def _operation(torch: Any, node: Any, numbers: dict[Any, Value], dtype: Any) -> Operation:
    def plain(part: Any) -> Any:
        if isinstance(part, torch.fx.Node):
            return numbers[part]
        if isinstance(part, list | tuple):
            return tuple(map(plain, part))
        return part if isinstance(part, int | float | str) else None  # types and devices are those of the results

    options = tuple((name, plain(part)) for name, part in node.kwargs.items())
    result = node.meta["val"]
    kind = None
    if isinstance(result, torch.Tensor):
        kind = "weights" if result.dtype == dtype else str(result.dtype).removeprefix("torch.")
    return Operation(_name(node), plain(node.args), options, kind)
