"""A trajectory in one line, whatever its leaves are: numbers, batches, tracers, or what a tree map put there."""

import math
from collections import Counter
from typing import Any

from jax.core import Tracer

from ..curvature.line import numbers_of
from .outcome import Outcome


def line_of(run: Any) -> str:
    """Return what a `Trajectory` came to; of one that is traced, or no run any more, its shape. Nothing is computed."""
    code = numbers_of(run.code)
    if code is None:
        return f"Trajectory({run.dynamics}, {_records(run)})"
    if code.ndim > 0:
        ends = Counter(_word(one) for one in code.flat)
        batch = " × ".join(map(str, code.shape))
        return f"Trajectory({run.dynamics}, {batch} runs: {', '.join(f'{n} {word}' for word, n in ends.items())})"
    parts = [f"{run.dynamics}{_rate(run)}", f"{_word(code)}{_end(run)}{_steps(run)}", *_risk(run)]
    return f"Trajectory({', '.join(parts)})"


def is_batch(run: Any) -> bool:
    """Tell whether this is no single run with numbers: a batch, or traced."""
    code = numbers_of(run.code)
    return code is None or code.ndim > 0


def _number(leaf: Any) -> float:
    found = numbers_of(leaf)
    return math.nan if found is None or found.ndim else float(found)


def _records(run: Any) -> str:
    """Return the shape of the records, which is known of a tracer, too."""
    shape = getattr(run.times, "shape", None)
    if shape is None:
        return f"of {type(run.times).__name__} leaves"
    *batch, records = shape or ("no",)
    of = f"{' × '.join(map(str, batch))} runs of " if batch else ""
    return f"{'traced' if isinstance(run.times, Tracer) else 'no numbers'}, {of}{records} records"


def _word(code: Any) -> str:
    try:
        return Outcome(int(code)).name.lower().replace("_", " ")
    except ValueError:
        return f"outcome {code}"


def _rate(run: Any) -> str:
    rate = _number(run.learning_rate)
    return "" if math.isnan(rate) else f", η = {rate:.3g}"


def _end(run: Any) -> str:
    time = _number(run.time)
    return "" if math.isnan(time) else f" at t = {time:.4g}"


def _steps(run: Any) -> str:
    steps = _number(run.steps)
    return "" if math.isnan(steps) else f" after {steps:.0f} steps"


def _risk(run: Any) -> list[str]:
    along, count = numbers_of(run.risk), _number(run.count)
    if along is None or along.ndim != 1 or not 1 <= count <= along.size:
        return []
    return [f"risk {along[int(count) - 1]:.3g}"]
