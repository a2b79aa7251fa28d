"""What `check` says before a run: the same errors, nothing run or written, and numbers that are those of the run."""

import importlib
import re
from pathlib import Path

import diffrax
import jax
import pytest

import flowsim
from flowsim import cli
from flowsim.cli.estimate import Pace, estimate, measure_pace
from flowsim.cli.jobs import read_jobs
from flowsim.cli.options import parser
from flowsim.dynamics import GradientFlow
from flowsim.solvers.solver import memory_of
from flowsim.sweeps import BlockStore, scenario_blocks

SMALL = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
descent: {learning_rates: [0.05, 0.1], steps: 300}
"""
SWEPT = """
data: {kind: gaussian, samples: 20, features: 3}
network: {kind: mlp, depth: 3, scale: 0.5}
sweep:
  over: {network.scale: [0.3, 0.5, 0.7]}
  repetitions: 4
  descent: [{learning_rates: [0.05, 0.1], steps: 3000}]
"""
PACE = Pace(gradient=1e-3, compilation=0.5)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "swept.yaml").write_text(SWEPT)
    return tmp_path


@pytest.fixture
def job(here):
    """Return a function that reads a scenario with some of its values replaced."""

    def read(*overrides, name="small.yaml", quick=False):
        words = [name, *(word for override in overrides for word in ("--set", override)), *["--quick"] * quick]
        return read_jobs(parser(cli.command.SUBCOMMANDS.values()).parse_args(words))[0]

    return read


@pytest.fixture
def estimated(job):
    """Return a function that estimates what a scenario takes at `PACE`."""

    store = BlockStore(Path("results") / ".blocks")
    return lambda *overrides, processes=1, **options: estimate(
        job(*overrides, **options), store=store, processes=processes, pace=PACE
    )


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def part(estimation, word):
    (one,) = (part for part in estimation.parts if word in part.what)
    return one


@pytest.fixture
def checked(here, monkeypatch, capsys):
    """Return a function that checks at `PACE`, sees that nothing is run or written, and returns code and output."""

    def refuse(*_, **__):
        raise AssertionError("a run was begun")

    for name in ("integrate", "descend"):
        monkeypatch.setattr(importlib.import_module("flowsim.comparison.execute"), name, refuse)
    monkeypatch.setattr("flowsim.sweeps.compute.descend_batch", refuse)
    monkeypatch.setattr("flowsim.cli.estimate.measure_pace", lambda *_: PACE)

    def check(*words):
        before = files(here)
        code = cli.main(["check", *words])
        assert files(here) == before
        return code, capsys.readouterr()

    return check


def test_a_scenario_that_is_right_is_told_what_it_takes_and_nothing_is_run_or_written(checked):
    code, output = checked("small.yaml", "swept.yaml", "--jobs", "2")
    assert code == 0
    small, swept = output.out.split("\n\n")[:2]
    for line, text in zip(
        small.splitlines(),
        (
            "small is right: 21 weights in float64, 20 samples",
            "the flow to its limit; 2 descents of 600 steps in all",
            r"time +roughly [0-9.]+ (s|minutes) on this machine",
            r"memory +about [0-9]+ MB of [0-9.]+ GB",
            r"results/small\.",
        ),
        strict=True,
    ):
        assert re.search(text, line)
    assert "a sweep of 12 flows and 24 descents in 1 block\n" in swept


def test_what_a_run_refuses_is_refused_in_the_same_words(here, capsys):
    for override in ("flw=1", "record=[{kind: top_eigenvalues, count: 22}]"):
        words = ["small.yaml", "--set", override]
        assert cli.main(words) == 2
        of_run = capsys.readouterr()
        assert cli.main(["check", *words]) == 2
        assert capsys.readouterr() == of_run
        assert of_run.err.startswith("flowsim: ")


def test_it_says_whether_there_are_results_already(here, checked):
    folder = here / "elsewhere" / "small"
    folder.mkdir(parents=True)
    (folder / "scenario.yaml").write_text("scenario: {seed: 5}")
    code, output = checked("small.yaml", "--out", "elsewhere")
    assert (code, output.out) == (2, "")
    assert "holds results of a different scenario" in output.err
    code, output = checked("small.yaml", "--out", "elsewhere", "--overwrite")
    assert code == 0
    assert "of a different scenario, which are given up." in " ".join(output.out.split())


@pytest.mark.parametrize(
    ("overrides", "steps", "gradients"),
    [
        ([], 600, 600),
        (["descent.steps=null", "flow.t1=10"], 300, 300),
        (["descent.optimizer={kind: sgd, batch: 2}", "network.activation=tanh"], 600, 600 * 2 * 2 / 20),
        (["descent.optimizer={kind: noisy_descent, batch: 2}", "network.activation=tanh"], 600, 600),
    ],
)
def test_descents_take_a_gradient_for_each_step_and_minibatches_their_share_of_one(
    estimated, overrides, steps, gradients
):
    assert part(estimated(*overrides), f"2 descents of {steps} steps").gradients == pytest.approx(gradients)


def test_models_and_limits_take_programs_and_runs_of_their_own(estimated):
    plain, modelled = estimated(), estimated("flow.models=[gradient, edge]")
    assert modelled.seconds == pytest.approx(plain.seconds + 40 * PACE.compilation + 2 * 30_000 * PACE.gradient)
    assert part(estimated("flow.limits=4"), "8 flows from points of the descents").gradients > 0


def test_bisections_and_models_of_the_descents_of_a_sweep_are_counted(estimated):
    found = estimated("sweep.critical={steps: 100}", "sweep.descent=[]", name="swept.yaml")
    assert "a sweep of 12 flows and 12 bisections for the critical learning rate in" in part(found, "sweep").what
    sweep = "sweep={repetitions: 2, descent: [{learning_rates: [0.1, 0.2], steps: 30}]}"
    plain, modelled = (
        part(estimated(sweep, f"flow={{models: {models}, t1: 3}}", name="swept.yaml", processes=1), "sweep")
        for models in ("[gradient]", "[gradient, central, edge]")
    )
    assert "4 descents and 8 runs of models" in modelled.what
    assert modelled.compilations == 3 * plain.compilations
    assert modelled.seconds > plain.seconds + 8


def test_the_time_is_that_of_all_parts_at_the_pace_of_the_machine(estimated):
    found = estimated("descent.learning_rates=[]", "theory={depths: [2, 3], repetitions: 3}")
    compilations, gradients, seconds = (sum(part[entry] for part in found.parts) for entry in (1, 2, 3))
    expected = 6 + compilations * PACE.compilation + gradients * PACE.gradient + seconds
    assert found.seconds == pytest.approx(expected)
    assert min(compilations, gradients, seconds) > 0
    checked = part(found, "6 flows to check statements on")
    assert (checked.compilations, checked.seconds) == (2 * 20, pytest.approx(6 * 0.3))


@pytest.mark.parametrize(
    ("override", "copies"),
    [("precision=float64", 39), ("network.activation=tanh", 23 + 39 + 4 * 8)],
)
def test_memory_is_that_of_records_solver_and_a_pass_over_the_samples(estimated, job, override, copies):
    found, asked = estimated(override), job(override)
    data = sum(leaf.nbytes for leaf in jax.tree.leaves(asked.problem) if isinstance(leaf, jax.Array))
    a_pass = asked.problem.pass_bytes(asked.network) or 0
    expected = 7e8 + data + (2 * 2 * 250 + copies) * 21 * 8 + a_pass
    assert found.bytes == pytest.approx(expected, rel=1e-12)
    assert (found.weights, found.samples, found.solver_known) == (21, 20, True)


def test_memory_that_is_not_known_is_not_counted(estimated, checked, monkeypatch):
    monkeypatch.setattr("flowsim.cli.estimate.memory_of", lambda solver, weights: None)
    assert not estimated().solver_known
    assert "memory  at least" in checked("small.yaml")[1].out


def test_solvers_keep_their_stages_and_implicit_ones_a_matrix(job):
    for precision, copies in (("float64", 39), ("float32", 30)):
        built = job(f"precision={precision}")
        assert memory_of(GradientFlow().solver_for(built.network, built.problem), 21) == copies
    assert memory_of(diffrax.Tsit5(), 1000) == 7 + 4
    assert memory_of(diffrax.Kvaerno5(), 1000) == 7 + 4 + 1000
    assert memory_of(diffrax.KenCarp3(), 1000) == 4 + 4 + 4 + 1000
    assert memory_of(flowsim.solvers.RungeKuttaChebyshev(), 1000) == 9
    assert memory_of(diffrax.LeapfrogMidpoint(), 1000) is None


def test_a_quick_sweep_and_more_workers_take_less(estimated):
    whole, quick = (estimated(name="swept.yaml", quick=quick) for quick in (False, True))
    assert "9 flows and 18 descents" in part(quick, "sweep").what
    assert quick.seconds < whole.seconds
    assert estimated(name="swept.yaml", processes=4).seconds < whole.seconds
    assert len(whole.parts) == 1  # the sweep alone is run


def test_stored_blocks_take_nothing(estimated, job, here):
    before = estimated(name="swept.yaml")
    (block,) = scenario_blocks(job(name="swept.yaml").scenario, here)
    BlockStore(here / "results" / ".blocks").save(block.address(flowsim.scenarios.environment()), {})
    after = part(estimated(name="swept.yaml"), "sweep")
    assert "1 of 1 block stored" in after.what
    assert part(before, "sweep").seconds > after.seconds == after.compilations == 0


def test_the_pace_is_a_gradient_s_seconds_and_those_to_compile_it(job):
    built = job()
    # Compiled in 5 seconds; one gradient in 0.1 s, then four in 0.16 s, and sixteen in 0.8 s: long enough.
    looks = iter([0, 5, 5, 5.1, 6, 6.16, 7, 7.8])
    pace = measure_pace(built.network, built.problem, clock=lambda: float(next(looks)))
    assert (pace.gradient, pace.compilation) == (pytest.approx(0.05), 5.0)
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(built.network))
