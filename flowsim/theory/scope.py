"""Of which networks and problems the theory speaks."""

from ..networks import DeepLinear
from ..problems import LinearRegression


def deep_linear(network: object, problem: object) -> tuple[DeepLinear, LinearRegression]:
    """Return a deep linear network and a least-squares regression as what they are.

    Raises `TypeError` for anything else, of which the theory does not speak.
    """
    if isinstance(network, DeepLinear) and isinstance(problem, LinearRegression):
        return network, problem
    raise TypeError(
        "the theory is about DeepLinear networks on LinearRegression, got "
        f"{type(network).__name__} on {type(problem).__name__}"
    )
