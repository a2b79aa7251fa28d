"""Statements of the theory: what judges one, and scenarios that check them."""

import json

import numpy as np
import pytest

from flowsim import cli
from flowsim.scenarios import check_theory, read_scenario, theory_cells
from flowsim.theory import Assumption, Statement, Verdict, judge

MET = Assumption("given", True)
DATA = "data: {kind: gaussian, samples: 20, features: 3}\n"
SMALL = DATA + "network: {kind: mlp, depth: 2, scale: 1.0e-3, zero_layer: 1}\n"


def judged(smaller, larger, *, assumptions=(MET,), **options):
    return judge("Lemma", "a ≤ b", smaller, larger, assumptions=assumptions, **options)


def verdict(smaller, larger, **options):
    return judged(smaller, larger, **options).verdict


def test_the_smaller_side_may_at_no_record_pass_the_larger_by_more_than_rounding():
    for expected, sides in [
        (Verdict.HOLDS, [(1.0, 2.0), (1.0, 1.0), (1.0 + 1e-12, 1.0), ([1.0, 1.5, 1.0], 2.0)]),
        (Verdict.FAILS, [(1.0 + 1e-6, 1.0), (1e-30, 0.0), (-1.0, -2.0), ([1.0, 3.0, 1.0], 2.0)]),
        (Verdict.ASSUMPTION_NOT_MET, [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0)]),
    ]:
        assert [verdict(*each) for each in sides] == [expected] * len(sides)


def test_what_the_numerical_error_hides_neither_holds_nor_fails():
    hidden = judged(1.1, 1.0, error=0.2)
    assert hidden.verdict is Verdict.ASSUMPTION_NOT_MET
    assert "resolves" in hidden.unmet
    assert verdict(1.1, 1.0, error=0.01) is Verdict.FAILS
    assert verdict([1.1, 2.0], 1.0, error=0.2) is Verdict.FAILS


def test_nothing_holds_without_assumptions_or_on_one_that_is_not_met_or_not_checked():
    for assumption in (Assumption("full rank", met) for met in (False, None)):
        unmet = judged(1.0, 2.0, assumptions=[MET, assumption])
        assert unmet.verdict is Verdict.ASSUMPTION_NOT_MET
        assert "full rank" in unmet.unmet
        with pytest.raises(ValueError, match="not all checked"):
            Statement("Lemma", "a ≤ b", Verdict.HOLDS, assumptions=(assumption,))
    with pytest.raises(ValueError, match="not all checked"):
        Statement("Lemma", "a ≤ b", Verdict.HOLDS)
    with pytest.raises(ValueError, match="needs its assumptions"):
        judged(1.0, 2.0, assumptions=[])


def test_the_margin_is_that_of_the_tightest_record():
    for smaller, larger, margin in [([1, 0, 3], [2, 0, 4], 0.25), (1, np.inf, 1.0), (0, 0, 0.0), (4, 3, -0.25)]:
        assert judged(smaller, larger).margin == margin
    assert judged([1, 0, 3], [2, 0, 4]).sides == (3.0, 4.0)


def run(text, write, tmp_path):
    return cli.main([str(write(text)), "--out", str(tmp_path / "out")])


def summary(tmp_path):
    return json.loads((tmp_path / "out" / "scenario" / "summary.json").read_text())["theory"]


@pytest.mark.slow
def test_every_cell_of_the_grid_is_in_the_summary_the_table_and_the_figures(write, tmp_path, capsys):
    options = "{conditions: [1, 50], repetitions: 2, subjects: [minimizers, small_scale, residual]}"
    assert run(SMALL + f"theory: {options}\n", write, tmp_path) == 0
    flows = summary(tmp_path)["flows"]
    cells = {(flow["depth"], flow["condition"], flow["repetition"]) for flow in flows}
    assert cells == {(2, c, r) for c in (1.0, 50.0) for r in (0, 1)}
    assert {flow["outcome"] for flow in flows} == {"CONVERGED"}
    for flow in flows:
        statements = {statement["name"]: statement for statement in flow["statements"]}
        corollary = statements["Corollary 2"]
        assert corollary["verdict"] == "holds"
        assert corollary["larger"] == pytest.approx(4 * flow["condition"], rel=1e-9)
        assert corollary["margin"] > 0
        assert {assumption["met"] for assumption in corollary["assumptions"]} == {True}
        assert statements["Theorem 4"]["verdict"] == "not applicable"
    for name in ("theory", "conditioning"):
        assert (tmp_path / "out" / "scenario" / "figures" / f"{name}.png").stat().st_size > 5000
    printed = capsys.readouterr().out
    assert "Lemma 8, upper" not in printed
    assert "4 hold" in printed


def checked(path):
    scenario = read_scenario(path)
    return check_theory(scenario, theory_cells(scenario, path.parent))


@pytest.mark.slow
def test_residual_flows_are_counted_for_theorem_4(write):
    text = DATA + "network: {kind: residual, depth: 4, scale: 0.3}\n"
    results = checked(write(text + "theory: {subjects: [residual], repetitions: 3}\n"))
    assert list(results.convergence) == [4]
    assert "3 of 3 flows converged" in results.convergence[4].note
    assert not results.failed


@pytest.mark.slow
def test_a_flow_depends_on_its_own_cell_alone(write):
    text = SMALL + "theory: {subjects: [rates], depths: DEPTHS, repetitions: 2}\n"
    alone, among = (checked(write(text.replace("DEPTHS", depths))).flows for depths in ("[2]", "[3, 2]"))
    for one, other in zip(alone, among[2:], strict=True):
        assert one.repetition == other.repetition
        assert one.steps == other.steps
        np.testing.assert_array_equal(one.statements[1].smaller, other.statements[1].smaller)
    assert alone[0].condition != alone[1].condition  # of data of their own


@pytest.mark.slow
def test_a_statement_that_fails_is_exit_code_1(write, tmp_path, capsys):
    case = "{deviations: [4.0], scales: [3.0], widths: [60], depths: [20], initializations: 8}"
    assert run(SMALL + f"lemma_3: {case}\n", write, tmp_path) == 1
    (lemma,) = summary(tmp_path)["lemma_3"]
    assert lemma["verdict"] == "fails"
    assert lemma["interval"][0] > lemma["bound"]
    assert "fails" in capsys.readouterr().out


@pytest.mark.slow
def test_single_precision_is_checked_with_what_it_resolves(write):
    text = SMALL.replace("1.0e-3, zero_layer: 1", "0.5") + "precision: float32\ntheory: {}\n"
    (flow,) = checked(write(text)).flows
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
        ("theory: {features: [2]}\ndata: {kind: file, path: table.csv, target: y}", "data that are drawn"),
        ("theory: {features: [2]}\ndata: {kind: gaussian, samples: 9, features: 3, outputs: 3}", "features: []"),
        ("data: {kind: gaussian, samples: 9, features: 1, condition: 4}", "one eigenvalue"),
    ],
)
def test_what_cannot_be_checked_is_refused_with_its_place(change, message, write, tmp_path, capsys):
    sections = {line.split(":")[0]: line for line in (SMALL + change).splitlines()}
    assert run("\n".join(sections.values()), write, tmp_path) == 2
    error = capsys.readouterr().err
    assert message in error
    assert not (tmp_path / "out").exists()
