"""What is wrong with a scenario although each of its values is right."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError

from .figure import figures_of
from .settings import FileData, GaussianData, PerceptronNetwork, ResidualNetwork
from .values import KeyPath, refusal

if TYPE_CHECKING:
    from .scenario import Scenario

MOST_NUMBERS = 2_000_000_000  # 16 GB in float64: an array beyond this is a typing error, not an experiment
# What rounding leaves of either precision; the library refuses much the same, but knows no file and line.
_FINEST = {
    "float64": {"rtol": 1e-14, "gradient_norm": 2e-15},
    "float32": {"rtol": 4e-6, "gradient_norm": 1e-6},
}


def shape_refusals(
    network: ResidualNetwork | PerceptronNetwork, inputs: int | None, outputs: int | None
) -> Iterator[PydanticCustomError]:
    """Yield why `network` cannot be built for so many features and labels; None: not known yet.

    A scenario asks about what it states itself; whoever reads a data file asks again with its sizes.
    """
    several = outputs is not None and outputs > 1
    if isinstance(network, ResidualNetwork) and several and inputs is not None and inputs != outputs:
        yield refusal(
            found=f"a residual network for {inputs} features and {outputs} outputs",
            expected="one output, or as many outputs as features",
            write="kind: mlp",
            at=("network", "kind"),
        )
    weights = network.count_weights(inputs or 1, outputs or 1)
    if weights > MOST_NUMBERS:
        yield _too_large(f"a network of {weights} weights", "depth or width", ("network", "depth"))


def contradictions(scenario: "Scenario") -> Iterator[PydanticCustomError]:
    """Yield why the sections of `scenario` do not go together."""
    data, descent = scenario.data, scenario.descent
    if isinstance(data, GaussianData):
        yield from _large_data(data)
    if isinstance(data, FileData) and (shared := set(data.target).intersection(data.features or ())):
        yield refusal(
            found=f"{min(shared)!r}, which is also a target",
            expected="features that are no targets",
            write="features without it, or null for all columns but the targets",
            at=("data", "features"),
        )
    yield from shape_refusals(scenario.network, data.inputs, data.outputs)
    yield from _zero_layer_refusals(scenario)
    yield from _theory_refusals(scenario)
    yield from _sweep_refusals(scenario)
    for figure in figures_of(scenario.figure):
        yield from figure.refusals(scenario)
    if (numbers := descent.steps * len(descent.learning_rates)) > MOST_NUMBERS:
        yield _too_large(f"{numbers} steps over all learning rates", "steps", ("descent", "steps"))
    yield from _finer_than_rounding(scenario)


def _zero_layer_refusals(scenario: "Scenario") -> Iterator[PydanticCustomError]:
    network = scenario.network
    if not isinstance(network, PerceptronNetwork) or network.zero_layer is None:
        return
    least = min([network.depth, *(scenario.theory.depths if scenario.theory else ())])
    wording = {"found": f"{network.zero_layer}", "at": ("network", "zero_layer")}
    if network.zero_layer > least:
        yield refusal(expected=f"one of the {least} layers", write=f"zero_layer: {least}", **wording)
    if not network.linear:
        yield refusal(expected="null for a nonlinear network", write="activation: linear", **wording)


def _theory_refusals(scenario: "Scenario") -> Iterator[PydanticCustomError]:
    theory, network, data = scenario.theory, scenario.network, scenario.data
    if theory is None:
        return
    if isinstance(network, PerceptronNetwork) and not network.linear:
        yield refusal(
            found=f"a network with activation {network.activation}",
            expected="a linear network, which the theory is about",
            write="activation: linear, or no theory",
            at=("theory",),
        )
    for key in ("features", "conditions"):
        if getattr(theory, key) and isinstance(data, FileData):
            yield refusal(
                found="a list of them for data from a file",
                expected="data that are drawn",
                write="data of kind: gaussian",
                at=("theory", key),
            )
    if isinstance(data, GaussianData) and theory.features and data.outputs > 1:
        yield refusal(
            found=f"a list of them for {data.outputs} outputs",
            expected="as many features as the data have",
            write="features: []",
            at=("theory", "features"),
        )


def _sweep_refusals(scenario: "Scenario") -> Iterator[PydanticCustomError]:
    data = scenario.data
    if isinstance(data, GaussianData) and data.test_samples and data.condition is not None:
        yield refusal(
            found=f"{data.test_samples} beside a condition number",
            expected="0, as the condition number is that of the drawn samples",
            write="test_samples: 0, or condition: null",
            at=("data", "test_samples"),
        )


def _large_data(data: GaussianData) -> Iterator[PydanticCustomError]:
    numbers = {"samples": data.samples * (data.features + data.outputs), "features": data.features**2}
    for key, number in numbers.items():
        if number > MOST_NUMBERS:
            yield _too_large(f"a matrix of {number} numbers", key, ("data", key))


def _finer_than_rounding(scenario: "Scenario") -> Iterator[PydanticCustomError]:
    for key, finest in _FINEST[scenario.precision].items():
        value = getattr(scenario.flow, key)
        if value is not None and value < finest:
            enough = "precision: float64" if value >= _FINEST["float64"][key] else f"{key}: {finest}"
            yield refusal(
                found=f"{value}",
                expected=f"at least {finest}, as {scenario.precision} resolves no less",
                write=enough,
                at=("flow", key),
            )


def _too_large(found: str, key: str, at: KeyPath) -> PydanticCustomError:
    return refusal(found=found, expected=f"at most {MOST_NUMBERS}", write=f"a smaller number for {key}", at=at)
