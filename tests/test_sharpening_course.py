"""Progressive sharpening over scale and depth: the course of the sharpness, the figure, its claims, the scenario."""

import dataclasses
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from marion_2024 import (
    COLUMNS,
    Sharpening,
    SharpnessCourse,
    SharpnessCurve,
    cell_medians,
    curves_of,
    sharpening,
    sharpening_claims,
)

import flowsim
from flowsim import cli
from flowsim.probes import Moment
from flowsim.scenarios import ScenarioError, parse_overrides, read_scenario

SHIPPED = Path(__file__).parents[1] / "papers" / "marion_2024" / "sharpening.yaml"
TARGET, RECORDS = 0.5, 24
SMALL = ["sweep.over={network.depth: [2], network.scale: [0.1, 0.6]}", "sweep.repetitions=2"]
SMALL += [f'record=[{{kind: "marion_2024:SharpnessCourse", records: {RECORDS}}}]']


@eqx.filter_jit
def measured(network, problem):
    moment = Moment(network, problem, None, jnp.zeros(()), jnp.zeros(()))
    return SharpnessCourse(records=RECORDS).measure(moment)


def from_product(product):
    """The course of two balanced layers of one weight, w₁w₂ = `product` at first, beside (w₁w₂ − ½)²."""
    network = flowsim.DeepLinear([np.full((1, 1), product**0.5)] * 2)
    found = measured(network, flowsim.LinearRegression(np.ones((1, 1)), np.full(1, TARGET)))
    return {name: np.asarray(column) for name, column in found.items()}


def exact_product(product, time):
    """The solution of du/dt = 4u(t − u)."""
    grown = product * np.exp(4 * TARGET * time)
    return TARGET * grown / (TARGET - product + grown)


@pytest.mark.slow
@pytest.mark.parametrize("product", [0.26, 0.9])
def test_the_course_of_balanced_scalar_layers_has_its_closed_form(product):
    """S = 2(3u − t) where u > t/2, and dS/dt = 24u(t − u)."""
    found = from_product(product)
    known = np.isfinite(found["time"])
    assert 10 < known.sum() <= RECORDS + 1
    u = exact_product(product, found["time"][known])
    np.testing.assert_allclose(found["risk"][known], (u - TARGET) ** 2, atol=1e-8)
    np.testing.assert_allclose(found["sharpness"][known], 2 * (3 * u - TARGET), rtol=1e-7)
    np.testing.assert_allclose(found["rate"][known], 24 * u * (TARGET - u), atol=1e-7)
    np.testing.assert_allclose(found["gained"][known][1:], np.diff(6 * u), atol=1e-7)
    np.testing.assert_allclose(found["overlap"][known][1:], 1, rtol=1e-9)
    assert all(np.isnan(column[~known]).all() for column in found.values())


@pytest.mark.slow
def test_where_another_eigenvector_takes_over_the_overlap_says_so():
    """From u below t/2 on S = 2(t − u), along (1, −1), up to u = t/2, and then 2(3u − t), along (1, 1)."""
    found = from_product(0.05)
    known = np.isfinite(found["time"])
    u = exact_product(0.05, found["time"][known])
    np.testing.assert_allclose(found["sharpness"][known], np.maximum(2 * (TARGET - u), 2 * (3 * u - TARGET)), rtol=1e-7)
    passed = np.flatnonzero((u[:-1] < TARGET / 2) & (u[1:] >= TARGET / 2))
    np.testing.assert_array_equal(np.flatnonzero(found["overlap"][known][1:] < 0.5), passed)
    assert len(passed) == 1
    at_limit = from_product(TARGET)  # no time passes
    assert all(np.isnan(column).all() for column in at_limit.values())


def test_a_course_of_too_few_records_is_refused():
    with pytest.raises(ValueError, match="records is 3: expected 4 or more"):
        SharpnessCourse(records=3)


def course(depth, scale, *, rise=5.0, first=-0.1):
    """A flow whose sharpness falls by `first` and then rises to `rise`, as the risk falls from one to zero."""
    fallen = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
    sharpness = np.array([1.0, 1 + first, rise / 2, rise * 0.9, rise])
    gained = np.append(np.nan, np.diff(sharpness))
    rate = np.array([first, 0.1, 0.5, 1.0, 0.0]) * np.sign(rise - 1)
    overlap = np.append(np.nan, np.ones(4))
    return SharpnessCurve(depth, scale, np.arange(5.0), 1 - fallen, sharpness, rate, gained, overlap)


