"""Whatever stands in a file of data is read as it stands there, or refused with its place, and no warning is seen."""

import io
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from flowsim import cli
from flowsim.cli import run
from flowsim.data import DataError, read_table

PLAIN = "a,b,y\n1,2,3\n2,1,1\n0,3,5\n"
SCENARIO = "data: {{kind: file, path: {path}, target: y, {options}}}\nnetwork: {{kind: mlp, depth: 2, scale: 0.5}}\n"


def cell(text: str) -> str:
    """Return a table with `text` in row 3, column a."""
    return f"a,b,y\n1,2,3\n{text},1,1\n0,3,5\n"


def column(*values: float) -> str:
    """Return a table with a column of these values beside an ordinary one."""
    rows = zip(values, (1, 2, 4, 3), (1, -1, 2, 0.5), strict=True)
    return "a,b,y\n" + "".join(f"{a!r},{b},{y}\n" for a, b, y in rows)


def array_bytes(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version, allow_pickle=True)
    return stream.getvalue()


def archive(compression: int = zipfile.ZIP_STORED, **members: bytes | np.ndarray) -> bytes:
    """Return a zip file with these members, arrays as NumPy saves them."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as written:
        for name, content in members.items():
            written.writestr(f"{name}.npy", content if isinstance(content, bytes) else array_bytes(content))
    return stream.getvalue()


def head(shape: tuple[int, ...], descr: str = "<f8", content: bytes = b"") -> bytes:
    """Return an array of NumPy's format that promises a shape, whatever its content."""
    stream = io.BytesIO()
    promised = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, promised)  # pyright: ignore[reportArgumentType]
    return stream.getvalue() + content


