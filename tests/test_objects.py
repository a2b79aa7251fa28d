"""Objects show themselves: in a line, as the table of the command line, in a notebook, drawn, and once stored."""

import dataclasses
import io
import locale
import sys
import xml.etree.ElementTree as xml
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
from made_runs import made_comparison, with_runs, write_without_figures
from matplotlib.figure import Figure
from own_networks import first_weight, make, regression
from table_checks import check_fits

import flowsim
from flowsim import report
from flowsim.curvature.eigenpair import eigenpairs_dense
from flowsim.formatting import with_entries
from flowsim.results import ResultFolder, StoreError
from flowsim.theory import Assumption, Claim, Statement, Statements, Verdict, judge

MET = [Assumption("A1", True)]


@pytest.fixture(scope="module")
def both():
    """A flow and two descents of closed forms, with a probe of a number and one of two."""

    def probed(run):
        count = len(run.times)
        measured = {"number": np.arange(count) + 1.0, "pair": np.stack([np.ones(count), np.arange(count)], axis=1)}
        labels = {name: flowsim.Label(name, f"what {name} says", name) for name in measured}
        return dataclasses.replace(run, diagnostics=measured, labels=labels)

    return with_runs(made_comparison([0.1, 0.4]), probed)


@pytest.fixture(scope="module")
def swept():
    over = {"scale": [0.5, 0.8], "noise": [0.2, 0.9], "learning_rate": [0.1]}
    return flowsim.sweep(make, regression, over, repetitions=2, steps=40, probes=[first_weight])


@pytest.fixture(scope="module")
def descent(both):
    return both.descents[0].trajectory


@pytest.fixture
def nothing_computes(monkeypatch):
    monkeypatch.setattr("flowsim.dynamics.trajectory.sharpness", lambda *_: pytest.fail("something was computed"))


@pytest.fixture
def axes():
    return lambda: Figure().subplots()


def _page(shown):
    return xml.fromstring(f"<div>{shown._repr_html_()}</div>")


def _headers(shown):
    return ["".join(cell.itertext()) for cell in _page(shown).findall(".//th[@scope='col']")]


def _leaves(change, run):
    return jax.tree.map(lambda leaf: jnp.asarray(change(np.asarray(leaf))), run)


class TestLines:
    def test_runs_say_what_moved_them_how_they_ended_and_where(self, both, descent, nothing_computes):
        assert repr(both.flow) == "Trajectory(gradient_flow, converged at t = 20 after 50 steps, risk 0.5)"
        assert repr(descent) == "Trajectory(gradient_descent, η = 0.1, converged at t = 20 after 200 steps, risk 0.5)"
        assert repr(both) == "Comparison(GF converged; η = 0.1 converged; η = 0.4 converged)"

    def test_a_batch_says_how_many_runs_ended_in_which_way(self, both):
        batch = _leaves(lambda leaf: np.stack([leaf, leaf]), both.flow)
        assert repr(batch) == str(batch) == "Trajectory(gradient_flow, 2 runs: 2 converged)"
        assert batch._repr_html_() is None
        with pytest.raises(ValueError, match=r"one run outside of jax.jit, found .*2 runs.*leaf\[0\]"):
            batch.to_dataset()

    def test_a_traced_trajectory_has_a_line_a_print_and_no_numbers(self, both):
        lines = []

        def look_at(run):
            lines.extend([repr(run), str(run)])
            return run.risk

        jax.eval_shape(look_at, both.flow)
        jax.eval_shape(jax.vmap(look_at), _leaves(lambda leaf: np.stack([leaf, leaf]), both.flow))
        assert lines == ["Trajectory(gradient_flow, traced, 41 records)"] * 4

    def test_a_tree_of_anything_in_the_place_of_numbers_has_a_line(self, both):
        for leaf in (None, True, "a word", jax.ShapeDtypeStruct((3,), float), object()):
            assert repr(jax.tree.map(lambda _, leaf=leaf: leaf, both.flow)).startswith("Trajectory(gradient_flow, ")
        gone = _leaves(np.array, both.flow)
        jax.tree.map(lambda leaf: leaf.delete(), gone)
        assert repr(gone).startswith("Trajectory(gradient_flow, no numbers")

    @pytest.mark.slow
    def test_eigenvalues_carry_their_certificate_and_tracers_their_shape(self):
        pairs = eigenpairs_dense(jnp.diag(jnp.array([1.0, 4.0, 9.0])), largest=2)
        assert repr(pairs.pair(0)).startswith("Eigenpair(9 ± ")
        assert repr(pairs).startswith("Eigenpairs(2: 9 ± ")
        assert [line.split()[:2] for line in str(pairs).splitlines()[2:4]] == [["λ1", "9"], ["λ2", "4"]]
        assert len(_page(pairs).findall(".//tbody/tr")) == 2
        assert "not converged" in str(dataclasses.replace(pairs, converged=~pairs.converged))
        traced = []
        jax.eval_shape(lambda pairs: traced.append(repr(pairs.pair(0))), pairs)
        assert traced == ["Eigenpair(float64[])"]