def good():
    """Courses of which every claim holds, that about the start too."""
    rises = {(2, 0.1): 2.0, (2, 0.5): 0.5, (5, 0.1): 9.0, (5, 0.5): 0.5}
    return [course(depth, scale, rise=rise, first=0.05) for (depth, scale), rise in rises.items()]


def test_a_course_is_summed_up_by_its_rise_and_where_it_is_fastest():
    one = course(2, 0.1)
    assert (one.rise, one.sharpens, one.fallen_at_peak) == (5.0, True, 0.9)
    assert (course(2, 0.1, rise=0.5).rise, course(2, 0.1, rise=0.5).sharpens) == (1.0, False)
    np.testing.assert_allclose(one.errors, 0, atol=1e-15)
    assert cell_medians([one, course(2, 0.1, rise=7.0)], lambda c: c.rise) == {2: {0.1: 6.0}}


def test_every_claim_fails_where_the_courses_say_otherwise():
    assert [claim.holds for claim in sharpening_claims(good())] == [True] * 6
    shallow, flat, deep, last = good()
    wrong, turned = deep.gained * (1 + 1e-5), np.array([np.nan, 0.1, 0.1, 0.1, 0.1])
    off = dataclasses.replace(deep, gained=wrong)
    for number, broken in [
        (0, [shallow, flat, off, last]),
        (1, [dataclasses.replace(shallow, sharpness=shallow.sharpness[::-1]), flat, deep, last]),
        (1, [shallow, dataclasses.replace(shallow, scale=0.5), deep, last]),
        (2, [course(2, 0.1), flat, course(5, 0.1), last]),
        (3, [shallow, course(2, 0.5, rise=3.0), deep, last]),
        (4, [shallow, flat, dataclasses.replace(shallow, depth=5), last]),
        (5, [dataclasses.replace(one, rate=one.rate[[3, 1, 2, 0, 4]]) for one in good()]),
    ]:
        assert sharpening_claims(broken)[number].holds is False, number
    excused = sharpening_claims([shallow, flat, dataclasses.replace(off, overlap=turned), last])[0]
    assert excused.holds is True
    assert excused.numbers["turns"] == 4
    assert [claim.holds for claim in sharpening_claims([])] == [None] * 6


def stored():
    """A sweep of two depths and two scales, in which one flow did not move; a number stands behind the last record."""
    dims, shape = ("depth", "scale", "repetition", "place"), (2, 2, 1, 4)
    values = np.arange(1.0, 17).reshape(shape)
    values[..., 3] = np.nan
    values[1, 1] = np.nan
    table = {f"initial_course_{name}": ((*dims[:3], name), 10.0**k * values) for k, name in enumerate(COLUMNS)}
    return xarray.Dataset(table, {"depth": [2, 5], "scale": [0.1, 0.6], "repetition": [0]})


def test_courses_are_read_from_the_starts_of_a_sweep_without_their_padding():
    found = curves_of(stored())
    assert [(one.depth, one.scale) for one in found] == [(2, 0.1), (2, 0.6), (5, 0.1)]
    np.testing.assert_array_equal(found[1].time, [5, 6, 7])
    np.testing.assert_allclose(found[2].overlap, [9e5, 10e5, 11e5], rtol=1e-12)


def test_the_figure_shows_each_scale_at_the_middle_depth_and_every_depth():
    upper, middle, lower = sharpening(good()).axes
    assert len(upper.lines) == 2  # scales
    assert len(middle.lines) == 3  # and zero
    assert [text.get_text() for text in lower.get_legend().get_texts()] == ["L = 2", "L = 5"]
    np.testing.assert_allclose(lower.lines[1].get_ydata(), [2.0, good()[1].rise], rtol=1e-12)


@pytest.mark.slow
def test_the_scenario_measures_the_courses_and_judges_them(tmp_path, capsys):
    options = [f"--set={setting}" for setting in SMALL]
    assert cli.main([str(SHIPPED), *options, "--out", str(tmp_path), "--jobs", "1"]) == 0
    assert "course_time" not in capsys.readouterr().out  # at a limit there is none
    results = flowsim.open_results(tmp_path / "sharpening")
    claims = Sharpening().claims(results)
    assert [claims[number].holds for number in (0, 1, 3)] == [True] * 3
    assert len(results.summary["claims"]) == 6
    assert len(curves_of(results.required("sweep"))) == 4
    assert (tmp_path / "sharpening" / "figures" / "sharpening.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sweep.over={network.scale: [0.3]}", "no sweep over depth and scale alone"),
        ("record=[]", "no course of the sharpness"),
    ],
)
def test_the_figure_refuses_what_it_is_not_about(setting, message):
    with pytest.raises(ScenarioError, match=message):
        read_scenario(SHIPPED, parse_overrides([setting]))
