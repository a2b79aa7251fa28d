"""Progressive sharpening and self-stabilization: their probes, and the course, figure and claims of Marion (2024)."""

from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from marion_2024 import COLUMNS, SharpnessCourse, SharpnessCurve, cell_medians, curves_of, sharpening, sharpening_claims
from numpy.polynomial import chebyshev

import flowsim
from flowsim import cli
from flowsim.columns import trajectories_of
from flowsim.probes import Label, Moment, SelfStabilization, Sharpening

SHIPPED = Path(__file__).parents[1] / "papers" / "marion_2024" / "sharpening.yaml"
NODES, END = 64, 1.0
TARGET, RECORDS = 0.5, 24
SMALL = ["sweep.over={network.depth: [2], network.scale: [0.1, 0.6]}", "sweep.repetitions=2"]
SMALL += [f'record=[{{kind: "marion_2024:SharpnessCourse", records: {RECORDS}}}]']


def moment_of(product):
    """Two balanced layers of one weight, w₁w₂ = `product`, beside (w₁w₂ − ½)²."""
    network = flowsim.DeepLinear([jnp.full((1, 1), product**0.5)] * 2)
    problem = flowsim.LinearRegression(np.ones((1, 1)), np.full(1, TARGET))
    return Moment(network, problem, None, jnp.zeros(()), jnp.zeros(()))


@eqx.filter_jit
def measured(product):
    moment = moment_of(product)
    return Sharpening().measure(moment) | SelfStabilization().measure(moment)


@eqx.filter_jit
def course_from(product):
    return SharpnessCourse(records=RECORDS).measure(moment_of(product))


def test_sharpening_and_self_stabilization_of_balanced_scalar_layers_have_closed_forms():
    """u = w² has du/dt = 4u(t − u), and S = 2(3u − t) where u > t/2, so dS/dt = α = 24u(t − u).

    ∇S = 6w (1, 1), along which ∇R is too, so β = 72u, and δ² = 2α/β = ⅔(t − u) where anything sharpens.
    """
    for u in jnp.array([0.3, 0.45, 0.7]):
        numbers, rate = measured(u), 24 * u * (TARGET - u)
        expected = {"rate": rate, "cosine": -np.sign(rate), "alpha": rate, "beta": 72 * u}
        expected["delta"] = np.sqrt(2 / 3 * (TARGET - u)) if rate > 0 else np.nan
        for name, value in expected.items():
            np.testing.assert_allclose(numbers[name], value, rtol=1e-12, err_msg=name)
    # At u = t/2 both eigenvalues are t, and the sharpness has no derivative.
    assert all(np.isnan(value) for value in measured(jnp.array(TARGET / 2)).values())


@pytest.mark.slow
def test_the_integral_of_the_rate_is_the_change_of_the_sharpness(problem):
    """The rate is analytic where S is simple, so the error of the rule falls geometrically with the nodes (Trefethen
    2008, theorem 5.1): it is less than what leaving out every second node changes. The flow adds some 1e-9.
    """
    places = -np.cos(np.pi * np.arange(NODES + 1) / NODES)  # extrema of a Chebyshev polynomial

    def integral_of(values, places):
        degree = len(values) - 1
        moments = [0.0 if power % 2 else 2 / (1 - power**2) for power in range(degree + 1)]
        return END / 2 * np.linalg.solve(chebyshev.chebvander(places, degree).T, moments) @ values

    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 5, 1], scale=0.4, key=jax.random.key(1))
    options = {"ts": END * (1 + places) / 2, "t1": END, "rtol": 1e-10, "atol": 1e-13}
    flow = flowsim.integrate(network, problem, probes=[Sharpening()], sharpness=True, **options)
    rate, sharpness = np.asarray(flow.diagnostics["sharpening"]["rate"]), np.asarray(flow.sharpness)
    assert len(rate) == NODES + 1
    assert rate[0] < -50
    assert rate[-1] > 0
    fine, coarse, change = integral_of(rate, places), integral_of(rate[::2], places[::2]), sharpness[-1] - sharpness[0]
    assert abs(change) > 1
    assert abs(fine - coarse) < 1e-7 * abs(change)
    np.testing.assert_allclose(fine, change, rtol=1e-6)

    # Each number of the probe has a column with its own label.
    stored = trajectories_of(flow, []).to_xarray()
    assert stored["sharpening_rate"].attrs["symbol"] != stored["sharpening_cosine"].attrs["symbol"]
    assert "dS/dt" in stored["sharpening_rate"].attrs["long_name"]
    np.testing.assert_array_equal(stored["sharpening_cosine"][0], flow.diagnostics["sharpening"]["cosine"])
    assert "sharpening" not in stored


def test_a_column_without_a_part_of_its_name_has_the_label_of_the_probe():
    label = Label("size", "sizes", "s", parts=(Label("size_first", "first size", "s_1"),))
    assert [label.of(name).meaning for name in ("size_first", "size_last")] == ["first size", "sizes"]


