"""What every benchmark asks of and tells the terminal."""

import argparse
import datetime
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax
from saved import Saved, markdown

# What `--save` writes to; nothing is saved without it.
_saved: Saved | None = None


def begin(what: str) -> bool:
    """Print what is measured and on what machine; return whether `--quick` was asked for."""
    return start(options(what)).quick


def options(what: str) -> argparse.ArgumentParser:
    """Return the options that every benchmark has, to which it may add its own."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="fewer cases, for a run of less than a minute")
    name = Path(sys.argv[0]).stem
    parser.add_argument(
        "--save", nargs="?", const=name, metavar="NAME", help=f"keep the tables as results/NAME.json (default: {name})"
    )
    return parser


def start(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Print what is measured and on what machine; return the options given. Exits with code 2 for `--quick --save`."""
    global _saved
    given = parser.parse_args()
    if given.save and given.quick:
        parser.error("--save keeps what is published, which --quick is not: leave out one of the two")
    _restart_with_one_blas_thread()
    machine = ", ".join(_machine())
    print(f"{parser.description} [{machine}{', --quick' if given.quick else ''}]", flush=True)
    if given.save:
        _saved = Saved(
            given.save, shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]]), machine
        )
    return given


def _machine() -> list[str]:
    return [
        f"{os.cpu_count()} cores (load {os.getloadavg()[0]:.1f} before)",
        _processor(),
        f"Python {platform.python_version()}",
        f"JAX {jax.__version__} on {jax.default_backend()}",
        f"{os.environ['OPENBLAS_NUM_THREADS']} BLAS thread",
        "float64" if jax.config.jax_enable_x64 else "float32",
        str(datetime.date.today()),
    ]


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown; numbers with two or three digits. With `--save`, keep it with all of them."""
    rows = [list(row) for row in rows]
    print(f"\n{title}\n\n{markdown(columns, rows)}", flush=True)
    if _saved is not None:
        _saved.add(title, columns, rows)


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
