"""Compiled programs kept from run to run, on machines where a trial has shown that they come back as they were."""

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import jax
import platformdirs

from ..runtime.compiling import keep_programs_in, programs_folder

_TRIAL = Path(__file__).with_name("trial_of_kept_programs.py")


def keep_programs() -> None:
    """Have this process, and those that it starts, keep what they compile in the user's cache folder, and load it.

    A user who tells JAX where to keep programs, or not to, decides. Nothing is kept where there is no folder that is
    the user's alone: whoever writes there decides what runs. Nor where a program that another process had kept was
    refused, crashed or computed something else, as JAX's cache for CPUs does on some machines (jax issue 38445).
    That is tried once for each machine and version of JAX, in processes of their own, in some two seconds.
    """
    if programs_folder() or not jax.config.jax_enable_compilation_cache:  # pyright: ignore[reportAttributeAccessIssue]
        return
    with suppress(OSError, subprocess.TimeoutExpired):
        folder = _own_folder(platformdirs.user_cache_path("flowsim", appauthor=False) / "programs")
        here = _own_folder(folder / _machine())
        tried = here / "tried"
        if not tried.exists():
            with tempfile.TemporaryDirectory(dir=here) as trial:
                kept, loaded = (_output_of_trial(trial, task) for task in ("keep", "load"))
            tried.write_text("safe\n" if kept and kept == loaded else "refused, crashed or changed\n")
        if tried.read_bytes() == b"safe\n":
            _remove_oldest(folder)
            keep_programs_in(here)


def _own_folder(path: Path) -> Path:
    """Return a folder that nobody else can write to. Raises `OSError` where there is none."""
    if not path.is_absolute():  # who has no home is given one called ~
        raise FileNotFoundError(path)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o022):
        raise PermissionError(path)
    return path


def _machine() -> str:
    """Return a name for this processor and these versions of JAX: a cluster may share one home among many kinds."""
    known = [version("jax"), version("jaxlib"), *platform.uname()[4:]]
    with suppress(OSError):
        processor = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        known += [line for line in processor if line.startswith(("model name", "flags", "Features", "CPU"))]
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]


def _output_of_trial(folder: str, task: str, *, seconds: float = 60) -> str:
    """Return what a process prints that keeps programs in a folder, or loads them: nothing where it fails.

    Raises `OSError` where no process can be started, and `subprocess.TimeoutExpired`: neither says anything of a trial.
    """
    command = [sys.executable, "-P", str(_TRIAL), folder, task]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    with suppress(subprocess.CalledProcessError):
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=seconds
        ).stdout
    return ""


def _remove_oldest(folder: Path, *, most_bytes: int = 2**29) -> None:
    """Remove the older half of what is kept, for all machines, where it has become too much.

    The folder may be a link, and have other things in it: only files that JAX names so in folders named after machines.
    """
    digit = "[0-9a-f]"
    programs = folder.glob(f"{16 * digit}/*-{64 * digit}-cache")
    own = (path for path in programs if path.is_file() and not (path.is_symlink() or path.parent.is_symlink()))
    files = [(path.stat(), path) for path in own]
    if sum(status.st_size for status, _ in files) > most_bytes:
        for _, path in sorted(files, key=lambda file: file[0].st_mtime)[: len(files) // 2 + 1]:
            path.unlink(missing_ok=True)
