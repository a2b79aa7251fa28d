"""The PyPI package `stable-solvers`: exponential Euler along the top eigenvectors of the Hessian, in PyTorch."""

import time
import warnings

import numpy as np
from cases import Case
from plain import flat

import flowsim

try:
    import stable_solvers
    import torch

    INSTALLED = True
except ImportError:
    INSTALLED = False


def final_weights(case: Case, end: float, longest: float, *, deadline: float) -> np.ndarray | None:
    """Return the weights at time `end` by steps of at most `longest`, or `None` at the deadline.

    The package's advice for one output is one stiff direction. A step is also at most 1/λ₂.
    """
    solver = stable_solvers.ExponentialEulerSolver(
        params=torch.from_numpy(flat(case.network)), loss=_loss(case), max_step_size=longest, stiff_dim=1
    )
    reached = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while reached < end:
            if time.perf_counter() > deadline:
                return None
            reached += solver.step().dt
    return solver.params.numpy()


def _loss(case: Case) -> "torch.nn.Module":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, y = (torch.from_numpy(np.array(part)) for part in _data(case))

    class Batch(stable_solvers.LossFunction):
        def dataloader(self, device: "torch.device"):
            yield X, y

    shapes = [weight.shape for weight in case.network.weights]
    return Batch(torch.utils.data.TensorDataset(X, y), torch.nn.MSELoss(), _model(case, shapes))


def _data(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return the data; for a linear network the d rows that have the same risk but for a constant."""
    if not isinstance(case.problem, flowsim.LinearRegression):
        return case.X, case.y
    root = np.asarray(case.problem.root)
    root = len(root) ** 0.5 * root
    return root, root @ np.asarray(case.problem.optimum)


def _model(case: Case, shapes: list[tuple[int, int]]) -> "torch.nn.Module":
    projection = getattr(case.network, "projection", None)
    directions = None if projection is None else torch.from_numpy(np.array(projection))
    linear = isinstance(case.network, flowsim.DeepLinear)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layers = [torch.nn.Linear(n, m, bias=False, dtype=torch.float64) for m, n in shapes]
            self.layers = torch.nn.ModuleList(layers)

        def forward(self, x: "torch.Tensor") -> "torch.Tensor":
            for layer in self.layers[:-1]:
                x = layer(x) if linear else torch.nn.functional.gelu(layer(x), approximate="tanh")
            x = self.layers[-1](x)
            return x[:, 0] if directions is None else x @ directions

    return Model()
