"""The checks of flowsim, each in a new environment: `nox` runs all, `nox -s tests-3.12` one.

A Python that is not there is passed over. What stands behind `--` goes on to pytest.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYTHONS = nox.project.python_versions(nox.project.load_toml(ROOT / "pyproject.toml"))  # its classifiers

nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False  # nox would have it so where CI=true


def _show_pyenv_versions() -> None:
    """Have pyenv's `python3.x` start each version it has, not only the one that is chosen in this folder."""
    if shutil.which("pyenv"):
        listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=False)
        versions = [version for version in listed.stdout.split() if version.startswith(tuple(PYTHONS))]
        os.environ["PYENV_VERSION"] = ":".join([*versions, "system"])


def _newest_python() -> str:
    """Return the newest of the Pythons that starts: pyenv has a name even for those that it lacks."""
    for python in reversed(PYTHONS):
        program = shutil.which(f"python{python}")
        if program and not subprocess.run([program, "--version"], capture_output=True, check=False).returncode:
            return python
    return _this_python()


def _this_python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


_show_pyenv_versions()


def _run_main_job(session: nox.Session) -> None:
    """Run the scenario of the README away from the repository, so with the package as it is installed."""
    out = session.create_tmp()
    with session.chdir(out):
        session.run("python", "-m", "flowsim", str(ROOT / "scenarios" / "residual.yaml"), "--out", ".", "--overwrite")


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The fast tests, with the newest dependencies."""
    session.install(".[test]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def slow(session: nox.Session) -> None:
    """The tests that take minutes."""
    session.install(".[test]")
    session.run("python", "-m", "pytest", "-m", "slow", *session.posargs)


@nox.session(python=PYTHONS[0])
def oldest(session: nox.Session) -> None:
    """The fast tests, with the oldest dependencies that pyproject.toml declares."""
    session.install("--resolution", "lowest-direct", ".[test]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session
def package(session: nox.Session) -> None:
    """The source distribution, the wheel that is built from it, and the main job with nothing but that wheel."""
    session.install("build", "twine")
    out = Path(session.create_tmp(), "dist")
    shutil.rmtree(out, ignore_errors=True)
    session.run("python", "-m", "build", "--quiet", "--outdir", str(out))
    (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
    session.run("twine", "check", "--strict", str(wheel), str(source))
    kept = {str(path.relative_to(ROOT)) for path in (ROOT / "flowsim").rglob("*.py*") if path.suffix != ".pyc"}
    if missing := kept - set(zipfile.ZipFile(wheel).namelist()):
        session.error(f"{wheel.name} lacks {', '.join(sorted(missing))}")
    session.install("--force-reinstall", str(wheel))
    _run_main_job(session)


@nox.session(python=_newest_python(), default=False)
def newest(session: nox.Session) -> None:
    """The main job and the fast tests under the newest Python, if that is another than the one which runs nox."""
    if session.python == _this_python():
        session.skip(f"no newer Python than {session.python} is here")
    session.install(".")
    _run_main_job(session)
    session.install(".[test]")
    session.run("python", "-m", "pytest", *session.posargs)


@nox.session(default=False)
def torch(session: nox.Session) -> None:
    """What speaks to PyTorch: under Linux its packages of PyPI are gigabytes, so this runs when it is asked for."""
    session.install(".[test,torch]")
    files = ["tests/test_torch.py", "tests/test_documentation_how_to.py"]
    options = ["-m", "slow or not slow", "--optimize", "-k", "torch"]
    session.run("python", "-m", "pytest", *options, *files, *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation as a site, without a warning and without anything fetched, and the lecture's notebook."""
    session.install(".[docs]")
    site = session.create_tmp()
    session.run("mkdocs", "build", "--strict", "--site-dir", site, env={"DISABLE_MKDOCS_2_WARNING": "true"})
    session.run("python", str(ROOT / "docs" / "scripts" / "check_site.py"), site)
    files = [f"tests/test_{name}.py" for name in ("docs_scripts", "documentation", "documentation_how_to")]
    files.append("tests/test_documentation_runs.py")
    session.run("python", "-m", "pytest", "-m", "slow or not slow", "--optimize", *files)  # as users do
    session.run("python", str(ROOT / "docs" / "scripts" / "run_lecture.py"))


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff's rules and format, and the types."""
    session.install(".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("basedpyright", "--pythonpath", f"{session.virtualenv.location}/bin/python")
