"""A bad scenario is refused in one clear line that says where, what was found, and what to write."""

from pathlib import Path

import pytest
from scenario_texts import GOOD, TABLE

from flowsim.scenarios.reading import ScenarioError, parse_overrides, read_scenario
from flowsim.scenarios.scenario import Scenario


def refused(path, *overrides) -> str:
    with pytest.raises(ScenarioError) as caught:
        read_scenario(path, parse_overrides(overrides))
    return str(caught.value).replace(f"{Path(path).parent}/", "")


def good(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


def table(old: str, new: str) -> str:
    assert old in TABLE
    return TABLE.replace(old, new, 1)


# What the file says, and what the message contains; if that begins with a digit, then with the line's number.
# fmt: off
BAD = {
    # What is no YAML of the plain kind.
    "empty": ("", "1: found an empty file; expected the keys of a scenario; write data: {kind: gaussian, sa"),
    "a list": ("- 1\n", "1: found a file that holds no keys"),
    "two documents": (GOOD + "---\n" + GOOD, "9: found a second document; expected one scenario in a file"),
    "a tab": ("data:\n\tkind: file", "2: found no valid YAML (found character '\\t'"),
    "a control character": (GOOD + "x: \x01", "9: found the character U+0001; expected text"),
    "an impossible escape": (GOOD + 'x: "\\UFFFFFFFF"', "9: found no valid YAML (an escape that is no char"),
    "half a character": (good("seed", '"\\ud800"'), "1: found half a character (a lone surrogate)"),
    "an alias": (good("0.5", "*half"), "6: found an anchor or alias; expected plain values"),
    "a Python object": ("x: !!python/object/apply:os.abort []", "1: found the tag 'tag:yaml.org"),
    "deep brackets": ("[" * 100, "1: found deeper nesting; expected at most 10 levels"),
    "a key twice": (GOOD + "seed: 3\n", "9: seed: found the key a second time, after line 1; expected every"),
    "a number as key": (GOOD + "3: 1", "9: found the key 3; expected a word as key"),
    "not UTF-8": (GOOD.encode() + b"\xff", "9: found the byte 0xff, which is not UTF-8"),
    "endless digits": (good("3", "9" * 5000), "1: seed: found a number of 5000 digits"),
    "too large": (b"#" * (2**20 + 1), "scenario.yaml: found a file of more than 1048576 bytes"),
    # Keys.
    "misspelled": (good("depth", "detph"), "5: network.detph: found an unknown key; expected one of kind, d"),
    "a control code": (GOOD + '"\\e[31m": 1', "9: '\\x1b[31m': found an unknown key"),
    "of another section": (GOOD + "learning_rates: [1]", "write learning_rates: [1] in the section descent"),
    "of another kind": (good("0.5", "0.5\n  width: 3"), "7: network.width: found an unknown key"),
    "no kind": (good("kind: residual", ""), "3: network.kind: found nothing; expected one of residual, mlp"),
    "misspelled kind": (good("residual", "resdual"), "4: network.kind: found the text 'resdual'; expected o"),
    "an empty section": (good(" {rtol: 1e-5, t1: inf}", ""), "7: flow: found null; expected a section of ke"),
    "a number as section": (TABLE + "flow: 5", "3: flow: found 5; expected a section of keys; write flow: {"),
    # Numbers.
    "quoted": (good("0.5", "'0.5'"), "found the text '0.5'; expected a number; write scale: 0.5, without qu"),
    "huge seed": (good("3", "4294967296"), "1: seed: found 4294967296; expected at most 4294967295"),
    "infinite scale": (good("0.5", "1e999"), "6: network.scale: found inf; expected a finite number"),
    "rtol one": (good("1e-5", "1"), "7: flow.rtol: found 1; expected less than 1; write rtol: 1.0e-06"),
    "rtol zero": (good("1e-5", "0"), "7: flow.rtol: found 0; expected more than 0"),
    "negative atol": (good("rtol", "atol: -1, rtol"), "7: flow.atol: found -1; expected at least 0"),
    "gradient norm zero": (good("rtol", "gradient_norm: 0, rtol"), "flow.gradient_norm: found 0; expected m"),
    "learning rate zero": (good("2e-2", "0"), "8: descent.learning_rates[1]: found 0; expected more than 0"),
    "learning rate twice": (good("2e-2", "5e-3"), "descent.learning_rates: found 0.005 twice; expected no r"),
    # Words.
    "precision": (GOOD + "precision: 64", "found 64; expected one of float64, float32; write precision: flo"),
    "unfit solver": (good("rtol", "solver: Euler, rtol"), "7: flow.solver: found 'Euler'; expected one of auto, "),
    "lower-case solver": (good("rtol", "solver: kvaerno5, rtol"), "write solver: Kvaerno5"),
    "yes": (table("[a, b]", "[a], standardize: yes"), "1: data.standardize: found the text 'yes'; expected"),
    "an empty name": (table("y", "''"), "1: data.target[0]: found the text ''; expected text that is not em"),
    "no features": (table("[a, b]", "[]"), "1: data.features: found a list; expected at least 1 entry"),
    "no such file": (table("table", "none"), "1: data.path: found 'none.csv', which is no file in /"),
    # What contradicts itself, or is too large.
    "target as feature": (table("[a, b]", "[a, y]"), "1: data.features: found 'y', which is also a target;"),
    "two residual outputs": (good("5}", "5, outputs: 2}"), "4: network.kind: found a residual network for 5"),
    "too deep": (good("10", "10000000"), "5: network.depth: found 10000000; expected at most 100000;"),
    "too many weights": (good("5}", "15000}"), "5: network.depth: found a network of 2250000000 weights; ex"),
    "too many samples": (good("50", "1e12"), "2: data.samples: found a matrix of 6000000000000 numbers; exp"),
    "too many steps": (good("4e3", "1e10"), "8: descent.steps: found 20000000000 steps over all learning ra"),
    "rtol for float32": (good("1e-5", "1e-6") + "precision: float32",
        "found 1e-06; expected at least 3e-06, as float32 resolves no less; write precision: float64"),
    "gradient norm for float32": (good("t1: inf", "gradient_norm: 1e-8") + "precision: float32",
        "7: flow.gradient_norm: found 1e-08; expected at least 9e-07, as float32 resolves no less"),
    "rtol for float64": (good("1e-5", "1e-15"), "as float64 resolves no less; write rtol: 7e-15"),
}
BAD_OVERRIDES = {
    "network.scal=1": "network.scal: found an unknown key; expected one of kind, depth, scale",
    "scale=1": "scale: found an unknown key; expected one of seed, precision, data, network, loss, weight_decay, flow,",
    "seed.x=1": "seed.x: found an unknown key; expected no keys inside seed; write --set seed=1",
    "network.scale": "found no value; expected KEY=VALUE; write --set network.scale=0.5",
    "network.scale='1'": "network.scale: found the text '1'; expected a number; write --set network.scale=1, with",
    "network.scale={a: 1}": "network.scale: found a section of keys; expected a number",
    "network.scale=[1": "found no valid YAML",
    "flow.models=[edg]": "flow.models[0]: found 'edg'; expected one of gradient, central",
}
# fmt: on


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_scenario_is_refused_in_one_clear_line(write, content, message):
    refusal = refused(write(content))
    assert (f"scenario.yaml:{message}" if message[0].isdigit() else message) in refusal
    assert "\n" not in refusal
    assert all(part in refusal for part in ("found ", "; expected ", "; write "))


def test_every_error_is_reported_on_its_own_line_and_a_misspelled_key_is_not_also_missing(write):
    lines = refused(write(GOOD.replace("10", "0").replace("0.5", "half").replace("seed", "sed"))).splitlines()
    assert [line.split(":")[1] for line in lines] == ["5", "6", "1"]
    assert refused(write(good("depth", "Depht"))).endswith("write depth: 10")


def test_a_file_that_cannot_be_read_is_refused(write, tmp_path, monkeypatch):
    path = write(GOOD)
    near = path.with_name("scenaroi.yaml")
    assert "found no such file; expected a scenario file; write scenario.yaml" in refused(near)
    assert "found no such file" in refused(path.parent / "absent" / "scenario.yaml")
    assert refused("network.scale=0.3").endswith("write --set network.scale=0.3")
    assert "found a folder; expected a scenario file" in refused(tmp_path)
    assert "found a null character; expected a file" in refused("a\0b")
    assert "the path is empty; expected a file" in refused("")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "found no permission to read; expected a scenario file" in refused(path)


@pytest.mark.parametrize(("override", "message"), BAD_OVERRIDES.items(), ids=BAD_OVERRIDES)
def test_a_bad_override_is_refused_by_its_own_text(write, override, message):
    assert refused(write(GOOD), override).startswith(f"--set {override}: {message}")


def test_an_override_given_twice_is_refused_and_one_does_not_hide_what_is_wrong_with_its_section(write):
    twice = refused(write(GOOD), "seed=1", "seed=2")
    assert "--set seed=2: seed: found a second value, after --set seed=1" in twice
    assert "scenario.yaml:7: flow: found 5" in refused(write(good("{rtol: 1e-5, t1: inf}", "5")), "flow.rtol=1e-3")


@pytest.mark.slow
def test_whatever_the_text_it_is_read_or_refused(write):
    from hypothesis import given, settings, strategies as st

    tokens = ["data", "flow", "depth", "{", "}", "[", "]", ",", "-", "1", "1e400", ".nan", "null", "true", "'", '"']
    tokens += ["&a", "*a", "!!x", "#", "?", "|", ":", "---", "%YAML", "<<", "=", "é", "\\ud800", "\\UFFFFFFFF"]
    tokens += ["\n", "\n  ", "\t", "\x00", "\u2028", "\x85"]
    places = st.integers(0, len(GOOD))

    @settings(max_examples=100, deadline=None)
    @given(
        words=st.lists(st.sampled_from(tokens), max_size=25), glue=st.sampled_from(["", " "]), start=places, cut=places
    )
    def holds(words, glue, start, cut):
        path = write(GOOD[:start] + glue.join(words) + GOOD[start + cut :])
        try:
            lines = []
            assert isinstance(read_scenario(path), Scenario)
        except ScenarioError as error:
            lines = str(error).splitlines()
        assert all(" found " in line and "; write " in line for line in lines)

    holds()