@pytest.mark.slow
def test_a_scenario_records_stores_and_draws_them(write, tmp_path):
    scenario = "seed: 0\ndata: {kind: gaussian, samples: 20, features: 3}\nnetwork: {kind: mlp, depth: 2, scale: 0.6}\n"
    scenario += "flow: {t1: 0.1}\ndescent: {learning_rates: []}\nrecord: [sharpening, self_stabilization]\n"
    assert cli.main([str(write(scenario)), "--out", str(tmp_path), "--jobs", "1"]) in (0, 1)
    runs = flowsim.open_results(tmp_path / "scenario").trajectories.isel(run=0)
    rate, alpha = (runs[name][: int(runs["records"])] for name in ("sharpening_rate", "self_stabilization_alpha"))
    np.testing.assert_allclose(rate, alpha, rtol=1e-9)
    for part in (*Sharpening().label.parts, *SelfStabilization().label.parts):
        assert (tmp_path / "scenario" / "figures" / f"{part.name}.png").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.parametrize("product", [0.05, 0.26, 0.9])
def test_the_course_of_balanced_scalar_layers_has_its_closed_form(product):
    """S = 2(t − u) up to u = t/2, along (1, −1), and then 2(3u − t), along (1, 1), as the overlap says."""
    flow = jax.tree.map(np.asarray, course_from(jnp.array(product)))
    known = np.isfinite(flow["time"])
    assert 10 < known.sum() <= RECORDS + 1
    assert all(np.isnan(column[~known]).all() for column in flow.values())
    flow = {name: column[known] for name, column in flow.items()}
    grown = product * np.exp(4 * TARGET * flow["time"])
    u = TARGET * grown / (TARGET - product + grown)  # of du/dt = 4u(t − u)
    below = u < TARGET / 2
    sharpness = np.where(below, 2 * (TARGET - u), 2 * (3 * u - TARGET))
    turns = below[:-1] & ~below[1:]
    assert turns.sum() == (product == 0.05)
    np.testing.assert_allclose(flow["risk"], (u - TARGET) ** 2, atol=1e-8)
    np.testing.assert_allclose(flow["sharpness"], sharpness, rtol=1e-7)
    np.testing.assert_allclose(flow["rate"], np.where(below, -8, 24) * u * (TARGET - u), atol=1e-7)
    np.testing.assert_allclose(flow["gained"][1:][~turns], np.diff(sharpness)[~turns], atol=1e-7)
    np.testing.assert_allclose(flow["overlap"][1:][~turns], 1, rtol=1e-9)
    assert (flow["overlap"][1:][turns] < 0.5).all()
    assert all(np.isnan(column).all() for column in course_from(jnp.array(TARGET)).values())  # no time passes


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
    off = replace(deep, gained=deep.gained * (1 + 1e-5))
    for number, broken in [
        (0, [shallow, flat, off, last]),
        (1, [replace(shallow, sharpness=shallow.sharpness[::-1]), flat, deep, last]),
        (1, [shallow, replace(shallow, scale=0.5), deep, last]),
        (2, [course(2, 0.1), flat, course(5, 0.1), last]),
        (3, [shallow, course(2, 0.5, rise=3.0), deep, last]),
        (4, [shallow, flat, replace(shallow, depth=5), last]),
        (5, [replace(one, rate=one.rate[[3, 1, 2, 0, 4]]) for one in good()]),
    ]:
        assert sharpening_claims(broken)[number].holds is False, number
    turned = replace(off, overlap=np.array([np.nan, 0.1, 0.1, 0.1, 0.1]))
    excused = sharpening_claims([shallow, flat, turned, last])[0]
    assert (excused.holds, excused.numbers["turns"]) == (True, 4)
    assert [claim.holds for claim in sharpening_claims([])] == [None] * 6


def test_courses_are_read_from_the_starts_of_a_sweep_without_their_padding():
    """In a sweep of two depths and two scales one flow did not move; NaN stands behind the last record."""
    dims, shape = ("depth", "scale", "repetition", "place"), (2, 2, 1, 4)
    values = np.arange(1.0, 17).reshape(shape)
    values[..., 3] = np.nan
    values[1, 1] = np.nan
    table = {f"initial_course_{name}": ((*dims[:3], name), 10.0**k * values) for k, name in enumerate(COLUMNS)}
    curves = curves_of(xarray.Dataset(table, {"depth": [2, 5], "scale": [0.1, 0.6], "repetition": [0]}))
    assert [(one.depth, one.scale) for one in curves] == [(2, 0.1), (2, 0.6), (5, 0.1)]
    np.testing.assert_array_equal(curves[1].time, [5, 6, 7])
    np.testing.assert_allclose(curves[2].overlap, [9e5, 10e5, 11e5], rtol=1e-12)


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
    claims = results.summary["claims"]
    assert len(claims) == 6
    assert [claims[number]["holds"] for number in (0, 1, 3)] == [True] * 3
    assert len(curves_of(results.required("sweep"))) == 4
    assert (tmp_path / "sharpening" / "figures" / "sharpening.png").stat().st_size > 5000
