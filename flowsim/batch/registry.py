"""Which kernel steps which network on which problem."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
from jaxtyping import PyTree

from ..dynamics.descent import Descent
from ..problems import Problem
from .automatic import AutomaticKernel
from .kernel import Kernel

Registered = TypeVar("Registered", bound=type[Kernel])

_KERNELS: dict[tuple[type, type, type], list[type[Kernel]]] = {}


def register(
    *, network: type[eqx.Module], problem: type[Problem], dynamics: type[Descent]
) -> Callable[[Registered], Registered]:
    """Return a decorator that makes a kernel known for networks, problems and dynamics of exactly these types.

    A subclass may compute something else, so it is not covered. Of several kernels for the same three, the first that
    fits is taken.
    """

    def enter(kernel: Registered) -> Registered:
        _KERNELS.setdefault((network, problem, dynamics), []).append(kernel)
        return kernel

    return enter


def kernel_for(network: PyTree, problem: Problem, dynamics: Descent) -> Kernel:
    """Return the kernel that fits one `network` of the lanes (shapes will do), the `problem` and the `dynamics`.

    Where none is registered that does, it is automatic differentiation.
    """
    registered = _KERNELS.get((type(network), type(problem), type(dynamics)), [])
    fitting = (found for kernel in registered if (found := kernel.of(network, problem, dynamics)) is not None)
    return next(fitting, AutomaticKernel.of(network, problem, dynamics))
