"""What the documentation shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language, holding):
    found = [code for code in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if holding in code]
    assert found, f"no block of {language} with {holding} in README.md"
    return found


def test_every_figure_shown_is_in_the_repository():
    shown = re.findall(r"!\[([^]]+)\]\(([^)]+)\)", README)
    assert len(shown) > 10
    for words, path in shown:
        assert len(words) > 5
        assert (ROOT / path).is_file(), path


def test_the_scenario_shown_in_full_is_one(tmp_path):
    from flowsim.experiments.reading import read_scenario

    (shown,) = blocks("yaml", "descent: {learning_rates")[:1]
    (tmp_path / "shown.yaml").write_text(shown)
    assert read_scenario(tmp_path / "shown.yaml").seed == yaml.safe_load(shown)["seed"]


@pytest.mark.slow
def test_the_ten_lines_on_digits_run_as_they_stand(tmp_path):
    (code,) = blocks("python", "my_digits")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    assert (tmp_path / "results" / "my_digits" / "figures" / "test_accuracy.png").exists()
