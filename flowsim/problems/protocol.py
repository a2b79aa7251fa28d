"""What the flow asks of a problem, and nothing more: problems and networks know each other by protocol only."""

from typing import Any, Protocol

from jaxtyping import Array


class Problem(Protocol):
    """A risk to be descended. A network may be any object that the problem understands."""

    def __call__(self, network: Any, /) -> Array:
        """Return the risk, a scalar."""
        ...

    def objective(self, network: Any, /) -> Array:
        """Return the risk up to a constant, computed so that it keeps its digits near the minimum."""
        ...

    def excess_risk(self, network: Any, /) -> Array:
        """Return the risk minus its minimum, NaN if the minimum is unknown."""
        ...

    def squared_distance(self, network: Any, /) -> Array:
        """Return ‖π − w*‖², NaN without a regressor."""
        ...

    def is_minimum(self, network: Any, gradient_norm: Any, /) -> Array:
        """Tell whether a point where ‖∇R‖ ≤ `gradient_norm` counts as a minimum."""
        ...
