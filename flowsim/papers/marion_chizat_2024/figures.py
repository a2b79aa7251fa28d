"""Figures 1 to 7, and that of Appendix C: what each asks of a scenario, what it is said to show, and its panels."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, final

from ...kinds import refusal
from ...results import Figure, Results
from ...results.runs import GRADIENT_DESCENT
from ...scenarios import Scenario

# What draws and measures is imported where it is wanted: a scenario is checked without Matplotlib.
if TYPE_CHECKING:
    import matplotlib.figure
    import xarray
    from pydantic_core import PydanticCustomError

    from ...scenarios.sweep_settings import SweepSettings
    from ...theory import Claim


class _PaperFigure(Figure):
    """A figure of the paper: that of a sweep over one axis alone."""

    axis: ClassVar[str] = "network.scale"
    about_descent: ClassVar[bool] = False
    """Whether it shows gradient descent, and nothing without."""
    about_generalization: ClassVar[bool] = False
    """Whether it shows the risk on test samples, and nothing without."""

    def refusals(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Yield why the sweep of `scenario` is not one over the axis of the figure alone, or lacks what it shows."""
        if scenario.sweep is None:
            yield refusal(
                found="a scenario without a sweep",
                expected="a sweep, which the figure shows",
                write="a section sweep:, or figure: null",
                at=("figure",),
            )
            return
        if set(scenario.sweep.over) != {self.axis}:
            yield refusal(
                found=f"a sweep over {', '.join(scenario.sweep.over) or 'nothing'}",
                expected=f"one over {self.axis} alone, which the figure shows",
                write=f"over: {{{self.axis}: […]}}, or figure: null",
                at=("sweep", "over"),
            )
        if self.about_descent and not _descends(scenario.sweep):
            yield refusal(
                found="a sweep without gradient descent",
                expected="learning rates, which the figure shows",
                write="descent: [{learning_rates: [0.02], steps: 1000}], or figure: null",
                at=("sweep",),
            )
        if self.about_generalization and not scenario.data.holds_out():
            yield refusal(
                found="data without test samples",
                expected="some, as the figure shows how runs generalize",
                write="test_samples: 50 for data of kind gaussian, or figure: null",
                at=("data",),
            )


def _descends(sweep: "SweepSettings") -> bool:
    return any(entry.optimizer.kind == GRADIENT_DESCENT for entry in sweep.descent)


def _flow_claims(sweep: "xarray.Dataset") -> "list[Claim]":
    from ...report.sweeps import runs
    from .learning_claims import flow_claim

    return [flow_claim(sweep)] if runs.flows(sweep) else []


class _OverScales(_PaperFigure):
    """What training finds from many scales, and along single runs."""

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        from .learning_claims import learning_claims
        from .sharpness_claims import sharpness_claims
        from .single_run_claims import single_run_claims

        sweep, single = results.required("sweep"), results.trajectories
        along = [] if single is None else single_run_claims(single)
        return (*learning_claims(sweep), *sharpness_claims(sweep), *along, *_flow_claims(sweep))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        from .drawing import drawn
        from .scale_panels import draw_sharpness, draw_squared_distance

        panels = [draw_squared_distance, draw_sharpness]
        return drawn(
            results.required("sweep"), panels, single_runs=results.trajectories, sharpness=True, edge=r"$2/\eta$"
        )


class _Divergence(_PaperFigure):
    """How often descent diverges."""

    about_descent = True

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, with the numbers measured."""
        from .learning_claims import divergence_claims

        return divergence_claims(results.required("sweep"))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure."""
        from ...report.panels.sweep import SHARES
        from .drawing import drawn
        from .scale_panels import draw_divergence_probability

        return drawn(results.required("sweep"), [draw_divergence_probability], statistic=SHARES)


@final
class Figure1(_OverScales):
    """Figure 1: linear perceptrons over many scales, after training and along single runs."""

    name = "figure1"


@final
class Figure2(_PaperFigure):
    """Figure 2: the learning rate at which training begins to fail, for several depths."""

    name = "figure2"
    axis = "network.depth"
    about_descent = True

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        from .learning_claims import jump_claims

        sweep = results.required("sweep")
        return (*jump_claims(sweep), *_flow_claims(sweep))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        from .depth_panel import draw_critical_rates
        from .drawing import drawn

        return drawn(results.required("sweep"), [draw_critical_rates], edge="$1/(La)$")


@final
class Figure3(_Divergence):
    """Figure 3: how often descent diverges from large scales."""

    name = "figure3"


@final
class Figure4(_OverScales):
    """Figure 4: as Figure 1, for residual networks."""

    name = "figure4"


@final
class Figure5(_Divergence):
    """Figure 5: as Figure 3, for residual networks."""

    name = "figure5"


@final
class Figure6(_PaperFigure):
    """Figure 6: sharpness and generalization with few samples."""

    name = "figure6"
    about_descent = True
    about_generalization = True

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        from .generalization import generalization_claims
        from .sharpness_claims import sharpness_claims

        sweep = results.required("sweep")
        return (*generalization_claims(sweep), *sharpness_claims(sweep), *_flow_claims(sweep))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        from .drawing import drawn
        from .generalization_panel import draw_generalization
        from .scale_panels import draw_sharpness

        return drawn(results.required("sweep"), [draw_sharpness, draw_generalization], sharpness=True, edge=r"$2/\eta$")


@final
class Figure7(_PaperFigure):
    """Figure 7: the sharpness of nonlinear networks."""

    name = "figure7"

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        from .sharpness_claims import sharpness_claims

        sweep = results.required("sweep")
        return (*sharpness_claims(sweep), *_flow_claims(sweep))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        from .drawing import drawn
        from .scale_panels import draw_sharpness

        return drawn(results.required("sweep"), [draw_sharpness], sharpness=True, edge=r"$2/\eta$")


@final
class AppendixC(_PaperFigure):
    """What Appendix C says without a plot: with noise, the sharpness of nonlinear networks reaches 2/η."""

    name = "appendix_c"
    about_descent = True

    def refusals(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Yield why the scenario is not a sweep over the scale of a nonlinear network, on noisy data, with descents."""
        yield from super().refusals(scenario)
        if scenario.network.is_linear():
            yield refusal(
                found="a linear network",
                expected="a nonlinear one, which the figure is about",
                write="activation: gelu, or figure: null",
                at=("network",),
            )
        if scenario.data.model_dump().get("noise") == 0:
            yield refusal(
                found="data without noise",
                expected="some, which the network is to fit",
                write="noise: 1.0, or figure: null",
                at=("data", "noise"),
            )

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says of noisy data, and what is found beside it, each with the numbers measured."""
        from .noisy_claims import noisy_claims

        return noisy_claims(results.required("sweep"))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure."""
        from .drawing import drawn
        from .noisy_panel import draw_over_edge

        return drawn(results.required("sweep"), [draw_over_edge], statistic="medians; points: runs")
