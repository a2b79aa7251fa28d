"""Every pair of kinds meets in some tiny run: data, network, loss, descent, model, job and precision.

A kind that is registered takes part by that. One with required options has them in `OPTIONS`; what it does not go
together with, and does not declare by itself, is a condition in `CONDITIONS`.
"""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import covertable
import numpy as np
import pytest
import xarray
import yaml

import flowsim
from flowsim import cli
from flowsim.columns import NOT_ASKED
from flowsim.comparison.models import GRADIENT, check_models
from flowsim.data import ClassSource
from flowsim.data.sources import SOURCES
from flowsim.dynamics.descent import DESCENTS
from flowsim.edge import MODELS
from flowsim.losses.loss import LOSSES
from flowsim.networks.recipes import NETWORKS
from flowsim.results.store import ResultFolder
from flowsim.scenarios import build, read_scenario, run

ROWS, FEATURES, RATE = 9, 3, 0.005
# For each kind its options: first those required alone, then with all the others that a user may set.
OPTIONS = {
    "data": {
        "gaussian": [
            {"samples": ROWS, "features": FEATURES},  # of the shape of the table: compiled already
            {"samples": 2, "features": FEATURES, "outputs": FEATURES},
        ],
        "file": [
            {"path": "table.csv", "target": "y"},
            {"path": "table.csv", "target": ["y"], "features": ["b", "c", "a"], "standardize": False,
             "unit_regressor": False},
        ],
        "labelled": [
            {"path": "labels.csv", "target": "kind"},
            {"path": "labels.csv", "target": "kind", "features": ["a", "b"], "classes": ["p", "q"], "samples": 4,
             "test_samples": 2, "scaling": "standardized"},
        ],
        "digits": [{}, {"classes": [3, 8], "samples": 6, "test_samples": 4, "scaling": "none"}],
        "cifar10": [
            {"path": "."},
            {"path": ".", "batches": [5, 4, 3, 2, 1], "classes": [0, 1], "samples": 10, "test_samples": 2,
             "scaling": "standardized"},
        ],
    },
    "network": {
        "residual": [{"depth": 2, "scale": 0.5}],
        "mlp": [
            {"depth": 2, "width": 2, "scale": 0.5},
            {"depth": 2, "width": 2, "scale": 1.0, "activation": "tanh", "biases": True},
        ],
        "residual_mlp": [{"depth": 1, "width": 2, "scale": 0.5}],
        "convolutional": [{"channels": [1], "stride": 2}],
        "equinox.nn:MLP": [{"width_size": 2, "depth": 1}],
    },
    "descent": {kind: [{"batch": 2}] for kind in ("sgd", "label_noise_sgd", "noisy_descent")},
}  # fmt: skip
KINDS = {"data": SOURCES, "network": [*NETWORKS, "equinox.nn:MLP"], "loss": LOSSES, "descent": DESCENTS}
IMAGES = {"digits": 64, "cifar10": 3072}

# Under a name each: the sections of a scenario, the models, the precisions, and what is done with the scenario.
CHOICES = {
    thing: {
        f"{kind} {number}" if number else kind: {"kind": kind, **options}
        for kind in kinds
        for number, options in enumerate(OPTIONS.get(thing, {}).get(kind, [{}]))
    }
    for thing, kinds in KINDS.items()
}
CHOICES["model"] = {name: name for name in (GRADIENT, *MODELS)}
CHOICES["sharpness"] = {"sharpness along": True, "sharpness at the end": False}
CHOICES["precision"] = {name: name for name in ("float64", "float32")}


def sizes(data: dict) -> tuple[int, int, int | None]:
    """Return the numbers of features and labels of a sample, and the number of classes."""
    if issubclass(SOURCES[data["kind"]], ClassSource):
        classes = len(data.get("classes", ())) or {"labelled": 3, "cifar10": 2}.get(data["kind"], 10)
        return IMAGES.get(data["kind"], len(data.get("features", "abc"))), classes, classes
    return (len(data.get("features", "abc")) if "path" in data else FEATURES), data.get("outputs", 1), None


