"""What fails in the code of a kind, which may be a user's own, in one message that says where."""

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from ..data import DataError
from ..results.store import StoreError
from .document import ScenarioError

# Where the code of a user is not.
_INSTALLED = (str(Path(__file__).parents[1]), *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")))


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Say in one message where `what` fails, unless it says so itself. Raises `ScenarioError`."""
    try:
        yield
    except (DataError, ScenarioError, StoreError, OSError, MemoryError, jax.errors.JaxRuntimeError):
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        frame = ([frame for frame in frames if not frame.filename.startswith(_INSTALLED)] or frames)[-1]
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ScenarioError(f"{what} fails: {reason} ({frame.filename}:{frame.lineno})") from error
