"""How mkdocstrings reads flowsim: prose with symbols (w*) and with what is raised, constructors that are made."""

import enum
import importlib
import inspect
import re
from typing import Any

import griffe

from flowsim.kinds.recipes.options import meanings

# An asterisk after a letter is the paper's w*, unless it is doubled, ends an *emphasis*, or stands in code.
_STARRED = re.compile(r"(`[^`]*`|(?<!\S)\*\w+\*)|(?<=[\w)])\*(?!\*)")
# The sentence of a docstring that says what is raised, the exceptions in it, and what stands between two of its parts.
_RAISING = re.compile(r"(?:(?<=[.:;]\s)|(?<=\n)|^)Raises\s+(?=`)(.*?)\.(?=\s|$)", re.DOTALL)
_PART = re.compile(r"((?:`\w+`(?: or | and )?)+),? (?=[a-z(])(.+)")
_BETWEEN = re.compile(r"[,;](?: and)? (?=`\w+`,? (?:for|where|if|without|as) )")
_NAME = re.compile(r"`(\w+)`")


class Docstrings(griffe.Extension):
    """Escape w*, list what is raised, and show the arguments of classes that have no `__init__` in their source.

    The text below each field of a class becomes a line of one list, those of inherited fields too.
    """

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Escape the asterisks of a docstring, and make a list of what it says is raised."""
        if obj.docstring is not None:
            obj.docstring.value = listed_raises(_escaped(obj.docstring.value))

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Give every class the parameters that its constructor takes, and every function its name."""
        known = {cls.path: cls for cls in _classes(pkg)}
        for cls in known.values():
            if "__init__" not in cls.members and (found := _parameters(cls, known)) is not None:
                made = griffe.Function("__init__", parameters=griffe.Parameters(*found))
                cls.set_member("__init__", made)
                _list_fields(cls, [one.name for one in found])
        loader.resolve_aliases(implicit=True)
        _prefer_functions(pkg, pkg)


def listed_raises(text: str) -> str:
    """Return a docstring with a section for what it raises, in place of the sentence that says so.

    A sentence of another form than "Raises `A` or `B` for this, and `C` for that." stays as it is.
    """
    found = _RAISING.search(text)
    if found is None or "\nRaises:\n" in text:
        return text
    parts = [_PART.fullmatch(part) for part in _BETWEEN.split(" ".join(found[1].split()))]
    if not all(parts):
        return text
    lines = [f"    {' | '.join(_NAME.findall(one[1]))}: {one[2][0].upper()}{one[2][1:]}." for one in parts if one]
    prose = text[: found.start()] + text[found.end() :].lstrip(" ")
    return "\n".join([prose.rstrip(), "", "Raises:", *lines])


def _escaped(text: str) -> str:
    return _STARRED.sub(lambda found: found[1] or r"\*", text)


def _list_fields(cls: griffe.Class, names: list[str]) -> None:
    """Put what stands below the fields of these names into the docstring of their class."""
    said = meanings(_imported(cls))
    listed = [name for name in names if name in said]
    if listed and cls.docstring is not None:
        lines = [f"    {name}: {_escaped(' '.join(said[name].split()))}" for name in listed]
        prose, title, raised = cls.docstring.value.rstrip().partition("\n\nRaises:\n")
        cls.docstring.value = "\n".join([prose, "", "Attributes:", *lines]) + title + raised
        for name in cls.members.keys() & set(listed):
            cls.members[name].docstring = None  # else it is shown a second time, with a heading of its own


def _prefer_functions(module: griffe.Module, root: griffe.Module) -> None:
    """Let `from .integrate import integrate` stand for the function: griffe finds the module of that name."""
    for name, member in list(module.members.items()):
        if not member.is_alias:
            if isinstance(member, griffe.Module):
                _prefer_functions(member, root)
        elif member.resolved and member.target.is_module and name in member.target.members:
            member.target = member.target.members[name]
    for name, path in module.imports.items():
        member = module.members.get(name)
        if isinstance(member, griffe.Module) and path == f"{member.path}.{name}":
            module.members[name] = griffe.Alias(name, member.members[name], parent=module)


def _classes(module: griffe.Module) -> list[griffe.Class]:
    own = [member for member in module.members.values() if not member.is_alias]
    found = [member for member in own if isinstance(member, griffe.Class)]
    return found + [cls for member in own if isinstance(member, griffe.Module) for cls in _classes(member)]


def _imported(cls: griffe.Class) -> Any:
    return getattr(importlib.import_module(cls.module.path), cls.name)


def _parameters(cls: griffe.Class, known: dict[str, griffe.Class]) -> list[griffe.Parameter] | None:
    """Return the parameters of a class's constructor, as the class itself knows them; `None` where it has none.

    Their annotations are those of its fields as they are written, of which names link to their pages.
    """
    try:
        made = _imported(cls)
        signature = inspect.signature(made)
    except (ValueError, TypeError, AttributeError, ImportError):
        return None
    if issubclass(made, enum.Enum):
        return None
    kinds = {kind: getattr(griffe.ParameterKind, kind.name.lower()) for kind in inspect._ParameterKind}
    empty = inspect.Parameter.empty
    holders = [known[path] for one in made.__mro__ if (path := f"{one.__module__}.{one.__qualname__}") in known]

    def written(one: inspect.Parameter) -> Any:
        fields = [holder.members[one.name] for holder in holders if one.name in holder.members]
        annotations = [field.annotation for field in fields if isinstance(field, griffe.Attribute)]
        return annotations[0] if annotations else inspect.formatannotation(one.annotation)

    return [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)] + [
        griffe.Parameter(
            one.name,
            kind=kinds[one.kind],
            annotation=None if one.annotation is empty else written(one),
            default=None if one.default is empty else _shown(one.default),
        )
        for one in signature.parameters.values()
    ]


def _shown(value: Any) -> str:
    shown = getattr(value, "__name__", None) or repr(value)
    return shown if len(shown) <= 60 else "..."
