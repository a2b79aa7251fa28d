"""A sweep that cannot be run is refused in one clear line, with exit code 2, before anything is written."""

import pytest

from flowsim import cli
from flowsim.scenarios import ScenarioError, parse_overrides, read_scenario

PAPER = "flowsim.papers.marion_chizat_2024"
HEAD = """\
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
"""
DESCENT = "{learning_rates: [0.1], steps: 3}"


def over(axes: str) -> str:
    return f"sweep:\n  over: {{{axes}}}"


# fmt: off
BAD = {
    "unknown axis": (over("network.scal: [1]"), "4: sweep.over.'network.scal': found an unknown key; expected one of "),
    "its home": (over("scale: [1]"), "write network.scale: [1]"),
    "a bad value": (over("network.scale: [1, -1]"), "4 sweep.over: network.scale: found -1; expected at least 0;"),
    "brackets": (over("network.scale: [[1]]"), "found brackets; expected a single value"),
    "no value": (over("network.scale: []"), "found a list; expected at least 1 entry; write network.scale: [0.5]\n"),
    "a value twice": (over("network.scale: [1, 1.0]"), "'network.scale': found 1 twice"),
    "a misspelled range": (over("network.scale: {start: 1, stop: 2, cnt: 3}"), "found the keys start, stop, cnt"),
    "log of a negative": (over("network.scale: {start: -1, stop: 2, count: 2, spacing: log}"),
        "write network.scale: {start: -1.0, stop: 2.0, count: 2}"),
    "values that do not fit": (over("network.depth: [5, 2], network.zero_layer: [4]"),
        "4: sweep.over: found network.depth=2, network.zero_layer=4; expected values that fit together"),
    "a value that does not fit": (over("network.zero_layer: [1, 4]"), "4 sweep.over: network.zero_layer: found 4; exp"),
    "a condition": (HEAD.replace("3}", "3, test_samples: 5, condition: 10}", 1), "found 5 beside a condition number"),
    "a rate twice": (f"sweep: {{descent: [{DESCENT}, {DESCENT}]}}", "3: sweep.descent: found 0.1 twice"),
    "an empty bracket": ("sweep: {critical: {lowest: 1, highest: 0.5}}", "3: sweep.critical.highest: found 0.5"),
    "no minimum": (over("network.activation: [tanh]") + "\n  critical: {}", "5: sweep.critical: found a nonlinear net"),
    "too many runs": (over("network.scale: {start: 1, stop: 2, count: 10000}") + "\n  repetitions: 10000",
        "3: sweep: found a sweep of 100000000 runs; expected at most 10000000"),
    "a figure without a sweep": (f"figure: {PAPER}:Figure1", "3: figure: found a scenario without a sweep"),
    "a figure of another sweep": (f"{over('network.depth: [2, 3]')}\nfigure: {PAPER}:Figure1",
        "4: sweep.over: found a sweep over network.depth; expected one over network.scale alone"),
    "a figure by its number": ("figure: 1", "3: figure: found 1; expected the place of a figure"),
    "a figure twice": (f"{over('network.scale: [1]')}\nfigure: [{PAPER}:Figure1, {PAPER}:Figure1]",
        "5: figure: found two figures called figure1"),
}
# fmt: on


@pytest.mark.parametrize(("sweep", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_sweep_is_one_message_exit_code_2_and_writes_nothing(tmp_path, monkeypatch, capsys, sweep, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.yaml"
    path.write_text(sweep if sweep.startswith("data") else HEAD + sweep)
    assert cli.main(["bad.yaml"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("flowsim: bad.yaml:")
    assert (f"bad.yaml:{message}" if message[0].isdigit() else message) in error
    assert error.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.yaml"]


def test_values_that_fit_in_every_point_of_the_grid_are_accepted(tmp_path):
    for axes in (
        "network.depth: [5, 4], network.zero_layer: [4]",  # which the depth of the file itself has not
        "flow.t1: [.inf, 3.0]",
        "network.kind: [residual, mlp]",
        "data.condition: [null, 10]",
    ):
        (tmp_path / "good.yaml").write_text(HEAD + over(axes))
        assert read_scenario(tmp_path / "good.yaml").sweep is not None


def test_an_axis_can_be_set_from_the_command_line(tmp_path):
    (tmp_path / "good.yaml").write_text(HEAD + over("network.scale: [1, 2]"))
    sweep = read_scenario(tmp_path / "good.yaml", parse_overrides(["sweep.over.network.depth=[2, 4]"])).sweep
    assert sweep is not None
    assert sweep.over == {"network.scale": (1, 2), "network.depth": (2, 4)}
    with pytest.raises(ScenarioError, match=r"write --set .sweep\.over\.network\.depth=\[2\]"):
        read_scenario(tmp_path / "good.yaml", parse_overrides(["sweep.over.network.dept=[2]"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--jobs", "0"], "argument --jobs: found '0'; expected a whole number from 1 to 1024; write --jobs 2"),
        (["--jobs", "2", "--dask", "tcp://here:8786"], "not allowed with argument"),
    ],
)
def test_bad_options_of_who_computes_are_refused(capsys, options, message):
    with pytest.raises(SystemExit) as caught:
        cli.main(["any.yaml", *options])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
