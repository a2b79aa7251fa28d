"""Scenarios of one's own: what `new` writes is what is shipped, with every key explained."""

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import Field

import flowsim
from flowsim import cli
from flowsim.cli.commented import WIDTH, default_of
from flowsim.cli.template import Template, scenario_folder, templates
from flowsim.kinds import Made, recipe_of
from flowsim.kinds.options import meanings
from flowsim.scenarios import read_scenario, resolved, scenario_json_schema
from flowsim.scenarios.keys import keys

ROOT = Path(flowsim.__file__).parents[1]
TEMPLATES: dict[str, Template] = templates()
NAMES = list(TEMPLATES)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def said_in(text):
    """The words of the comments, whatever lines they stand in."""
    return " ".join(re.findall(r"^ *# (.*)$", text, re.MULTILINE))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The file of every template, written once."""
    folder = tmp_path_factory.mktemp("templates")
    for name in NAMES:
        assert cli.main(["new", name, "--to", str(folder / f"{name}.yaml")]) == 0
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_the_shipped_scenario(written, name):
    path = written / f"{name}.yaml"
    assert resolved(read_scenario(path)) == resolved(read_scenario(TEMPLATES[name].path))
    assert max(map(len, path.read_text().splitlines())) <= WIDTH


@pytest.mark.parametrize("name", NAMES)
def test_what_is_left_out_stands_there_with_its_default(written, name, tmp_path):
    text = (written / f"{name}.yaml").read_text()
    path = tmp_path / f"{name}.yaml"
    path.write_text(re.sub(r"^( *)#(?=\w)", r"\1", text, flags=re.MULTILINE))
    assert path.read_text() != text
    for data in TEMPLATES[name].files():
        (tmp_path / data).parent.mkdir(exist_ok=True)
        (tmp_path / data).write_bytes((written / data).read_bytes())
    assert resolved(read_scenario(path)) == resolved(read_scenario(TEMPLATES[name].path))


@pytest.mark.parametrize("name", ["residual", "digits", "figure1", "catapult"])
def test_every_key_of_a_template_is_explained(written, name):
    text = (written / f"{name}.yaml").read_text()
    content = read_scenario(written / f"{name}.yaml").model_dump()
    said = said_in(text)
    for section in ("", "data", "network", "flow", "descent"):
        for key, field in keys((section,) if section else (), content).items():
            assert re.search(rf"^ *#?{key}:", text, re.MULTILINE), key
            if key != "kind":
                assert " ".join(field.description.split()) in said, key


def test_remarks_of_the_shipped_scenario_are_kept(written):
    said = said_in((written / "figure7.yaml").read_text())
    assert "Near a perfect fit the flow creeps along a valley" in said
    assert "The bounds drawn are those of the linear network on the same data" in said
    assert "y and w* scaled so that ‖w*‖ = 1" in said_in((written / "residual.yaml").read_text())


def test_a_template_brings_its_data_along(here, capsys):
    assert cli.main(["new", "diabetes"]) == 0
    assert files(here) == ["data/diabetes.csv", "diabetes.yaml"]
    assert capsys.readouterr().out.splitlines() == [
        "wrote diabetes.yaml",
        "wrote data/diabetes.csv",
        "next: python -m flowsim check diabetes.yaml",
    ]
    (here / "diabetes.yaml").unlink()
    assert cli.main(["new", "diabetes"]) == 0  # beside the same data, which stay
    assert "csv" not in capsys.readouterr().out


def test_other_data_of_that_name_are_not_overwritten(here, capsys):
    (here / "data").mkdir()
    (here / "data" / "diabetes.csv").write_text("mine")
    assert cli.main(["new", "diabetes"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert files(here) == ["data/diabetes.csv"]
    assert (here / "data" / "diabetes.csv").read_text() == "mine"


def test_a_file_that_is_there_is_never_overwritten(here, capsys):
    assert cli.main(["new", "residual"]) == 0
    (here / "residual.yaml").write_text("mine")
    assert cli.main(["new", "residual"]) == 2
    assert capsys.readouterr().err == (
        "flowsim: residual.yaml: is there already, and is not overwritten; write --to another file\n"
    )
    assert (here / "residual.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["residual", "--to", "folder"], "folder: is a folder; write --to folder/residual.yaml"),
        (["residual", "--to", "file/mine.yaml"], "file: is a file; files need a folder: use another --to"),
        (["residul"], "found no template of that name; expected one of those below; write new residual"),
        (["zebra"], "write new with one of these names\n"),
    ],
)
def test_what_cannot_be_written_is_said(here, capsys, words, message):
    (here / "folder").mkdir()
    (here / "file").write_text("mine")
    assert cli.main(["new", *words]) == 2
    assert message in capsys.readouterr().err
    assert files(here) == ["file"]


def test_without_a_name_every_template_is_listed_in_one_line(here, capsys):
    assert cli.main(["new"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert all(len(line) <= 79 and len(line.split()) > 3 for line in lines)
    assert {path.stem for path in (ROOT / "scenarios").rglob("*.yaml")} == set(NAMES)


def test_the_wheel_holds_the_scenarios_where_they_are_looked_for(monkeypatch, tmp_path):
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert included["force-include"] == {"scenarios": "flowsim/scenarios"}
    (tmp_path / "flowsim" / "scenarios").mkdir(parents=True)
    monkeypatch.setattr("flowsim.cli.template._PACKAGE", tmp_path / "flowsim")
    assert scenario_folder() == tmp_path / "flowsim" / "scenarios"


def lacking(schema, place=""):
    """Yield every key of a JSON Schema that has no description, or no default though it may be left out."""
    if isinstance(schema, list):
        schema = dict(enumerate(schema))
    if not isinstance(schema, dict):
        return
    for key, about in schema.get("properties", {}).items():
        if "const" not in about and not about.get("description", "").strip():
            yield f"{place}.{key}: no description"
        if key != "kind" and key not in schema.get("required", ()) and "default" not in about:
            yield f"{place}.{key}: no default"
    for key, inner in schema.items():
        yield from lacking(inner, f"{place}.{key}")


def test_every_key_of_the_schema_has_a_description_and_what_may_be_left_out_a_default():
    schema = scenario_json_schema()
    assert list(lacking(schema)) == []
    assert list(lacking({"properties": {"width": {"type": "integer"}}}))  # that there is something to find
    assert schema["properties"]["loss"]["default"] == "squared_error"


def test_the_defaults_of_the_schema_are_those_of_a_scenario(tmp_path):
    schema = scenario_json_schema()["$defs"]["FlowSettings"]["properties"]
    for key, field in keys(("flow",), {}).items():
        assert schema[key]["default"] == default_of(field), key


@pytest.mark.parametrize("name", NAMES)
def test_options_of_kinds_outside_of_the_schema_are_described_too(name):
    scenario = read_scenario(TEMPLATES[name].path)
    for section in (scenario.data, scenario.network, scenario.loss, *scenario.record):
        assert all(field.description for field in type(section).model_fields.values()), section


class Base:
    """Something with a size."""

    size: int = 1
    """How large it is."""


class Derived(Base):
    """Something with a size, and more."""

    size: int = 2
    weight: float = 1.0
    """How heavy it is,
    in kilograms."""
    colour: str = "red"


def test_the_text_below_a_field_says_what_it_means():
    assert meanings(Derived) == {"size": "How large it is.", "weight": "How heavy it is,\nin kilograms."}
    assert meanings(lambda size: size) == {}
    typed: dict = {}
    exec('class Typed:\n    size: int = 1\n    """Text."""', typed)
    assert meanings(typed["Typed"]) == {}


def test_an_annotation_describes_a_parameter_that_has_no_text_below():
    from typing import Annotated

    class Made_(Base):
        def __init__(self, width: Annotated[int, Field(description="How wide it is.")] = 3):
            self.width = width

    recipe = recipe_of(Made_)
    assert issubclass(recipe, Made)
    assert recipe.model_fields["width"].description == "How wide it is."
    assert recipe.model_validate({"width": 4.0}).make().width == 4
