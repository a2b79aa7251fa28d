"""Text in the characters that standard output and text files can hold: a run is not lost over an η."""

import locale
import sys
import unicodedata
from collections.abc import Collection

_SPELLINGS = {
    "−": "-", "⁻": "-", "–": "-", "─": "-", "…": "...", "⋯": "...", "×": "x", "·": "*", "±": "+-", "√": "sqrt ",
    "∞": "inf", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~", "→": "->", "←": "<-", "↦": "->", "∇": "grad ", "∂": "d",
    "‖": "||", "⟨": "<", "⟩": ">", "∈": " in ", "²": "^2", "³": "^3", "⁄": "/",
    "λ": "lambda", "Λ": "Lambda",  # which Unicode calls lamda
}  # fmt: skip


def output_encodings() -> set[str]:
    """Return the encodings of standard output and of a file that `open(path, "w")` makes."""
    # A notebook's stream, a `StringIO` or none, as of a program without a window, has no encoding: all can be written.
    stream = getattr(sys.stdout, "encoding", None) or "utf-8"
    return {stream, locale.getpreferredencoding(False)}


def encodable(text: str, encodings: Collection[str] | None = None) -> str:
    """Return a text without characters that one of the encodings does not have, spelled in ASCII: "eta" for "η".

    Args:
        text: The text.
        encodings: Names of encodings; by default `output_encodings()`.

    Returns:
        The text itself where every encoding has all of it; a character without a spelling becomes "?".
    """
    for encoding in output_encodings() if encodings is None else encodings:
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            text = "".join(letter if letter.encode(encoding, "ignore") else _spelled(letter) for letter in text)
        except LookupError:  # an encoding of which Python knows the name alone
            pass
    return text


def _spelled(letter: str) -> str:
    """Return one character in ASCII: the name of a Greek letter, an accented letter without its accent."""
    if letter in _SPELLINGS:
        return _SPELLINGS[letter]
    parts = [part for part in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(part)]
    if parts != [letter]:
        return "".join(part if part.isascii() else _spelled(part) for part in parts)
    name = unicodedata.name(letter, "").split()
    if name[:1] == ["GREEK"] and name[2:3] == ["LETTER"]:
        return name[3].capitalize() if name[1] == "CAPITAL" else name[3].lower()
    return "?"
