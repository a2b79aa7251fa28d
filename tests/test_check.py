"""What `check` says before a run: the same refusals, nothing run or written, and numbers that are those of the run."""

import re
from pathlib import Path

import diffrax
import jax
import pytest

import flowsim
from flowsim import cli
from flowsim.cli.ahead import Ahead
from flowsim.cli.outlook import outlook
from flowsim.cli.pace import Pace, measure_pace
from flowsim.dynamics import GradientFlow
from flowsim.scenarios import build, parse_overrides, read_scenario, theory_cells
from flowsim.solvers.solver import memory_of
from flowsim.sweeps import BlockStore

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
def ahead(here):
    """Return a function that reads a scenario with some of its values replaced."""

    def read(*overrides, name="small.yaml", quick=False, workers=1):
        scenario = read_scenario(here / name, parse_overrides(overrides))
        if quick:
            scenario = scenario.model_copy(update={"sweep": scenario.sweep.quick()})
        problem, network, _ = build(scenario, here)
        return Ahead(
            scenario=scenario,
            problem=problem,
            network=network,
            cells=theory_cells(scenario, here),
            folder=here,
            compares=scenario.sweep is None,
            store=BlockStore(here / "results" / ".blocks"),
            workers=workers,
        )

    return read


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def part(found, name):
    (one,) = (part for part in found.parts if part.name == name)
    return one


def bytes_of(found, word):
    (one,) = (kept for kept in found.memory if word in kept.what)
    return one.bytes


