"""New scenarios: `new` copies what is shipped, and in all_keys.yaml every key is explained."""

import re
import shutil
import tomllib
from pathlib import Path
from typing import Annotated

import pytest
import yaml
from pydantic import Field

import flowsim
from flowsim import cli
from flowsim.cli.new import scenario_folder, shipped_scenarios
from flowsim.kinds import recipe_of
from flowsim.scenarios import Scenario, read_scenario, resolved, scenario_json_schema
from flowsim.scenarios.keys import choice, choices, keys

ROOT = Path(flowsim.__file__).parents[1]


@pytest.fixture(scope="module")
def all_keys():
    return shipped_scenarios()["all_keys"].path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def choices_shown(all_keys):
    """What all_keys.yaml says can be chosen instead: comments with an indent of three, by keys of the whole."""
    return [
        yaml.safe_load(re.sub(r"^# {3}", "", block, flags=re.MULTILINE))
        for run in re.findall(r"(?:^# {3}.*\n)+", all_keys, re.MULTILINE)
        for block in re.split(r"^(?=# {3}\w)", run, flags=re.MULTILINE)
        if block
    ]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_what_is_new_is_the_shipped_scenario(here):
    for name in ("residual", "figure1", "all_keys"):
        assert cli.main(["new", name]) == 0
        assert (here / f"{name}.yaml").read_bytes() == shipped_scenarios()[name].path.read_bytes()


def test_what_is_left_out_is_in_all_keys_with_its_default(here, all_keys):
    (here / "set.yaml").write_text(re.sub(r"^( *)#(?=\w)", r"\1", all_keys, flags=re.MULTILINE))
    shipped = [shipped_scenarios()[name].path for name in ("all_keys", "residual")]
    everywhere, *others = (resolved(read_scenario(path)) for path in (here / "set.yaml", *shipped))
    assert others == [everywhere] * 2
    written = yaml.safe_load((here / "set.yaml").read_text())
    assert list(written) == list(Scenario.model_fields)
    for section in ("data", "network", "flow", "descent"):
        assert set(written[section]) == set(keys((section,), written)), section


def test_every_other_value_in_all_keys_can_be_chosen(here, all_keys, choices_shown):
    shutil.copytree(ROOT / "scenarios" / "data", here / "data")
    (here / "my.csv").write_text("x,y\n1,0\n2,1\n")
    (here / "cifar-10-batches-bin").mkdir()
    for number in range(1, 6):
        (here / "cifar-10-batches-bin" / f"data_batch_{number}.bin").write_bytes(bytes(3073))
    images = {"data": {"kind": "digits", "samples": 20, "test_samples": 20}}
    written = yaml.safe_load(all_keys)
    for chosen in choices_shown:
        beside = images if "record" in chosen or chosen.get("network", {}).get("kind") == "convolutional" else {}
        (here / "chosen.yaml").write_text(yaml.safe_dump(written | beside | chosen))
        read_scenario(here / "chosen.yaml")


@pytest.mark.parametrize("section", ["data", "network", "optimizer"])
def test_the_options_of_every_kind_are_in_all_keys(section, all_keys, choices_shown):
    chosen = choice(keys(("descent",), {})["optimizer"]) if section == "optimizer" else choices()[section]
    examples = [yaml.safe_load(all_keys), *choices_shown]
    written = [(entry["descent"] if section == "optimizer" and "descent" in entry else entry) for entry in examples]
    known: dict[str, set[str]] = {}
    for entry in written:
        if isinstance(entry.get(section), dict):
            known.setdefault(entry[section]["kind"], set()).update(entry[section])
    every = set.intersection(*(set(recipe.model_fields) for recipe in chosen.registered().values())) - {"kind"}
    assert every <= set.union(*known.values())
    for name, recipe in chosen.registered().items():
        options = set(recipe.model_fields) - {"kind"} - every
        shared = known.get("digits", set()) if name in ("labelled", "cifar10") else set()  # all are labelled samples
        left_out = set(re.findall(r"^  #(\w+):", all_keys, re.MULTILINE)) if name in ("gaussian", "residual") else set()
        assert options <= known.get(name, set()) | shared | left_out, name


