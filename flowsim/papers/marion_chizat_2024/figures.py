"""Figures 1 to 7 as kinds of figure: what each asks of a scenario, what it is said to show, and its panels."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, final

from ...experiments import Figure, Results, Scenario, refusal

# What draws and measures is imported where it is wanted: a scenario is checked without Matplotlib.
if TYPE_CHECKING:
    import matplotlib.figure
    import xarray
    from pydantic_core import PydanticCustomError

    from ...theory import Claim


def _unless_over(axis: str, scenario: Scenario) -> "Iterable[PydanticCustomError]":
    """Yield why the sweep of `scenario` is not one over `axis` alone."""
    if scenario.sweep is None:
        yield refusal(
            found="a scenario without a sweep",
            expected="a sweep, which the figure shows",
            write="a section sweep:, or figure: null",
            at=("figure",),
        )
    elif set(scenario.sweep.over) != {axis}:
        yield refusal(
            found=f"a sweep over {', '.join(scenario.sweep.over) or 'nothing'}",
            expected=f"one over {axis} alone, which the figure shows",
            write=f"over: {{{axis}: […]}}, or figure: null",
            at=("sweep", "over"),
        )


def _flow_claims(sweep: "xarray.Dataset") -> "list[Claim]":
    from ...report.sweeps import runs
    from .learning_claims import flow_claim

    return [flow_claim(sweep)] if runs.flows(sweep) else []


def _claims_over_scales(results: Results) -> "Sequence[Claim]":
    from .learning_claims import learning_claims
    from .sharpness_claims import sharpness_claims
    from .single_run_claims import single_run_claims

    sweep, single = results.required("sweep"), results.trajectories
    along = [] if single is None else single_run_claims(single)
    return (*learning_claims(sweep), *sharpness_claims(sweep), *along, *_flow_claims(sweep))


def _drawn_over_scales(results: Results) -> "matplotlib.figure.Figure":
    from .drawing import drawn
    from .scale_panels import draw_sharpness, draw_squared_distance

    panels = [draw_squared_distance, draw_sharpness]
    return drawn(results.required("sweep"), panels, single_runs=results.trajectories, sharpness=True)


def _divergence_claims(results: Results) -> "Sequence[Claim]":
    from .learning_claims import divergence_claims

    return divergence_claims(results.required("sweep"))


def _drawn_divergence(results: Results) -> "matplotlib.figure.Figure":
    from .drawing import drawn
    from .scale_panels import draw_divergence_probability

    return drawn(results.required("sweep"), [draw_divergence_probability])


@final
class Figure1(Figure):
    """Figure 1: linear perceptrons over many scales, after training and along single runs."""

    name = "figure1"

    def refusals(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Return why the sweep of `scenario` is not one over network.scale alone."""
        return _unless_over("network.scale", scenario)

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        return _claims_over_scales(results)

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        return _drawn_over_scales(results)


@final
class Figure2(Figure):
    """Figure 2: the learning rate at which training begins to fail, for several depths."""

    name = "figure2"

    def refusals(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Return why the sweep of `scenario` is not one over network.depth alone."""
        return _unless_over("network.depth", scenario)

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        from .learning_claims import jump_claims

        sweep = results.required("sweep")
        return (*jump_claims(sweep), *_flow_claims(sweep))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        from .depth_panel import draw_critical_rates
        from .drawing import drawn

        return drawn(results.required("sweep"), [draw_critical_rates])


@final
class Figure3(Figure):
    """Figure 3: how often descent diverges from large scales."""

    name = "figure3"

    def refusals(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Return why the sweep of `scenario` is not one over network.scale alone."""
        return _unless_over("network.scale", scenario)

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        return _divergence_claims(results)

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        return _drawn_divergence(results)


@final
class Figure4(Figure):
    """Figure 4: as Figure 1, for residual networks."""

    name = "figure4"

    def refusals(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Return why the sweep of `scenario` is not one over network.scale alone."""
        return _unless_over("network.scale", scenario)

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        return _claims_over_scales(results)

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        return _drawn_over_scales(results)


@final
class Figure5(Figure):
    """Figure 5: as Figure 3, for residual networks."""

    name = "figure5"

    def refusals(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Return why the sweep of `scenario` is not one over network.scale alone."""
        return _unless_over("network.scale", scenario)

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        return _divergence_claims(results)

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        return _drawn_divergence(results)


@final
class Figure6(Figure):
    """Figure 6: sharpness and generalization with few samples."""

    name = "figure6"

    def refusals(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Return why the sweep of `scenario` is not one over network.scale alone."""
        return _unless_over("network.scale", scenario)

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

        return drawn(results.required("sweep"), [draw_sharpness, draw_generalization], sharpness=True)


@final
class Figure7(Figure):
    """Figure 7: the sharpness of nonlinear networks."""

    name = "figure7"

    def refusals(self, scenario: Scenario) -> "Iterable[PydanticCustomError]":
        """Return why the sweep of `scenario` is not one over network.scale alone."""
        return _unless_over("network.scale", scenario)

    def claims(self, results: Results) -> "Sequence[Claim]":
        """Return what the paper says that the figure shows, and what the flow adds, each with the numbers measured."""
        from .sharpness_claims import sharpness_claims

        sweep = results.required("sweep")
        return (*sharpness_claims(sweep), *_flow_claims(sweep))

    def draw(self, results: Results) -> "matplotlib.figure.Figure":
        """Return the figure, with the gradient flow in it."""
        from .drawing import drawn
        from .scale_panels import draw_nonlinear_sharpness

        return drawn(results.required("sweep"), [draw_nonlinear_sharpness], sharpness=True)
