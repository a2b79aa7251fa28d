"""How mkdocstrings reads flowsim: prose with symbols (w*), and classes whose constructor is made for them."""

import importlib
import inspect
import re
from typing import Any

import griffe

# An asterisk after a letter is the paper's w*, unless it is doubled or stands in code.
_STARRED = re.compile(r"(`[^`]*`)|(?<=[\w)])\*(?!\*)")


class Docstrings(griffe.Extension):
    """Escape w*, and show the arguments of classes that have no `__init__` in their source."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Escape the asterisks of a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _STARRED.sub(lambda found: found[1] or r"\*", obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **kwargs: Any) -> None:
        """Give every class the parameters that its constructor takes, and every function its name."""
        for cls in _classes(pkg):
            if "__init__" not in cls.members and (found := _parameters(cls)) is not None:
                made = griffe.Function("__init__", parameters=griffe.Parameters(*found))
                cls.set_member("__init__", made)
        loader.resolve_aliases(implicit=True)
        _prefer_functions(pkg, pkg)


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


def _parameters(cls: griffe.Class) -> list[griffe.Parameter] | None:
    """Return the parameters of a class's constructor, as the class itself knows them; `None` where it has none."""
    try:
        signature = inspect.signature(getattr(importlib.import_module(cls.module.path), cls.name))
    except (ValueError, TypeError, AttributeError, ImportError):
        return None
    kinds = {kind: getattr(griffe.ParameterKind, kind.name.lower()) for kind in inspect._ParameterKind}
    empty = inspect.Parameter.empty
    return [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)] + [
        griffe.Parameter(
            one.name,
            kind=kinds[one.kind],
            annotation=None if one.annotation is empty else inspect.formatannotation(one.annotation),
            default=None if one.default is empty else _shown(one.default),
        )
        for one in signature.parameters.values()
    ]


def _shown(value: Any) -> str:
    return getattr(value, "__name__", None) or repr(value)
