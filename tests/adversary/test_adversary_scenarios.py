"""Whatever a scenario says, the command line runs it, or says in one line where it is wrong, and writes nothing."""

import re

import pytest
import xarray
from matplotlib.figure import Figure

import flowsim
from flowsim import cli
from flowsim.cli import run
from flowsim.data import gaussian
from flowsim.report.panels.sweep import SweepPanels
from flowsim.report.render_paper import draw_sweep_panel
from flowsim.results.runs import GRADIENT_DESCENT, Run, run_coordinates
from flowsim.scenarios import ScenarioError, read_scenario, wording

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


# Every number of a scenario: how it is written, and where it stands.
NUMBERS = {
    "seed": "{head}seed: {value}",
    "data.samples": "data: {{kind: gaussian, features: 3, samples: {value}}}\n{network}",
    "data.features": "data: {{kind: gaussian, samples: 9, features: {value}}}\n{network}",
    "data.outputs": "data: {{kind: gaussian, samples: 9, features: 3, outputs: {value}}}\n{network}",
    "data.noise": "data: {{kind: gaussian, samples: 9, features: 3, noise: {value}}}\n{network}",
    "network.depth": "{data}\nnetwork: {{kind: mlp, scale: 1, depth: {value}}}",
    "network.scale": "{data}\nnetwork: {{kind: mlp, depth: 3, scale: {value}}}",
    "flow.t1": "{head}flow: {{t1: {value}}}",
    "flow.max_steps": "{head}flow: {{max_steps: {value}}}",
    "descent.steps": "{head}descent: {{steps: {value}}}",
    "theory.repetitions": "{head}theory: {{repetitions: {value}}}",
    "sweep.repetitions": "{head}sweep: {{repetitions: {value}}}",
    "sweep.critical.precision": "{head}sweep: {{critical: {{precision: {value}}}}}",
}
NO_NUMBERS = [
    "word",
    "'1'",
    "[1]",
    "{a: 1}",
    "true",
    ".nan",
    "-1",
    "-1e400",
    "1_000",
    "0x10",
    "1e",
    "٣",
    "３",
    "½",
    "1;5",
]


def misread(key: str, value: str) -> tuple[str, str]:
    said = {"head": HEAD, "data": DATA, "network": NETWORK, "value": value}
    return NUMBERS[key].format(**said), f"{key}"


