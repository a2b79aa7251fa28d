"""What a message about a scenario says to write is written, at its place: it is accepted there."""

import re
import shlex

import pytest
import yaml
from scenario_texts import GOOD, TABLE, TINY
from test_scenario_errors import BAD, BAD_OVERRIDES
from test_sweep_errors import BAD as BAD_SWEEPS, HEAD

from flowsim.kinds import KeyPath
from flowsim.scenarios import ScenarioError, parse_overrides, read_scenario
from flowsim.scenarios.document import parse
from flowsim.scenarios.keys import place_of

LINE = re.compile(r"(?P<position>.*?):( (?P<path>\S+):)? found (?P<found>.*); expected .*; write (?P<write>.*)")


def path_of(text: str | None) -> KeyPath:
    """Return the path of a key as messages write it."""
    parts = re.findall(r"'([^']*)'|\[(\d+)\]|([\w-]+)", text or "")
    return tuple(int(index) if index else quoted or word for quoted, index, word in parts)


def complaints(path, overrides=()) -> list[re.Match[str]]:
    try:
        read_scenario(path, parse_overrides(overrides))
    except ScenarioError as error:
        return [line for line in map(LINE.fullmatch, str(error).splitlines()) if line is not None]
    return []


def put(content, path: KeyPath, value):
    """Return plain `content` with `value` at `path`."""
    if not path:
        return value
    if isinstance(path[0], int):
        entries = content if isinstance(content, list) else [content]
        return [put(entry, path[1:], value) if i == path[0] else entry for i, entry in enumerate(entries)]
    section = content if isinstance(content, dict) else {}
    return section | {path[0]: put(section.get(path[0]), path[1:], value)}


def drop(content, path: KeyPath):
    """Return plain `content` without the key at `path`."""
    if len(path) == 1:
        return {key: value for key, value in content.items() if key != path[0]}
    return put(content, path[:1], drop(content[path[0]], path[1:]))


def alternatives(write: str) -> list[str]:
    """Return what a message says to write, one by one."""
    return re.split(r", or |, such as ", write.removesuffix(", without quotes"))


def written(text: str, message: re.Match[str], suggestion: str) -> str | None:
    """Return the text of a scenario with a suggestion at its place; `None` for prose, such as "fewer samples"."""
    place, number = path_of(message["path"]), message["position"].rpartition(":")[2]
    if "found no valid YAML" in message[0]:
        lines, (line, _, spaces) = text.split("\n"), suggestion.partition(" behind ")
        before = lines[int(number) - 1]
        indent = int(spaces.split()[0]) if spaces else len(before) - len(before.lstrip())
        lines[int(number) - 1] = " " * indent + line
        return "\n".join(lines)
    if message["position"].endswith(" sweep.over"):  # of one value there
        place = ("sweep", "over", suggestion.partition(": ")[0])
    if "without a value; " in message[0]:
        key = message["found"].split("'")[1].replace("\\xa0", "\xa0")
        return text.replace(key, suggestion)
    if "without brackets; " in message[0]:
        numbers = message["found"].removesuffix(" without brackets").replace(", ", ",")
        return re.sub(rf"[\w.]+: {numbers}", suggestion, text)
    content = parse(text, str).value
    if "found an unknown key" in message[0]:
        content = drop(content, place)
    for part in [] if suggestion == "nothing in its place" else suggestion.split(" and "):
        part, _, section = part.partition(" in the section ")
        bare = part[0] in "[{" or not re.match(r"[\w.]+: ", part)
        key, _, value = ("", "", part) if bare else part.partition(": ")
        target = place if bare else (*section.split("."), key) if section else place_of(key, place, content)
        if target is None or (bare and " " in value and part[0] not in "[{"):
            return None
        content = put(content, target, parse(value, str).value)
    return yaml.safe_dump(content, sort_keys=False)


