import json

import numpy as np
import pytest

from flowsim import cli
from flowsim.scenarios import check_theory, read_scenario, theory_cells
from flowsim.theory import Verdict

DATA = "data: {kind: gaussian, samples: 20, features: 3}\n"
SMALL = DATA + "network: {kind: mlp, depth: 2, scale: 1.0e-3, zero_layer: 1}\n"


def run(text, tmp_path, *options):
    path = tmp_path / "theory.yaml"
    path.write_text(text)
    return cli.main([str(path), "--out", str(tmp_path / "out"), *options])


def summary(tmp_path):
    return json.loads((tmp_path / "out" / "theory" / "summary.json").read_text())["theory"]


@pytest.mark.slow
def test_every_cell_of_the_grid_is_in_the_summary_the_table_counts_verdicts_and_the_figures_are_drawn(tmp_path, capsys):
    options = "{conditions: [1, 50], repetitions: 2, subjects: [minimizers, small_scale, residual]}"
    assert run(SMALL + f"theory: {options}\n", tmp_path) == 0
    flows = summary(tmp_path)["flows"]
    cells = {(flow["depth"], flow["condition"], flow["repetition"]) for flow in flows}
    assert cells == {(2, c, r) for c in (1.0, 50.0) for r in (0, 1)}
    assert {flow["outcome"] for flow in flows} == {"CONVERGED"}
    for flow in flows:
        found = {statement["name"]: statement for statement in flow["statements"]}
        assert found["Corollary 2"]["verdict"] == "holds"
        assert found["Corollary 2"]["larger"] == pytest.approx(4 * flow["condition"], rel=1e-9)
        assert found["Corollary 2"]["margin"] > 0
        assert {a["met"] for a in found["Corollary 2"]["assumptions"]} == {True}
        assert found["Theorem 4"]["verdict"] == "not applicable"
    for name in ("theory", "conditioning"):
        assert (tmp_path / "out" / "theory" / "figures" / f"{name}.png").stat().st_size > 5000
    printed = capsys.readouterr().out
    assert "Theorem 1" in printed
    assert "Lemma 8, upper" not in printed
    assert "4 hold" in printed


def checked(text, tmp_path):
    path = tmp_path / "theory.yaml"
    path.write_text(text)
    scenario = read_scenario(path)
    return check_theory(scenario, theory_cells(scenario, tmp_path))


@pytest.mark.slow
def test_residual_flows_are_counted_for_theorem_4(tmp_path):
    text = DATA + "network: {kind: residual, depth: 4, scale: 0.3}\n"
    results = checked(text + "theory: {subjects: [residual], repetitions: 3}\n", tmp_path)
    assert list(results.convergence) == [4]
    assert "3 of 3 flows converged" in results.convergence[4].note
    assert not results.failed


@pytest.mark.slow
def test_a_flow_depends_on_its_own_cell_alone(tmp_path):
    text = SMALL + "theory: {subjects: [rates], depths: DEPTHS, repetitions: 2}\n"
    alone, among = (checked(text.replace("DEPTHS", depths), tmp_path).flows for depths in ("[2]", "[3, 2]"))
    for one, other in zip(alone, among[2:], strict=True):
        assert one.repetition == other.repetition
        assert one.steps == other.steps
        np.testing.assert_array_equal(one.statements[1].smaller, other.statements[1].smaller)
    assert alone[0].condition != alone[1].condition  # of data of their own


@pytest.mark.slow
def test_a_statement_that_fails_is_exit_code_1(tmp_path, capsys):
    case = "{deviations: [4.0], scales: [3.0], widths: [60], depths: [20], initializations: 8}"
    assert run(SMALL + f"lemma_3: {case}\n", tmp_path) == 1
    (found,) = summary(tmp_path)["lemma_3"]
    assert found["verdict"] == "fails"
    assert found["interval"][0] > found["bound"]
    assert "fails" in capsys.readouterr().out


@pytest.mark.slow
def test_single_precision_is_checked_with_what_it_resolves(tmp_path):
    text = SMALL.replace("1.0e-3, zero_layer: 1", "0.5") + "precision: float32\ntheory: {}\n"
    (flow,) = checked(text, tmp_path).flows
    assert flow.outcome.converged
    assert not [statement.name for statement in flow.statements if statement.verdict is Verdict.FAILS]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("theory: {subjects: [residuals]}", "residual"),
        ("theory: {depths: [0]}", "at least 1"),
        ("theory: {conditions: [0.5]}", "at least 1"),
        ("theory: {depths: [2, 2]}", "2 twice"),
        ("lemma_3: {scales: [1.0], widths: [2], depths: [2]}", "deviations"),
        ("theory: {depths: [1, 3]}\nnetwork: {kind: mlp, depth: 3, scale: 0.1, zero_layer: 2}", "one of the 1 layers"),
        ("theory: {}\nnetwork: {kind: mlp, depth: 3, scale: 0.1, activation: gelu}", "a linear network"),
        ("network: {kind: mlp, depth: 3, scale: 0.1, activation: gelu, zero_layer: 1}", "activation: linear"),
        ("theory: {features: [2]}\ndata: {kind: file, path: some.csv, target: y}", "data that are drawn"),
        ("theory: {features: [2]}\ndata: {kind: gaussian, samples: 9, features: 3, outputs: 3}", "features: []"),
        ("data: {kind: gaussian, samples: 9, features: 1, condition: 4}", "one eigenvalue"),
    ],
)
def test_what_cannot_be_checked_is_refused_with_its_place(change, message, tmp_path, capsys):
    (tmp_path / "some.csv").write_text("a,b,y\n1,2,3\n4,5,6\n")
    sections = {line.split(":")[0]: line for line in (SMALL + change).splitlines()}
    assert run("\n".join(sections.values()), tmp_path) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()
