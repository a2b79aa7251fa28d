from functools import partial

import numpy as np
import pytest

from flowsim.theory import (
    LargeProducts,
    LargeProductsSample,
    Verdict,
    binomial_interval,
    large_products,
    sample_large_products,
)
from flowsim.theory.large_products import adversarial_displacement, extreme_singular_values

CASE = LargeProducts(deviation=1.0, scale=0.5, width=4, depth=6)


def draw(count, case=CASE):
    noise = np.random.default_rng(0).standard_normal((count, case.depth, case.width, case.width))
    return np.eye(case.width) + case.scale / np.sqrt(case.depth * case.width) * noise


def test_the_constants_are_those_of_the_slides():
    assert np.isclose(CASE.radius, np.exp(-4.5) / 64)
    assert np.isclose(CASE.norm_bound, 4 * np.exp(1.125))
    assert np.isclose(CASE.least_bound, np.exp(-0.125 - 1) / 4)
    assert np.isclose(CASE.failure_bound, 8 * np.exp(-0.5))


def test_extreme_singular_values_are_those_of_every_partial_product():
    weights = draw(3)
    norms, least = extreme_singular_values(weights)
    for n in range(3):
        product = np.eye(4)
        for k in range(6):
            product = weights[n, k] @ product
            values = np.linalg.svd(product)[1]
            np.testing.assert_allclose((norms[n, k], least[n, k]), (values[0], values[-1]), rtol=1e-12)


@pytest.mark.parametrize("widen", [True, False])
def test_the_adversary_stays_in_the_ball_and_does_better_than_chance(widen):
    weights, radius = draw(50), 0.3
    theta = adversarial_displacement(weights, radius, np.full(50, 5), widen=widen)
    np.testing.assert_allclose(np.linalg.norm(theta, 2, axis=(2, 3)), radius)
    chance = np.random.default_rng(1).standard_normal(theta.shape)
    chance *= radius / np.linalg.norm(chance, 2, axis=(2, 3), keepdims=True)
    column, sign = (0, 1) if widen else (1, -1)
    reached, by_chance, before = (
        sign * extreme_singular_values(weights + moved / 6)[column][:, -1] for moved in (theta, chance, 0 * theta)
    )
    assert np.all(reached > by_chance)
    assert np.all(reached > before)


def test_the_adversary_is_no_worse_than_a_search_over_the_ball():
    """σ is convex in each θ_j, so that for the largest the best of many random starts must not beat it by much."""
    weights = draw(1)
    theta = adversarial_displacement(weights, 0.3, np.array([5]), widen=True)
    u, v = np.random.default_rng(2).standard_normal((2, 300, 6, 4))
    rank_one = u[..., None] * v[..., None, :]
    rank_one *= 0.3 / np.linalg.norm(rank_one, axis=(2, 3), keepdims=True)
    reached, searched = (extreme_singular_values(weights + moved / 6)[0][:, -1] for moved in (theta, rank_one))
    assert reached.max() > searched.max()


def test_a_target_below_the_top_leaves_the_layers_above_alone():
    theta = adversarial_displacement(draw(4), 0.3, np.array([0, 2, 5, 3]), widen=True)
    moved = np.linalg.norm(theta, axis=(2, 3)) > 0
    np.testing.assert_array_equal(moved.sum(axis=1), [1, 3, 6, 4])


def test_the_ends_of_the_interval_are_where_the_count_is_in_a_tail_of_a_fortieth():
    """The definition of Clopper and Pearson, by SciPy's binomial distribution."""
    import scipy.stats

    for successes, trials in ((0, 50), (3, 50), (50, 50), (1, 100_000)):
        low, high = binomial_interval(successes, trials)
        assert low <= successes / trials <= high
        if successes > 0:
            np.testing.assert_allclose(scipy.stats.binom.sf(successes - 1, trials, low), 0.025, rtol=1e-9)
        if successes < trials:
            np.testing.assert_allclose(scipy.stats.binom.cdf(successes, trials, high), 0.025, rtol=1e-9)


def test_the_same_generator_gives_the_same_sample_however_it_is_cut(monkeypatch):
    sample = sample_large_products(CASE, 40, rng=np.random.default_rng(5))
    monkeypatch.setattr(large_products, "_batches", partial(large_products._batches, numbers=7 * 6 * 16))
    assert sample_large_products(CASE, 40, rng=np.random.default_rng(5)) == sample


def test_failures_are_counted_as_plain_numpy_counts_them():
    """At s = 2 many initializations break the bounds by themselves, whatever θ."""
    case = LargeProducts(deviation=0.1, scale=2.0, width=3, depth=5)
    sample = sample_large_products(case, 400, rng=np.random.default_rng(0))
    noise = np.random.default_rng(0).spawn(2)[0].standard_normal((400, 5, 3, 3))
    count = 0
    for matrices in np.eye(3) + 2 / np.sqrt(15) * noise:
        product, broken = np.eye(3), False
        for weight in matrices:
            product = weight @ product
            values = np.linalg.svd(product)[1]
            broken |= bool(values[0] > case.norm_bound or values[-1] < case.least_bound)
        count += broken
    assert 20 < count < 380
    assert abs(sample.random_failures - count) <= 4
    assert sample.failures >= max(count, sample.random_failures) - 1


def test_where_the_bound_means_something_it_holds_at_a_small_scale():
    case = LargeProducts(deviation=1.0, scale=0.25, width=10, depth=10)
    sample = sample_large_products(case, 80, rng=np.random.default_rng(0))
    assert sample.failures == 0
    assert sample.statement().verdict is Verdict.HOLDS


def test_the_verdict_needs_the_interval_on_one_side_of_the_bound():
    bounded, unbounded = LargeProducts(1.0, 0.25, 10, 10), LargeProducts(0.1, 0.5, 5, 5)
    for failures, total, case, verdict in (
        (0, 20, bounded, Verdict.ASSUMPTION_NOT_MET),  # 20 do not tell 0 from 0.05
        (0, 1000, bounded, Verdict.HOLDS),
        (900, 1000, bounded, Verdict.FAILS),
        (0, 1000, unbounded, Verdict.NOT_APPLICABLE),
    ):
        sample = LargeProductsSample(case, total, failures, failures, 1.0, 1.0)
        assert sample.statement().verdict is verdict


def test_impossible_cases_and_counts_are_refused():
    for successes, trials in ((-1, 3), (4, 3), (0, 0)):
        with pytest.raises(ValueError, match="successes"):
            binomial_interval(successes, trials)
    with pytest.raises(ValueError, match="u > 0"):
        LargeProducts(deviation=0.0, scale=1.0, width=2, depth=2)
    with pytest.raises(ValueError, match="one initialization"):
        sample_large_products(CASE, 0, rng=np.random.default_rng(0))
