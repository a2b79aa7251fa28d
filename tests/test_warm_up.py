"""Why warm-up (Kalra and Barkeshli 2024): the largest learning rates, the course of the sharpness, and their claims."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kalra_2024 import Course, Ramp, Tolerance, WarmUp, course_claims, largest_kept, tolerance_claims, tolerances

import flowsim
from flowsim import cli
from flowsim.theory.statement import Verdict

SHIPPED = Path(__file__).parents[1] / "papers" / "kalra_2024" / "warm_up.yaml"
WARM = "schedule: {kind: warm_up, time: 10.0, start: 0.001}"
FEW = [
    "descent.steps=1400",  # of which 1333 are of the warm-up
    "sharpness.records=100",
    "sweep.descent=[{learning_rates: {start: 0.004, stop: 2.0, count: 16, spacing: log}, steps: 300}, {learning_rates: "
    f"{{start: 0.03, stop: 2.1, count: 11, spacing: log}}, steps: 1000, {WARM}}}]",
    "sweep.repetitions=2",
]
HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.NOT_MEASURED


def tolerance(scale, medians, first, last):
    """Return what three starts tolerate: the median, a tenth less, and a tenth more."""
    largest, spread = np.outer(medians, [0.9, 1.0, 1.1]), np.ones(3)
    times = np.array([0.0, 1.0, 10.0, 100.0])
    return Tolerance(scale, times, np.full(4, 1.2), largest, 1, 60, first * spread, last * spread)


FLAT = tolerance(0.2, [0.8, 0.8, 0.8, 0.9], 1.5, 4.8)
SHARP = tolerance(1.0, [0.01, 0.03, 0.2, 0.6], 500.0, 250.0)


def verdicts(flat, sharp):
    return [claim.verdict for claim in tolerance_claims([flat, sharp])]


def test_the_claims_hold_where_warm_up_helps_a_sharp_start_alone_and_fail_or_are_not_measured_elsewhere():
    assert verdicts(FLAT, SHARP) == [HOLDS] * 5
    no_help = replace(SHARP, largest=SHARP.largest[[0, 0, 0, 0]])
    assert verdicts(FLAT, no_help) == [HOLDS, FAILS, FAILS, FAILS, FAILS]
    assert verdicts(FLAT, replace(SHARP, largest=SHARP.largest[[0, 2, 1, 3]]))[1] is FAILS
    for first in ([100.0] * 3, [1500.0] * 3, [300.0, 500.0, 900.0]):  # c < 1, c = 15, c = 2.7 to 9.9
        assert verdicts(FLAT, replace(SHARP, first=np.array(first)))[0] is FAILS
    assert verdicts(FLAT, replace(SHARP, last=SHARP.first / 100))[2] is FAILS  # the fall of the flow explains it
    unknown = SHARP.largest.copy()
    unknown[[0, -1], 1] = np.nan
    assert verdicts(FLAT, replace(SHARP, largest=unknown)) == [UNKNOWN] * 5
    assert verdicts(replace(FLAT, last=FLAT.first / 2), SHARP)[3] is UNKNOWN


def test_the_largest_rate_is_the_last_that_stays_though_a_smaller_one_may_diverge():
    lost = np.array([[0, 1, 0, 0], [0, 1, 0, 1], [1, 1, 0, 0], [1, 1, 0, 1]], bool)
    np.testing.assert_array_equal(largest_kept(np.array([1.0, 2.0, 3.0, 4.0]), lost), [2, np.nan, np.nan, 3])


def ramp(time, *, diverged=False, begins=40.0, power=1.0):
    """Return records of S that is `begins` until it meets the edge, and then falls with a `power` of it."""
    t = np.linspace(0, 2 * max(time, 1.0), 101)
    edge = 10 / np.sqrt(np.minimum(1, t / time + 1e-6)) if time else np.full_like(t, 10.0)
    return Ramp(time, diverged, t, begins * np.minimum(1, edge / begins) ** power, edge)


def test_the_sharpness_follows_the_edge_or_does_not():
    less = [ramp(time, diverged=True) for time in (3.0, 0.0)]
    for expected, ramps in [
        ([HOLDS, HOLDS], [ramp(100.0), *less]),
        ([FAILS, HOLDS], [ramp(100.0, power=0.0), *less]),
        ([FAILS, HOLDS], [ramp(100.0, power=0.7), *less]),
        ([UNKNOWN, HOLDS], [ramp(100.0, begins=5.0), *less]),  # never met
        ([UNKNOWN, HOLDS], [ramp(100.0, begins=15.0), *less]),  # late
        ([UNKNOWN, HOLDS], [ramp(100.0, power=1.3), *less]),
        ([HOLDS, FAILS], [ramp(100.0), less[0], ramp(0.0)]),
        ([UNKNOWN, FAILS], [ramp(100.0, diverged=True), *less]),
        ([HOLDS, UNKNOWN], [ramp(100.0)]),
    ]:
        assert [claim.verdict for claim in course_claims(ramps)] == expected


@pytest.mark.slow
def test_the_scenario_measures_them(tmp_path):
    assert cli.main([str(SHIPPED), *(f"--set={one}" for one in FEW), "--out", str(tmp_path), "--jobs", "1"]) == 0
    results = flowsim.open_results(tmp_path / "warm_up")
    flat, sharp = tolerances(results.required("sweep"))
    assert (flat.sharpens, sharp.sharpens, list(sharp.times)) == (True, False, [0.0, 10.0])
    assert sharp.gain > 3 * flat.gain > 2
    assert [claim.verdict for claim in WarmUp().claims(results)][:4] == [HOLDS] * 4
    assert [claim.verdict for claim in Course().claims(results)] == [HOLDS] * 2
    for figure in (WarmUp(), Course()):
        assert (tmp_path / "warm_up" / "figures" / f"{figure.name}.png").stat().st_size > 5000
