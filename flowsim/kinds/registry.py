"""The kinds of one thing by name: those registered here, and those in modules of a user's own."""

import difflib
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

Kind = TypeVar("Kind")
Entered = TypeVar("Entered")

# A module and a name in it, as my_module:MyKind.
OUTSIDE = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"


def is_kind_of(base: type) -> Callable[[Any], bool]:
    """Return the test of a registry for the classes that are kinds of `base` and lack none of its methods."""
    return lambda kind: inspect.isclass(kind) and issubclass(kind, base) and not inspect.isabstract(kind)


def reason_of(error: BaseException) -> str:
    """Return the type of an error, of the code of a user most of all, and the first line of its message."""
    return f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]


def got(given: object, base: type, *, needs: Collection[str] = ()) -> str:
    """Return in words what was given in place of an object of `base`: its type, or how its class is to be called.

    Parameters that it `needs` here are listed though they have a default.
    """
    if not is_kind_of(base)(given):
        return type(given).__name__ if not isinstance(given, type) else f"the class {given.__name__}"
    parameters = inspect.signature(cast(Any, given)).parameters.values()
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    needed = ", ".join(f"{one.name}=..." for one in named if one.default is one.empty or one.name in needs)
    name = cast(Any, given).__name__
    return f"the class {name} itself: write {name}({needed})"


class UnknownKindError(ValueError):
    """A name under which there is no kind: what was `found`, what is `expected`, and what to `write` instead."""

    def __init__(self, found: str, expected: str, write: str):
        super().__init__(f"found {found}; expected {expected}; write {write}")
        self.found, self.expected, self.write = found, expected, write


class Registry(Generic[Kind]):
    """The kinds of a `thing`, such as "a network": those registered, and any other by its place, `my_module:MyKind`.

    `elsewhere` names modules that register kinds besides the package of the registry: they are imported before a name
    is looked up. `accepts` tells whether an object is a kind of the thing at all, and `expected` says in words what is.
    A kind is registered where it is defined, with the decorator `register`, and nothing else lists the kinds:

        LOSSES = Registry("a loss", accepts=is_kind_of(Loss), expected="a subclass of flowsim.losses.Loss")

        @LOSSES.register("huber")
        class Huber(Loss): ...
    """

    def __init__(self, thing: str, *, accepts: Callable[[Any], bool], expected: str, elsewhere: Sequence[str] = ()):
        self.thing, self._accepts, self._expected, self._elsewhere = thing, accepts, expected, elsewhere
        self._entered: dict[str, Kind] = {}

    @property
    def _kinds(self) -> dict[str, Kind]:
        for module in self._elsewhere:
            importlib.import_module(module)
        return self._entered

    def register(self, name: str) -> Callable[[Entered], Entered]:
        """Return a decorator that makes a kind known as `name`. Raises `ValueError` for a name that is taken."""

        def enter(kind: Entered) -> Entered:
            if name in self._entered:
                raise ValueError(f"{self.thing} named {name!r} is registered already: choose another name")
            if not self._accepts(kind):
                raise TypeError(f"{kind!r} is not {self.thing}: expected {self._expected}")
            self._entered[name] = cast(Kind, kind)
            return kind

        return enter

    def __iter__(self) -> Iterator[str]:
        """Yield the registered names."""
        return iter(self._kinds)

    def __contains__(self, name: object) -> bool:
        return name in self._kinds

    def __getitem__(self, name: str) -> Kind:
        """Return the kind that is registered as `name`, or that stands at `my_module:MyKind`.

        Raises `UnknownKindError` where there is none: an unknown word, a module that is not found or cannot be
        imported, a name that the module does not have, or an object that is no kind of this thing.
        """
        if name in self._kinds:
            return self._kinds[name]
        if not re.fullmatch(OUTSIDE, name):
            near = self.nearest(name)
            write = near or ", or ".join(dict.fromkeys((self._any(), "my_module:MyKind")))
            raise UnknownKindError(f"{name!r}", self.expected_names(), write)
        kind = imported(name)
        if not self._accepts(kind):
            # What an abstract class asks for that a subclass of it does not define yet.
            names = (getattr(kind, f"__abstract{what}__", ()) for what in ("methods", "vars", "classvars"))
            lacking = ", ".join(sorted({name for found in names for name in found}))
            what = f"lacks {lacking}" if lacking else f"is not {self.thing}"
            write = f"{lacking} in {name.split(':')[1]}" if lacking else self._any()
            raise UnknownKindError(f"{name!r}, which {what}", self._expected, write)
        return kind

    def nearest(self, name: str) -> str | None:
        """Return the registered name that `name` probably means, `None` for none.

        The name of a column of a probe, such as spectrum_trace, begins with the name of the probe.
        """
        word = re.sub(r"\W+", "_", name.strip().casefold())
        longer = sorted((kind for kind in self._kinds if word.startswith(f"{kind}_")), key=len, reverse=True)
        part = [kind for kind in self._kinds if len(word) > 3 and word in kind]
        return next(iter([*longer, *difflib.get_close_matches(word, self._kinds, n=1), *part]), None)

    def name_of(self, kind: Kind) -> str:
        """Return the name under which YAML knows `kind`: the registered one, else `module:Name`."""
        registered = (name for name, known in self._entered.items() if known is kind)
        return next(registered, f"{kind.__module__}:{kind.__qualname__}")  # pyright: ignore[reportAttributeAccessIssue]

    def expected_names(self) -> str:
        """Return in words which names there are."""
        own = f"{self.thing} of your own as my_module:MyKind"
        return f"one of {', '.join(self._kinds)}, or {own}" if self._kinds else own

    def names_schema(self, *besides: str) -> dict[str, Any]:
        """Return the JSON Schema of a name: a registered one, a word `besides`, or the place of one's own."""
        return {"anyOf": [{"enum": [*besides, *self._kinds]}, self.place_schema()]}

    def place_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the place of a kind of one's own."""
        return {"type": "string", "pattern": f"^{OUTSIDE}$", "description": f"{self.thing} of your own."}

    def written(self, key: str, error: UnknownKindError) -> str:
        """Return what to write in place of the name that `error` is about, with the `key` where that is a name."""
        first = error.write.split(",")[0]
        return f"{key}: {error.write}" if first in self or re.fullmatch(OUTSIDE, first) else error.write

    def _any(self) -> str:
        return next(iter(self._kinds), "my_module:MyKind")