# fmt: off
SYNTAX = {
    "nothing": ("", "1: found an empty file"),
    "a byte order mark alone": ("\ufeff", "1: found an empty file"),
    "spaces alone": ("   \n  \n", "1: found an empty file"),
    "null": ("null", "1: found an empty file"),
    "a number": ("3", "1: found a file that holds no keys"),
    "a list": ("- data\n- network", "1: found a file that holds no keys"),
    "a tab before a key": (f"{DATA}\nnetwork:\n\tkind: mlp", "3: found no valid YAML"),
    "an anchor": (HEAD.replace("0.5", "&a 0.5"), "2: found an anchor or alias"),
    "a bomb": ("a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b, *b]", "1: found an anchor or alias"),
    "an alias to itself": ("a: &a [*a]", "1: found an anchor or alias"),
    "a merge": (f"{HEAD}flow: {{<<: {{t1: 1}}}}", "3: flow.'<<': found an unknown key"),
    "a tag": (HEAD.replace("20", "!!int 20"), "1: found the tag"),
    "code": ("data: !!python/object/new:os.system [ls]", "1: found the tag"),
    "a set": (f"{HEAD}record: !!set {{sharpness}}", "3: found the tag"),
    "binary": (f"{HEAD}record: !!binary aGk=", "3: found the tag"),
    "two documents": (f"{HEAD}---\n{HEAD}", "3: found a second document"),
    "a directive": (f"%YAML 3.0\n---\n{HEAD}", "found no valid YAML"),
    "deep": (f"{HEAD}record: {'[' * 40}{']' * 40}", "3: found deeper nesting"),
    "very deep": ("{a: " * 100_000, "1: found deeper nesting"),
    "a key twice": (f"{HEAD}{DATA}", "3: data: found the key a second time, after line 1"),
    "a key twice inside": (HEAD.replace("depth: 3", "depth: 3, depth: 4"), "2: network.depth: found the key a second"),
    "a number as key": (f"{HEAD}1: 2", "3: found the key 1; expected a word as key"),
    "true as key": (f"{HEAD}true: 2", "3: found the key true; expected a word"),
    "null as key": (f"{HEAD}~: 2", "3: found the key '~'; expected a word"),
    "a list as key": (f"{HEAD}[a]: 2", "3: found a key made of brackets"),
    "an open bracket": (HEAD + "flow: {t1: 1", "found no valid YAML"),
    "an open quotation mark": (HEAD + "flow: 't1", "found no valid YAML"),
    "a null byte": (HEAD + "flow: \0", "3: found the character U+0000"),
    "a bell": (HEAD + "flow: \a", "3: found the character U+0007"),
    "half a character": (HEAD + '"\\ud800": 1', "3: found half a character"),
    "Latin-1": (HEAD.encode() + b"# \xe9t\xe9", "3: found the byte 0xe9, which is not UTF-8"),
    "UTF-16": (HEAD.encode("utf-16"), "1: found the byte 0xff, which is not UTF-8"),
    "a megabyte of comment": (b"#" * (2**20 + 1), "found a file of more than 1048576 bytes"),
    "a PDF": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3", "which is not UTF-8"),
    "JSON that is cut": ('{"data": {"kind": "gaussian"', "found no valid YAML"),
    "five thousand digits": (f"{HEAD}seed: {'9' * 5000}", "3: seed: found a number of 5000 digits"),
}
KEYS = {
    "no data": (NETWORK, "1: data: found nothing; expected a value"),
    "no network": (DATA, "1: network: found nothing; expected a value"),
    "data null": (f"data: null\n{NETWORK}", "1: data: found null; expected a section of keys"),
    "data in a list": (f"data: [{DATA[6:]}]\n{NETWORK}", "1: data: found a list; expected a section of keys"),
    "data in words": (f"data: gaussian\n{NETWORK}", "1: data: found the text 'gaussian'; expected a section of keys"),
    "a network in words": (f"{DATA}\nnetwork: mlp", "2: network: found the text 'mlp'; expected a section of keys"),
    "no kind": (f"{DATA}\nnetwork: {{depth: 3, scale: 1}}", "2: network.kind: found nothing; expected one of residual"),
    "a kind in brackets": (f"{DATA}\nnetwork: {{kind: [mlp]}}", '2: network.kind: found ["mlp"]; expected one of'),
    "an empty kind": (f"{DATA}\nnetwork: {{kind: ''}}", "2: network.kind: found the text ''; expected one of residual"),
    "an activation as kind": (f"{DATA}\nnetwork: {{kind: gelu}}", "2: network.kind: found the text 'gelu'; expected o"),
    "a perceptron": (f"{DATA}\nnetwork: {{kind: perceptron}}", "2: network.kind: found the text 'perceptron'; expecte"),
    "a kind of code": (f"{DATA}\nnetwork: {{kind: 'os:system'}}", "2: network.kind: found the text 'os:system', which"),
    "a kind in no module": (f"{DATA}\nnetwork: {{kind: 'nowhere:Net'}}", "2: network.kind: found the text 'nowhere:Ne"),
    "a kind with spaces": (f"{DATA}\nnetwork: {{kind: 'm l p'}}", "2: network.kind: found the text 'm l p'; expected "),
    "unknown": (f"{HEAD}colour: red", "3: colour: found an unknown key"),
    "capitals": (f"{HEAD}Flow: {{}}", "3: Flow: found an unknown key; expected one of seed"),
    "another section's": (f"{HEAD}steps: 3", "3: steps: found an unknown key"),
    "another kind's": (network("projection: 3"), "2: network.projection: found an unknown key"),
    "an empty key": (f"{HEAD}'': 3", "3: '': found an unknown key"),
    "an emoji": (f"{HEAD}🙂: 3", "3: '🙂': found an unknown key"),
    "an escape code": (f'{HEAD}"\\e[2J": 3', "found an unknown key"),
    "a long key": (f"{HEAD}{'k' * 900}: 3", "found an unknown key"),
    "full-width": (f"{HEAD}ｓｅｅｄ: 3", "found an unknown key"),
    "right to left": (f"{HEAD}\u202eseed: 3", "3:"),
    "a flow in a list": (f"{HEAD}flow: [1]", "3: flow: found a list; expected a section of keys"),
    "a flow null": (f"{HEAD}flow:", "3: flow: found null; expected a section of keys"),
    "a theory true": (f"{HEAD}theory: true", "3: theory: found true; expected a section of keys"),
    "lemma_3 empty": (f"{HEAD}lemma_3: {{}}", "3: lemma_3.deviations: found nothing; expected a value"),
    "many errors": (HEAD + "\n".join(f"k{i}: 1" for i in range(200)), "1: found 150 more errors; expected none; write"),
}
VALUES = {
    "precision": (f"{HEAD}precision: double", "3: precision: found the text 'double'; expected one of float64, float3"),
    "precision 32": (f"{HEAD}precision: 32", "3: precision: found 32; expected one of float64, float32"),
    "yes": (f"{HEAD}sweep: {{flow: yes}}", "3: sweep.flow: found the text 'yes'; expected true or false"),
    "a unit": (f"{HEAD}flow: {{t1: 10s}}", "3: flow.t1: found the text '10s'; expected a number"),
    "a per cent": (f"{HEAD}flow: {{rtol: 1%}}", "3: flow.rtol: found the text '1%'; expected a number"),
    "rtol of one": (f"{HEAD}flow: {{rtol: 1}}", "3: flow.rtol: found 1; expected less than 1"),
    "rtol beyond float64": (f"{HEAD}flow: {{rtol: 1e-15}}", "3: flow.rtol: found 1e-15; expected at least 1e-14"),
    "a tolerance of nothing": (f"{HEAD}flow: {{risk: 1e-320}}", "3: flow.risk: found 1e-320, for which float64 has no"),
    "a time of nothing": (f"{HEAD}precision: float32\nflow: {{t1: 1e-60}}", "4: flow.t1: found 1e-60, for which float"),
    "a rate of nothing": (f"{HEAD}precision: float32\ndescent: {{learning_rates: [1e-60]}}",
        "4: descent.learning_rates[0]: found 1e-60, for which float32 has no room; expected a size from 1.2e-38"),
    "a rate of nothing in float64": (f"{HEAD}descent: {{learning_rates: [0.1, 1e-310]}}",
        "3: descent.learning_rates[1]: found 1e-310, for which float64 has no room"),
    "a swept rate of nothing": (sweep("descent: [{learning_rates: [1e-60], steps: 5}]}\nprecision: float32 #"),
        "3: sweep.descent[0].learning_rates[0]: found 1e-60, for which float32 has no room"),
    "a scale of nothing": (f"{HEAD}precision: float32\n".replace("0.5", "1e-50"), "2: network.scale: found 1e-50, for"),
    "a swept scale of nothing": (f"{over('network.scale: [1e-50]')}\nprecision: float32", "found 1e-50, for which flo"),
    "a scale beyond all": (HEAD.replace("0.5", "1e308"), "2: network.scale: found 1e+308; expected at most 1e+30"),
    "a residual scale beyond all": (HEAD.replace("mlp", "residual").replace("0.5", "1e308"), "expected at most 1e+30"),
    "a swept scale beyond all": (over("network.scale: [1e308]"), "found 1e+308; expected at most 1e+30"),
    "noise beyond all": (data("noise: 1e308"), "1: data.noise: found 1e+308; expected at most 1e+100"),
    "a rate beyond all": (f"{HEAD}descent: {{learning_rates: [1e31]}}", "found 1e+31; expected at most 1e+30"),
    "rates of one number": (f"{HEAD}descent: {{learning_rates: 0.1}}", "3: descent.learning_rates: found 0.1; expecte"),
    "a rate twice": (f"{HEAD}descent: {{learning_rates: [0.1, 0.10]}}", "3: descent.learning_rates: found 0.1 twice"),
    "a negative rate": (f"{HEAD}descent: {{learning_rates: [-0.1]}}", "found -0.1; expected more than 0"),
    "rates of rates": (f"{HEAD}descent: {{learning_rates: [[0.1]]}}", "3: descent.learning_rates[0]: found a list; ex"),
    "an unknown probe": (f"{HEAD}record: sharp", "3: record[0]: found the text 'sharp'; expected one of batch_"),
    "a number as probe": (f"{HEAD}record: 3", "3: record: found 3; expected a list"),
    "an unknown solver": (f"{HEAD}flow: {{solver: Tsit6}}", "3: flow.solver: found 'Tsit6'; expected one of auto"),
    "an unfit solver": (f"{HEAD}flow: {{solver: Euler}}", "3: flow.solver: found 'Euler'; expected one of auto"),
    "an unknown loss": (f"{HEAD}loss: hinge", "3: loss: found the text 'hinge'; expected one of cross_entropy"),
    "a loss in a list": (f"{HEAD}loss: [squared_error]", "3: loss: found a list; expected a section of keys"),
    "an unknown optimizer": (f"{HEAD}descent: {{optimizer: adamw}}", "3: descent.optimizer: found the text 'adamw'; e"),
    "an unknown activation": (network("activation: swish"), "2: network.activation: found 'swish'; expected one of"),
    "an activation that is no function": (network("activation: 'math:pi'"), "2: network.activation: found 'math:pi', "),
    "condition below one": (data("condition: 0.5"), "1: data.condition: found 0.5; expected at least 1"),
    "an unknown subject": (f"{HEAD}theory: {{subjects: [rate]}}", "3: theory.subjects[0]: found the text 'rate'; expe"),
    "no subjects": (f"{HEAD}theory: {{subjects: []}}", "3: theory.subjects: found a list; expected at least 1 entry"),
    "an escaping path": (f"data: {{kind: file, path: ../../etc/passwd, target: y}}\n{NETWORK}", "which is no file in"),
    "a path with a null byte": (f'data: {{kind: file, path: "a\\0b", target: y}}\n{NETWORK}', "1: data.path: found 'a"),
    "a path of a folder": (f"data: {{kind: file, path: ., target: y}}\n{NETWORK}", "1: data.path: found '.', which is"),
    "an empty path": (f"data: {{kind: file, path: '', target: y}}\n{NETWORK}", "found the text ''; expected text that"),
    "no target": (f"data: {{kind: file, path: t.csv}}\n{NETWORK}", "1: data.target: found nothing; expected a value"),
}
COMBINATIONS = {
    "a zero layer beyond the depth": (network("zero_layer: 4"), "2: network.zero_layer: found 4; expected one of the "),
    "a zero layer between activations": (network("zero_layer: 1, activation: tanh"), "expected null for a nonlinear"),
    "residual of two outputs": (data("outputs: 2").replace("mlp", "residual"), "2: network.kind: found a residual net"),
    "test samples with a condition": (data("test_samples: 5, condition: 10"), "found 5 beside a condition number"),
    "theory of a nonlinear network": (network("activation: tanh") + "theory: {}", "3: theory: found a nonlinear netwo"),
    "an excess risk of a nonlinear network": (network("activation: gelu") + "flow: {excess_risk: 1e-3}",
        "3: flow.excess_risk: found 0.001 beside a nonlinear network; expected null, as the minimum of the risk is no"),
    "an excess risk along activations": (over("network.activation: [linear, gelu]") + "\nflow: {excess_risk: 1e-3}",
        "4: flow.excess_risk: found 0.001 beside a nonlinear network"),
    "a critical rate of a nonlinear network": (network("activation: tanh") + "sweep: {critical: {}}", "a nonlinear ne"),
    "an empty bracket": (sweep("critical: {lowest: 2, highest: 1}"), "3: sweep.critical.highest: found 1.0, not above"),
    "a figure of no paper": (f"{HEAD}figure: {PAPER}:Figure8", "3: figure: found"),
    "a figure by number": (f"{HEAD}figure: 6", "3: figure: found 6; expected the place of a figure"),
    "a figure without a sweep": (f"{HEAD}figure: {PAPER}:Figure6", "3: figure: found a scenario without a sweep"),
    "a figure of another axis": (f"{over('network.depth: [2]')}\nfigure: {PAPER}:Figure1", "found a sweep over networ"),
    "figure 2 without descent": (f"{over('network.depth: [2, 3]')}\nfigure: {PAPER}:Figure2",
        "3: sweep: found a sweep without gradient descent; expected learning rates, which the figure shows"),
    "figure 3 without descent": (f"{over('network.scale: [1]')}\nfigure: {PAPER}:Figure3", "without gradient descent"),
    "figure 5 without descent": (f"{over('network.scale: [1]')}\nfigure: {PAPER}:Figure5", "without gradient descent"),
    "figure 6 without descent": (f"{over('network.scale: [1]')}\nfigure: {PAPER}:Figure6", "without gradient descent"),
    "figure 6 without test samples": (f"{sweep(f'over: {{network.scale: [1]}}, {RATES}')}\nfigure: {PAPER}:Figure6",
        "1: data: found data without test samples; expected some, as the figure shows how runs generalize"),
    "an axis that is no key": (over("scale: [1]"), "3: sweep.over.scale: found an unknown key"),
    "an axis without values": (over("network.scale: []"), "expected at least 1 entry"),
    "an axis of one value": (over("network.scale: 1"), "found 1; expected a list"),
    "an axis of sections": (over("network.scale: [{a: 1}]"), "found brackets; expected a single value"),
    "an axis of words": (over("network.depth: [three]"), "found the text 'three'; expected a whole number"),
    "an axis of a value twice": (over("network.depth: [3, 3.0]"), "twice; expected no repetitions"),
    "a range without end": (over("network.scale: {start: 1, stop: .inf, count: 3}"), "expected finite numbers start a"),
    "a range beyond all": (over("network.scale: {start: -1e308, stop: 1e308, count: 3}"), "expected ends of at most 1"),
    "a logarithm of zero": (over("network.scale: {start: 0, stop: 1, count: 3, spacing: log}"), "expected positive en"),
    "a range of too many": (over("network.scale: {start: 0, stop: 1, count: 10001}"), "a count from 2 to 10000"),
    "axes that do not fit": (over("network.depth: [2, 3], network.zero_layer: [3]"), "network.depth=2, network.zero_l"),
    "a rate in two entries": (sweep(f"{RATES[:-1]}, {RATES[10:]}"), "3: sweep.descent: found 0.01 twice"),
}
SIZES = {
    "samples": (HEAD.replace("20", "4e9"), "1: data.samples: found a matrix of 16000000000 numbers"),
    "samples beyond memory": (HEAD.replace("20", "400000000"), "1: data.samples: found 400000000 samples of 4 numbers"),
    "test samples beyond memory": (data("test_samples: 400000000"), "found 400000020 samples of 4 numbers, in 4 copie"),
    "features": (HEAD.replace("features: 3", "features: 44000"), "2: network.depth: found a network of 3872044000 wei"),
    "features beyond memory": (HEAD.replace("features: 3", "features: 44000").replace("depth: 3", "depth: 2"),
        "2: network: found 1936044000 weights, of which a flow keeps 6 copies: 92.9 GB of memory"),
    "width": (network("width: 200000000"), "2: network.depth: found a network of 40000000800000000 weights"),
    "width beyond memory": (network("width: 200000000").replace("depth: 3", "depth: 2"), "a flow keeps 6 copies: 38.4"),
    "depth": (HEAD.replace("depth: 3", "depth: 1e9"), "2: network.depth: found 1000000000.0; expected at most 100000"),
    "outputs": (data("outputs: 1e9"), "1: data.samples: found a matrix of 20000000060 numbers"),
    "repetitions of the theory": (f"{HEAD}theory: {{repetitions: 1e9}}", "3: theory.repetitions: found 1000000000 flo"),
    "lists of the theory": (f"{HEAD}theory: {{depths: {MANY}, features: {MANY}, repetitions: 100}}",
        "3: theory.repetitions: found 100000000 flows to check; expected at most 10000000"),
    "initializations": (f"{HEAD}{PRODUCTS}, widths: [5], depths: [9], initializations: 1e12}}",
        "3: lemma_3.initializations: found 1000000000000 initializations over all combinations; expected at most"),
    "matrices of lemma 3": (f"{HEAD}lemma_3: {{deviations: [1], scales: [1], widths: [100000], depths: [9]}}",
        "3: lemma_3.widths: found 90000000000 numbers in one initialization, in 6 copies: 4.32e+03 GB of memory"),
    "steps": (f"{HEAD}descent: {{learning_rates: [1], steps: 3e9}}", "3: descent.steps: found 3000000000 steps over a"),
    "deviations beyond exponentials": (f"{HEAD}lemma_3: {{deviations: [1000], scales: [1], widths: [1], depths: [1]}}",
        "found s = 1 beside u = 1000, for which 2s² + 4u is 4002; expected at most 700"),
    "scales beyond exponentials": (f"{HEAD}lemma_3: {{deviations: [1], scales: [1000], widths: [1], depths: [1]}}",
        "3: lemma_3.scales: found s = 1000 beside u = 1, for which 2s² + 4u is 2e+06"),
    "scales without squares": (f"{HEAD}lemma_3: {{deviations: [1], scales: [1e-300], widths: [1], depths: [1]}}",
        "3: lemma_3.scales[0]: found 1e-300; expected at least 1e-100"),
    "swept steps": (sweep("descent: [{learning_rates: [1], steps: 1073741824}]"), "found 1073741824; expected at most"),
    "critical steps": (sweep("critical: {steps: 1e12}"), "found 1000000000000.0; expected at most 1073741823"),
    "steps of the flow": (f"{HEAD}flow: {{max_steps: 1e12}}", "3: flow.max_steps: found 1000000000000.0; expected at"),
    "a grid": (over("network.scale: {start: 1, stop: 2, count: 10000}, data.noise: {start: 1, stop: 2, count: 10000}"),
        "3: sweep: found a sweep of 100000000 runs; expected at most 10000000"),
    "repetitions": (sweep("repetitions: 1e9"), "3: sweep: found a sweep of 1000000000 runs; expected at most 10000000"),
    "a wide point of a grid": (over("network.width: [200000000]").replace("depth: 3", "depth: 2"), "keeps 6 copies"),
}
# fmt: on
MISREAD = {f"{key} as {value}": misread(key, value) for key in NUMBERS for value in NO_NUMBERS}
BAD = {
    f"{group}: {name}": case
    for group, cases in {
        "syntax": SYNTAX,
        "key": KEYS,
        "value": VALUES,
        "combination": COMBINATIONS,
        "size": SIZES,
        "number": MISREAD,
    }.items()
    for name, case in cases.items()
}
GOOD = {
    "the least": HEAD,
    "a byte order mark": f"\ufeff{HEAD}",
    "Windows lines": HEAD.replace("\n", "\r\n"),
    "old Macintosh lines": HEAD.replace("\n", "\r"),
    "comments": f"# η\n{HEAD}# 終\n",
    "JSON": '{"data": {"kind": "gaussian", "samples": 9, "features": 3},'
    '"network": {"kind": "mlp", "depth": 3, "scale": 1}}',
    "whole floats": HEAD.replace("20", "2e1").replace("depth: 3", "depth: 3.0"),
    "a whole number as float": HEAD.replace("0.5", "1"),
    "the document's beginning": f"---\n{HEAD}...\n",
    "the largest seed": f"{HEAD}seed: 4294967295",
    "one sample": HEAD.replace("20", "1"),
    "one feature": HEAD.replace("features: 3", "features: 1"),
    "fewer samples than features": HEAD.replace("20", "2"),
    "depth one": HEAD.replace("depth: 3", "depth: 1"),
    "the zero network": HEAD.replace("0.5", "0"),
    "the identity": HEAD.replace("mlp", "residual").replace("0.5", "0"),
    "no noise": data("noise: 0"),
    "little noise": data("noise: 1e-300"),
    "much noise": data("noise: 1e100"),
    "several outputs": data("outputs: 3"),
    "several residual outputs": data("outputs: 3").replace("mlp", "residual"),
    "a condition": data("condition: 1e12"),
    "test samples": data("test_samples: 7"),
    "a large scale": HEAD.replace("0.5", "1e30"),
    "a small scale": HEAD.replace("0.5", "1e-300"),
    "a small rate": f"{HEAD}descent: {{learning_rates: [1e-307]}}",
    "float32": f"{HEAD}precision: float32\ndescent: {{learning_rates: [1e-37]}}",
    "infinite time": f"{HEAD}flow: {{t1: .inf}}",
    "infinite time in words": f"{HEAD}flow: {{t1: inf}}",
    "an activation": network("activation: softplus"),
    "a risk of a nonlinear network": network("activation: gelu") + "flow: {risk: 1e-3}",
    "an excess risk": f"{HEAD}flow: {{excess_risk: 1e-3}}",
    "a solver": f"{HEAD}flow: {{solver: Kvaerno5}}",
    "no rates": f"{HEAD}descent: {{learning_rates: []}}",
    "a loss in words": f"{HEAD}loss: squared_error",
    "a loss in a section": f"{HEAD}loss: {{kind: squared_error}}",
    "an optimizer": f"{HEAD}descent: {{optimizer: gradient_descent, learning_rates: [0.1]}}",
    "a probe": f"{HEAD}record: sharpness",
    "probes": f"{HEAD}record: [risk, sharpness]",
    "a theory": f"{HEAD}theory: {{depths: [2, 3]}}",
    "lemma 3": f"{HEAD}lemma_3: {{deviations: [1], scales: [1], widths: [5], depths: [9]}}",
    "a sweep of nothing": sweep("flow: false"),
    "a sweep without runs": sweep("flow: false, over: {network.scale: [0.3, 0.5]}"),
    "a range": over("network.scale: {start: 0.1, stop: 1, count: 3, spacing: log}"),
    "two axes": over("network.depth: [2, 3], precision: [float64, float32]"),
    "figure 2": f"{sweep(f'over: {{network.depth: [2]}}, {RATES}')}\nfigure: {PAPER}:Figure2",
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


def test_there_are_two_hundred_scenarios():
    assert len(BAD) + len(GOOD) >= 200


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_scenario_is_refused_where_it_is_wrong(said, content, message):
    code, error = said(content)
    assert code == 2
    assert error.startswith("flowsim: s.yaml")
    assert (f"s.yaml:{message}" if message[0].isdigit() else message) in error
    assert all(part in error for part in (" found ", "; expected ", "; write "))
    assert len(error.splitlines()) <= 51


@pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
def test_a_good_scenario_is_accepted_without_a_word(said, monkeypatch, content):
    if "1e8" in content:  # which is not to be drawn here
        monkeypatch.setattr("flowsim.cli.jobs.build", lambda scenario, folder: (flowsim.Risk(len), None, ()))
    assert said(content) == (0, "")


def test_as_many_errors_as_can_be_mended_are_worded(monkeypatch, tmp_path):
    """To word an error looks for a word that is near: for each of tens of thousands, that takes minutes."""
    looked, nearest = [], wording.nearest
    monkeypatch.setattr(wording, "nearest", lambda *words: looked.append(words) or nearest(*words))
    (tmp_path / "s.yaml").write_text(HEAD + "\n".join(f"k{i}: 1" for i in range(2000)))
    with pytest.raises(ScenarioError, match="found 1950 more errors"):
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
        MemoryError("Unable to allocate 3.2 TiB for an array"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."),
        RuntimeError("INTERNAL: Out of memory while trying to allocate"),
        RuntimeError("std::bad_alloc"),
        ValueError("array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum possible size."),
        ValueError("Maximum allowed dimension exceeded"),
        OSError(12, "Cannot allocate memory"),
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
def test_the_theory_of_a_flow_that_does_not_move_is_told_without_a_warning(tmp_path):
    """The bounds of Lemma 2 divide by the square of a singular value, which is zero here; the flow has no length."""
    (tmp_path / "s.yaml").write_text(f"{HEAD.replace('0.5', '0')}theory: {{}}")
    assert cli.main([str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out")]) == 1
    assert (tmp_path / "out" / "s" / "summary.json").exists()


def test_the_threshold_of_a_rate_of_almost_nothing_does_not_overflow_its_axis():
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
    draw_sweep_panel(axes, panel)
    assert axes.get_yscale() == "log"
