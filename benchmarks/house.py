"""How much of flowsim three jobs run through, and how large its rooms are.

For a first `integrate`, a `compare` that is printed, and the main job, each in a process of its own: how many named
functions of flowsim are called (`sys.setprofile`), in how many files their bodies are, how deep they nest, and how many
files of flowsim are imported. Then lines, files and functions of each room, and the classes that hold a learning rate:
those with a field `learning_rate` or `learning_rates`.
"""

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "flowsim"


def integrate() -> None:
    """Integrate the gradient flow of the README's deep linear network."""
    import jax
    import numpy as np

    import flowsim

    rng = np.random.default_rng(0)
    problem = flowsim.LinearRegression(rng.standard_normal((50, 5)), rng.standard_normal(50))
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 5, 1], scale=0.3, key=jax.random.key(0))
    flowsim.integrate(network, problem)


def compare() -> None:
    """Compare the flow with two descents and print the table."""
    import jax
    import numpy as np

    import flowsim

    rng = np.random.default_rng(0)
    problem = flowsim.LinearRegression(rng.standard_normal((50, 5)), rng.standard_normal(50))
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 5, 1], scale=0.3, key=jax.random.key(0))
    print(flowsim.compare(network, problem, [0.02, 0.1]))


def main_job() -> None:
    """Run the scenario of the README with the command line."""
    from flowsim.cli.command import main

    with tempfile.TemporaryDirectory() as folder:
        main([str(ROOT / "scenarios" / "residual.yaml"), "--out", folder])


JOBS: dict[str, Callable[[], None]] = {"integrate": integrate, "compare, printed": compare, "residual.yaml": main_job}


def traced(job: Callable[[], None]) -> dict[str, Any]:
    """Run a job and return how much of flowsim it ran through."""
    called: set[CodeType] = set()
    depth, deepest = 0, 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        nonlocal depth, deepest
        if not frame.f_code.co_filename.startswith(f"{PACKAGE}{os.sep}") or frame.f_code.co_name.startswith("<"):
            return
        if event == "call":
            depth += 1
            deepest = max(deepest, depth)
            called.add(frame.f_code)
        elif event == "return":
            depth -= 1

    import threading

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        job()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
    classes = {(path, name) for path in PACKAGE.rglob("*.py") for name in _bodies_of_classes(path)}
    functions = {
        code for code in called if (Path(code.co_filename), (code.co_name, code.co_firstlineno)) not in classes
    }
    files = {code.co_filename for code in functions}
    imported = {name for name in sys.modules if name.partition(".")[0] == "flowsim"}
    return {"files": len(files), "functions": len(functions), "frames": deepest, "imported": len(imported)} | {
        "names": sorted(f"{Path(c.co_filename).relative_to(PACKAGE)}:{c.co_qualname}" for c in functions)
    }


def _bodies_of_classes(path: Path) -> list[tuple[str, int]]:
    """Return the names and first lines of the classes of a file: their bodies run as functions do."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            found.append((node.name, min([node.lineno, *(one.lineno for one in node.decorator_list)])))
    return found


def rooms() -> list[tuple[str, int, int, int]]:
    """Return lines, files and functions of each room."""
    found: dict[str, list[int]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        room = parts[0] if len(parts) > 1 else "flowsim"
        text = path.read_text(encoding="utf-8")
        functions = sum(isinstance(node, ast.FunctionDef) for node in ast.walk(ast.parse(text)))
        counts = found.setdefault(room, [0, 0, 0])
        for place, count in enumerate((len(text.splitlines()), 1, functions)):
            counts[place] += count
    return [(room, *counts) for room, counts in found.items()]  # pyright: ignore[reportReturnType]


def holders_of_a_rate() -> list[str]:
    """Return the classes of flowsim with a field for a learning rate."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                names = {field.id for field in fields if isinstance(field, ast.Name)}
                if names & {"learning_rate", "learning_rates"}:
                    found.append(f"{path.relative_to(PACKAGE)}:{node.name}")
    return found


def main() -> None:
    """Print the tables; with `--names`, the functions that each job calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print the functions that each job calls, too")
    parser.add_argument("--job", choices=JOBS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        sys.path.insert(0, str(ROOT))
        counts = traced(JOBS[options.job])
        Path(os.environ["FLOWSIM_HOUSE"]).write_text(json.dumps(counts), encoding="utf-8")
        return
    print(f"{'job':<18}{'files':>8}{'functions':>11}{'frames':>8}{'imported':>10}")
    for name in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            written = Path(folder) / "counts.json"
            command = [sys.executable, __file__, "--job", name]
            subprocess.run(
                command, env=os.environ | {"FLOWSIM_HOUSE": str(written)}, check=True, stdout=subprocess.DEVNULL
            )
            counts = json.loads(written.read_text(encoding="utf-8"))
        row = (counts[key] for key in ("files", "functions", "frames", "imported"))
        print(f"{name:<18}{{:>8}}{{:>11}}{{:>8}}{{:>10}}".format(*row))
        if options.names:
            print("\n".join(f"    {one}" for one in counts["names"]))
    print(f"\n{'room':<18}{'lines':>8}{'files':>8}{'functions':>11}")
    table = rooms()
    for room, *counts in [*table, ("all", *(sum(column) for column in list(zip(*table, strict=True))[1:]))]:
        print(f"{room:<18}{{:>8}}{{:>8}}{{:>11}}".format(*counts))
    holders = holders_of_a_rate()
    print(f"\n{len(holders)} classes hold a learning rate: {', '.join(holders)}")


if __name__ == "__main__":
    main()
