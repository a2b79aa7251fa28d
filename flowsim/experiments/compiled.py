"""Compiled programs, kept on disk from one run to the next."""

import os
import warnings
from pathlib import Path

import jax
import platformdirs

_BYTES = 2**28
# What compiles faster is not worth a file.
_SECONDS = 0.05


def keep_compiled_programs() -> None:
    """Have JAX keep compiled programs in the user's cache folder, which saves the next run most of the compiling.

    JAX finds them by all that they depend on: the program, the versions, the processor. Beyond 256 MiB those that were
    not used for longest make room. What cannot be read or written is compiled again. The environment variable
    JAX_COMPILATION_CACHE_DIR names another folder; JAX_ENABLE_COMPILATION_CACHE=false keeps nothing.
    """
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        folder = _folder()
        if folder is None:
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_compilation_cache_max_size", _BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _SECONDS)
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache", UserWarning)


def _folder() -> Path | None:
    """Return the folder, `None` where it cannot be written."""
    folder = platformdirs.user_cache_path("flowsim") / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
