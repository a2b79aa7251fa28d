"""What the documentation shows is there, and what it says of options and names is so."""

import doctest
import enum
import importlib.util
import inspect
import operator
import re
import subprocess
import sys

import pytest
import yaml
from shown_outputs import MADE, ROOT, check, difference, pages

import flowsim
from flowsim.kinds.recipes.options import meanings

README = (ROOT / "README.md").read_text()
NAMESPACES = ("", "losses", "data", "solvers", "curvature", "probes", "theory", "report", "torch")


def test_every_figure_and_every_link_of_the_readme_is_in_the_repository():
    shown = re.findall(r'<img src="([^"]+)"[^>]*\salt="([^"]+)">', README)
    assert shown
    assert len(shown) == README.count("<img") + README.count("![")
    for path, words in shown:
        assert len(words) > 20, f"{path} is not described"
        assert (ROOT / path).is_file(), path
    for path in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README):
        assert path.startswith("https://") or (ROOT / "".join(path.split())).exists(), path


PAPERS = {"flowsim.papers.marion_chizat_2024": ROOT / "flowsim" / "papers" / "marion_chizat_2024"}
PAPERS |= {path.stem: path.parent for path in sorted((ROOT / "papers").glob("*/*.py"))}


def test_a_paper_has_a_page_that_links_every_scenario_of_its_figures():
    known = {path: path.read_text() for folder in ("scenarios", "papers") for path in (ROOT / folder).rglob("*.yaml")}
    for module, folder in PAPERS.items():
        links = re.findall(r"\]\((?!https)([^)#]+)", (folder / "README.md").read_text())
        linked = {(folder / path).resolve() for path in links}
        assert all(path.is_file() for path in linked)
        scenarios = {path for path, text in known.items() if re.search(rf"(?<![\w.]){re.escape(module)}:\w", text)}
        assert scenarios, module
        assert scenarios <= linked, module


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_scenarios_and_commands_of_a_page_are_read(page):
    check(page)


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r": ([\w/]+\.md)$", text, re.MULTILINE))
    written = {str(page.relative_to(ROOT / "docs")) for page in pages() if page.name != "README.md"}
    assert listed == {page for page in written if not page.startswith("scripts/")} | MADE
    assert set(yaml.safe_load(text)) >= {"theme", "plugins", "nav"}


def _reference():
    """Return the names of the reference."""
    written = [page.read_text() for page in sorted((ROOT / "docs" / "reference").rglob("*.md"))]
    return list(dict.fromkeys(re.findall(r"^::: flowsim\.(\S+)$", "\n".join(written), re.MULTILINE)))


@pytest.fixture(scope="module")
def reference():
    """What the reference documents, by names after `flowsim.`."""
    return {name: _named(name) for name in _reference()}


@pytest.fixture(scope="module")
def functions(reference):
    """The functions of the reference, and what makes its classes, by their names."""
    found = {name: one for name, one in reference.items() if inspect.isroutine(one) or hasattr(one, "__wrapped__")}
    for owner, cls in reference.items():
        made = (
            [key for key, value in vars(cls).items() if isinstance(value, classmethod)] if inspect.isclass(cls) else []
        )
        found |= {f"{owner}.{key}": getattr(cls, key) for key in made if key[0] != "_"}
    return found


def _named(path):
    return operator.attrgetter(path)(flowsim)


def _section(thing, title):
    """Return what a docstring says below a title, one line for each entry."""
    found = re.search(rf"^{title}:\n((?: {{4}}.+\n?|\n(?= {{4}}))+)", inspect.getdoc(thing) or "", re.MULTILINE)
    return re.sub(r"\n {8,}", " ", found[1]) if found else ""


def _arguments(thing):
    return re.findall(r"^    \*{0,2}(\w+): \S.*\.$", _section(thing, "Args"), re.MULTILINE)


@pytest.mark.slow
def test_every_public_name_has_its_place_in_the_reference(reference):
    listed = re.findall(r"\[`(\w+)`\]\(\w+\.md#flowsim\.\1\)", (ROOT / "docs/reference/flowsim.md").read_text())
    for namespace in NAMESPACES:
        module = importlib.import_module(f"flowsim.{namespace}".rstrip("."))
        public = {name for name, value in inspect.getmembers(module) if name[0] != "_" and not inspect.ismodule(value)}
        places = [name.rpartition(".") for name in reference]
        assert sorted(public) == sorted(name for place, _, name in places if place == namespace), module
        assert namespace or sorted(public) == sorted(listed)