def left(path, text: str, overrides, message: re.Match[str], suggestion: str) -> list[str] | None:
    """Return what a scenario is still refused for at the place of a message; `None` for a suggestion in prose."""
    if message["position"].startswith("--set "):
        options = (
            [word for word in shlex.split(suggestion) if word != "--set"] if suggestion.startswith("--set ") else []
        )
        keys = [option.partition("=")[0] for option in options]
        # What is missing in the value of an option is added by another one.
        others = [one for one in overrides if one.partition("=")[0] not in keys]
        others = [one for one in others if not message[0].startswith(f"--set {one}") or message["found"] == "nothing"]
        if not options and suggestion != "nothing in its place":
            return None
        path.write_text(text)
        refused = complaints(path, [*others, *options])
    else:
        changed = written(text, message, suggestion)
        if changed is None:
            return None
        path.write_text(changed)
        refused = complaints(path, overrides)
    place = path_of(message["path"])
    if not place:  # of text that is no YAML, or no scenario at all
        return [line[0] for line in refused if not line["path"] and line["position"] == message["position"]]
    return [line[0] for line in refused if path_of(line["path"])[: len(place)] == place]


def try_all(path, text: str, overrides=()) -> int:
    """Try what every message about a scenario says to write, and return how many suggestions there are."""
    path.write_text(text)
    count = 0
    for message in complaints(path, overrides):
        for suggestion in alternatives(message["write"]):
            remaining = left(path, text, overrides, message, suggestion)
            assert not remaining, (message[0], suggestion, remaining)
            count += remaining is not None
    return count


