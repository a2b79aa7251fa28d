"""A sweep that cannot be run is refused in one clear line, with exit code 2, before anything is written."""

import pytest

from flowsim import cli
from flowsim.scenarios import ScenarioError, parse_overrides, read_scenario

PAPER = "flowsim.papers.marion_chizat_2024"
HEAD = """\
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
"""


def over(axes: str) -> str:
    return f"sweep:\n  over: {{{axes}}}"


# fmt: off
BAD = {
    "unknown axis": (over("network.scal: [1]"), "4: sweep.over.'network.scal': found an unknown key; expected one of "),
    "its nearest": (over("network.scal: [1]"), "flow.t1, flow.max_steps; write network.scale"),
    "short axis": (over("scale: [1]"), "sweep.over.scale: found an unknown key; expected one of seed, precision, wei"),
    "its home": (over("scale: [1]"), "flow.max_steps; write it as network.scale"),
    "a section as axis": (over("network: [1]"), "sweep.over.network: found an unknown key; expected one of seed"),
    "the kind of data": (over("data.kind: [file]"), "sweep.over.'data.kind': found an unknown key; expected one o"),
    "a wrong kind": (over("network.kind: [mlp, mpl]"), "found the text 'mpl'; expected one of residual, mlp, conv"),
    "a bad value": (over("network.scale: [1, -1]"), "4 sweep.over: network.scale: found -1; expected at least 0;"),
    "a bad type": (over("network.depth: [1, two]"), "network.depth: found the text 'two'; expected a whole number; "),
    "a broken depth": (over("network.depth: {start: 2, stop: 3, count: 3}"), "found 2.5; expected a whole number; w"),
    "infinity": (over("network.scale: [.inf]"), "4 sweep.over: network.scale: found inf; expected a finite number"),
    "nan": (over("network.scale: [.nan]"), "4 sweep.over: network.scale: found nan; expected a finite number"),
    "brackets": (over("network.scale: [[1]]"), "found brackets; expected a single value; write a number, a word, t"),
    "no value": (over("network.scale: []"), "found a list; expected at least 1 entry; write network.scale: [0.5]\n"),
    "null as axis": (over("network.scale: null"), "found null; expected a list; write network.scale: [0.5]"),
    "no list": (over("network.scale: 3"), "'network.scale': found 3; expected a list; write network.scale: [3]"),
    "a value twice": (over("network.scale: [1, 1.0]"), "'network.scale': found 1 twice; expected no repetitions; "),
    "no axes": ("sweep: {over: null}", "3: sweep.over: found null; expected a section of keys; write over: {networ"),
    "a misspelled range": (over("network.scale: {start: 1, stop: 2, cnt: 3}"), "found the keys start, stop, cnt; e"),
    "a range of one": (over("network.scale: {start: 1, stop: 2, count: 1}"), "a count from 2 to 10000, and a spac"),
    "an unknown spacing": (over("network.scale: {start: 1, stop: 2, count: 2, spacing: x}"), "linear or log; write"),
    "log of a negative": (over("network.scale: {start: -1, stop: 2, count: 2, spacing: log}"),
        "found a logarithmic spacing from -1 to 2; expected positive ends; write spacing: linear"),
    "values that do not fit": (over("network.depth: [5, 2], network.zero_layer: [4]"),
        "4: sweep.over: found network.depth=2, network.zero_layer=4; expected values that fit together; write axes w"),
    "a value that does not fit": (over("network.zero_layer: [1, 4]"),
        "4 sweep.over: network.zero_layer: found 4; expected one of the 3 layers; write zero_layer: 3"),
    "held-out samples with a condition": (over("data.test_samples: [5], data.condition: [10]"), "fit together; wri"),
    "held-out samples beside a condition": (
        HEAD.replace("3}", "3, test_samples: 5, condition: 10}", 1), "found 5 beside a condition number; expected 0"),
    "a learning rate twice": (
        "sweep: {descent: [{learning_rates: [0.1], steps: 3}, {learning_rates: [0.1], steps: 5}]}",
        "3: sweep.descent: found 0.1 twice; expected every learning rate once; write it once"),
    "a learning rate twice in a list": ("sweep: {descent: [{learning_rates: [1, 1.0], steps: 3}]}", "found 1.0 twice"),
    "a learning rate of zero": (
        "sweep: {descent: [{learning_rates: {start: 0, stop: 1, count: 3}, steps: 3}]}",
        "sweep.descent[0].learning_rates[0]: found 0.0; expected more than 0; write learning_rates:"),
    "no steps": ("sweep: {descent: [{learning_rates: [1]}]}", "3: sweep.descent[0].steps: found nothing; expected"),
    "misspelled": ("sweep: {repetition: 3}", "3: sweep.repetition: found an unknown key; expected one of over, r"),
    "an empty bracket": ("sweep: {critical: {lowest: 1, highest: 0.5}}",
        "3: sweep.critical.highest: found 0.5, not above lowest; expected more than 1.0; write highest: 10"),
    "no minimum": (over("network.activation: [linear, tanh]") + "\n  critical: {}",
        "5: sweep.critical: found a nonlinear network; expected a linear one, whose minimum is known; write critical"),
    "too many runs": (over("network.scale: {start: 1, stop: 2, count: 10000}") + "\n  repetitions: 10000",
        "3: sweep: found a sweep of 100000000 runs; expected at most 10000000; write fewer values or repetitions"),
    "a figure without a sweep": (f"figure: {PAPER}:Figure1",
        "3: figure: found a scenario without a sweep; expected a sweep, which the figure shows; write a section sw"),
    "a figure of another sweep": (f"sweep: {{over: {{network.depth: [2, 3]}}}}\nfigure: {PAPER}:Figure1",
        "3: sweep.over: found a sweep over network.depth; expected one over network.scale alone, which the figure s"),
    "a figure by its number": ("figure: 1", "3: figure: found 1; expected the place of a figure, or a list of them "
        f"(flowsim has those of {PAPER}); write figure: my_m"),
    "no figure of the paper": (f"sweep: {{}}\nfigure: {PAPER}:Figure9", f"4: figure: found '{PAPER}:Figure9', but no "
        f"Figure9 in {PAPER}; expected a name that the module defines; write {PAPER}:Figure"),
    "a figure in no module": ("figure: my_figures:Mine", "3: figure: found 'my_figures:Mine', but no module my_figu"),
    "a figure by a word": ("figure: nope", "found 'nope'; expected a figure of your own as my_module:MyKind; write "
        "my_module:MyKind\n"),
    "no kind of figure": ("figure: json:JSONDecoder", "3: figure: found 'json:JSONDecoder', which is not a figure; ex"),
    "the same figure twice": (f"sweep: {{over: {{network.scale: [1]}}}}\nfigure: [{PAPER}:Figure1, {PAPER}:Figure1]",
        "4: figure: found two figures called figure1; expected different names"),
}
# fmt: on


