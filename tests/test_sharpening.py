"""What is recorded of progressive sharpening and of self-stabilization."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import chebyshev

import flowsim
from flowsim.cli import main
from flowsim.probes import Label, Moment, SelfStabilization, Sharpening
from flowsim.results.trajectories import trajectories_of

NODES, END = 64, 1.0
TARGET = 0.5
SCENARIO = """\
seed: 0
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 2, scale: 0.6}
flow: {t1: 0.3}
descent: {learning_rates: []}
record: [sharpening, self_stabilization]
"""


@eqx.filter_jit
def _measured(network):
    problem = flowsim.LinearRegression(np.ones((1, 1)), np.full(1, TARGET))
    moment = Moment(network, problem, None, jnp.zeros(()), jnp.zeros(()))
    return Sharpening().measure(moment) | SelfStabilization().measure(moment)


def measured(product):
    """What both probes measure of two balanced layers of one weight, w₁w₂ = `product`, beside (w₁w₂ − ½)²."""
    return _measured(flowsim.DeepLinear([np.full((1, 1), product**0.5)] * 2))


@pytest.mark.parametrize("product", [0.3, 0.45, 0.7])
def test_sharpening_and_self_stabilization_of_balanced_scalar_layers_have_closed_forms(product):
    """u = w² has du/dt = 4u(t − u), and S = 2(3u − t) where u > t/2, so dS/dt = α = 24u(t − u).

    ∇S = 6w (1, 1), along which ∇R is too, so β = 72u, and δ² = 2α/β = ⅔(t − u) where anything sharpens.
    """
    found, rate = measured(product), 24 * product * (TARGET - product)
    np.testing.assert_allclose(found["rate"], rate, rtol=1e-12)
    np.testing.assert_allclose(found["cosine"], -np.sign(rate), rtol=1e-12)
    np.testing.assert_allclose(found["alpha"], rate, rtol=1e-12)
    np.testing.assert_allclose(found["beta"], 72 * product, rtol=1e-12)
    np.testing.assert_allclose(found["delta"], np.sqrt(2 / 3 * (TARGET - product)) if rate > 0 else np.nan, rtol=1e-12)


def test_where_the_sharpness_has_no_derivative_nothing_is_recorded():
    """At w₁w₂ = t/2 both eigenvalues are t."""
    assert all(np.isnan(value) for value in measured(TARGET / 2).values())


@pytest.fixture(scope="module")
def flow(problem):
    """A flow that flattens and sharpens, recorded at the nodes of a Clenshaw–Curtis rule."""
    network = flowsim.DeepLinear.gaussian(widths=[5, 5, 5, 1], scale=0.4, key=jax.random.key(1))
    ts = END * (1 - np.cos(np.pi * np.arange(NODES + 1) / NODES)) / 2
    options = {"ts": ts, "t1": END, "rtol": 1e-10, "atol": 1e-13}
    return flowsim.integrate(network, problem, probes=[Sharpening()], sharpness=True, **options)


def clenshaw_curtis(values):
    """The integral over the time of a flow of what is given at the extrema of a Chebyshev polynomial."""
    degree = len(values) - 1
    places = -np.cos(np.pi * np.arange(degree + 1) / degree)
    moments = [0.0 if power % 2 else 2 / (1 - power**2) for power in range(degree + 1)]
    return END / 2 * np.linalg.solve(chebyshev.chebvander(places, degree).T, moments) @ values


@pytest.mark.slow
def test_the_integral_of_the_rate_is_the_change_of_the_sharpness(flow):
    """The rate is analytic where S is simple, so the error of the rule falls geometrically with the nodes (Trefethen
    2008, theorem 5.1): it is less than what leaving out every second node changes. The flow adds some 1e-9.
    """
    rate, sharpness = np.asarray(flow.diagnostics["sharpening"]["rate"]), np.asarray(flow.sharpness)
    assert len(rate) == NODES + 1
    assert rate[0] < -50
    assert rate[-1] > 0
    fine, coarse, change = clenshaw_curtis(rate), clenshaw_curtis(rate[::2]), sharpness[-1] - sharpness[0]
    assert abs(change) > 1
    assert abs(fine - coarse) < 1e-7 * abs(change)
    np.testing.assert_allclose(fine, change, rtol=1e-6)


@pytest.mark.slow
def test_each_number_of_a_probe_has_a_column_with_its_own_label(flow):
    stored = trajectories_of(flow, [])
    assert stored["sharpening_rate"].attrs["symbol"] != stored["sharpening_cosine"].attrs["symbol"]
    assert "dS/dt" in stored["sharpening_rate"].attrs["long_name"]
    np.testing.assert_array_equal(stored["sharpening_cosine"][0], flow.diagnostics["sharpening"]["cosine"])
    assert "sharpening" not in stored


def test_a_column_without_a_part_of_its_name_has_the_label_of_the_probe():
    label = Label("size", "sizes", "s", parts=(Label("size_first", "first size", "s_1"),))
    assert [label.of(name).meaning for name in ("size_first", "size_last")] == ["first size", "sizes"]


@pytest.mark.slow
def test_a_scenario_records_stores_and_draws_them(tmp_path, capsys):
    (tmp_path / "s.yaml").write_text(SCENARIO)
    assert main([str(tmp_path / "s.yaml"), "--out", str(tmp_path), "--jobs", "1"]) in (0, 1)
    assert "sharpening_rate: rate at which the sharpness changes" in capsys.readouterr().out
    runs = flowsim.open_results(tmp_path / "s").trajectories
    count = int(runs["records"][0])
    rate, alpha = (runs[name][0, :count] for name in ("sharpening_rate", "self_stabilization_alpha"))
    np.testing.assert_allclose(rate, alpha, rtol=1e-9)
    for name in [part.name for probe in (Sharpening(), SelfStabilization()) for part in probe.label.parts]:
        assert (tmp_path / "s" / "figures" / f"{name}.png").stat().st_size > 5000