# What a person writes who means something else: the text of a scenario, or an option for TINY.
# fmt: off
LISTS = [
    "0.1,0.2", "[0.1 0.2]", "[0.5-0.7]", "0.1 0.2", "0.1;0.2", "1e-3 to 1", "0,1", "0.1", "'0.1'", "(0.1, 0.2)",
    "0.05:0.1", "['0.1', '0.2']", "[[0.1, 0.2]]", "1e-3..1", "10%", "1/10", "2**-3", "-0.1", "true", "null", "none",
    "{start: 1, stop: 2}",
]
NUMBERS = [
    "1_000", "1,000", "0,5", "10%", "5 steps", "0.1s", "'10'", "1k", "2^3", "1/2", "Infinity", "0x10", "=3", "3;",
    "2#x", "−1", "5-", "half", "yes", "True", "off", "None", "[10]", "{a: 1}", "''", "1.5e", "--5", "-1", "1e999",
    "1.5",
]
SWITCHES = [
    "off", "no", "on", "yes", "n", "y", "none", "None", "never", "'false'", "0", "1", "''", "50", "[]", "auto",
    "{a: 1}",
]
SWITCHED = [
    "sharpness", "theory", "lemma_3", "sweep", "figure", "record", "flow", "descent", "loss", "flow.rtol",
    "descent.steps", "descent.forks", "descent.schedule", "flow.models", "flow.solver", "weight_decay", "precision",
    "network.biases",
]
KEYS = [
    "scale", "network.Scale", "NETWORK.scale", "network/scale", "network[scale]", "network..scale", ".scale",
    "--network.scale", "network.scale.", "network.scales", "network_scale", "sweep.over.scale",
    "sweep.over.network.scales", "flow.rtols", "sweep.over.learning_rate", "sweep.over.descent.learning_rates",
    "sweep.over.descent.steps", "descent.learning_rates[0]", "descent.learning_rate", "descent.learning_rates.0",
    "sharpness.record", "data.path", "descent.optimizer.b3", "t1", "seeds",
]
WITHOUT_VALUE = [
    "network.scale", "network.scale=", "network.scale:0.3", "network.scale: 0.3", "network=", "record=", "loss",
    "network.scale=0.3,descent.steps=4", "seed=1 network.scale=0.3", "sweep.over.network.scale",
]
KINDS = [
    "record=[{kind: top_eigenvalues, cuont: 2}]",
    "network=mlp", "network=[mlp]", "data=gaussian", "loss=mse", "loss=[huber]", "loss={huber: {delta: 2}}",
    "loss=cross-entropy", "record={top_eigenvalues: {count: 3}}", "record=[{top_eigenvalues: 3}]",
    "record=[spectrum_trace]", "record=[eigenvalues]", "record=[batch_sharpness_mean]",
    "record=layer_norms balancedness", "descent.optimizer={b1: 0.8}", "descent.optimizer=Adm",
    "network={kind: mpl, depth: 2, scale: 1}", "network={kind:mlp, depth:2}", "network={kind=mlp}",
    "descent.schedule=warm_up",
]
TEXTS = {
    "a fork with an unknown key": f"{TINY}descent: {{learning_rates: [0.1], steps: 50, forks: [{{stp: 10}}]}}",
    "the number of a precision": f"{TINY}precision: 32",
    "axes of words": f"{TINY}sweep: {{over: {{flow.solver: [tsit5], precision: [32, 64], network.kind: [mpl]}}}}",
    "options of a kind that refuses them": f"{TINY}loss: {{kind: huber, delta: -1}}",
    "a probe without samples": f"{TINY}record: [test_risk]",
    "a tab": "data:\n\tkind: gaussian\n\tsamples: 20\n",
    "a tab in the middle": "network:\n  kind: mlp\n\tdepth: 2\n",
    "a tab before a value": "seed:\t3\n",
    "a tab at the end": "seed: 3\t\n",
    "no space after a colon": "network:\n  kind: mlp\n  depth:10\n  scale: 0.5\n",
    "no space in the first line": f"seed:3\n{TINY}",
    "no space in braces": TINY.replace("depth: 3", "depth:3"),
    "a space that does not break": TINY.replace("depth: 3", "depth:\xa03"),
    "an equals sign": f"seed = 3\n{TINY}",
    "an equals sign in braces": TINY.replace("depth: 3", "depth=3"),
    "no colon": "network:\n  kind mlp\n  depth: 2\n",
    "no colon after a section": "network\n  kind: mlp\n",
    "a comma at the end": f"seed: 3,\n{TINY}",
    "more indentation": "network:\n  kind: mlp\n    depth: 2\n",
    "less indentation": "network:\n  kind: mlp\n depth: 2\n",
    "no indentation": "network: {kind: mlp, depth: 2, scale: 1}\ndata:\nkind: gaussian\nsamples: 20\nfeatures: 3\n",
    "an indented beginning": "  seed: 3\nprecision: float64\n",
    "a bracket not closed": TINY.replace("0.5}", "0.5"),
    "a bracket not closed in the middle": TINY.replace("features: 3}", "features: 3"),
    "a quotation mark not closed": TINY.replace("mlp", "'mlp"),
    "numbers without brackets": f"{TINY}sweep: {{over: {{network.scale: 0.5,0.7}}}}",
    "a colon in a value": TINY.replace("mlp", "a: b"),
    "a colon and a space in a place": TINY.replace("mlp", "my_module: MyKind"),
    "a value with @": TINY.replace("mlp", "@mlp"),
    "a comment of JSON": '{"seed": 3, // the first\n "precision": "float64"}',
    "only a comment": "# to do\n",
    "only a word": "seed:3",
    "sections as a list": "- data: 1\n- network: 2\n",
    "an axis in a section": f"{TINY}sweep: {{over: {{network: {{scale: [0.5, 0.7]}}}}}}",
    "an axis as text": f"{TINY}sweep: {{over: network.scale}}",
    "one descent in place of a list": f"{TINY}sweep: {{descent: {{learning_rates: [0.1], steps: 10}}}}",
    "values of an axis as text": f"{TINY}sweep: {{over: {{network.scale: [0.5 0.7]}}}}",
    "a switch as axis": f"{TINY}sweep: {{over: {{network.biases: [on, off]}}}}",
    "a key with a dot": f"{TINY}descent.steps: 50\n",
}
PATHS = [
    "C:\\data\\x.csv", "C:\\temp\\new.csv", "C:\\Users\\me\\x.csv", "data\\new.csv", "C:\\x41b.csv",
    "\\\\server\\x.csv", "a\\_x.csv",
]
# fmt: on


@pytest.mark.parametrize("value", LISTS)
def test_what_is_to_be_written_in_place_of_a_list_is_accepted(tmp_path, value):
    path = tmp_path / "scenario.yaml"
    for key in ("descent.learning_rates", "sweep.over.network.scale"):
        try_all(path, TINY, [f"{key}={value}"])
    braces = "{" not in value and "," in value and "[" not in value and "(" not in value
    if not braces:
        try_all(path, f"{TINY}sweep:\n  over:\n    network.scale: {value}\n")
    try_all(path, f"{TINY}descent:\n  learning_rates: {value}\n")