@pytest.fixture
def nothing_runs(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a run was begun")

    for place in ("comparison.comparison.integrate", "comparison.comparison.descend", "sweeps.compute.descend_batch"):
        monkeypatch.setattr(f"flowsim.{place}", refuse)


def test_a_scenario_that_is_right_is_told_what_it_takes_and_nothing_is_run_or_written(here, nothing_runs, capsys):
    before = files(here)
    assert cli.main(["check", "small.yaml", "swept.yaml", "--jobs", "2"]) == 0
    assert files(here) == before
    printed = " ".join(capsys.readouterr().out.split())
    assert "small is right: 21 weights in float64, 20 samples" in printed
    assert "2, of 600 steps in all, or fewer if they arrive" in printed
    assert "12 flows and 24 descents" in printed
    assert "The results go to results/swept." in printed
    assert len(re.findall(r"\(a guess\)", printed)) == 2  # the steps of a flow, and those of a sweep


@pytest.mark.parametrize(
    "words",
    [
        ["missing.yaml"],
        ["folder"],
        ["wrong.yaml"],
        ["small.yaml", "folder/small.yaml"],
        ["small.yaml", "--set", "network.scal=1"],
        ["small.yaml", "--set", "network.depth=0", "--set", "seed=-1"],
        ["small.yaml", "--out", "small.yaml"],
        ["data.yaml"],
    ],
)
def test_what_a_run_refuses_is_refused_in_the_same_words(here, capsys, words):
    (here / "folder").mkdir()
    (here / "folder" / "small.yaml").write_text(SMALL)
    (here / "wrong.yaml").write_text(SMALL + "flw: {rtol: 1}\nseed: x\n")
    (here / "data.yaml").write_text("data: {kind: file, path: none.csv, target: y}\nnetwork: {kind: mlp, depth: 2}\n")
    assert cli.main(words) == 2
    of_run = capsys.readouterr()
    assert cli.main(["check", *words]) == 2
    assert capsys.readouterr() == of_run
    assert of_run.err.startswith("flowsim: ")


def test_it_says_whether_there_are_results_already(here, capsys):
    folder = here / "results" / "small"
    folder.mkdir(parents=True)
    (folder / "scenario.yaml").write_text("scenario: {seed: 5}")
    assert cli.main(["check", "small.yaml"]) == 2
    assert "holds results of a different scenario" in capsys.readouterr().err
    assert cli.main(["check", "small.yaml", "--overwrite"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "results/small, where there are some already, of a different scenario, which are given up." in printed
    assert (folder / "scenario.yaml").read_text() == "scenario: {seed: 5}"


def test_descents_take_their_steps_times_a_gradient_at_most(ahead):
    found = part(outlook(ahead(), PACE), "descents")
    assert (found.seconds, found.most) == (pytest.approx(600 * 1e-3), True)
    timed = ahead("descent.steps=null", "flow.t1=10")
    assert timed.steps == (200, 100)
    assert part(outlook(timed, PACE), "descents").seconds == pytest.approx(0.3)
    everything = outlook(ahead(), PACE)
    assert everything.seconds - everything.least == pytest.approx(0.6)


def test_a_step_by_minibatches_costs_its_share_of_the_samples(ahead):
    sampled = ahead("descent.optimizer={kind: sgd, batch: 2}", "network.activation=tanh")
    assert part(outlook(sampled, PACE), "descents").seconds == pytest.approx(600 * 1e-3 * 2 * 2 / 20)


def test_compilation_counts_the_programs_that_there_will_be(ahead):
    def programs(*overrides):
        return part(outlook(ahead(*overrides), PACE), "compilation").seconds / PACE.compilation

    alone = programs("descent.learning_rates=[]")
    assert programs() == programs("descent.learning_rates=[0.05]") > alone
    assert programs("flow.models=[gradient, edge]") > 2 * programs()
    assert programs("flow.limits=4") > programs()


def test_memory_is_that_of_records_solver_and_a_pass_over_the_samples(ahead):
    plain, nonlinear = outlook(ahead(), PACE), outlook(ahead("network.activation=tanh"), PACE)
    assert bytes_of(plain, "by records") == 2 * 2 * 250 * 21 * 8
    assert bytes_of(plain, "LowRankExtrapolation") == 30 * 21 * 8
    assert bytes_of(nonlinear, "StiffnessSwitching") == (28 + 30 + 4 * 8) * 21 * 8
    assert bytes_of(nonlinear, "a pass") > 20 * 3 * 8
    assert plain.bytes == pytest.approx(sum(kept.bytes for kept in plain.memory))


@pytest.mark.parametrize(("precision", "copies"), [("float64", 30), ("float32", 24)])
def test_the_default_solver_of_linear_networks_says_what_it_keeps(ahead, precision, copies):
    built = ahead(f"precision={precision}")
    assert memory_of(GradientFlow().solver_for(built.network, built.problem), built.weights) == copies


def test_solvers_of_diffrax_keep_their_stages_and_implicit_ones_a_matrix():
    assert memory_of(diffrax.Tsit5(), 1000) == 7 + 4
    assert memory_of(diffrax.Kvaerno5(), 1000) == 7 + 4 + 1000
    assert memory_of(diffrax.KenCarp3(), 1000) == 4 + 4 + 4 + 1000
    assert memory_of(flowsim.solvers.RungeKuttaChebyshev(), 1000) == 9
    assert memory_of(diffrax.LeapfrogMidpoint(), 1000) is None


def test_a_quick_sweep_and_more_workers_take_less(ahead):
    whole, quick = (outlook(ahead(name="swept.yaml", quick=quick), PACE) for quick in (False, True))
    assert "9 flows and 18 descents" in part(quick, "sweep").what
    assert part(quick, "sweep").seconds < part(whole, "sweep").seconds
    shared = outlook(ahead(name="swept.yaml", workers=4), PACE)
    assert part(shared, "sweep").seconds < part(whole, "sweep").seconds
    assert not any(one.name == "flow" for one in whole.parts)  # the sweep alone is run


def test_stored_blocks_are_seen(ahead, here):
    before = outlook(ahead(name="swept.yaml"), PACE)
    asked = ahead(name="swept.yaml")
    from flowsim.sweeps import plan

    here_and_now = flowsim.scenarios.environment()
    blocks = [placed.block for placed in plan(asked.scenario, here)]
    for block in blocks:
        asked.store.save(block.address(here_and_now), {})
    after = part(outlook(asked, PACE), "sweep")
    assert f"{len(blocks)} of {len(blocks)} blocks are stored" in after.what
    assert after.seconds < part(before, "sweep").seconds / 10


def test_the_statements_of_theory_are_forecast_by_flows_and_shapes(ahead):
    asked = ("descent.learning_rates=[]", "theory={depths: [2, 3], repetitions: 3}")
    assert "6 flows, of 2 shapes" in part(outlook(ahead(*asked), PACE), "theory").what


def test_the_pace_is_a_gradient_s_seconds_and_those_to_compile_it(ahead):
    built = ahead()
    ticks = iter(range(100))
    # A clock that ticks once at every look: compiling takes one second twice, and so does the first gradient.
    assert measure_pace(built.network, built.problem, clock=lambda: float(next(ticks))) == Pace(1.0, 1.0)
    # Compiled in 5 and in 2 seconds; one gradient in 0.3 s, which met other work, then in 0.2 s, and in 0.5 s.
    looks = iter([0, 5, 5, 7, 7, 7, 7.3, 7.3, 7.5, 7.5, 8.0])
    found = measure_pace(built.network, built.problem, clock=lambda: float(next(looks)))
    assert (found.gradient, found.compilation) == (pytest.approx(0.2), 2.0)
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(built.network))


def test_paths_in_the_table_are_those_of_the_options(here, capsys):
    assert cli.main(["check", str(Path("small.yaml")), "--out", "elsewhere"]) == 0
    assert "The results go to elsewhere/small." in capsys.readouterr().out
