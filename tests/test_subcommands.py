"""Subcommands, and what the help of the command line says."""

import pytest

from flowsim import cli
from flowsim.cli.command import SUBCOMMANDS


def test_help_fits_into_eighty_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], *([word] for word in SUBCOMMANDS)):
        with pytest.raises(SystemExit, match="0"):
            cli.main([*words, "--help"])
        assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 80


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["rapport", "results/residual"],
            "or a subcommand: report, new, check; write python -m flowsim report results/re",
        ),
        (["chekc", "residual.yaml", "--quick"], "; write python -m flowsim check residual.yaml --quick\n"),
        (["NEW", "residual"], "; write python -m flowsim new residual\n"),
        (["residual"], "; write python -m flowsim new residual\n"),
        (["experiment"], "no such file; expected a scenario file; write"),
        (["reports"], "reports:1: data: found nothing"),  # a file that is there
    ],
)
def test_a_mistyped_subcommand_is_told_what_it_could_have_been_and_anything_else_is_a_file(
    words, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reports").write_text("seed: 1\nnetwork: {kind: mlp, depth: 1, scale: 1}")
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
