import numpy as np
import pytest

from flowsim.theory import Assumption, Statement, Verdict, judge

MET = Assumption("given", True)


def verdict(smaller, larger, **options):
    return judge("Lemma", "a ≤ b", smaller, larger, assumptions=[MET], **options).verdict


@pytest.mark.parametrize(
    ("expected", "sides"),
    [
        (Verdict.HOLDS, [(1.0, 2.0), (1.0, 1.0), (1.0 + 1e-12, 1.0), ([1.0, 1.5, 1.0], 2.0)]),
        (Verdict.FAILS, [(1.0 + 1e-6, 1.0), (1e-30, 0.0), (-1.0, -2.0), ([1.0, 3.0, 1.0], 2.0)]),
        (Verdict.ASSUMPTION_NOT_MET, [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0)]),
    ],
    ids=str,
)
def test_the_smaller_side_may_at_no_record_pass_the_larger_by_more_than_rounding(expected, sides):
    assert [verdict(*each) for each in sides] == [expected] * len(sides)


def test_what_the_numerical_error_hides_neither_holds_nor_fails():
    hidden = judge("Lemma", "a ≤ b", 1.1, 1.0, assumptions=[MET], error=0.2)
    assert hidden.verdict is Verdict.ASSUMPTION_NOT_MET
    assert "resolves" in hidden.unmet
    assert verdict(1.1, 1.0, error=0.01) is Verdict.FAILS
    assert verdict([1.1, 2.0], 1.0, error=0.2) is Verdict.FAILS


@pytest.mark.parametrize("met", [False, None])
def test_nothing_holds_on_an_assumption_that_is_not_met_or_not_checked(met):
    found = judge("Lemma", "a ≤ b", 1.0, 2.0, assumptions=[MET, Assumption("full rank", met)])
    assert found.verdict is Verdict.ASSUMPTION_NOT_MET
    assert "full rank" in found.unmet
    with pytest.raises(ValueError, match="not all checked"):
        Statement("Lemma", "a ≤ b", Verdict.HOLDS, assumptions=(Assumption("full rank", met),))


def test_nothing_holds_without_assumptions():
    with pytest.raises(ValueError, match="not all checked"):
        Statement("Lemma", "a ≤ b", Verdict.HOLDS)
    with pytest.raises(ValueError, match="needs its assumptions"):
        judge("Lemma", "a ≤ b", 1.0, 2.0, assumptions=[])


def test_the_margin_is_that_of_the_tightest_record():
    found = judge("Lemma", "a ≤ b", [1.0, 0.0, 3.0], [2.0, 0.0, 4.0], assumptions=[MET])
    assert found.margin == 0.25
    assert found.sides == (3.0, 4.0)
    assert judge("Lemma", "a ≤ b", 1.0, np.inf, assumptions=[MET]).margin == 1.0
    assert judge("Lemma", "a ≤ b", 0.0, 0.0, assumptions=[MET]).margin == 0.0
    assert judge("Lemma", "a ≤ b", 4.0, 3.0, assumptions=[MET]).margin == -0.25