def test_sections_that_are_left_out_are_in_all_keys_with_all_their_keys(choices_shown):
    for section in ("sharpness", "theory", "lemma_3", "sweep"):
        (written,) = (chosen[section] for chosen in choices_shown if section in chosen)
        assert set(written) == set(keys((section,), {section: written}))
    assert set(written["critical"]) == set(keys(("sweep", "critical"), {"sweep": written}))
    assert set(written["descent"][0]) == set(keys(("sweep", "descent", 0), {"sweep": written}))


def test_a_scenario_brings_its_data_along(here, capsys):
    assert cli.main(["new", "diabetes"]) == 0
    assert files(here) == ["data/diabetes.csv", "diabetes.yaml"]
    assert capsys.readouterr().out.count("wrote ") == 2
    (here / "diabetes.yaml").unlink()
    assert cli.main(["new", "diabetes"]) == 0  # beside the same data, which stay
    assert "csv" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["residual", "--to", "file"], "file: is there already"),
        (["diabetes"], "data/diabetes.csv: is there already"),
        (["residual", "--to", "folder"], "folder: is a folder; write --to folder/residual.yaml"),
        (["residual", "--to", "file/mine.yaml"], "file: is a file; files need a folder: use another --to"),
        (
            ["residul"],
            "found no template of that name; expected one of those below; write python -m flowsim new residual",
        ),
        (["zebra"], "write python -m flowsim new with one of these names\n"),
    ],
)
def test_what_cannot_be_written_is_refused_and_no_file_is_overwritten(here, capsys, words, message):
    (here / "folder").mkdir()
    (here / "data").mkdir()
    for name in ("data/diabetes.csv", "file"):
        (here / name).write_text("mine")
    assert cli.main(["new", *words]) == 2
    assert message in capsys.readouterr().err
    assert {name: (here / name).read_text() for name in files(here)} == dict.fromkeys(
        ["data/diabetes.csv", "file"], "mine"
    )


def test_without_a_name_every_shipped_scenario_is_listed_in_one_line(here, capsys):
    assert cli.main(["new"]) == 0
    shipped = shipped_scenarios()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(shipped)
    assert all(len(line) <= 79 and len(line.split()) > 3 for line in lines)
    assert {path.stem for path in (ROOT / "scenarios").rglob("*.yaml")} == set(shipped)


def test_the_wheel_holds_the_scenarios_where_they_are_looked_for(monkeypatch, tmp_path):
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert included["force-include"] == {"scenarios": "flowsim/shipped/scenarios"}
    (tmp_path / "flowsim" / "shipped" / "scenarios").mkdir(parents=True)
    monkeypatch.setattr("flowsim.cli.new._PACKAGE", tmp_path / "flowsim")
    assert scenario_folder() == tmp_path / "flowsim" / "shipped" / "scenarios"


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


def test_every_key_of_the_schema_has_a_description_and_what_may_be_left_out_the_default_of_a_scenario():
    schema = scenario_json_schema()
    assert list(lacking(schema)) == []
    assert list(lacking({"properties": {"width": {"type": "integer"}}}))  # that there is something to find
    assert schema["properties"]["loss"]["default"] == "squared_error"
    flow = schema["$defs"]["FlowSettings"]["properties"]
    for key, field in keys(("flow",), {}).items():
        extra = field.json_schema_extra
        of_schema = extra.get("default") if isinstance(extra, dict) and "default" in extra else None
        default = field.get_default(call_default_factory=True) if of_schema is None else of_schema
        assert flow[key]["default"] == (list(default) if isinstance(default, tuple) else default), key


def test_an_annotation_describes_a_parameter_that_has_no_text_below():
    class Sized:
        def __init__(self, width: Annotated[int, Field(description="How wide it is.")] = 3):
            self.width = width

    recipe = recipe_of(Sized)
    assert recipe.model_fields["width"].description == "How wide it is."
    assert recipe.model_validate({"width": 4.0}).make().width == 4