def loss_takes_labels(data: dict, loss: dict) -> bool:
    kind, (*_, classes) = LOSSES[loss["kind"]](), sizes(data)
    if classes is not None:
        return classes == 2 or kind.labels(classes) != "sign"
    return kind.takes_numbers()


def network_takes_samples(data: dict, network: dict, loss: dict) -> bool:
    features, outputs, classes = sizes(data)
    if classes is not None and LOSSES[loss["kind"]]().labels(classes) == "sign":
        outputs = 1
    if network["kind"] == "convolutional":
        return data["kind"] in IMAGES
    # A residual network has one output, or as many as features. One for colour images would be gigabytes.
    return network["kind"] != "residual" or (features < 1000 and outputs in (1, features))


def noise_fits_labels(loss: dict, descent: dict) -> bool:
    return descent["kind"] != "label_noise_sgd" or LOSSES[loss["kind"]]().takes_numbers()


def model_follows_descent(descent: dict, model: str, precision: str) -> bool:
    options = {name: value for name, value in descent.items() if name != "kind"}
    try:
        check_models([model], [DESCENTS[descent["kind"]](learning_rate=RATE, **options)], np.dtype(precision))
    except ValueError:
        return False
    return True


def samples_are_few(data: dict, model: str) -> bool:
    """Tell whether there are not all 1 797 digits: models of descent, of third derivatives, take a minute with them."""
    return model == GRADIENT or data != {"kind": "digits"}


CONDITIONS = {
    loss_takes_labels: ("data", "loss"),
    network_takes_samples: ("data", "network", "loss"),
    noise_fits_labels: ("loss", "descent"),
    model_follows_descent: ("descent", "model", "precision"),
    samples_are_few: ("data", "model"),
}


