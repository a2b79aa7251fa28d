"""What the documentation shows is there, and what it says of options and names is so."""

import doctest
import enum
import importlib.util
import inspect
import operator
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from shown_outputs import MADE, ROOT, check, difference, pages

import flowsim
from flowsim.kinds.options import meanings

README = (ROOT / "README.md").read_text()
NAMESPACES = ("", "losses", "data", "solvers", "curvature", "probes", "theory", "report", "torch")


def names(path):
    return str(path.relative_to(ROOT))


def test_the_readme_is_read_in_one_sitting():
    assert README.count("\n") <= 85
    assert max(map(len, README.splitlines())) <= 180


def test_every_figure_shown_in_the_readme_is_in_the_repository():
    shown = re.findall(r'<img src="([^"]+)"[^>]*\salt="([^"]+)">', README)
    assert shown
    assert len(shown) == README.count("<img") + README.count("![")
    for path, words in shown:
        assert len(words) > 20, f"{path} is not described"
        assert (ROOT / path).is_file(), path


def test_every_link_of_the_readme_leads_to_a_file():
    for path in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README):
        assert path.startswith("https://") or (ROOT / "".join(path.split())).exists(), path


PAPERS = {"flowsim.papers.marion_chizat_2024": ROOT / "flowsim" / "papers" / "marion_chizat_2024"}
PAPERS |= {path.stem: path.parent for path in sorted((ROOT / "papers").glob("*/*.py"))}


@pytest.mark.parametrize("module", PAPERS)
def test_a_paper_has_a_page_that_links_every_scenario_of_its_figures(module):
    text = (PAPERS[module] / "README.md").read_text()
    linked = {(PAPERS[module] / path).resolve() for path in re.findall(r"\]\((?!https)([^)#]+)", text)}
    assert all(path.is_file() for path in linked)
    known = [*(ROOT / "scenarios").rglob("*.yaml"), *(ROOT / "papers").rglob("*.yaml")]
    scenarios = {path for path in known if re.search(rf"(?<![\w.]){re.escape(module)}:\w", path.read_text())}
    assert scenarios
    assert scenarios <= linked


@pytest.mark.parametrize("page", pages(), ids=names)
@pytest.mark.slow
def test_scenarios_and_commands_of_a_page_are_read_as_they_stand(page):
    check(page)


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r": ([\w/]+\.md)$", text, re.MULTILINE))
    written = {str(page.relative_to(ROOT / "docs")) for page in pages() if page.name != "README.md"}
    assert listed == {page for page in written if not page.startswith("scripts/")} | MADE
    assert set(yaml.safe_load(text)) >= {"theme", "plugins", "nav"}


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_every_public_name_has_its_place_in_the_reference(namespace):
    module = importlib.import_module(f"flowsim.{namespace}".rstrip("."))
    public = {name for name, value in inspect.getmembers(module) if name[0] != "_" and not inspect.ismodule(value)}
    text = "\n".join(page.read_text() for page in sorted((ROOT / "docs" / "reference").rglob("*.md")))
    documented = re.findall(rf"^::: {re.escape(module.__name__)}\.(\w+)$", text, re.MULTILINE)
    assert sorted(public) == sorted(documented)
    if not namespace:
        listed = re.findall(r"\[`(\w+)`\]\(\w+\.md#flowsim\.\1\)", (ROOT / "docs/reference/flowsim.md").read_text())
        assert sorted(public) == sorted(listed)


def _reference():
    """Return the names of the reference, after `flowsim.`."""
    written = [page.read_text() for page in sorted((ROOT / "docs" / "reference").rglob("*.md"))]
    return list(dict.fromkeys(re.findall(r"^::: flowsim\.(\S+)$", "\n".join(written), re.MULTILINE)))


def _named(path):
    return operator.attrgetter(path)(flowsim)


def _constructors(name):
    made = [member for member, value in vars(_named(name)).items() if isinstance(value, classmethod)]
    return [f"{name}.{member}" for member in made if not member.startswith("_")]


CLASSES = [name for name in _reference() if inspect.isclass(_named(name))]
FUNCTIONS = [name for name in _reference() if inspect.isroutine(_named(name)) or hasattr(_named(name), "__wrapped__")]
# Of several arguments; what a single one is, the first sentence says.
MANY = [
    name
    for name in [*FUNCTIONS, *(made for owner in CLASSES for made in _constructors(owner))]
    if len(inspect.signature(_named(name)).parameters) > 1
]
WITH_EXAMPLE = [name for name in dict.fromkeys([*FUNCTIONS, *MANY]) if ">>> " in (inspect.getdoc(_named(name)) or "")]


def _section(thing, title):
    """Return what stands below a title in a docstring, one line for each entry."""
    found = re.search(rf"^{title}:\n((?: {{4}}.+\n?|\n(?= {{4}}))+)", inspect.getdoc(thing) or "", re.MULTILINE)
    return re.sub(r"\n {8,}", " ", found[1]) if found else ""


def _arguments(thing):
    return re.findall(r"^    \*{0,2}(\w+): \S.*\.$", _section(thing, "Args"), re.MULTILINE)


