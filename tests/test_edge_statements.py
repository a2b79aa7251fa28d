"""Statements about descent at the edge of stability and its models, on made-up records."""

import numpy as np
import pytest
import xarray
from table_checks import check_fits

from flowsim.columns import FLOW, GRADIENT_DESCENT, Run, run_coordinates
from flowsim.comparison.edge_statements import AMPLITUDE, CENTRE_DISTANCE, LIMIT_FALLS, SHARPNESS_HELD, edge_statements
from flowsim.dynamics import Outcome
from flowsim.tables.statements import table_of_run_statements
from flowsim.theory import Verdict

ETA, EDGE = 0.1, 20.0
RISK = "mean excess risk"
STEPS = np.array([0, 1, 2, 5, 6, 7, 10, 11, 12, 20, 21, 22])
CENTRES = np.array([1, 4, 7, 10])
FLOWING, DESCENT, CENTRAL, MODEL = range(4)
NOTHING, ONES = np.full(len(STEPS), np.nan), np.ones(len(STEPS))


def at_centres(values):
    column = NOTHING.copy()
    column[CENTRES] = values
    return column


def made_up(**changes):
    """Return records of the flow, a descent and two models, with changes by name and run: `risk={CENTRAL: …}`.

    Descent comes to the edge at step 4, and swings with r = 0.1 at a mean excess risk of 1. Models are off by a tenth.
    """
    columns = {
        "time": [ETA * STEPS] * 4,
        "gradient_norm": [ONES, 2 * ONES, ONES, ONES],
        "risk": [3 + 0.01 * ONES, 4 * ONES, 4 * ONES, 4 * ONES],
        "excess_risk": [0.01 * ONES, ONES, ONES, ONES],
        "sharpness": [25 * ONES, 20 * ONES, EDGE * ONES, 19 * ONES],
        "oscillation": [NOTHING, at_centres(0.1), 0.11 * ONES, 0.11 * ONES],
        "mean_risk": [NOTHING, at_centres(4.0), 4.1 * ONES, 4.1 * ONES],
        "mean_excess_risk": [NOTHING, at_centres(1.0), 1.1 * ONES, 1.1 * ONES],
        "centre_distance": [NOTHING, at_centres(0.3), at_centres(0.03), at_centres(0.01)],
        "limit_sharpness": [NOTHING, NOTHING, NOTHING, NOTHING],
        "limit_sharpness_error": [NOTHING, NOTHING, NOTHING, NOTHING],
    }
    ends = {
        "records": [len(STEPS)] * 4,
        "outcome": [int(Outcome.CONVERGED), int(Outcome.STEP_LIMIT), int(Outcome.CONVERGED), int(Outcome.CONVERGED)],
        "end_time": [2.2] * 4,
        "crossing_time": [np.nan, 0.4, np.nan, np.nan],
        "held_within": [np.nan, np.nan, 1e-9, np.nan],
    }
    for name, rows in changes.items():
        for run, values in rows.items():
            (columns if name in columns else ends)[name][run] = values
    runs = [FLOW, Run(GRADIENT_DESCENT, ETA), Run("central", ETA), Run("edge", ETA)]
    variables = {name: (("run", "record"), np.stack(rows)) for name, rows in columns.items()}
    variables |= {name: ("run", np.array(values)) for name, values in ends.items()}
    return xarray.Dataset(variables, run_coordinates(runs))


def found(dataset):
    """Return the statements by the names of their runs and their own."""
    return {(about.run.method, one.name): one for about in edge_statements(dataset) for one in about.statements}


def test_a_model_is_judged_by_the_median_of_its_logarithmic_error_beside_that_of_the_gradient_flow():
    factors = np.array([7.0, 2.0, 0.5, 3.0])  # the first is from before the edge; of the others the median is ln 2
    made = found(made_up(mean_excess_risk={MODEL: at_centres(factors)}))["edge", RISK]
    assert made.verdict is Verdict.HOLDS
    assert made.sides == pytest.approx((np.log(2), np.log(100)), rel=1e-12)
    assert made.margin == pytest.approx(1 - np.log(2) / np.log(100), rel=1e-12)
    worse = found(made_up(mean_excess_risk={MODEL: at_centres(1e-3)}))["edge", RISK]
    assert worse.verdict is Verdict.FAILS
    assert worse.margin < 0


