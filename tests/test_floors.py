"""The folders are the architecture: a file imports from floors that are not above its own, and nothing in a circle."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import flowsim

ROOT = Path(flowsim.__file__).parent
CORE = """formatting runtime kinds data networks losses problems torch curvature probes solvers dynamics edge batch
    theory columns comparison tables"""
LAB = "kinds.recipes data.sources networks.recipes results scenarios sweeps report papers cli"
FLOORS = {room: floor for floor, room in enumerate(f"{CORE} {LAB}".split())}
# Nothing in the house imports them.
FRONTS = {"flowsim", "flowsim.__main__"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(ROOT.rglob("*.py"))}


@cache
def names_of(module: str) -> dict[str, str]:
    """Return where the names live that the stub of a room hands on; importing one of them imports that module alone."""
    stub = FILES[module].with_suffix(".pyi")
    nodes = ast.parse(stub.read_text()).body if stub.exists() else []
    return {
        alias.name: f"{module}.{node.module or alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def imports(name: str) -> Iterator[str]:
    """Yield the modules of the package that a module imports, wherever in its text it does."""
    package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(FILES[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FILES)
        if isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            home = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{home}.{alias.name}"
                if inner in FILES or home in FILES:
                    yield inner if inner in FILES else names_of(home).get(alias.name, home)


@cache
def all_imports() -> dict[str, set[str]]:
    return {name: set(imports(name)) - {name} for name in FILES}


def floor(name: str) -> int:
    """Return the floor of a module: that of a room within a room, such as data.sources, else that of the room."""
    _, room, *inner = name.split(".")
    return FLOORS.get(".".join([room, *inner[:1]]), FLOORS[room])


def test_the_imports_are_seen():
    imported = all_imports()
    assert {"flowsim.scenarios.scenario", "flowsim.kinds.registry"} <= imported["flowsim.scenarios.keys"]
    assert "flowsim.theory" in imported["flowsim.sweeps.run"]
    assert "flowsim.networks.layers" in imported["flowsim.networks.linear"]
    assert "flowsim.networks.weights" in imported["flowsim.curvature.hessian"]  # whose name the front hands on
    assert names_of("flowsim.networks")["NETWORKS"] == "flowsim.networks.recipes"


def test_a_file_imports_only_from_floors_that_are_not_above_its_own():
    imported = ((name, other) for name, others in all_imports().items() if name not in FRONTS for other in others)
    assert not [pair for pair in imported if pair[1] in FRONTS or floor(pair[1]) > floor(pair[0])]


def test_no_module_imports_itself_through_others():
    try:
        tuple(TopologicalSorter(all_imports()).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