def covering_runs(first: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return these runs and further ones, in which every pair of choices occurs that any run may have."""

    def constraint(condition: Callable[..., bool], things: tuple[str, ...]) -> dict:
        @cache
        def holds(*names: str) -> bool:
            return condition(*(CHOICES[thing][name] for thing, name in zip(things, names, strict=True)))

        return {"operator": "fn", "requires": things, "evaluate": lambda row: holds(*(row[thing] for thing in things))}

    factors = {thing: list(names) for thing, names in CHOICES.items()} | {"job": list(JOBS)}
    return covertable.make(factors, presets=first, constraints=[constraint(*entry) for entry in CONDITIONS.items()])


class Folder:
    """A scenario on disk with its data, and what the command line makes of it."""

    def __init__(self, path: Path, monkeypatch, **sections):
        self.scenario, self.out, self.computed = path / "pair.yaml", path / "out", {}
        write_data(path)
        self.write(sections)
        write = ResultFolder.write_dataset

        def keep(folder, dataset, *name):
            """Keep what was computed, of a sweep that has both the sweep, to compare it with what is read back."""
            self.computed[folder.path.name] = dataset
            return write(folder, dataset, *name)

        monkeypatch.setattr(ResultFolder, "write_dataset", keep)
        monkeypatch.setenv("COLUMNS", "300")  # no table is fitted to the terminal

    def write(self, sections: dict) -> None:
        self.sections = sections
        self.scenario.write_text(yaml.safe_dump(sections))

    def command(self, *arguments: str) -> None:
        """Run the command line; a statement about a model of descent may fail, which is exit code 1."""
        code = cli.main(list(arguments))
        assert code == 0 or (code == 1 and self.sections["flow"]["models"] != [GRADIENT])

    def compute(self) -> flowsim.results.Results:
        """Run the scenario, see that all is there that is promised, and that it is read back as it was computed."""
        self.command(str(self.scenario), "--out", str(self.out), "--jobs", "1")
        folder = self.out / self.scenario.stem
        assert {"scenario.yaml", "summary.json", "report.html"} <= {path.name for path in folder.iterdir()}
        results = flowsim.open_results(folder)
        figures = {path.stem for path in (folder / "figures").glob("*.png")}
        assert figures
        assert figures == {path.stem for path in (folder / "figures").glob("*.pdf")}
        xarray.testing.assert_equal(results.to_dataset(), self.computed[folder.name])
        return results


def write_data(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [",".join(f"{number:.6f}" for number in row) for row in rng.standard_normal((ROWS, FEATURES + 1))]
    (folder / "table.csv").write_text("\n".join(["a,b,c,y", *rows]))
    labelled = [f"{row.rpartition(',')[0]},{'pqr'[number % 3]}" for number, row in enumerate(rows)]
    (folder / "labels.csv").write_text("\n".join(["a,b,c,kind", *labelled]))
    images = rng.integers(0, 256, (12, IMAGES["cifar10"]), dtype=np.uint8)
    rows = np.concatenate([np.arange(12, dtype=np.uint8)[:, None] % 2, images], axis=1)
    for number, part in enumerate(rows.reshape(6, 2, -1), start=1):
        name = "test_batch" if number == 6 else f"data_batch_{number}"
        (folder / f"{name}.bin").write_bytes(part.tobytes())


def sections(data: str, network: str, loss: str, descent: str, model: str, sharpness: str, precision: str, **_) -> dict:
    """Return the scenario of a run from one initialization."""
    chosen = {"data": data, "network": network, "loss": loss, "descent": descent, "model": model}
    made = {thing: CHOICES[thing][name] for thing, name in chosen.items()}
    return {
        "precision": precision,
        **{thing: made[thing] for thing in ("data", "network", "loss")},
        "flow": {"t1": 2 * RATE, "models": list(dict.fromkeys((GRADIENT, made["model"])))},
        "descent": {"learning_rates": [RATE], "steps": 2, "optimizer": made["descent"]},
        "sharpness": CHOICES["sharpness"][sharpness],
    }


def swept(scenario: dict, repetitions: int = 1) -> dict:
    """Return the scenario with its runs in a sweep."""
    option = "scale" if ":" not in scenario["network"]["kind"] else "width_size"
    over = {f"network.{option}": [scenario["network"].get(option, 1.0)]}
    descent = [scenario["descent"]]
    return scenario | {"descent": {}, "sweep": {"over": over, "repetitions": repetitions, "descent": descent}}


def has_lines(text: str, lines: str) -> bool:
    """Tell whether these lines are in a text, which may break them elsewhere."""
    unbroken = " ".join(text.split())
    return all(" ".join(line.split()) in unbroken for line in lines.splitlines())


def has_its_figures(results: flowsim.results.Results) -> bool:
    """Tell whether what is read back is drawn under the names of the files."""
    return set(results.figures()) == {path.stem for path in (results.folder / "figures").iterdir()}


def is_run(folder: Folder, capsys) -> None:
    results = folder.compute()
    start = results.trajectories.isel(record=0)["risk"]
    assert np.isfinite(start).all()
    assert capsys.readouterr().out.count("\nG") >= 2  # the rows of GF and of GD


def is_swept(folder: Folder, capsys) -> None:
    folder.write(swept(folder.sections))
    results = folder.compute()
    assert np.isfinite(results.sweep["initial_risk"]).all()
    assert (results.sweep["outcome"] != NOT_ASKED).all()
    assert has_lines(capsys.readouterr().out, str(results.swept))


def is_checked(folder: Folder, capsys) -> None:
    folder.command("check", str(folder.scenario))
    assert not folder.out.exists()
    assert "is right" in capsys.readouterr().out


def is_reported(folder: Folder, capsys) -> None:
    results = folder.compute()

    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in results.folder.rglob("*") if path.suffix in (".png", ".json")}

    first, printed = files(), capsys.readouterr().out
    folder.command("report", str(results.folder))
    assert files() == first
    assert capsys.readouterr().out.split("wrote")[0] == printed.split("wrote")[0]


def is_resumed(folder: Folder, capsys) -> None:
    folder.write(swept(folder.sections, repetitions=2))
    first = folder.compute()
    assert has_its_figures(first)
    shutil.rmtree(first.folder)
    next(path for path in sorted((folder.out / ".blocks").rglob("*")) if path.is_file()).unlink()
    xarray.testing.assert_identical(folder.compute().sweep, first.sweep)


def is_put_side_by_side(folder: Folder, capsys) -> None:
    first = folder.compute()
    folder.scenario = folder.scenario.with_name("other.yaml")
    folder.write(folder.sections | {"seed": 1})
    second = folder.compute()
    folder.command("report", str(first.folder), str(second.folder))
    assert (folder.out / "side_by_side" / "report.html").exists()
    assert "seed" in capsys.readouterr().out


def is_compared(folder: Folder, capsys) -> None:
    scenario = read_scenario(folder.scenario)
    both = run(scenario, *build(scenario, folder.scenario.parent))
    both.save(folder.out)
    stored = flowsim.open_results(folder.out)
    xarray.testing.assert_equal(stored.to_dataset(), both.to_dataset())
    assert str(stored.comparison) == str(both)


def is_opened(folder: Folder, capsys) -> None:
    results = folder.compute()
    assert has_lines(capsys.readouterr().out, str(results.comparison))
    assert len(results.to_dataframe()) >= results.trajectories.sizes["run"]
    assert results.plot("risk").lines
    assert has_its_figures(results)
    results.save(copy := folder.out.with_name("copy"))
    xarray.testing.assert_identical(flowsim.open_results(copy).to_dataset(), results.to_dataset())


JOBS = {
    "run": is_run,
    "sweep": is_swept,
    "check": is_checked,
    "report": is_reported,
    "compare": is_compared,
    "open results": is_opened,
    "resume": is_resumed,
    "side by side": is_put_side_by_side,
}
# Each choice of data is checked, and each source swept with what it requires alone. Each other job is done once, with
# data of one shape, which compile once. Every other network and loss is checked.
SIMPLEST = {"data": "gaussian", "network": "mlp", "loss": "squared_error", "descent": "gradient_descent"}
SIMPLEST |= {"model": GRADIENT, "sharpness": "sharpness at the end", "precision": "float64"}
PLACES = {"run": "file", "report": "gaussian", "compare": "gaussian", "open results": "file 1", "resume": "file"}
PLACES |= {"side by side": "file"}
OTHERWISE = {"loss": "huber", "descent": "heavy_ball", "sharpness": "sharpness along", "precision": "float32"}
FEW = [SIMPLEST | {"data": data, "job": "check"} for data in CHOICES["data"]]
FEW += [SIMPLEST | {"data": data, "job": "sweep"} for data in SOURCES]
FEW += [SIMPLEST | {"job": job, "data": data} for job, data in PLACES.items()]
for network in sorted(CHOICES["network"].keys() - {SIMPLEST["network"]}):
    samples = {"convolutional": "digits 1"}.get(network, "gaussian 1")
    FEW.append(SIMPLEST | OTHERWISE | {"network": network, "data": samples, "job": "check"})
for loss in sorted(CHOICES["loss"].keys() - {SIMPLEST["loss"]}):
    FEW.append(SIMPLEST | {"loss": loss, "data": "labelled 1", "job": "check"})


def name_of(chosen: dict[str, str]) -> str:
    return ", ".join(chosen[thing] for thing in (*CHOICES, "job"))


def pytest_generate_tests(metafunc):
    """Cover all pairs where slow tests are asked for: to choose the runs takes a second or two."""
    fast = metafunc.function is test_a_pair_ends_as_documented_and_is_read_back
    runs = FEW if fast or metafunc.config.option.markexpr == "not slow" else covering_runs(FEW)
    metafunc.parametrize("chosen", runs, ids=name_of)


@pytest.mark.filterwarnings("ignore:the gradient jumps on the way")  # networks of ReLU are among them
def test_a_pair_ends_as_documented_and_is_read_back(chosen, tmp_path, monkeypatch, capsys):
    JOBS[chosen["job"]](Folder(tmp_path, monkeypatch, **sections(**chosen)), capsys)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the gradient jumps on the way")
def test_every_pair_ends_as_documented_and_is_read_back(chosen, tmp_path, monkeypatch, capsys):
    test_a_pair_ends_as_documented_and_is_read_back(chosen, tmp_path, monkeypatch, capsys)