def imported(place: str) -> Any:
    """Return the object called `place`, module:name; the module is imported as by Python's own `import`."""
    module, name = place.split(":")
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise UnknownKindError(
                f"{place!r}, whose module needs {error.name}",
                "a module that can be imported",
                f"pip install {error.name}",
            ) from None
        folder = "the folder of the scenario, or the one you are in"
        raise UnknownKindError(
            f"{place!r}, but no module {error.name}",
            f"{module.split('.')[0]}.py in {folder}",
            "the name of a module that is there",
        ) from None
    except (Exception, SystemExit) as error:  # whatever a user's module does when it is run: a script may call sys.exit
        raise UnknownKindError(
            f"{place!r}, whose module fails ({reason_of(error)})",
            "a module that can be imported",
            f"python -c 'import {module}' to see where",
        ) from error
    if not hasattr(home, name):
        public = [word for word in dir(home) if not word.startswith("_")]
        near = difflib.get_close_matches(name, public, n=1)
        raise UnknownKindError(
            f"{place!r}, but no {name} in {module}",
            "a name that the module defines",
            f"{module}:{near[0] if near else 'MyKind'}",
        )
    return getattr(home, name)


def look_in(folder: Path) -> None:
    """Have modules found in `folder`, and in the one that the process is in, after all that are installed.

    Processes that are spawned look where this one does.
    """
    for place in (str(folder.resolve()), str(Path.cwd())):
        if place not in sys.path:
            sys.path.append(place)


def source_of(name: str) -> Path | None:
    """Return the file of the module in a name my_module:MyKind; None for a registered kind, or without a file."""
    if not re.fullmatch(OUTSIDE, name):
        return None
    file = getattr(importlib.import_module(name.split(":")[0]), "__file__", None)
    return None if file is None else Path(file)


def shadowed(name: str, folder: Path) -> tuple[Path, Path] | None:
    """Return the module in `folder` that a name my_module:MyKind means, and the one of that name used instead."""
    meant = folder.joinpath(*name.split(":")[0].split(".")).with_suffix(".py")
    used = source_of(name) if meant.is_file() else None
    return None if used is None or meant.resolve() == used.resolve() else (meant, used)
