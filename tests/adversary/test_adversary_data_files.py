"""Whatever a file of data holds is read as it is written, or refused with its place, and no warning is shown."""

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from flowsim import cli
from flowsim.cli import run
from flowsim.data import DataError, read_table

PLAIN = "a,b,y\n1,2,3\n2,1,1\n0,3,5\n"
X, Y = np.array([[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]]), np.array([3.0, 1.0, 5.0])
SCENARIO = "data: {{kind: file, path: {path}, target: y, {options}}}\nnetwork: {{kind: mlp, depth: 2, scale: 0.5}}\n"


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


# fmt: off
BAD = {
    "a digit of another script": (lambda: "a,b,y\n1,2,3\n1٢,1,1\n0,3,5\n", "row 3, column 'a': '1٢' is not a number"),
    "a null byte": (lambda: "a,b,y\n1,2,3\n1\0,1,1\n0,3,5\n", "row 3"),
    "code": (lambda: archive(X=head((3, 2), "|O", b"cos\nsystem\n(S'false'\ntR."), y=Y), "array 'X': the array cannot"),
    "beyond float64": (lambda: archive(X=X.astype("g") * np.longdouble("1e4000"), y=Y), "column 1 (counted from 1)"),
    "an array with more behind": (lambda: archive(X=array_bytes(X) + b"more", y=Y), "cannot be read (52 bytes for"),
    "a version of tomorrow": (lambda: archive(X=b"\x93NUMPY\x09\x00" + array_bytes(X)[8:], y=Y), "'X': the array can"),
    "a negative shape": (lambda: archive(X=head((-3, 2)), y=Y), "array 'X'"),
    "a shape without numbers": (lambda: archive(X=head((10**12, 8)), y=Y), "takes 64000000000000"),
}
BOMBS = {
    "of other rows": (
        lambda: archive(zipfile.ZIP_DEFLATED, X=head((2**21, 1), content=bytes(2**24)), y=Y), "has 2097152 rows"),
    "of words": (
        lambda: archive(zipfile.ZIP_DEFLATED, X=head((1, 1), "<U4194304", bytes(2**24)), y=Y[:1]), "holds <U4194304"),
    # Three times six and three numbers of eight bytes.
    "beyond memory": (lambda: archive(X=X, y=Y), "'X' and 'y' take 216 bytes of memory, of which there are 100 bytes"),
}
# Each holds the numbers of PLAIN.
TABLES = {
    "no last newline, and blanks": "\n" + PLAIN.replace("\n", "\n \n").rstrip(),
    "a byte order mark, and Windows lines": "\ufeff" + PLAIN.replace("\n", "\r\n"),
    "old Macintosh lines": PLAIN.replace("\n", "\r"),
    "quotation after spaces": PLAIN.replace("b", ' "b"').replace("\n1,2", '\n 1, "2"'),
    "floats": PLAIN.replace("1,2,3", "1e0,+2,.3e1"),
    "no-break spaces": PLAIN.replace("1,", "1\u00a0,"),
    "a name with a line in it": PLAIN.replace("a", '"a\nc"'),
}
ARCHIVES = {
    "bzip2": lambda: archive(zipfile.ZIP_BZIP2, X=X, y=Y),
    "others beside": lambda: archive(X=X, y=Y, Z=np.array([None]), text=b"no array"),
    "Fortran's order": lambda: archive(X=np.asfortranarray(X), y=Y),
    "the third version": lambda: archive(X=array_bytes(X, (3, 0)), y=Y),
}
# Tables and archives that are unusual, and whether the range of floats holds the squares of their entries as they are.
UNUSUAL = {
    "more features than rows": (lambda: "a,b,c,y\n1,2,3,4\n2,1,1,0\n", True),
    "huge": (lambda: column(1e308, -1e308, 9e307, 1e307), False),
    "tiny": (lambda: column(5e-324, 1e-310, 0.0, -1e-320), True),
    "several targets": (lambda: archive(X=X, y=np.stack([Y, -Y**2], axis=1)), True),
}
# fmt: on


def write(content: str | bytes) -> Path:
    path = Path("t.csv" if isinstance(content, str) else "t.npz")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def hand(tmp_path, monkeypatch, capsys):
    """Return a function that hands a file to the command line, and returns its exit code and what it said.

    Warnings are errors here, those of NumPy among them.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "run_all", lambda jobs, pool: 0)

    def hand(content: str | bytes, options: str = "standardize: true") -> tuple[int, str]:
        table = write(content)
        Path("s.yaml").write_text(SCENARIO.format(path=table, options=options))
        code = cli.main(["s.yaml"])
        assert sorted(path.name for path in tmp_path.iterdir()) == ["s.yaml", table.name]
        table.unlink()
        return code, capsys.readouterr().err

    return hand


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_the_place(hand, make, message):
    code, error = hand(make())
    assert code == 2
    assert error.startswith("flowsim: ")
    assert message in error
    assert len(error.splitlines()) == 1
    assert len(error) < 1000


def test_every_dialect_and_every_type_of_array_gives_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for case, content in (TABLES | {name: make() for name, make in ARCHIVES.items()}).items():
        for array, expected in zip(read_table(write(content), "y"), (X, Y), strict=True):
            assert array.dtype == float, case
            np.testing.assert_array_equal(array, expected, err_msg=case)


@pytest.mark.parametrize("standardized", [True, False])
def test_unusual_numbers_are_accepted_without_a_word_unless_their_squares_leave_the_range_of_floats(hand, standardized):
    for name, (make, has_squares) in UNUSUAL.items():
        code, error = hand(make(), f"standardize: {str(standardized).lower()}")
        if standardized or has_squares:
            assert (code, error) == (0, ""), name
        else:
            assert code == 2, name
            assert "has entries of size " in error
            assert "leave the range of floats: rescale" in error


@pytest.mark.parametrize(("make", "message"), BOMBS.values(), ids=BOMBS)
def test_no_array_is_unpacked_that_will_be_refused(tmp_path, monkeypatch, make, message):
    if make is BOMBS["beyond memory"][0]:
        monkeypatch.setattr("flowsim.runtime.memory.machine_bytes", lambda: 100.0)
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("unpacked"))
    (tmp_path / "t.npz").write_bytes(make())
    with pytest.raises(DataError, match=re.escape(message)):
        read_table(tmp_path / "t.npz", "y")
