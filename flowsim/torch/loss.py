"""Risks with losses of PyTorch."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from ..kinds import reason_of
from ..losses import Loss
from ..networks import weight_dtype
from ..problems import EmpiricalRisk
from .lowered import Lowered
from .module import are_close, array_of, check_lowered, lower, pytorch, tensor_of


def risk(network: Callable[[Array], Array], X: Any, y: Any, loss: Any, **options: Any) -> EmpiricalRisk:
    """Return the risk of a network with a loss of PyTorch, such as `torch.nn.functional.cross_entropy`.

    Of such a loss infimum and margins are unknown: `flowsim.losses.CrossEntropy()` knows more than PyTorch's.

    Args:
        network: What `flowsim.torch.network` returns, or any function of one sample.
        X: The inputs (n, …), a tensor or an array.
        y: The targets (n,) or (n, …).
        loss: A function or module of (predictions, targets) of a batch, the mean of the losses of its samples; or a
            loss of flowsim.
        **options: Those of `flowsim.EmpiricalRisk`.

    Returns:
        The risk, in the precision of the network.

    Raises:
        ImportError: Without PyTorch.
        TypeError: For a module in place of the network, and for a loss that is no function.
        ValueError: For predictions that are not finite, as of an index that an embedding does not have; for targets
            that PyTorch pairs with the predictions of other samples, as y (n,) with predictions (n, 1); for a loss that
            is no mean over samples, as with `reduction="sum"` or weights of classes; and, as `network` and
            `flowsim.EmpiricalRisk` do, for what fits nothing.
    """
    torch = pytorch()
    dtype = getattr(torch, str(weight_dtype(network)))
    inputs, targets = (tensor_of(torch, name, part, dtype, "cpu") for name, part in (("X", X), ("y", y)))
    if not isinstance(loss, Loss):
        in_code = "y" if isinstance(y, torch.Tensor | np.ndarray | jax.Array) else "numpy.asarray(y)"
        loss = _lower_loss(torch, network, inputs, targets, loss, in_code)
    return EmpiricalRisk(array_of(inputs), array_of(targets), loss, **options)


def _refuse_broadcasting(torch: Any, made: Any, targets: Any, loss: Callable, name: str, in_code: str) -> None:
    """Raise `ValueError` where PyTorch pairs predictions and targets of different shapes that flowsim pairs by sample.

    A loss of MSELoss's kind compares predictions (n, 1) with targets (n,) as (n, n) pairs: it trains another risk.
    """
    # Other predictions than those of the network, which may be all the same at its start; between 0 and 1 as some want.
    apart = torch.linspace(0.2, 0.8, made.size, dtype=torch.from_numpy(made).dtype)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyTorch's own words on this
            given = loss(apart.reshape(made.shape), targets)
        paired = loss(apart.reshape(targets.shape), targets)
    except Exception:  # PyTorch refuses the one or the other: there is no number of its own to differ from
        return
    if not are_close(given.detach(), paired.detach()):
        write = {(2, 1): f"{in_code}[:, None]", (1, 2): f"{in_code}[:, 0]"}
        raise ValueError(
            f"{name} gets predictions {made.shape} and y {tuple(targets.shape)}, and PyTorch broadcasts them: it "
            "compares every prediction with the targets of all samples; expected y in the shape of the predictions, "
            f"write {write.get((made.ndim, targets.ndim), f'{in_code}.reshape{made.shape}')}"
        )


def _lower_loss(
    torch: Any, network: Callable[[Array], Array], inputs: Any, targets: Any, loss: Callable, in_code: str
) -> Lowered:
    if not callable(loss) or isinstance(loss, type):
        raise TypeError(f"the loss is {loss!r}: expected a function, or an object such as torch.nn.MSELoss()")
    name = f"the loss, {getattr(loss, '__name__', type(loss).__name__)},"
    made = np.array(jax.jit(jax.vmap(network))(array_of(inputs)))
    if not np.isfinite(made).all():
        (sample, *_), *_ = np.argwhere(~np.isfinite(made))
        raise ValueError(f"the prediction for sample {sample} is not finite: expected samples that the network takes")
    if made.size == targets.numel() and made.shape != tuple(targets.shape):
        _refuse_broadcasting(torch, made, targets, loss, name, in_code)
        made = made.reshape(targets.shape)
    predictions = torch.from_numpy(made)

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.loss = loss

        def forward(self, prediction, target):
            return self.loss(prediction, target)[None]

    pairs = [(predictions[i : i + 1], targets[i : i + 1]) for i in range(len(targets))]
    try:
        together = Module()(predictions, targets)
    except Exception as error:  # whatever PyTorch, or the code of a user, does
        given = [f"{tuple(part.shape)} of {part.dtype}" for part in (predictions, targets)]
        raise ValueError(
            f"{name} fails on predictions {given[0]} and y {given[1]} ({reason_of(error)}): expected targets in the "
            "shape and the type that it takes"
        ) from error
    if together.numel() != 1:
        raise ValueError(f"{name} is {together.numel()} numbers for all samples: expected one, with reduction='mean'")
    lowered = lower(torch, Module(), pairs[0], name, predictions.dtype)
    apart = torch.cat([Module()(*pair) for pair in pairs])
    if not are_close(together, apart.mean()[None]):
        raise ValueError(
            f"{name} is {float(together):g} for all samples together, and the mean of those of one sample is "
            f"{float(apart.mean()):g}: expected a mean over samples, with reduction='mean', without weights of "
            "classes, and without targets that it ignores"
        )
    check_lowered(lowered, (predictions, targets), apart, name)
    return lowered