def test_the_numbers_of_a_list_are_those_that_were_meant(tmp_path):
    path = tmp_path / "scenario.yaml"
    path.write_text(TINY)
    for value in ("0.1,0.2", "[0.1 0.2]", "0.1;0.2", "0.1-0.2", "['0.1', '0.2']"):
        (message,) = {
            line["write"].removesuffix(", without quotes")
            for line in complaints(path, [f"descent.learning_rates={value}"])
        }
        assert message == '--set "descent.learning_rates=[0.1, 0.2]"'
    (message,) = complaints(path, ["network.scale=0,5"])
    assert message["write"] == "--set network.scale=0.5"


@pytest.mark.parametrize("key", ["descent.steps", "network.scale", "network.depth", "seed", "flow.t1", "flow.rtol"])
def test_what_is_to_be_written_in_place_of_a_number_is_accepted(tmp_path, key):
    path, (section, _, name) = tmp_path / "scenario.yaml", key.rpartition(".")
    for value in NUMBERS:
        try_all(path, TINY, [f"{key}={value}"])
    for value in NUMBERS if section in ("descent", "flow") else []:
        try_all(path, f"{TINY}{section}:\n  {name}: {value}\n")


@pytest.mark.parametrize("key", SWITCHED)
def test_what_is_to_be_written_in_place_of_a_switch_is_accepted(tmp_path, key):
    for value in SWITCHES:
        try_all(tmp_path / "scenario.yaml", TINY, [f"{key}={value}"])


def test_sharpness_that_is_off_is_false(tmp_path):
    path = tmp_path / "scenario.yaml"
    for value in ("off", "no", "n", "none", "None", "Off", "'false'", "0"):
        path.write_text(f"{TINY}sharpness: {value}\n")
        (message,) = complaints(path)
        assert message["write"] == "sharpness: false"


@pytest.mark.parametrize(
    "option", [*(f"{key}=[0.5]" for key in KEYS), *(f"{key}=0.5" for key in KEYS), *WITHOUT_VALUE, *KINDS]
)
def test_the_option_that_is_to_be_written_in_place_of_another_is_accepted(tmp_path, option):
    assert try_all(tmp_path / "scenario.yaml", TINY, [option])


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_line_that_is_to_be_written_in_place_of_another_is_accepted(tmp_path, text):
    assert try_all(tmp_path / "scenario.yaml", text)


@pytest.mark.parametrize("name", PATHS)
def test_a_path_in_double_quotes_is_to_be_written_in_single_ones(tmp_path, name):
    path = tmp_path / "scenario.yaml"
    text = TABLE.replace("table.csv", f'"{name}"')
    path.write_text(text)
    (message,) = complaints(path)
    for suggestion in alternatives(message["write"]):
        changed = None if "escapes of double quotes" in message[0] else written(text, message, suggestion)
        value = parse(suggestion, str).value if changed is None else parse(changed, str).value["data"]
        assert value["path"] in (name, name.replace("\\", "/"))
    (message,) = complaints(path, [f'data.path="{name}"'])
    assert message["write"] == f"--set data.path={name}".replace("\\", "/")


def test_a_file_in_utf_16_is_to_be_written_in_utf_8(tmp_path):
    path = tmp_path / "scenario.yaml"
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        path.write_bytes(TINY.encode(encoding))
        (message,) = complaints(path)
        assert message["write"] == f'in PowerShell (Get-Content "{path}") | Set-Content -Encoding utf8 "{path}"'


# Messages that leave the choice to the user, of the tables of other tests.
PROSE = [
    "two documents",
    "half a character",
    "an alias",
    "a Python object",
    "deep brackets",
    "a key twice",
    "not UTF-8",
]
PROSE += ["a control character", "a number as key", "endless digits", "too large", "a control code", "no such file"]
PROSE += ["too many weights", "values that do not fit", "empty", "a list"]


@pytest.mark.parametrize("name", [name for name in [*BAD, *BAD_OVERRIDES, *BAD_SWEEPS] if name not in PROSE])
def test_what_the_messages_of_other_tests_say_to_write_is_accepted(tmp_path, name):
    path = tmp_path / "scenario.yaml"
    if name in BAD_OVERRIDES:
        assert try_all(path, GOOD, [name])
    else:
        text = BAD[name][0] if name in BAD else BAD_SWEEPS[name][0]
        assert try_all(path, text if name in BAD or text.startswith("data") else HEAD + text)
