"""Text that is nearly YAML: the change of one line after which it is, tried before it is suggested."""

import re
from collections.abc import Callable, Iterator

_KEY = r"(\s*(?:- )?[\w.-]+)"
_IN_PLACE = (
    (rf"{_KEY}:([^\s:].*)", r"\1: \2"),  # depth:10
    (rf"{_KEY}\s*=\s*(\S.*)", r"\1: \2"),  # depth = 10
    (rf"{_KEY}\s+([^\s:=]+)", r"\1: \2"),  # depth 10
    (r"(\s*[\w.-]+)\s*", r"\1:"),  # network
    (r'(.*?)"([^"\']*\\[^"\']*)"(.*)', r"\1'\2'\3"),  # "C:\data\x.csv"
    (r"(.*: [\w.]+): ([A-Z]\w*)(.*)", r"\1:\2\3"),  # kind: my_module: MyKind
    (r"(.*?[,{]\s*[\w.]+: )([\w.]+: [^,}\]]+)(.*)", r"\1'\2'\3"),  # {target: a: b}
    (rf"{_KEY}:\s+([^'\"\[{{#\s].*?)\s*", r"\1: '\2'"),  # target: a: b
    (r"(.*?[:,\[{]\s*)([@`%*&!|>][^\s,\]}]*)(.*)", r"\1'\2'\3"),
    (r"(.*?)(['\"])([^\s'\",\]}]+)(?!\2)(.*)", r"\1\2\3\2\4"),  # 'mlp
    (r"(.*\S)\s+//(.*)", r"\1  #\2"),
)
_CLOSING = ("}", "]", "}}", "]}", "}]", "]}}")


def repaired(text: str, lines_to_try: list[int], error_line: Callable[[str], int | None]) -> tuple[int, str] | None:
    """Return the number of a line, from 0, and what to write there so that `text` is YAML at least up to there.

    Args:
        text: The text.
        lines_to_try: The numbers of the lines that may be wrong, the likeliest first.
        error_line: Returns the number of the line with the first error of a text, `None` for no error.
    """
    lines, before = text.split("\n"), error_line(text)
    if before is None or len(text) > 20_000:  # each trial reads the whole text
        return None
    numbers = [number for number in dict.fromkeys(lines_to_try) if 0 <= number < len(lines)]
    for candidates in (_in_place, _closed, _indented):
        for number in numbers:
            for line in candidates(lines, number):
                after = error_line("\n".join([*lines[:number], line, *lines[number + 1 :]]))
                if line != lines[number] and (after is None or after > max(before, number)):
                    return number, line
    return None


def _in_place(lines: list[str], number: int) -> Iterator[str]:
    line, above = lines[number], next((line for line in reversed(lines[:number]) if line.strip()), "")
    if "\t" in line:
        indent = " " * (len(above) - len(above.lstrip()) + 2 * above.rstrip().endswith(":"))
        yield (indent if re.match(r" *\t", line) else "") + line.replace("\t", " ").strip()
        yield line.replace("\t", " ")
    for pattern, replacement in _IN_PLACE:
        if match := re.fullmatch(pattern, line):
            yield match.expand(replacement)


def _closed(lines: list[str], number: int) -> Iterator[str]:
    line = lines[number].rstrip().rstrip(",")
    yield from (f"{line}{brackets}" for brackets in _CLOSING if line)


def _indented(lines: list[str], number: int) -> Iterator[str]:
    near = [line for line in lines[max(0, number - 20) : number + 2] if line.strip()]
    indents = [line[: len(line) - len(line.lstrip(" "))] for line in near]
    yield from (indent + lines[number].lstrip() for indent in dict.fromkeys(reversed(indents)))
