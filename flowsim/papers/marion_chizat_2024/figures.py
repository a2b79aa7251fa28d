"""Figures 1 to 7, and that of Appendix C: what each asks of a scenario; what it shows stands in `contents.py`."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, final

from ...columns import GRADIENT_DESCENT
from ...kinds.recipes import validation_error
from ...results import Figure, Results
from ...scenarios import Scenario

# What draws and measures, `contents.py`, is imported where it is used: a scenario is validated without Matplotlib.
if TYPE_CHECKING:
    import matplotlib.figure
    from pydantic_core import PydanticCustomError

    from ...theory import Claim


class _PaperFigure(Figure):
    """A figure of the paper: that of a sweep over one axis alone."""

    axis: ClassVar[str] = "network.scale"
    about_descent: ClassVar[bool] = False
    """Whether it shows gradient descent, and nothing without."""
    about_generalization: ClassVar[bool] = False
    """Whether it shows the risk on test samples, and nothing without."""

    def validation_errors(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Yield why the sweep of `scenario` is not one over the axis of the figure alone, or lacks what it shows."""
        if scenario.sweep is None:
            yield validation_error(
                found="a scenario without a sweep",
                expected="a sweep, which the figure shows",
                write="a section sweep:, or figure: null",
                at=("figure",),
            )
            return
        if set(scenario.sweep.over) != {self.axis}:
            yield validation_error(
                found=f"a sweep over {', '.join(scenario.sweep.over) or 'nothing'}",
                expected=f"one over {self.axis} alone, which the figure shows",
                write=f"over: {{{self.axis}: […]}}, or figure: null",
                at=("sweep", "over"),
            )
        optimizers = {entry.optimizer.kind for entry in scenario.sweep.descent}
        if self.about_descent and GRADIENT_DESCENT not in optimizers:
            yield validation_error(
                found="a sweep without gradient descent",
                expected="learning rates, which the figure shows",
                write="descent: [{learning_rates: [0.02], steps: 1000}], or figure: null",
                at=("sweep",),
            )
        if self.about_generalization and not scenario.data.holds_out():
            yield validation_error(
                found="data without test samples",
                expected="some, as the figure shows how runs generalize",
                write="test_samples: 50 for data of kind gaussian, or figure: null",
                at=("data",),
            )

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        from .contents import CONTENTS

        return CONTENTS[self.name].claims(results)

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it where the sweep has one."""
        from .contents import CONTENTS

        return CONTENTS[self.name].draw(results)


@final
class Figure1(_PaperFigure):
    """Figure 1: linear perceptrons over many scales, after training and along single runs."""

    name = "figure1"


@final
class Figure2(_PaperFigure):
    """Figure 2: the learning rate at which training begins to fail, for several depths."""

    name = "figure2"
    axis = "network.depth"
    about_descent = True


@final
class Figure3(_PaperFigure):
    """Figure 3: how often descent diverges from large scales."""

    name = "figure3"
    about_descent = True


@final
class Figure4(_PaperFigure):
    """Figure 4: as Figure 1, for residual networks."""

    name = "figure4"


@final
class Figure5(_PaperFigure):
    """Figure 5: as Figure 3, for residual networks."""

    name = "figure5"
    about_descent = True


@final
class Figure6(_PaperFigure):
    """Figure 6: sharpness and generalization with few samples."""

    name = "figure6"
    about_descent = True
    about_generalization = True


@final
class Figure7(_PaperFigure):
    """Figure 7: the sharpness of nonlinear networks."""

    name = "figure7"


@final
class AppendixC(_PaperFigure):
    """What Appendix C says without a plot: with noise, the sharpness of nonlinear networks reaches 2/η."""

    name = "appendix_c"
    about_descent = True

    def validation_errors(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Yield why the scenario is not a sweep over the scale of a nonlinear network, on noisy data, with descents."""
        yield from super().validation_errors(scenario)
        if scenario.network.is_linear():
            yield validation_error(
                found="a linear network",
                expected="a nonlinear one, which the figure is about",
                write="activation: gelu, or figure: null",
                at=("network",),
            )
        if scenario.data.model_dump().get("noise") == 0:
            yield validation_error(
                found="data without noise",
                expected="some, which the network is to fit",
                write="noise: 1.0, or figure: null",
                at=("data", "noise"),
            )
