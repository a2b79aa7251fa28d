"""Subcommands, and what the help of the command line says."""

import pytest

from flowsim import cli
from flowsim.cli.command import SUBCOMMANDS


@pytest.fixture
def helped(monkeypatch, capsys):
    """Return a function that gives the text of a --help, as wide as an ordinary terminal."""
    monkeypatch.setenv("COLUMNS", "80")

    def text(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--help"])
        assert ended.value.code == 0
        return capsys.readouterr().out

    return text


@pytest.mark.parametrize("words", [(), *((word,) for word in SUBCOMMANDS)])
def test_help_fits_into_eighty_columns(helped, words):
    assert max(len(line) for line in helped(*words).splitlines()) <= 80


@pytest.mark.parametrize(
    ("words", "write"),
    [
        (["rapport", "results/residual"], "python -m flowsim report results/residual"),
        (["chekc", "residual.yaml", "--quick"], "python -m flowsim check residual.yaml --quick"),
        (["NEW", "residual"], "python -m flowsim new residual"),
        (["residual"], "python -m flowsim new residual"),
    ],
)
def test_a_mistyped_subcommand_is_told_what_it_could_have_been(words, write, capsys):
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert said.splitlines() == [said.rstrip("\n")]
    assert said.endswith(f"; write {write}\n")
    assert "expected a scenario file (YAML), or a subcommand: report, new, check" in said


def test_what_is_nothing_like_a_subcommand_is_a_file_that_is_not_there(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["experiment"]) == 2
    assert "no such file; expected a scenario file; write" in capsys.readouterr().err


def test_a_file_that_is_called_almost_like_a_subcommand_is_read(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").write_text("seed: 1")
    assert cli.main(["reports"]) == 2
    assert "reports:1: data: found nothing" in capsys.readouterr().err