class TestPrinted:
    def test_a_trajectory_is_a_table_with_one_row_and_no_columns_of_dashes(self, both, descent):
        row = next(line for line in str(both.flow).splitlines() if line.startswith("GF"))
        assert "–" not in row
        assert "η" not in str(both.flow)
        row = next(line for line in str(descent).splitlines() if line.startswith("GD"))
        assert row.split()[:3] == ["GD", "0.1", "200"]
        assert "20" in row.split()[4:]  # 2/η
        assert "distance" not in str(descent)

    @pytest.mark.parametrize(
        ("error", "text"), [(RuntimeError("no"), "verdict"), (TypeError("no jvp"), "no table: Ty")]
    )
    def test_printing_a_trajectory_never_raises(self, descent, monkeypatch, error, text):
        def refuse(*arguments, **options):
            raise error

        monkeypatch.setattr("flowsim.dynamics.trajectory.sharpness", refuse)
        assert text in str(dataclasses.replace(descent, sharpness=None))  # which is then not known

    def test_tables_fit_eighty_columns_and_have_header_cells_in_a_notebook(self, both, descent):
        for shown, title, header in ((both, "a name", "distance to the flow"), (descent, "", "verdict")):
            check_fits(report.tables(shown.to_dataset(), title))
            assert header in _headers(shown)

    @pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
    def test_what_is_printed_is_spelled_in_the_characters_of_standard_output(
        self, both, swept, tmp_path, monkeypatch, encoding
    ):
        for name in ("a", "b"):
            write_without_figures(both.to_dataset(), tmp_path / name)
        stored, together = flowsim.open_results(tmp_path / "a"), flowsim.side_by_side(tmp_path / "a", tmp_path / "b")
        claim = Claim("S reaches 2/η", "ηS ≤ 2", "∇R → 0", True)
        bound = judge("‖W‖", "‖W‖ ≤ λ²", 1.0, 2.0, assumptions=MET)
        written = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", written)
        event = flowsim.Progress("GD, η = 0.1", 1, 2)
        for result in (both, both.flow, both.descents[1].trajectory, swept, stored, together, claim, bound, event):
            print(result)
            print(repr(result))
        written.flush()
        text = written.buffer.getvalue().decode(encoding)
        assert "2/eta" in text
        assert "Comparison(GF converged; eta = 0.1 converged; eta = 0.4 converged)" in text
        assert "GD, eta = 0.1: 50%" in text
        assert event.stage == "GD, η = 0.1"
        assert "?" not in text

    def test_a_printed_table_fits_into_a_text_file_of_the_system(self, both, tmp_path, monkeypatch):
        assert "2/η" in str(both)
        monkeypatch.setattr(locale, "getpreferredencoding", lambda do_setlocale=True: "cp1252")
        (tmp_path / "table.txt").write_text(str(both), encoding="cp1252")


class TestStatements:
    def test_statements_and_claims_are_lines_tables_and_frames(self):
        series = judge("Lemma 1", "a ≤ b", [1.0, 2.0], [2.0, 2.5], assumptions=MET, times=np.arange(2.0))
        apart = Statement("Theorem 5", "a", Verdict.NOT_APPLICABLE, note="other networks")
        statements = Statements((series, apart))
        assert repr(series) == "Statement(Lemma 1: holds, margin 0.2, over 2 times)"
        assert repr(statements) == "Statements(1 holds, 1 not applicable)"
        assert str(statements).splitlines()[-1] == "Not applicable: Theorem 5"
        assert str(series).splitlines()[-1].split() == ["Lemma", "1", "2", "2.5", "0.2", "holds"]
        assert [statements[0], *statements[1:]] == [series, apart]
        assert len(_page(statements).findall(".//tbody/tr")) == 1
        assert statements.to_dataframe()["margin"].iloc[0] == pytest.approx(0.2)
        claim = Claim("no plateau", "below one", "0.5", True)
        assert repr(claim) == "Claim(no plateau: holds)"
        assert "below one" in str(claim)
        assert len(_page(claim).findall(".//th")) == 3

    def test_a_statement_that_fails_reads_so_and_its_sides_stand_under_heads_that_are_right(self, both):
        claim = "the risk at the end is at most that at the start"
        failing = judge("risk falls", claim, 0.35, 0.25, assumptions=MET)
        about = flowsim.RunStatements(report.views.read_runs(both.to_dataset()).others[0].run, (failing,))
        for table in (str(failing), str(Statements((failing,))), str(about)):
            words = " ".join(table.split())
            assert "claimed smaller claimed larger margin" in words
            assert "0.35 0.25 -0.2857 fails" in words
            assert f"risk falls fails: it does not hold that {claim}" in words
        assert _headers(failing)[1:3] == ["claimed smaller", "claimed larger"]
        assert list(Statements((failing,)).to_dataframe()[["smaller", "larger"]].iloc[0]) == [0.35, 0.25]

    def test_statements_about_runs_are_those_of_their_table(self, both):
        held = judge("held", "a ≤ b", 1.0, 2.0, assumptions=MET)
        about = flowsim.RunStatements(report.views.read_runs(both.to_dataset()).others[0].run, (held,))
        assert repr(about) == "RunStatements(η = 0.1: held holds)"
        assert str(about).splitlines()[-1].split() == ["held", "GD", "0.1", "1", "2", "0.5", "holds"]
        assert str(both.statements) == "no statements"
        frame = type(both.statements)((about,)).to_dataframe()
        assert frame[["learning_rate", "name", "verdict"]].values.tolist() == [[0.1, "held", "holds"]]