X, Y = np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]]), np.array([3.0, 1.0, 5.0])
WIDE = ",".join(f"c{i}" for i in range(600)) + ",y\n" + (",".join(["1"] * 600) + ",2\n") * 2
# fmt: off
BAD_TABLES = {
    "nothing": ("", "t.csv: the file is empty"),
    "a byte order mark alone": ("\ufeff", "t.csv: the file is empty"),
    "blank lines": ("\n\n  \n", "t.csv: the file is empty"),
    "a header alone": ("a,b,y\n", "t.csv: there are no rows of data"),
    "one column": ("y\n1\n2\n", "row 1: there is one column, 'y': expected two or more, separated by commas"),
    "semicolons": (PLAIN.replace(",", ";"), "row 1: there is one column, 'a;b;y'"),
    "tabs": (PLAIN.replace(",", "\t"), "row 1: there is one column"),
    "spaces": (PLAIN.replace(",", " "), "row 1: there is one column, 'a b y'"),
    "bars": (PLAIN.replace(",", "|"), "row 1: there is one column"),
    "full-width commas": (PLAIN.replace(",", "，"), "row 1: there is one column"),
    "no header": ("1,2,3\n4,5,6\n", "target: there is no column 'y'"),
    "another target": (PLAIN.replace("y", "Y"), "there is no column 'y' (did you mean 'Y'?)"),
    "a target that looks alike": (PLAIN.replace("y", "у"), "there is no column 'y'"),
    "a name twice": (PLAIN.replace("b", "a"), "row 1: column 'a' is named 2 times: expected once"),
    "the target twice": (PLAIN.replace("b", "y"), "row 1: column 'y' is named 2 times"),
    "a column without a name": (PLAIN.replace("b", ""), "row 1, column number 2: the column has no name"),
    "an index without a name": (",a,y\n0,1,2\n1,2,3\n", "row 1, column number 1: the column has no name"),
    "a short row": (PLAIN + "1,2\n", "row 5: the row has 2 values and the header 3: expected as many"),
    "a long row": (PLAIN + "1,2,3,4\n", "row 5: the row has 4 values and the header 3"),
    "a comma at the end": ("a,b,y\n1,2,3,\n", "row 2: the row has 4 values and the header 3"),
    "a decimal comma": ("a,y\n1,5,2\n", "row 2: the row has 3 values and the header 2"),
    "a quoted decimal comma": (cell('"1,5"'), "row 3, column 'a': '1,5' is not a number"),
    "an open quotation mark": (cell('"1'), "not valid CSV"),
    "text after a quotation mark": (cell('"1"x'), "row 3: not valid CSV"),
    "an empty cell": (cell(""), "row 3, column 'a': the value is missing ('')"),
    "a blank cell": (cell("  "), "row 3, column 'a': the value is missing"),
    "NA": (cell("NA"), "row 3, column 'a': the value is missing ('NA')"),
    "nan": (cell("nan"), "row 3, column 'a': the value is missing ('nan')"),
    "null": (cell("NULL"), "row 3, column 'a': the value is missing"),
    "a dash": (cell("-"), "row 3, column 'a': the value is missing"),
    "infinity": (cell("inf"), "row 3, column 'a': the value is infinite ('inf')"),
    "minus infinity": (cell("-Infinity"), "row 3, column 'a': the value is infinite"),
    "an overflow": (cell("1e999"), "row 3, column 'a': the value is infinite ('1e999')"),
    "a word": (cell("high"), "row 3, column 'a': 'high' is not a number: expected one written like 12.5 or 3e-4"),
    "true": (cell("True"), "'True' is not a number"),
    "a complex number": (cell("1+2j"), "row 3, column 'a': '1+2j' is not a number"),
    "a formula": (cell("=A1+1"), "'=A1+1' is not a number"),
    "an error of a spreadsheet": (cell("#DIV/0!"), "'#DIV/0!' is not a number"),
    "a date": (cell("2024-01-01"), "'2024-01-01' is not a number"),
    "a time": (cell("12:30"), "'12:30' is not a number"),
    "a unit": (cell("3 kg"), "'3 kg' is not a number"),
    "a currency": (cell("€3"), "'€3' is not a number"),
    "a per cent": (cell("3%"), "'3%' is not a number"),
    "thousands": (cell("1 000"), "'1 000' is not a number"),
    "thousands with an apostrophe": (cell("1'000"), "is not a number"),
    "an underscore": (cell("1_000"), "row 3, column 'a': '1_000' is not a number"),
    "hexadecimal": (cell("0x1f"), "'0x1f' is not a number"),
    "Arabic digits": (cell("١٢"), "row 3, column 'a': '١٢' is not a number"),
    "Persian digits": (cell("۳"), "'۳' is not a number"),
    "Devanagari digits": (cell("४"), "'४' is not a number"),
    "full-width digits": (cell("１２"), "'１２' is not a number"),
    "a digit of another script": (cell("1٢"), "'1٢' is not a number"),
    "mathematical digits": (cell("𝟏"), "'𝟏' is not a number"),
    "a superscript": (cell("2²"), "'2²' is not a number"),
    "a fraction": (cell("½"), "'½' is not a number"),
    "a typographer's minus": (cell("−3"), "'−3' is not a number"),
    "a Fortran exponent": (cell("1d3"), "'1d3' is not a number"),
    "a decimal point alone": (cell("."), "the value is missing ('.')"),
    "two points": (cell("1.2.3"), "'1.2.3' is not a number"),
    "a null byte": (cell("1\0"), "row 3"),
    "a zero-width space": (cell("\u200b3"), "is not a number"),
    "a cell without end": (cell("9" * 200_000 + "x"), "row 3"),
    "Latin-1": (PLAIN.replace("a", "é").encode("latin-1"), "row 1: byte 0xe9 is not UTF-8: save the file as UTF-8"),
    "UTF-16": (PLAIN.encode("utf-16"), "row 1: byte 0xff is not UTF-8"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "is not UTF-8"),
    "a constant target": ("a,y\n1,2\n2,2\n3,2\n", "the least-squares regressor w* of y on X is zero"),
    "constant features": ("a,y\n1,2\n1,3\n1,4\n", "the least-squares regressor w* of y on X is zero"),
    "one row": ("a,b,y\n1,2,3\n", "the least-squares regressor w* of y on X is zero"),
}
BAD_ARCHIVES = {
    "nothing": (b"", "t.npz: not an .npz archive"),
    "a table": (PLAIN.encode(), "t.npz: not an .npz archive"),
    "one array": (array_bytes(X), "t.npz: not an .npz archive"),
    "half an archive": (archive(X=X, y=Y)[:200], "t.npz: not an .npz archive"),
    "no members": (archive(), "target: there is no array 'y': expected one of"),
    "no X": (archive(x=X, y=Y), "features: there is no array 'X' (did you mean 'x'?)"),
    "no y": (archive(X=X), "target: there is no array 'y'"),
    "objects": (archive(X=X, y=np.array([1, None, 2])), "array 'y': the array cannot be read (Object arrays cannot be"),
    "code": (archive(X=head((3, 2), "|O", b"cos\nsystem\n(S'false'\ntR."), y=Y), "'X': the array cannot be read (Obje"),
    "words": (archive(X=X.astype(str), y=Y), "array 'X' holds <U32: expected real numbers"),
    "bytes": (archive(X=X.astype("S"), y=Y), "array 'X' holds |S32: expected real numbers"),
    "complex numbers": (archive(X=X * 1j, y=Y), "array 'X' holds complex128: expected real numbers"),
    "truth values": (archive(X=X > 1, y=Y), "array 'X' holds bool: expected real numbers"),
    "dates": (archive(X=X.astype("M8[s]"), y=Y), "array 'X' holds datetime64[s]: expected real numbers"),
    "records": (archive(X=np.zeros(3, [("a", "f8")]), y=Y), "array 'X' has shape (3,): expected (n, columns)"),
    "one axis": (archive(X=Y, y=Y), "array 'X' has shape (3,): expected (n, columns)"),
    "three axes": (archive(X=X[None], y=Y), "array 'X' has shape (1, 3, 2)"),
    "no axis": (archive(X=X, y=np.array(1.0)), "array 'y' has shape (): expected (n,) or (n, columns)"),
    "no rows": (archive(X=X[:0], y=Y[:0]), "array 'X' has shape (0, 2): expected (n, columns), with no empty axis"),
    "no columns": (archive(X=X[:, :0], y=Y), "array 'X' has shape (3, 0)"),
    "other rows": (archive(X=X, y=Y[:2]), "array 'X' has 3 rows and"),
    "NaN": (archive(X=X * np.nan, y=Y), "array 'X', row 1, column 1 (counted from 1): the value is missing ('nan')"),
    "infinity": (archive(X=X, y=np.array([1.0, np.inf, 2.0])), "array 'y', row 2 (counted from 1): the v"),
    "numbers beyond float64": (archive(X=X.astype("g") * np.longdouble("1e4000"), y=Y), "column 1 (counted from 1): t"),
    "a truncated array": (archive(X=array_bytes(X)[:-8], y=Y), "array 'X': the array cannot be read (40 bytes for sha"),
    "an array with more behind": (archive(X=array_bytes(X) + b"more", y=Y), "cannot be read (52 bytes for shape (3, 2"),
    "no array at all": (archive(X=b"not an array", y=Y), "array 'X': the array cannot be read ("),
    "a header of nothing": (archive(X=b"\x93NUMPY\x01\x00", y=Y), "array 'X': the array cannot be read ("),
    "a version of tomorrow": (archive(X=b"\x93NUMPY\x09\x00" + array_bytes(X)[8:], y=Y), "array 'X': the array cannot"),
    "a negative shape": (archive(X=head((-3, 2)), y=Y), "array 'X'"),
    "a shape beyond counting": (archive(X=head((10**30, 2)), y=Y), "array 'X': the array cannot be read (0 bytes for "),
    "a shape without numbers": (archive(X=head((10**12, 8)), y=Y), "takes 64000000000000): expected real numbers"),
    "a flipped bit": (archive(X=X, y=Y).replace(np.float64(3).tobytes(), np.float64(7).tobytes()), "(Bad CRC-32"),
    "a bomb of other rows": (archive(zipfile.ZIP_DEFLATED, X=head((2**21, 1), "<f8", bytes(2**24)), y=Y), "has 209715"),
    "a bomb of words": (archive(zipfile.ZIP_DEFLATED, X=head((1, 1), "<U4194304", bytes(2**24)), y=Y[:1]), "holds <U4"),
}
GOOD_TABLES = {
    "plain": PLAIN,
    "no last newline": PLAIN.rstrip(),
    "a byte order mark": f"\ufeff{PLAIN}",
    "Windows lines": PLAIN.replace("\n", "\r\n"),
    "old Macintosh lines": PLAIN.replace("\n", "\r"),
    "mixed lines": PLAIN.replace("\n", "\r\n", 2),
    "quotation marks": '"a","b","y"\n"1","2","3"\n"2",1,"1"\n0,3,5\n',
    "spaces": PLAIN.replace(",", " , "),
    "no-break spaces": PLAIN.replace("1,", "1\u00a0,"),
    "blank lines": PLAIN.replace("\n", "\n\n"),
    "exponents": PLAIN.replace("1", "1.0E+0").replace("3", ".3e1"),
    "signs": PLAIN.replace("1,", "+1,"),
    "leading zeros": PLAIN.replace("1,", "0001,"),
    "names in other scripts": PLAIN.replace("a", "α").replace("b", "größe"),
    "a name with a comma": PLAIN.replace("a", '"a,c"'),
    "a name with a line in it": PLAIN.replace("a", '"a\nc"'),
    "a number as name": PLAIN.replace("a", "1"),
    "collinear features": "a,b,y\n1,2,3\n2,4,1\n0,0,5\n",
    "a constant column": "a,b,y\n1,2,3\n1,1,1\n1,3,5\n",
    "more features than rows": WIDE.replace("1,2\n", "2,3\n", 1),
    "huge": column(1e308, -1e308, 9e307, 1e307),
    "tiny": column(5e-324, 1e-310, 0.0, -1e-320),
    "huge and tiny": column(1e308, 1e-308, -1e308, 0.0),
    "a large mean": column(2.0**53, 2.0**53 + 2, 2.0**53 + 4, 2.0**53 - 2),
    "many digits": cell("1." + "3" * 5000),
    "a huge whole number": cell("9" * 300),
    "an underflow": cell("1e-999"),
    "negative zero": cell("-0.0"),
}
GOOD_ARCHIVES = {
    "plain": archive(X=X, y=Y),
    "compressed": archive(zipfile.ZIP_DEFLATED, X=X, y=Y),
    "bzip2": archive(zipfile.ZIP_BZIP2, X=X, y=Y),
    "lzma": archive(zipfile.ZIP_LZMA, X=X, y=Y),
    "others beside": archive(X=X, y=Y, Z=np.array([None]), text=b"no array"),
    "float32": archive(X=X.astype("f4"), y=Y.astype("f4")),
    "half precision": archive(X=X.astype("f2"), y=Y.astype("f2")),
    "whole numbers": archive(X=X.astype("i1"), y=Y.astype("u8")),
    "long doubles": archive(X=X.astype("g"), y=Y.astype("g")),
    "the other end first": archive(X=X.astype(">f8"), y=Y.astype(">i4")),
    "Fortran's order": archive(X=np.asfortranarray(X), y=Y),
    "the second version": archive(X=array_bytes(X, (2, 0)), y=Y),
    "the third version": archive(X=array_bytes(X, (3, 0)), y=Y),
    "a column of targets": archive(X=X, y=Y[:, None]),
    "several targets": archive(X=X, y=np.stack([Y, -Y**2], axis=1)),
    "huge": archive(X=X * 1e300, y=Y * 1e300),
    "tiny": archive(X=X * 1e-300, y=Y * 1e-310),
}
# fmt: on
BAD = {
    **{f"table: {name}": ("t.csv", *case) for name, case in BAD_TABLES.items()},
    **{f"archive: {name}": ("t.npz", *case) for name, case in BAD_ARCHIVES.items()},
}
GOOD = {
    **{f"table: {name}": ("t.csv", content) for name, content in GOOD_TABLES.items()},
    **{f"archive: {name}": ("t.npz", content) for name, content in GOOD_ARCHIVES.items()},
}
# What standardizing brings into range.
EXTREME = ["table: huge", "table: huge and tiny", "table: a huge whole number", "archive: huge", "archive: tiny"]


