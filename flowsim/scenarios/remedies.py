"""What to write in place of a value that breaks the schema: what was probably meant, tried before it is suggested."""

import difflib
import math
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..kinds.recipes import KeyPath
from .document import OPTION, dotted, option_text
from .keys import AXES, place_of, value_at
from .scenario import Scenario

_OFF = {"off", "no", "n", "none", "null", "nil", "false", "never", "disabled"}
_ON = {"on", "yes", "y", "true", "always", "enabled"}
NUMBER = r"[-+]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_MOST = 50  # entries of a list that a message writes down
_MULTIPLES = {"": 1.0, "%": 0.01, "k": 1e3, "K": 1e3, "M": 1e6}


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `word` is probably meant to be, in whatever case it is written."""
    folded = {choice.casefold(): choice for choice in choices}
    return next((folded[near] for near in difflib.get_close_matches(word.casefold(), folded, n=1)), None)


def as_yaml(value: Any) -> str:
    """Return a plain value in YAML, on one line."""
    options: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": math.inf, "allow_unicode": True}
    return yaml.safe_dump([value], **options).strip()[1:-1]


def suggestion(content: Any, position: str, path: KeyPath, place: KeyPath, value: Any) -> str:
    """Return what to write so that `place` of the scenario holds `value`, in a message about `path` at a `position`.

    That is a key in YAML, an entry of a list alone, or an option where an option is to blame.
    """
    if position.startswith(OPTION):
        depth = next((depth for depth, part in enumerate(place) if not isinstance(part, str)), len(place))
        whole = value_at(replaced(content, place, value), place[:depth])
        return option_text(".".join(map(str, place[:depth])), as_yaml(whole))
    if not isinstance(place[-1], str):
        return as_yaml(value)
    text = as_yaml({place[-1]: value})[1:-1]
    if place[:-1] == path[: len(place) - 1] or place_of(place[-1], path, content) == place:
        return text
    return f"{text} in the section {dotted(place[:-1])}" if place[:-1] else f"{text} outside of all sections"


def replaced(content: Any, path: KeyPath, value: Any) -> Any:
    """Return a copy of plain `content` with another value at `path`; sections that are not there are made."""
    if not path:
        return value
    if isinstance(content, list) and isinstance(path[0], int):
        return [replaced(entry, path[1:], value) if i == path[0] else entry for i, entry in enumerate(content)]
    if isinstance(path[0], int):  # one entry alone stands for a list of it
        return replaced(content, path[1:], value)
    section = content if isinstance(content, dict) else {}
    return section | {path[0]: replaced(section.get(path[0]), path[1:], value)}


def without(content: Any, path: KeyPath) -> Any:
    """Return a copy of plain `content` without the key at the end of `path`."""
    head, inside = path[:1], path[1:]
    if isinstance(content, list) and isinstance(path[0], int):
        return [without(entry, inside) if number == path[0] else entry for number, entry in enumerate(content)]
    if isinstance(content, dict) and isinstance(path[0], int):  # one entry alone
        return without(content, inside)
    if not isinstance(content, dict) or not set(head) <= content.keys():
        return content
    left = {key: value for key, value in content.items() if key not in head}
    return content | {head[0]: without(content[head[0]], inside)} if inside else left


def is_accepted(content: Any, path: KeyPath) -> bool:
    """Return whether nothing at `path` of plain `content`, in it or around it is refused."""
    try:
        Scenario.model_validate(content)
    except ValidationError as error:
        for item in error.errors(include_url=False, include_input=False):
            place = (*item["loc"], *item.get("ctx", {}).get("at", ()))
            if place[: len(path)] == path or (place and path[: len(place)] == place):
                return False
    return True


def meanings(value: Any, field: FieldInfo) -> Iterator[Any]:
    """Yield what a `value` of the wrong type may mean, the likeliest first: most of it the field will not accept."""
    if isinstance(value, str) and len(value) > 200:
        return
    text = value.strip() if isinstance(value, str) else value
    word = text.casefold() if isinstance(text, str) else text
    if word in ("", 0, None) or (isinstance(word, str) and word in _OFF):
        default = None if field.default is PydanticUndefined else field.default
        yield from (False, None, [], {}, *([default] if isinstance(default, str | int | float) else ()))
    if word == 1 or (isinstance(word, str) and word in _ON):
        yield from (True, {})
    if isinstance(value, float) and math.isfinite(value):
        yield round(value)
    if isinstance(text, str):
        yield from _quantities(text)
        yield [word for word in re.split(r"[\s,;|]+", text.strip("[](){} ,;")) if word]
    if isinstance(value, list) and len(value) <= _MOST:
        lists = [next(_lists(entry), [entry]) if isinstance(entry, str) else entry for entry in value]
        yield [number for numbers in lists for number in (numbers if isinstance(numbers, list) else [numbers])]
    elif value is not None and not isinstance(value, list):
        yield [value]
        yield [str(value)]
    if isinstance(value, str | list) and len(value) == 1:
        yield value[0]


def is_ambiguous(value: Any) -> bool:
    """Return whether a comma in a text, as in 0,5 or 1,000, may separate numbers, digits of one, or thousands."""
    return isinstance(value, str) and re.fullmatch(r"[\s(\[]*[-+]?\d+,\d+[)\]\s]*", value) is not None


def _quantities(text: str) -> Iterator[Any]:
    """Yield the numbers, ranges and lists of numbers that a text may stand for."""
    bare = text.split("#")[0].strip("\"'()[]{} ,;=<>").replace("\N{MINUS SIGN}", "-").replace("\N{EN DASH}", "-")
    if re.fullmatch(rf"{NUMBER},\d+", bare) and bare.startswith(("0", "-0", "+0")):
        yield from _numbers(bare.replace(",", "."))  # 0,5
    yield from _numbers(bare)
    if between := re.fullmatch(rf"({NUMBER})\s*(?:-|to|\.\.+|:|…|~)\s*({NUMBER})", bare):
        start, stop = (next(_numbers(end)) for end in between.groups())
        count = round(stop - start) + 1 if isinstance(start, int) and isinstance(stop, int) else 5
        spacing = {"spacing": "log"} if start > 0 and stop / start >= 100 else {}
        yield {"start": start, "stop": stop, "count": count if 2 <= count <= 20 else 5} | spacing
    yield from _lists(bare)
    if re.fullmatch(r"[-+]?\d+,\d+", bare):
        yield from ([number] for number in _numbers(bare.replace(",", ".")))
        yield from _numbers(bare.replace(",", "."))
    if re.fullmatch(r"[-+]?\d{1,3}([,.' \N{RIGHT SINGLE QUOTATION MARK}\xa0\u2009\u202f]\d{3})+", bare):
        yield int(re.sub(r"[^-+\d]", "", bare))


def _lists(text: str) -> Iterator[list[float]]:
    """Yield the numbers that are written one after the other, the ends of a range too."""
    text = text.strip("\"'()[]{} ,;")
    with suppress(StopIteration):
        parts = re.split(r"\s*[,;|]\s*|\s+", text)
        yield [next(_numbers(part)) for part in parts]
    if ends := re.fullmatch(rf"({NUMBER})\s*(?:-|to|\.\.+|:|…|~)\s*({NUMBER})", text):
        start, stop = (next(_numbers(end)) for end in ends.groups())
        if isinstance(start, int) and isinstance(stop, int) and 0 < stop - start < 20:
            yield list(range(start, stop + 1))
        yield [start, stop]


def _numbers(text: str) -> Iterator[float]:
    """Yield the number that a text is, with an unit, a power or a quotient of numbers, or in another notation."""
    if text.casefold().lstrip("+") in ("inf", "infinity", "\N{INFINITY}", "unlimited"):
        yield math.inf
    if re.fullmatch(r"[-+]?0[xXoObB]\w+", text):
        with suppress(ValueError):
            yield int(text, 0)
    if quotient := re.fullmatch(rf"({NUMBER})\s*(/|\*\*|\^)\s*({NUMBER})", text):
        left, right = float(quotient[1]), float(quotient[3])
        with suppress(ArithmeticError):
            result = left / right if quotient[2] == "/" else left**right
            if isinstance(result, float) and math.isfinite(result):
                yield _whole(result)
    if (number := re.fullmatch(rf"({NUMBER})\s*([a-zA-Z%]*)", text)) and not re.fullmatch(r"[eE]", number[2]):
        yield _whole(float(number[1]) * _MULTIPLES.get(number[2], 1.0))


def _whole(number: float) -> float:
    # 1e-3 in a text is 0.001 in YAML, and 5.0 is written as 5.
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def first_accepted(content: Any, place: KeyPath, values: Iterable[Any], *, most: int = 1) -> list[Any]:
    """Return the first of the `values` that the scenario accepts at `place`, of an axis each that it sweeps over."""
    accepted: list[Any] = []
    for value in values:
        if len(accepted) == most:
            break
        if any(type(value) is type(other) and value == other for other in accepted):
            continue
        places = [(place, value)]
        if place[: len(AXES)] == AXES and len(place) > len(AXES):
            swept = [value.get("start"), value.get("stop")] if isinstance(value, dict) else value
            target = tuple(str(place[-1]).split("."))
            # Of more values than a message lists, those at the beginning stand for all.
            places += [(target, entry) for entry in swept[:_MOST]] if isinstance(swept, list) else []
        if all(is_accepted(replaced(content, *at), at[0]) for at in places):
            accepted.append(value)
    return accepted


def respelled(words: Iterable[str], known: Collection[str]) -> Iterator[str]:
    """Yield the known keys of which one of the words is another spelling: in the plural, in capitals, with hyphens."""
    folded = {re.sub(r"\W|_", "", key).casefold().removesuffix("s"): key for key in known}
    for word in words:
        if (key := folded.get(re.sub(r"\W|_", "", word).casefold().removesuffix("s"))) is not None:
            yield key