class TestStored:
    """What is read back tells the same, to the last character, without computing."""

    def _check(self, live, stored):
        assert str(live) == str(stored)
        assert live._repr_html_() == stored._repr_html_()
        pandas.testing.assert_frame_equal(live.to_dataframe(), stored.to_dataframe())
        assert live.to_dataframe().attrs["units"] == stored.to_dataframe().attrs["units"]

    def test_a_comparison_and_its_data_set_read_back_are_the_same(self, both, tmp_path, axes, nothing_computes):
        ResultFolder(tmp_path / "mine").write_dataset(both.to_dataset())
        stored = flowsim.open_results(tmp_path / "mine")
        self._check(both, stored.comparison)
        assert both.figures().keys() == stored.comparison.figures().keys()
        assert repr(stored).startswith(f"Results('{tmp_path / 'mine'}': StoredRuns(GF converged; η = 0.1 conv")
        assert str(stored).startswith("mine\n")
        assert stored.to_dataset().identical(stored.trajectories)
        assert stored.plot("risk", ax=axes()).get_ylabel() == r"risk $R$"
        assert len(_page(stored).findall(".//caption")) == 2

    @pytest.mark.slow
    def test_a_sweep_has_a_line_and_a_table_and_read_back_is_the_same(self, swept, tmp_path, monkeypatch):
        monkeypatch.setattr(import_module("flowsim.report.document"), "sweep_figures", lambda dataset: {})
        assert repr(swept) == "Sweep(2 scale × 2 noise; 2 repetitions; runs GF, η = 0.1)"
        check_fits(report.sweep_shown(swept.dataset, "a name"))
        assert "settled" in _headers(swept)
        swept.save(tmp_path / "mine")
        again = flowsim.open_results(tmp_path / "mine")
        self._check(swept, again.swept)

    @pytest.mark.slow
    def test_results_are_copied_and_other_results_are_kept(self, both, tmp_path, monkeypatch):
        monkeypatch.setattr(import_module("flowsim.report.document"), "trajectories_figures", lambda dataset: {})
        both.save(tmp_path / "mine")
        stored = flowsim.open_results(tmp_path / "mine")
        written = stored.save(tmp_path / "copy")
        assert {path.name for path in written} >= {"trajectories.nc", "summary.json", "report.html"}
        assert str(flowsim.open_results(tmp_path / "copy").comparison) == str(stored.comparison)
        with pytest.raises(StoreError, match="holds other results; write overwrite=True"):
            both.flow.save(tmp_path / "copy")
        both.flow.save(tmp_path / "copy", overwrite=True)
        assert flowsim.open_results(tmp_path / "copy").summary["descent"] == []
        with pytest.raises(StoreError, match="is the folder that these results were read from"):
            stored.save(tmp_path / "mine", overwrite=True)


