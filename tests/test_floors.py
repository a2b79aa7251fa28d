"""The folders are the architecture: a file imports from floors that are not above its own, and nothing in a circle."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import flowsim

ROOT = Path(flowsim.__file__).parent
ROOMS = """formatting runtime kinds data networks losses problems torch curvature probes solvers dynamics edge batch
    theory results comparison scenarios sweeps report papers cli"""
FLOORS = {room: floor for floor, room in enumerate(ROOMS.split())}
# Fronts that hand names on to users: nothing in the house imports them.
FRONTS = {"flowsim", "flowsim.__main__"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def text(path: Path) -> str:
    """Return what a module holds, with the imports of a package that it puts off, which stand in a stub beside it."""
    stub = path.with_suffix(".pyi")
    return path.read_text() + (stub.read_text() if stub.exists() else "")


def imports(name: str) -> Iterator[str]:
    """Yield the modules of the package that a module imports, wherever in its text it does."""
    package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(text(FILES[name]))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        if isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            home = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{home}.{alias.name}"
                if inner in FILES or home in FILES:
                    yield inner if inner in FILES else home


@cache
def all_imports() -> dict[str, set[str]]:
    return {name: set(imports(name)) - {name} for name in FILES}


def floor(name: str) -> int:
    return FLOORS[name.split(".")[1]]


def test_the_imports_are_seen():
    imported = all_imports()
    assert {"flowsim.scenarios.scenario", "flowsim.kinds.registry"} <= imported["flowsim.scenarios.keys"]
    assert "flowsim.theory" in imported["flowsim.sweeps.run"]
    assert "flowsim.networks.layers" in imported["flowsim.networks.linear"]
    assert "flowsim.comparison" in imported["flowsim"]  # as an `__init__` hands names on


def test_a_file_imports_only_from_floors_that_are_not_above_its_own():
    imported = ((name, other) for name, others in all_imports().items() if name not in FRONTS for other in others)
    assert not [pair for pair in imported if pair[1] in FRONTS or floor(pair[1]) > floor(pair[0])]


def test_no_module_imports_itself_through_others():
    try:
        tuple(TopologicalSorter(all_imports()).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