@pytest.mark.parametrize(("sweep", "message"), BAD.values(), ids=BAD.keys())
def test_a_bad_sweep_is_one_message_exit_code_2_and_writes_nothing(tmp_path, monkeypatch, capsys, sweep, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "bad.yaml"
    path.write_text(sweep if sweep.startswith("data") else HEAD + sweep)
    assert cli.main(["bad.yaml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("flowsim: bad.yaml:")
    assert (f"bad.yaml:{message}" if message[0].isdigit() else message) in said
    assert said.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.yaml"]


@pytest.mark.parametrize(
    "sweep",
    [
        over("network.depth: [5, 4], network.zero_layer: [4]"),  # which the depth of the file itself has not
        over("flow.t1: [.inf, 3.0]"),
        over("network.kind: [residual, mlp]"),
        over("data.condition: [null, 10]"),
    ],
)
def test_values_that_fit_in_every_point_of_the_grid_are_accepted(tmp_path, sweep):
    (tmp_path / "good.yaml").write_text(HEAD + sweep)
    assert read_scenario(tmp_path / "good.yaml").sweep is not None


def test_an_axis_can_be_set_from_the_command_line(tmp_path):
    (tmp_path / "good.yaml").write_text(HEAD + over("network.scale: [1, 2]"))
    sweep = read_scenario(tmp_path / "good.yaml", parse_overrides(["sweep.over.network.depth=[2, 4]"])).sweep
    assert sweep is not None
    assert sweep.over == {"network.scale": (1, 2), "network.depth": (2, 4)}
    with pytest.raises(
        ScenarioError, match=r"sweep\.over\.'network\.dept': found an unknown key.*write network\.depth"
    ):
        read_scenario(tmp_path / "good.yaml", parse_overrides(["sweep.over.network.dept=[2]"]))


@pytest.mark.parametrize("jobs", ["0", "-1", "abc", "1.5", "", "9" * 20])
def test_a_bad_number_of_jobs_is_refused_with_an_example(capsys, jobs):
    with pytest.raises(SystemExit) as caught:
        cli.main(["any.yaml", "--jobs", jobs])
    assert caught.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.endswith(f"argument --jobs: found {jobs!r}; expected a whole number from 1 to 1024; write --jobs 2")


def test_jobs_here_and_a_cluster_are_not_both_asked_for(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["any.yaml", "--jobs", "2", "--dask", "tcp://here:8786"])
    assert caught.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err