def test_the_risk_is_that_of_the_model_alone_without_an_oscillation_tiny_or_in_place_of_an_unknown_excess():
    own = {name: {MODEL: NOTHING} for name in ("oscillation", "mean_excess_risk", "mean_risk")}
    made = found(made_up(**own, excess_risk={MODEL: 0.5 * ONES}))
    assert made["edge", RISK].sides == pytest.approx((np.log(2), np.log(100)), rel=1e-12)
    tiny = {FLOWING: 1e-42 * ONES, MODEL: 1.1e-40 * ONES}
    made = found(made_up(excess_risk=tiny, mean_excess_risk={DESCENT: at_centres(1e-40), MODEL: tiny[MODEL]}))
    assert made["edge", RISK].sides == pytest.approx((np.log(1.1), np.log(100)), rel=1e-12)
    unknown = dict.fromkeys(range(4), NOTHING)
    made = found(made_up(mean_excess_risk=unknown, excess_risk=unknown))
    assert ("edge", RISK) not in made
    assert made["edge", "mean risk"].sides == pytest.approx((np.log(4.1 / 4), np.log(4 / 3.01)), rel=1e-12)


@pytest.mark.parametrize("left", [[0.1, 0.1], [1e-15, 1e-15], [1e-4, 1e-5]])
def test_an_oscillation_is_compared_with_none_at_all_and_what_died_out_or_rounding_left_is_left_out(left):
    made = made_up(oscillation={DESCENT: at_centres([0.1, 0.1, *left])})
    assert found(made)["edge", AMPLITUDE].sides == pytest.approx((0.1, 1.0))


def test_an_amplitude_that_is_not_predicted_is_no_statement_and_one_too_large_fails():
    for none in (0 * ONES, NOTHING):
        made = found(made_up(oscillation={MODEL: none}))["edge", AMPLITUDE]
        assert made.verdict is Verdict.NOT_APPLICABLE
        assert made.note == "not met: the model predicts an oscillation"
    thrice = found(made_up(oscillation={MODEL: 0.3 * ONES}))["edge", AMPLITUDE]
    assert (thrice.verdict, thrice.sides) == (Verdict.FAILS, pytest.approx((2.0, 1.0)))


def test_the_distance_is_that_at_the_last_time_that_flow_and_all_models_reach():
    made = made_up(
        centre_distance={MODEL: at_centres([0.4, 0.4, 0.02, 0.4]), CENTRAL: at_centres([0.1, 0.1, 0.1, np.nan])}
    )
    assert found(made)["edge", CENTRE_DISTANCE].sides == (0.02, 0.3)
    assert found(made)["edge", CENTRE_DISTANCE].margin == pytest.approx(1 - 0.02 / 0.3)
    assert "15 times nearer" in found(made)["edge", CENTRE_DISTANCE].note
    assert found(made_up(centre_distance={MODEL: at_centres(0.4)}))["edge", CENTRE_DISTANCE].verdict is Verdict.FAILS


def test_a_model_that_holds_the_sharpness_at_the_edge_is_measured_while_it_oscillates():
    def held(sharpness, oscillation=0.11):
        made = made_up(sharpness={CENTRAL: sharpness * ONES}, oscillation={CENTRAL: oscillation * ONES})
        return found(made)["central", SHARPNESS_HELD]

    one_off = np.where(np.arange(len(STEPS)) == 6, EDGE * (1 - 3e-9), EDGE)
    assert held(EDGE * (1 + 5e-10)).verdict is Verdict.HOLDS
    assert held(EDGE * (1 + 5e-10)).sides == pytest.approx((5e-10, 1e-9), rel=1e-6)
    assert held(one_off).verdict is Verdict.FAILS
    assert held(one_off, oscillation=np.where(np.arange(len(STEPS)) == 6, 0.0, 0.11)).verdict is Verdict.HOLDS
    from_beyond = np.where(np.arange(len(STEPS)) < 3, 1.5 * EDGE, EDGE)
    assert held(from_beyond).verdict is Verdict.HOLDS
    assert held(from_beyond[::-1]).verdict is Verdict.FAILS
    assert held(EDGE, oscillation=0.0).verdict is Verdict.NOT_APPLICABLE
    assert ("edge", SHARPNESS_HELD) not in found(made_up())