class TestFrames:
    def test_trajectories_have_a_row_for_each_run_and_record(self, both):
        runs = [both.flow, *(one.trajectory for one in both.descents)]
        frame = both.to_dataframe()
        assert len(frame) == sum(len(run.times) for run in runs)
        for number, run in enumerate(runs):
            part = frame[frame["run"] == number]
            np.testing.assert_array_equal(part["risk"], run.risk)
            np.testing.assert_array_equal(part[["pair_0", "pair_1"]], run.diagnostics["pair"])
        assert frame["learning_rate"].dropna().unique().tolist() == [0.1, 0.4]
        assert frame["dynamics"].unique().tolist() == ["gradient_flow", "gradient_descent"]
        assert frame.attrs["units"]["risk"] == "1"
        assert frame.attrs["long_name"]["risk"] == "risk R(W)"
        assert frame.attrs["sharpness_lower_bound"] == both.bounds[0]

    @pytest.mark.slow
    def test_sweeps_have_a_row_for_each_point_repetition_and_run(self, swept):
        frame = swept.to_dataframe()
        assert len(frame) == 2 * 2 * 2 * 2
        row = frame.query("scale == 0.8 and noise == 0.2 and repetition == 1 and learning_rate == 0.1")
        there = swept.dataset.sel(scale=0.8, noise=0.2, repetition=1).isel(run=1)
        assert row["final_sharpness"].tolist() == [float(there["final_sharpness"])]
        assert row["initial_risk"].tolist() == [float(there["initial_risk"])]
        assert row["outcome"].tolist() == ["STEP_LIMIT"]
        turned = swept.dataset.assign(final_sharpness=swept.dataset["final_sharpness"].transpose())
        pandas.testing.assert_frame_equal(flowsim.Sweep(turned, ()).to_dataframe(), frame)


class TestPlots:
    def test_a_quantity_is_drawn_as_in_the_figures(self, both, axes):
        figures = both.figures()
        for quantity in ("sharpness", "risk", "distance", "number", "pair"):
            drawn = both.plot(quantity, ax=(given := axes()))
            assert drawn is given
            if quantity in figures:
                figure = figures[quantity].axes[0]
                assert (drawn.get_ylabel(), drawn.get_yscale()) == (figure.get_ylabel(), figure.get_yscale())
                assert drawn.get_xlabel() == figure.get_xlabel() == r"time $t = \eta k$"
                assert len(drawn.lines) == len(figure.lines)
            assert {text.get_text() for text in drawn.get_legend().get_texts()} >= {r"$\eta = 0.1$", r"$\eta = 0.4$"}
        assert {"sharpness", "distance", "number", "pair"} <= set(figures)

    def test_a_lone_descent_has_its_edge_and_no_flow(self, descent, axes):
        assert report.summary(descent.to_dataset())["flow"] is None
        labels = [line.get_label() for line in descent.plot("sharpness", ax=axes()).lines]
        assert r"$\eta = 0.1$" in labels
        assert "GF" not in labels
        assert descent.to_dataset()["learning_rate"].values.tolist() == [0.1]
        assert {"squared_distance", "sharpness"} <= set(descent.figures())
        assert "distance" not in descent.figures()
        row = report.rows(dataclasses.replace(descent, dynamics="heavy_ball").to_dataset())[0]
        assert (row["method"], row["learning_rate"], row["threshold"]) == ("heavy ball", 0.1, 20)

    def test_unknown_names_are_answered_with_the_known_ones(self, both):
        with pytest.raises(ValueError, match=r"'sharpnes' was not recorded: there are risk, .*number"):
            both.plot("sharpnes")
        with pytest.raises(ValueError, match=r"'time' was not recorded"):
            both.plot("time")

    def test_what_is_no_single_axes_is_refused_with_what_makes_one(self, both, axes):
        for other in (axes().figure, np.array([axes(), axes()])):
            with pytest.raises(TypeError, match=r"ax must be one axes of Matplotlib, such as figure.add_subplot\(\)"):
                both.plot("risk", ax=other)

    @pytest.mark.slow
    def test_a_sweep_is_drawn_along_its_first_axis_where_asked_on_the_others_and_unknown_names_are_refused(
        self, swept, axes
    ):
        for quantity, at, message in (
            ("time", {}, r"'time' was not recorded: there are .*first_weight.*steps"),
            ("risk", {"depth": 3}, "at has 'depth': the axes beside scale, along which it goes, are noise"),
            ("risk", {"noise": 7}, r"at\['noise'\] is 7: the sweep has 0.2, 0.9"),
        ):
            with pytest.raises(ValueError, match=message):
                swept.plot(quantity, at=at)
        drawn = swept.plot("first_weight", ax=axes(), at={"noise": 0.9})
        assert drawn.get_title() == "noise = 0.9"
        assert drawn.get_xlabel() == "scale of the initialization"
        line = next(line for line in drawn.lines if line.get_label() == "GF")
        ends = swept.dataset["final_first_weight"].sel(noise=0.9).isel(run=0).mean("repetition")
        np.testing.assert_allclose(line.get_ydata(), ends, rtol=1e-12)
        assert swept.plot("steps", ax=axes()).get_ylabel() == "steps"
        assert swept.plot("sharpness", ax=axes()).get_title() == "noise = 0.2"


def test_columns_without_entries_are_left_out():
    columns = [("a", "a", 3), ("b", "b", 3), ("c", "c", 3)]
    rows = [{"a": None, "b": float("nan"), "c": "GF"}, {"a": 0.0, "b": None, "c": "GD"}]
    assert [header for header, _, _ in with_entries(columns, rows)] == ["a", "c"]
