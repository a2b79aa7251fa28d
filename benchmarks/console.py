"""What every benchmark asks of and tells the terminal."""

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax


def begin(what: str) -> bool:
    """Print what is measured and on what machine; return whether `--quick` was asked for."""
    return start(options(what)).quick


def options(what: str) -> argparse.ArgumentParser:
    """Return the options that every benchmark has, to which it may add its own."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="fewer cases, for a run of less than a minute")
    return parser


def start(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Print what is measured and on what machine; return the options given."""
    given = parser.parse_args()
    _restart_with_one_blas_thread()
    machine = [
        f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f} before)",
        _processor(),
        f"Python {platform.python_version()}",
        f"JAX {jax.__version__} on {jax.default_backend()}",
        f"{os.environ['OPENBLAS_NUM_THREADS']} BLAS thread",
        "float64" if jax.config.jax_enable_x64 else "float32",
        str(datetime.date.today()),
    ]
    print(f"{parser.description} [{', '.join(machine)}{', --quick' if given.quick else ''}]", flush=True)
    return given


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown; numbers with two or three digits."""
    cells = [list(columns), *([_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print(f"\n{title}\n\n" + "\n".join(lines), flush=True)


def _text(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    if value == 0 or 1e-2 <= abs(value) < 1e4:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{value:.1e}"


def _restart_with_one_blas_thread() -> None:
    # On a machine with other work, two threads of LAPACK that wait for each other take 10 to 100 times as long as one,
    # and a measured ratio is one of luck. OpenBLAS reads the number when NumPy is imported, so it is too late here.
    if "OPENBLAS_NUM_THREADS" not in os.environ:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.argv])


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