def test_below_the_edge_and_beyond_period_two_statements_about_models_do_not_apply_and_say_why():
    calm = made_up(crossing_time={DESCENT: np.nan}, sharpness={DESCENT: 15 * ONES})
    swinging = np.where(np.arange(len(STEPS)) % 3 == 1, 2.0, 1.2)
    beyond = made_up(gradient_norm={DESCENT: swinging})
    for made, reason in ((calm, "ηS reaches 2 along descent (at most 1.5"), (beyond, "(by 0.5 in the median)")):
        for name in (RISK, AMPLITUDE, CENTRE_DISTANCE):
            one = found(made)["edge", name]
            assert (one.verdict, one.sides) == (Verdict.NOT_APPLICABLE, (None, None))
            assert reason in one.note
    even = made_up(gradient_norm={DESCENT: np.maximum(swinging, 1.9)})
    assert found(even)["edge", RISK].verdict is Verdict.HOLDS


def test_nothing_holds_where_descent_was_not_followed_nor_of_a_model_that_did_not_get_as_far():
    unknown = np.append(NOTHING[1:], 20.0)
    made = found(made_up(crossing_time={DESCENT: np.nan}, sharpness={DESCENT: unknown}))
    assert {made["edge", name].verdict for name in (RISK, AMPLITUDE, CENTRE_DISTANCE)} == {Verdict.ASSUMPTION_NOT_MET}
    early = {"time": {MODEL: np.where(STEPS < 12, ETA * STEPS, 1.15)}, "outcome": {MODEL: int(Outcome.SOLVER_FAILED)}}
    one = found(made_up(**early))["edge", RISK]
    assert one.verdict is Verdict.ASSUMPTION_NOT_MET
    assert "SOLVER_FAILED" in one.unmet
    early["outcome"] = {MODEL: int(Outcome.CONVERGED)}  # where it stays for ever
    assert found(made_up(**early))["edge", RISK].verdict is Verdict.HOLDS
    asked = early | {"outcome": {MODEL: int(Outcome.TIME_LIMIT)}, "end_time": {MODEL: 1.15}}
    assert found(made_up(**asked))["edge", RISK].verdict is Verdict.HOLDS


def limits(values, errors=1e-6, crossing=0.4):
    made = made_up(
        limit_sharpness={DESCENT: at_centres(values)},
        limit_sharpness_error={DESCENT: at_centres(errors)},
        crossing_time={DESCENT: crossing},
    )
    return found(made)["GD", LIMIT_FALLS]


def test_the_sharpness_of_the_flows_limit_may_rise_by_its_error_in_all_and_no_more():
    assert limits([25, 23, 22, 20]).verdict is Verdict.HOLDS
    assert limits([25, 23, 22, 20]).margin == pytest.approx(1 / 23, rel=1e-5)
    assert "scalar networks" in limits([25, 23, 22, 20]).note
    assert limits([25, 23, 22, 22 + 1.9e-6]).verdict is Verdict.HOLDS
    assert limits([25, 23, 22, 22 + 2.1e-6]).verdict is Verdict.FAILS
    assert limits([25, 22, 22 + 1.9e-6, 22 + 3.8e-6]).verdict is Verdict.FAILS


def test_a_rise_of_the_limit_below_the_edge_is_told_and_does_not_fail_and_one_limit_is_too_few():
    below = limits([22, 24.2, 22, 20], crossing=1.0)
    assert below.verdict is Verdict.HOLDS
    assert "below the edge it rose, by 0.1 of itself" in below.note
    assert limits([22, 24.2, 22, 20], crossing=np.nan).verdict is not Verdict.HOLDS
    assert limits([25, 24, 23, 22], crossing=2.05).verdict is Verdict.ASSUMPTION_NOT_MET


def test_the_table_of_statements_and_what_it_says_below_fit_eighty_columns():
    failing, late = made_up(sharpness={CENTRAL: 30 * ONES}), made_up(crossing_time={DESCENT: np.nan})
    for dataset in (made_up(), failing, late):
        check_fits([table_of_run_statements(edge_statements(dataset), "a name")])


def test_without_models_and_limits_nothing_is_stated():
    plain = made_up().isel(run=[0, 1]).drop_vars(["centre_distance", "limit_sharpness", "limit_sharpness_error"])
    assert len(edge_statements(plain)) == 0
