"""Sweeps of functions of a user's own: what makes a network, and a problem, of named values and a key."""

import hashlib
import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..comparison.models import ModelOfDescent
from ..comparison.plan import End, RunSpec
from ..dynamics import GradientFlow, Stopping, as_descent, check_end_time, stopping_for
from ..kinds import reason_of, seeds
from ..networks import warn_of_single_precision, weight_dtype
from ..probes import Probe
from ..problems import Problem, check_problem
from ..runtime.identity import digest_of
from ..scenarios.grid import Grid, name_of
from ..solvers.field import checked_parts
from ..theory import minimal_sharpness_bounds_of
from .blocks import Block, Materials, Recipe, Start, StartPlan, blocks_of
from .dataset import Layout
from .run import SweepPlan

FLOW_OPTIONS = ("rtol", "atol", "t1", "max_steps")
"""Arguments of `integrate` that a sweep may run over."""
_DESCENT = {"kind": "given"}
_PROCESS = secrets.token_hex(8)


@dataclass(frozen=True)
class Maker:
    """A function of a key and of values by name, of which it `takes` some, or any where that is `None`.

    `key` is the name of its parameter for the key, "" where that is the first, and `None` where it has none.
    """

    name: str
    function: Callable[..., Any]
    takes: frozenset[str] | None
    key: str | None

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], axes: Sequence[str]) -> "Maker":
        """Look at the parameters of a function. Raises `ValueError` where it needs what `axes` do not have."""
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # of some functions in C
            parameters = [inspect.Parameter("key", inspect.Parameter.POSITIONAL_ONLY)]
        named = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        first = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)][:1]
        alone = [one for one in first if one.default is one.empty and one.name not in axes]
        key = "key" if "key" in named else "" if alone else None
        of_key = {"key"} if key else {one.name for one in alone} if key == "" else set()
        needed = [one.name for one in parameters if one.default is one.empty and one.name in named]
        if missing := [needs for needs in needed if needs not in of_key and needs not in axes]:
            if isinstance(function, eqx.Module):  # a network, which takes a sample
                raise ValueError(
                    f"{name} is an object, a {type(function).__name__}: expected a function that makes one, such as "
                    f"def {name}(key); write flowsim.compare(network, ...) for one network"
                )
            raise ValueError(
                f"{name} needs {', '.join(missing)}: write the values in over, or fix them with functools.partial"
            )
        any_name = any(one.kind is one.VAR_KEYWORD for one in parameters)
        return cls(name, function, None if any_name else frozenset(named) - of_key, key)

    def select(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that the function takes."""
        return {name: value for name, value in values.items() if self.takes is None or name in self.takes}

    def __call__(self, key: jax.Array, values: Mapping[str, Any]) -> Any:
        """Return what the function makes of the values that it takes."""
        keys = {self.key: key} if self.key else {}
        return self.function(*([key] if self.key == "" else []), **keys, **self.select(values))


@dataclass(frozen=True, eq=False)
class Ingredients:
    """What all cells of a sweep have in common.

    `flow` holds the arguments of `integrate` for methods and ends, and runs converge by `stopping`. With `flow_runs`,
    the flow runs itself, and else models and descents are compared to it. `models` go by their names in results.
    `identity` tells the ingredients from others in any process; it is "" if nothing is stored.
    """

    network: Maker
    problem: Maker | Problem
    flow: dict[str, Any]
    stopping: Stopping | None
    flow_runs: bool
    probes: tuple[Probe, ...]
    optimizer: Callable[[float], Any]
    learning_rates: tuple[float, ...]
    steps: int
    models: Mapping[str, ModelOfDescent]
    repetitions: int
    seed: int
    wide: bool
    identity: str
    _latest: dict[str, Problem] = field(default_factory=dict)

    def problem_at(self, values: Mapping[str, Any]) -> Problem:
        """Return the problem at some values, drawn from the one key that all problems of a sweep are drawn from."""
        if isinstance(self.problem, Problem):
            return self.problem
        place = repr(sorted(self.problem.select(values).items()))
        if place not in self._latest:
            made = self.problem(seeds.key(self.seed, "problem"), values)
            check_problem(made)
            self._latest.clear()
            self._latest[place] = made
        return self._latest[place]

    def network_at(self, values: Mapping[str, Any], repetition: int) -> Any:
        """Return the network of a cell, drawn from a key that depends on its own coordinates alone."""
        return self.network(seeds.start_key(self.seed, name_of(values, FLOW_OPTIONS), repetition), values)

    def flow_at(self, values: Mapping[str, Any]) -> RunSpec:
        """Return the gradient flow at some values, and when it ends at the latest."""
        options = self.flow | {name: value for name, value in values.items() if name in FLOW_OPTIONS}
        flow = GradientFlow(options["solver"], rtol=options["rtol"], atol=options["atol"])
        return RunSpec(flow, until=End(options["t1"], options["max_steps"]))

    def functions(self) -> list[Callable[..., Any]]:
        """Return the functions of the user's own that make what runs."""
        makers = (self.network, self.problem)
        return [maker.function for maker in makers if isinstance(maker, Maker)]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_latest": {}}


def codes_of(ingredients: Ingredients) -> str | None:
    """Return a digest of the code of the functions, `None` where it could not be known in another process."""
    try:
        return digest_of(ingredients.functions()).hex()
    except ValueError:
        return None


@dataclass(frozen=True, eq=False)
class FunctionRecipe(Recipe):
    """A point of a grid: the ingredients of all, and the values there. `codes` is the digest of their functions."""

    ingredients: Ingredients
    values: dict[str, Any]
    codes: str | None
    content: dict[str, Any]
    structure: str
    wide: bool
    process: str = _PROCESS

    def plan(self) -> StartPlan:
        """Return the flow with the values here, the descents, and the models of each."""
        made, flow = self.ingredients, self.ingredients.flow_at(self.values)
        descents = {
            RunSpec(as_descent(made.optimizer(rate)), rate, End(steps=made.steps)): made.repetitions
            for rate in made.learning_rates
        }
        return StartPlan.of(
            flow,
            descents,
            made.models.values(),
            repetitions_of_flow=made.repetitions if made.flow_runs else 0,
        )

    def check_origin(self) -> None:
        """Raise `RuntimeError` if the functions are others than in the process that planned the block."""
        elsewhere = self.process != _PROCESS and self.codes is not None
        if elsewhere and codes_of(self.ingredients) != self.codes:
            raise RuntimeError("the code of make_network or problem is another one than when the sweep was started")

    def materials(self) -> Materials:
        """Return what runs are made of."""
        made = self.ingredients
        return Materials(
            problem=made.problem_at(self.values),
            network=lambda start: made.network_at(self.values, start.repetition),
            held_out=None,
            probes=made.probes,
            stopping=made.stopping,
        )


def plan_functions(ingredients: Ingredients, grid: Grid, attrs: Mapping[str, str]) -> SweepPlan:
    """Return the sweep of ingredients over a grid. Makes the first network of every point, and its problem.

    Raises `ValueError` for a point where these cannot be made, or do not go together.
    """
    codes, bounds = codes_of(ingredients), []
    blocks: list[Block] = []
    descent = {"optimizer": _DESCENT, "steps": ingredients.steps, "repetitions": ingredients.repetitions}
    content = {
        "recipe": ingredients.identity,
        "descents": [{**descent, "learning_rate": rate} for rate in ingredients.learning_rates],
        "flow": ingredients.flow_runs,
        **({"models": list(ingredients.models)} if ingredients.models else {}),
    }
    # Descents run as a batch, and a block holds so many starts; flows run one by one, and so do models.
    batch = 16 if ingredients.learning_rates and not ingredients.models else 1
    for index, values in grid.points():
        structure, found = _check_point(ingredients, values)
        bounds.append(found)
        name = name_of(values, FLOW_OPTIONS)
        recipe = FunctionRecipe(ingredients, values, codes, content | {"values": values}, structure, ingredients.wide)
        starts = ((Start(name, index, repetition, {}), 1.0) for repetition in range(ingredients.repetitions))
        # Cut at the same repetitions however many there are: more repetitions find the blocks of fewer.
        blocks += blocks_of(recipe, starts, least=batch, most=batch)
    layout = Layout(
        grid=grid,
        names={axis: axis for axis in grid.axes},
        starts=ingredients.repetitions,
        plan=blocks[0].recipe.plan(),
        labels={name: label for probe in ingredients.probes for name, label in probe.label.columns().items()},
        attrs=attrs,
    )
    lower, upper = np.moveaxis(np.array(bounds).reshape(*grid.shape, 2), -1, 0)
    return SweepPlan(layout, {"sharpness_lower_bound": lower, "sharpness_upper_bound": upper}, tuple(blocks))


def _check_point(ingredients: Ingredients, values: dict[str, Any]) -> tuple[str, tuple[float, float]]:
    """Return what programs depend on at a point, and the bounds of Theorem 2 there, NaN where it does not speak."""
    try:
        problem, network = ingredients.problem_at(values), ingredients.network_at(values, 0)
        checked_parts(network, problem)
        warn_of_single_precision(network)
        risk = eqx.filter_eval_shape(problem, network)
        flow, dtype = ingredients.flow_at(values), weight_dtype(network)
        check_end_time(flow.until.t1)
        flow.dynamics.checked(dtype)
        stopping_for(ingredients.stopping, problem, dtype)
    except Exception as error:
        raise ValueError(f"the cell {name_of(values, FLOW_OPTIONS) or 'without values'}: {reason_of(error)}") from error
    shapes = jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), eqx.filter((network, problem), eqx.is_array))
    structure = f"{jax.tree.structure((network, problem))} {jax.tree.leaves(shapes)} {risk}"
    bounds = minimal_sharpness_bounds_of(network, problem)
    digest = hashlib.sha256(structure.encode()).hexdigest()
    return digest, (np.nan, np.nan) if bounds is None else (float(bounds[0]), float(bounds[1]))