@pytest.fixture
def said(tmp_path, monkeypatch, capsys) -> Callable[..., tuple[int, str]]:
    """Return a function that hands a file to the command line, and returns its exit code and what it said.

    Warnings are errors here, those of NumPy among them.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "run_all", lambda jobs, pool: 0)

    def hand(name: str, content: str | bytes, options: str = "standardize: true") -> tuple[int, str]:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        Path("s.yaml").write_text(SCENARIO.format(path=name, options=options))
        code = cli.main(["s.yaml"])
        assert sorted(path.name for path in tmp_path.iterdir()) == ["s.yaml", name]
        return code, capsys.readouterr().err

    return hand


def test_there_are_ninety_files():
    assert len(BAD) + len(GOOD) >= 90


@pytest.mark.parametrize(("name", "content", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_the_place(said, name, content, message):
    code, error = said(name, content)
    assert code == 2
    assert error.startswith("flowsim: ")
    assert message in error
    assert len(error.splitlines()) == 1
    assert len(error) < 1000


@pytest.mark.parametrize(("name", "content"), GOOD.values(), ids=GOOD)
def test_a_good_file_is_accepted_without_a_word(said, name, content):
    assert said(name, content) == (0, "")


@pytest.mark.parametrize("case", GOOD)
def test_a_good_file_is_accepted_as_it_is_unless_its_squares_leave_the_range_of_floats(said, case):
    code, error = said(*GOOD[case], "standardize: false")
    if case in EXTREME:
        assert code == 2
        assert "has entries of size " in error
        assert "leave the range of floats: rescale" in error
    else:
        assert (code, error) == (0, "")


@pytest.mark.parametrize("name", ["t.txt", "t.csv.gz", "t.xlsx", "t", "t.npy"])
def test_a_file_of_another_type_is_refused(said, name):
    code, error = said(name, PLAIN)
    assert code == 2
    assert "is not supported: expected .csv or .npz" in error


def test_no_array_is_unpacked_that_will_be_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("unpacked"))
    for name, (content, message) in BAD_ARCHIVES.items():
        if "bomb" in name:
            (tmp_path / "t.npz").write_bytes(content)
            with pytest.raises(DataError, match=re.escape(message)):
                read_table(tmp_path / "t.npz", "y")


def test_arrays_beyond_the_memory_of_the_machine_are_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("flowsim.runtime.memory.machine_bytes", lambda: 100.0)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("unpacked"))
    (tmp_path / "t.npz").write_bytes(archive(X=X, y=Y))
    # Three times six and three numbers of eight bytes.
    with pytest.raises(
        DataError, match=r"the arrays 'X' and 'y' take 216 bytes of memory, of which there are 100 bytes"
    ):
        read_table(tmp_path / "t.npz", "y")


class Name(str):
    """The name of a column that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_to_find_columns_by_name_takes_as_many_comparisons_as_there_are(tmp_path):
    (tmp_path / "t.csv").write_text(WIDE)
    names = [Name(f"c{i}") for i in range(600)]
    found, _ = read_table(tmp_path / "t.csv", "y", names)
    assert found.shape == (2, 600)
    assert Name.compared < 10 * len(names)
