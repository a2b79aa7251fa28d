"""Every scenario is run by the command line, or refused in one line that says where it is wrong; nothing is written."""

import json
import re

import jax
import numpy as np
import pytest

import flowsim
from flowsim import cli
from flowsim.cli import run
from flowsim.data import gaussian_teacher
from flowsim.data.sources import gaussian
from flowsim.scenarios import ScenarioError, document, read_scenario, wording

DATA, NETWORK = "data: {kind: gaussian, samples: 20, features: 3}", "network: {kind: mlp, depth: 3, scale: 0.5}"
HEAD = f"{DATA}\n{NETWORK}\n"
PAPER = "flowsim.papers.marion_chizat_2024"
PRODUCTS = "lemma_3: {deviations: [1], scales: [1]"
MANY = list(range(2, 1002))
RATES = "descent: [{learning_rates: [0.01], steps: 5}]"


def data(options: str) -> str:
    return HEAD.replace("features: 3", f"features: 3, {options}", 1)


def network(options: str) -> str:
    return HEAD.replace("scale: 0.5", f"scale: 0.5, {options}", 1)


def sweep(content: str) -> str:
    return f"{HEAD}sweep: {{{content}}}"


def over(axes: str) -> str:
    return sweep(f"over: {{{axes}}}")


NUMBERS = """
seed: VALUE
data: {kind: gaussian, samples: VALUE, features: VALUE, outputs: VALUE, noise: VALUE}
network: {kind: mlp, depth: VALUE, scale: VALUE}
flow: {t1: VALUE, max_steps: VALUE}
descent: {steps: VALUE}
theory: {repetitions: VALUE}
sweep: {repetitions: VALUE, critical: {precision: VALUE}}
"""
COUNTS = ["data.samples", "data.features", "data.outputs", "network.depth", "flow.max_steps", "descent.steps"]
COUNTS += ["theory.repetitions", "sweep.repetitions"]
POSITIVE = [*COUNTS, "flow.t1", "sweep.critical.precision"]
NO_NUMBERS = ["word", "'1'", "[1]", "{a: 1}", "true", ".nan", "-1", "-1e400", "1_000", "0x10", "1e", "٣", "½", "1;5"]