@pytest.mark.slow
def test_a_function_says_what_each_of_its_arguments_is_and_what_comes_back(functions):
    wrong = []
    for name, function in functions.items():
        signature = inspect.signature(function)
        if len(signature.parameters) > 1:  # what a single one is, the first sentence says
            returns = bool(_section(function, "Returns")) == (signature.return_annotation is not None)
            if not returns or sorted(_arguments(function)) != sorted(signature.parameters):
                wrong.append(name)
    assert wrong == []


@pytest.mark.slow
def test_a_class_says_what_each_of_its_arguments_is_once(reference):
    wrong = []
    for name, cls in reference.items():
        if not inspect.isclass(cls) or issubclass(cls, enum.Enum):
            continue
        try:
            asked = {one for one in inspect.signature(cls).parameters if not one.startswith("_")}
        except ValueError:  # an exception, whose constructor is that of Python
            asked = set()
        listed, said = set(_arguments(cls)), meanings(cls).keys()
        if not listed <= asked or listed & said or not asked <= listed | said:
            wrong.append(name)
    assert wrong == []


# The functions that users call most say what they raise and show a call, too.
BY_ARGUMENT = ("integrate", "descend", "compare", "sweep", "open_results", "sharpness", "scenarios.run", "repeat")
BY_ARGUMENT += ("curvature.top_eigenpair", "curvature.top_eigenpairs", "curvature.sharpness_along", "theory.check")
BY_ARGUMENT += ("sharpness_gradient", "DeepLinear.gaussian", "DeepLinear.residual", "Perceptron.gaussian")


@pytest.mark.slow
def test_a_function_called_most_says_what_is_raised_and_shows_a_call(functions):
    for name in BY_ARGUMENT:
        function = functions[name]
        assert _arguments(function) == list(inspect.signature(function).parameters), name
        assert re.match(r"    \w+Error: |    \w+: ", _section(function, "Raises")), name
        assert ">>> " in inspect.getdoc(function), name


@pytest.mark.slow
def test_every_public_name_says_more_than_its_formula_and_functions_what_they_raise():
    for name, thing in inspect.getmembers(flowsim):
        if name[0] != "_" and not inspect.ismodule(thing):
            said = inspect.getdoc(thing) or ""
            assert len(said.splitlines()) > 1, f"{name} is documented by one line alone: {said!r}"
            assert not inspect.isfunction(thing) or re.search(r"[Rr]aises", said), name


@pytest.mark.slow
def test_the_examples_of_functions_run(functions, tmp_path, monkeypatch):
    for entry in ROOT.iterdir():  # which examples read; what they write stays out of the repository
        (tmp_path / entry.name).symlink_to(entry)
    monkeypatch.chdir(tmp_path)
    failed = []
    for name, function in functions.items():
        if ">>> " in (inspect.getdoc(function) or ""):
            (example,) = doctest.DocTestFinder(recurse=False).find(function, name, globs={})
            assert example.examples
            failed += [name] * doctest.DocTestRunner().run(example).failed
    assert failed == []


@pytest.mark.slow
def test_every_name_of_the_reference_is_there_after_import_flowsim_alone():
    looked_up = "import operator, sys, flowsim\nfor name in sys.argv[1:]: operator.attrgetter(name)(flowsim)"
    names = _reference()
    assert "report.Figure" in names
    subprocess.run([sys.executable, "-c", looked_up, *names], check=True)


def test_what_is_shown_may_differ_from_what_is_printed_by_rounding_alone():
    shown = "GF      –    481   4.52  1.04e-17  converged"
    assert difference(shown, "GF  –  482   4.53  3.1e-16   converged\n") is None
    assert "4.7" in difference(shown, "GF  –  481  4.7  1e-17  converged")
    assert "diverged" in difference(shown, "GF  –  481  4.52  1e-17  diverged")
    assert "2 were printed" in difference(shown, f"{shown}\nTheorem 2: 15.04\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```sh\n.venv/bin/python -m flowsim scenarios/residual.yaml --set network.scales=1\n```", "scales"),
        ("```sh\npip install '.[cude]'\n```", "cude"),
        ("```sh\npython -m flowsim scenarios/residuals.yaml\n```", "residuals"),
        ("```yaml\nnetwork: {kind: residuals}\n```", "residuals"),
    ],
)
def test_a_page_that_shows_what_cannot_be_is_found_out(block, message, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n{block}\n")
    with pytest.raises((AssertionError, ValueError), match=message):
        check(page)


def test_an_example_says_how_to_run_it_and_the_lecture_is_stored_with_its_outputs():
    for example in (ROOT / "examples").glob("*.py"):
        assert f"python {example.relative_to(ROOT)}" in example.read_text()
    assert (ROOT / "examples" / "lecture.ipynb").read_text().count('"image/png"') >= 4