@pytest.mark.parametrize("name", MANY)
def test_a_function_says_what_each_of_its_arguments_is_and_what_comes_back(name):
    function = _named(name)
    signature = inspect.signature(function)
    assert sorted(_arguments(function)) == sorted(signature.parameters)
    assert bool(_section(function, "Returns")) == (signature.return_annotation is not None)


@pytest.mark.parametrize("name", [name for name in CLASSES if not issubclass(_named(name), enum.Enum)])
def test_a_class_says_what_each_of_its_arguments_is_once(name):
    cls = _named(name)
    try:
        asked = {one for one in inspect.signature(cls).parameters if not one.startswith("_")}
    except ValueError:  # an exception, whose constructor is that of Python
        asked = set()
    listed = _arguments(cls)
    assert set(listed) <= asked
    assert not set(listed) & meanings(cls).keys()
    assert asked <= {*listed, *meanings(cls)}


# The functions that users call most say what they raise and show a call, too.
BY_ARGUMENT = ("integrate", "descend", "compare", "sweep", "open_results", "sharpness", "scenarios.run", "repeat")
BY_ARGUMENT += ("curvature.top_eigenpair", "curvature.top_eigenpairs", "curvature.sharpness_along", "theory.check")
BY_ARGUMENT += ("sharpness_gradient", "DeepLinear.gaussian", "DeepLinear.residual", "Perceptron.gaussian")


@pytest.mark.parametrize("name", BY_ARGUMENT)
def test_a_function_called_most_says_what_is_raised_and_shows_a_call(name):
    function = _named(name)
    assert _arguments(function) == list(inspect.signature(function).parameters)
    assert re.match(r"    \w+Error: |    \w+: ", _section(function, "Raises"))
    assert name in WITH_EXAMPLE


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_the_example_of_a_function_runs(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    (example,) = doctest.DocTestFinder(recurse=False).find(_named(name), name, globs={})
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.slow
def test_every_name_of_the_reference_is_there_after_import_flowsim_alone():
    pages_of_names = (ROOT / "docs" / "reference").rglob("*.md")
    listed = [name for page in pages_of_names for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)]
    assert "flowsim.report.Figure" in listed
    looked_up = "import operator, sys, flowsim\nfor name in sys.argv[1:]: operator.attrgetter(name)(flowsim)"
    subprocess.run([sys.executable, "-c", looked_up, *(name.partition(".")[2] for name in listed)], check=True)


def test_what_is_shown_may_differ_from_what_is_printed_by_rounding_alone():
    shown = "GF      –    481   4.52  1.04e-17  converged"
    assert difference(shown, "GF  –  482   4.53  3.1e-16   converged\n") is None
    assert "4.7" in difference(shown, "GF  –  481  4.7  1e-17  converged")
    assert "diverged" in difference(shown, "GF  –  481  4.52  1e-17  diverged")
    assert "2 were printed" in difference(shown, f"{shown}\nTheorem 2: 15.04\n")


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


@pytest.mark.parametrize("page", [*pages(), *sorted((ROOT / "examples").rglob("*.py"))], ids=names)
def test_code_that_the_site_shows_is_read_without_broken_lines(page):
    if page.is_relative_to(ROOT / "docs") or page.suffix == ".py":
        text = page.read_text()
        blocks = (
            [text]
            if page.suffix == ".py"
            else re.findall(r"^ *```python\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
        )
        assert [line for block in blocks for line in block.splitlines() if len(line) > 88] == []


def _site_check():
    spec = importlib.util.spec_from_file_location("check_site", ROOT / "docs" / "scripts" / "check_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (r"a step of $\eta$", r"\eta"),
        ("it costs 3 $ a day", "3 $ a"),
        (r"<math><mi>\badly</mi></math>", r"\badly"),
        ("<math><merror><mtext>?</mtext></merror></math>", "an error in MathML"),
        (
            "<p><code>$HOME</code></p><pre><code>r'$\\eta$'</code></pre><script>$(a)</script><math><mi>η</mi></math>",
            None,
        ),
    ],
)
def test_a_site_with_a_formula_that_was_not_set_is_found_out(shown, found, tmp_path):
    (tmp_path / "page.html").write_text(f"<html><title>$</title><body>{shown}</body></html>")
    wrong = _site_check().unset(tmp_path)
    assert len(wrong) == (found is not None)
    assert all(found in one for one in wrong)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=names)
def test_an_example_says_how_to_run_it_in_forty_lines(example):
    text = example.read_text()
    assert text.count("\n") <= 40
    assert f"python {example.relative_to(ROOT)}" in text


def test_the_lecture_is_stored_with_its_outputs_and_small():
    notebook = Path(ROOT / "examples" / "lecture.ipynb").read_text()
    assert notebook.count('"image/png"') >= 4
    assert len(notebook) < 400_000


def _exported():
    return [
        (name, thing) for name, thing in inspect.getmembers(flowsim) if name[0] != "_" and not inspect.ismodule(thing)
    ]


@pytest.mark.parametrize(("name", "thing"), _exported())
def test_every_public_name_says_more_than_its_formula_and_functions_what_they_raise(name, thing):
    said = inspect.getdoc(thing) or ""
    assert len(said.splitlines()) > 1, f"{name} is documented by one line alone: {said!r}"
    if inspect.isfunction(thing):
        assert re.search(r"[Rr]aises", said), f"{name} does not say what it raises"