# fmt: off
BAD = {
    "many errors": (HEAD + "\n".join(f"k{i}: 1" for i in range(200)), "1: found 150 more errors; expected none; write"),
    "a tolerance of nothing": (f"{HEAD}flow: {{risk: 1e-320}}", "3: flow.risk: found 1e-320, for which float64 has no"),
    "a rate of nothing": (f"{HEAD}precision: float32\ndescent: {{learning_rates: [1e-60]}}",
        "4: descent.learning_rates[0]: found 1e-60, for which float32 has no room; expected a size from 1.2e-38"),
    "a swept rate of nothing": (sweep("descent: [{learning_rates: [1e-60], steps: 5}]}\nprecision: float32 #"),
        "3: sweep.descent[0].learning_rates[0]: found 1e-60, for which float32 has no room"),
    "a scale of nothing": (f"{HEAD}precision: float32\n".replace("0.5", "1e-50"), "2: network.scale: found 1e-50, for"),
    "a scale beyond all": (HEAD.replace("0.5", "1e308"), "2: network.scale: found 1e+308; expected at most 1e+30"),
    "noise beyond all": (data("noise: 1e308"), "1: data.noise: found 1e+308; expected at most 1e+100"),
    "condition below one": (data("condition: 0.5"), "1: data.condition: found 0.5; expected at least 1"),
    "a rate beyond all": (f"{HEAD}descent: {{learning_rates: [1e31]}}", "found 1e+31; expected at most 1e+30"),
    # Combinations.
    "a zero layer between activations": (network("zero_layer: 1, activation: tanh"), "expected null for a nonlinear"),
    "an excess risk of a nonlinear network": (network("activation: gelu") + "flow: {excess_risk: 1e-3}",
        "3: flow.excess_risk: found 0.001 beside a nonlinear network; expected null, as the minimum of the risk is no"),
    "figure 2 without descent": (f"{over('network.depth: [2, 3]')}\nfigure: {PAPER}:Figure2",
        "3: sweep: found a sweep without gradient descent; expected learning rates, which the figure shows"),
    "figure 6 without test samples": (f"{sweep(f'over: {{network.scale: [1]}}, {RATES}')}\nfigure: {PAPER}:Figure6",
        "1: data: found data without test samples; expected some, as the figure shows how runs generalize"),
    "a range without end": (over("network.scale: {start: 1, stop: .inf, count: 3}"), "expected finite numbers start a"),
    "a range beyond all": (over("network.scale: {start: -1e308, stop: 1e308, count: 3}"), "expected ends of at most 1"),
    "a range of too many": (over("network.scale: {start: 0, stop: 1, count: 10001}"), "a count from 2 to 10000"),
    # Sizes.
    "test samples beyond memory": (data("test_samples: 400000000"), "found 400000020 samples of 4 numbers, in 4 copie"),
    "features beyond memory": (HEAD.replace("features: 3", "features: 44000").replace("depth: 3", "depth: 2"),
        "2: network: found 1936044000 weights, of which a flow keeps 6 copies: 92.9 GB of memory"),
    "lists of the theory": (f"{HEAD}theory: {{depths: {MANY}, features: {MANY}, repetitions: 100}}",
        "3: theory.repetitions: found 100000000 flows to check; expected at most 10000000"),
    "initializations": (f"{HEAD}{PRODUCTS}, widths: [5], depths: [9], initializations: 1e12}}",
        "3: lemma_3.initializations: found 1000000000000 initializations over all combinations; expected at most"),
    "matrices of lemma 3": (f"{HEAD}lemma_3: {{deviations: [1], scales: [1], widths: [100000], depths: [9]}}",
        "3: lemma_3.widths: found 90000000000 numbers in one initialization, in 6 copies: 4.32e+03 GB of memory"),
    "deviations beyond exponentials": (f"{HEAD}lemma_3: {{deviations: [1000], scales: [1], widths: [1], depths: [1]}}",
        "found s = 1 beside u = 1000, for which 2s² + 4u is 4002; expected at most 700"),
    "scales without squares": (f"{HEAD}lemma_3: {{deviations: [1], scales: [1e-300], widths: [1], depths: [1]}}",
        "3: lemma_3.scales[0]: found 1e-300; expected at least 1e-100"),
    "swept steps": (sweep("descent: [{learning_rates: [1], steps: 1073741824}]"), "found 1073741824; expected at most"),
    "a wide point of a grid": (over("network.width: [200000000]").replace("depth: 3", "depth: 2"), "keeps 6 copies"),
}
# fmt: on
GOOD = {
    "a byte order mark and Windows lines": f"\ufeff{HEAD}".replace("\n", "\r\n"),
    "old Macintosh lines": HEAD.replace("\n", "\r"),
    "JSON": '{"data": {"kind": "gaussian", "samples": 9, "features": 3},'
    '"network": {"kind": "mlp", "depth": 3, "scale": 1}}',
    "the largest of all": data("noise: 1e100").replace("0.5", "1e30") + "seed: 4294967295",
    "the smallest of all": data("noise: 1e-300").replace("0.5", "1e-300") + "descent: {learning_rates: [1e-307]}",
    "ones": HEAD.replace("20", "1").replace("features: 3", "features: 1").replace("depth: 3", "depth: 1"),
    "the zero network": HEAD.replace("0.5", "0"),
    "float32": f"{HEAD}precision: float32\ndescent: {{learning_rates: [1e-37]}}",
    "a risk of a nonlinear network": network("activation: softplus") + "flow: {risk: 1e-3}",
    "figure 6": f"{data('test_samples: 5')}sweep: {{over: {{network.scale: [1]}}, {RATES}}}\nfigure: {PAPER}:Figure6",
    "most steps": sweep("descent: [{learning_rates: [1], steps: 1073741823}]"),
    "much of a large machine": HEAD.replace("20", "1e8"),
}


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """Let every machine have 24 GiB, and nothing be computed that is not refused."""
    monkeypatch.setattr("flowsim.runtime.memory.machine_bytes", lambda: 24 * 2**30)


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """Return a function that hands a scenario to the command line, and returns its exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "run_all", lambda jobs, pool: 0)

    def hand(content: str | bytes) -> tuple[int, str]:
        (tmp_path / "s.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
        code = cli.main(["s.yaml", "--jobs", "1"])
        assert [entry.name for entry in tmp_path.iterdir()] == ["s.yaml"]
        return code, capsys.readouterr().err

    return hand


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_scenario_is_refused_where_it_is_wrong(said, content, message):
    code, error = said(content)
    assert code == 2
    assert error.startswith("flowsim: s.yaml")
    assert (f"s.yaml:{message}" if message[0].isdigit() else message) in error
    assert all(part in error for part in (" found ", "; expected ", "; write "))
    assert len(error.splitlines()) <= 51


def test_a_scenario_that_is_given_many_times_is_read_no_more_often_than_one_given_twice(tmp_path, monkeypatch, capsys):
    (tmp_path / "s.yaml").write_text(HEAD)
    monkeypatch.chdir(tmp_path)
    reads, parse = [], document.parse
    monkeypatch.setattr(document, "parse", lambda *given, **options: reads.append(0) or parse(*given, **options))
    assert cli.main(["check", *["s.yaml"] * 20]) == 2
    assert "would go to the same folder as those of s.yaml" in capsys.readouterr().err
    assert len(reads) == 3


LONG = {"word": "g" * 10_000, "place": "my_module:" + "k" * 10_000, "list": ["g" * 10_000]}


@pytest.mark.parametrize("name", LONG.values(), ids=LONG)
def test_a_long_text_of_a_scenario_is_shortened_in_the_message_about_it(said, name):
    code, error = said(HEAD.replace("gaussian", json.dumps(name)))
    assert code == 2
    assert "data.kind: found" in error
    assert len(error) < 1500, error


@pytest.mark.parametrize("option", ["x" * 10_000, f"seed={'9' * 10_000}", f"{'a.' * 5_000}b=1", f"data={'[' * 10_000}"])
def test_a_long_option_is_shortened_in_the_message_about_it(tmp_path, monkeypatch, capsys, option):
    (tmp_path / "s.yaml").write_text(HEAD)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["check", "s.yaml", "--set", option]) == 2
    assert len(capsys.readouterr().err) < 1500


def refused(error: str) -> list[str]:
    """Return the keys that a message refuses."""
    return re.findall(r"^(?:flowsim: )?s\.yaml:\d+: ([a-z0-9_.]+): found ", error, re.MULTILINE)


def test_every_number_is_refused_that_is_none_or_out_of_range(said):
    every = refused(said(NUMBERS.replace("VALUE", "word"))[1])
    assert len(every) == NUMBERS.count("VALUE")
    for value in NO_NUMBERS:
        assert refused(said(NUMBERS.replace("VALUE", value))[1]) == every, value
    code, error = said(NUMBERS.replace("VALUE", "0"))
    assert code == 2
    assert sorted(refused(error)) == sorted(POSITIVE)
    assert set(refused(said(NUMBERS.replace("VALUE", "0.5"))[1])) == {"seed", *COUNTS}


@pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
def test_a_good_scenario_is_accepted_without_a_word(said, monkeypatch, content):
    if "1e8" in content:  # which is not to be drawn here
        monkeypatch.setattr("flowsim.cli.jobs.build", lambda scenario, folder: (flowsim.Risk(len), None, ()))
    assert said(content) == (0, "")


def test_as_many_errors_as_can_be_mended_are_worded(monkeypatch, tmp_path):
    """To word an error looks for a word that is near: for each of tens of thousands, that takes minutes."""
    looked, nearest = [], wording.nearest
    monkeypatch.setattr(wording, "nearest", lambda *words: looked.append(words) or nearest(*words))
    (tmp_path / "s.yaml").write_text(HEAD + "\n".join(f"k{i}: 1" for i in range(500)))
    with pytest.raises(ScenarioError, match="found 450 more errors"):
        read_scenario(tmp_path / "s.yaml")
    assert len(looked) <= 4 * 50


def test_what_takes_long_is_said_before_the_first_point_is_checked(tmp_path):
    class Heard(Exception):
        """Ends the reading: the points would take minutes to check."""

    def hear(text: str) -> None:
        raise Heard(text)

    axes = "network.scale: {start: 0.1, stop: 1, count: 2000}, data.noise: {start: 0.1, stop: 1, count: 2000}"
    (tmp_path / "s.yaml").write_text(over(axes))
    said = "the 4000000 points of the sweep, before the first run, may take 6 hours of one core or more"
    with pytest.raises(Heard, match=re.escape(said)):
        read_scenario(tmp_path / "s.yaml", notice=hear)


def test_the_data_are_predicted_not_drawn(said, monkeypatch):
    monkeypatch.setattr(gaussian, "gaussian_teacher_with_test", lambda *_, **__: pytest.fail("drawn"))
    assert said(HEAD.replace("20", "400000000"))[0] == 2


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."),
        ValueError("array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum possible size."),
        OSError(12, "Cannot allocate memory"),
        ImportError("/lib/_fblas.so: failed to map segment from shared object"),
    ],
    ids=str,
)
def test_memory_that_runs_out_is_one_message_whatever_its_wording(said, monkeypatch, error):
    def fail(jobs, pool):
        raise error

    monkeypatch.setattr(run, "run_all", fail)
    code, message = said(HEAD)
    assert code == 2
    assert message == (
        "flowsim: not enough memory; use fewer samples or features, a smaller network, or precision: float32\n"
    )


@pytest.mark.slow
def test_the_theory_of_a_flow_that_does_not_move_is_told_without_a_warning():
    """The bounds of Lemma 2 divide by the square of a singular value, which is zero here; the flow has no length."""
    problem = flowsim.LinearRegression(*gaussian_teacher(np.random.default_rng(0), 20, 3))
    network = flowsim.DeepLinear.gaussian(widths=[3, 3, 1], scale=0.0, key=jax.random.key(0))
    assert "Lemma 2" in str(flowsim.theory.check(network, problem))


def test_the_threshold_of_a_rate_of_almost_nothing_does_not_overflow_its_axis():
    import xarray
    from matplotlib.figure import Figure

    from flowsim.columns import GRADIENT_DESCENT, Run, run_coordinates
    from flowsim.report.panels.sweep import SweepPanels
    from flowsim.report.render_paper import draw_panel

    rates = Run(GRADIENT_DESCENT, 1e-300), Run(GRADIENT_DESCENT, 0.1)
    swept = xarray.Dataset(
        {
            "initial_risk": (("scale", "repetition"), [[1.0]]),
            "outcome": (("scale", "repetition", "run"), [[[0, 0]]]),
            "final_sharpness": (("scale", "repetition", "run"), [[[1.0, 1.0]]]),
        },
        coords={"scale": [0.5], **run_coordinates(rates)},
    )
    (panel,) = SweepPanels.of(swept, facets=1, others=2).panels("sharpness")
    assert [guide.value for guide in panel.guides] == [20.0]
    axes = Figure().add_subplot()
    draw_panel(axes, panel)
    assert axes.get_yscale() == "log"
