"""Data of regression: the teacher, scaling, and tables from files, with what is refused and where it is."""

import csv
import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.sparse
import xarray

import flowsim
from flowsim.data import DataError, gaussian_teacher, read_table, standardize, unit_regressor

DIABETES = Path(__file__).parents[1] / "scenarios" / "data" / "diabetes.csv"


def refuses(*parts):
    """Expect a DataError whose message holds the parts in this order."""
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(part) for part in parts))


def least_squares(X, y):
    return np.linalg.lstsq(X, y, rcond=None)[0]


@pytest.mark.parametrize(
    ("X", "y", "expected", "rounding"),
    [
        # w* = (3, 4); the 7 is residual.
        (np.eye(4)[:, :2], [3.0, 4.0, 7.0, 0.0], np.array([3.0, 4.0, 7.0, 0.0]) / 5, 1e-15),
        # Underdetermined: w* = (3/2, 3/2), of minimal norm 3/√2.
        ([[1.0, 1.0]], [3.0], [np.sqrt(2)], 1e-15),
        # Collinear features share the regressor: w* = (1/2, 1/2).
        ([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]], [1.0, 2.0, 5.0], np.array([1.0, 2.0, 5.0]) * np.sqrt(2), 1e-14),
        # Several outputs are divided by one Frobenius norm.
        (np.eye(2), [[1.0, 2.0, 0.0], [2.0, 0.0, 4.0]], np.array([[1.0, 2.0, 0.0], [2.0, 0.0, 4.0]]) / 5, 1e-15),
    ],
)
def test_labels_are_divided_by_the_norm_of_the_least_squares_regressor(X, y, expected, rounding):
    for X_scale, y_scale in ((1, 1), (1e-200, 1e200), (1e200, 1e-200)):
        scaled = unit_regressor(np.multiply(X, X_scale), np.multiply(y, y_scale))
        np.testing.assert_allclose(scaled, np.multiply(expected, X_scale), rtol=rounding if X_scale == 1 else 1e-13)


@pytest.mark.parametrize(
    ("X", "y", "parts"),
    [
        ([[0.1], [0.3]], [0.3, -0.1], ["least-squares regressor w* of y on X is zero"]),  # orthogonal up to rounding
        ([[1.0], [2.0]], [0.0, 0.0], ["least-squares regressor w* of y on X is zero"]),
        ([1.0, 2.0], [1.0, 2.0], ["X has shape (2,): expected (n, columns), with no empty axis"]),
        ([[1.0]], 1.0, ["y has shape (): expected (n,) or (n, columns)"]),
        (np.ones((3, 2)), np.ones(2), ["X has 3 rows and y has 2"]),
        ([[1j]], [1.0], ["X holds complex128: expected real numbers"]),
        ([[1.0, 2.0], [3.0, np.nan]], [1.0, 2.0], ["X, row 2, column 2 (counted from 1): the value is missing"]),
        ([[1.0], [2.0]], [1.0, -np.inf], ["y, row 2 (counted from 1): the value is infinite ('-inf')"]),
    ],
)
def test_arrays_that_are_not_data_or_have_no_regressor_are_refused(X, y, parts):
    with refuses(*parts):
        unit_regressor(X, y)


class Columns:
    """A table with named columns as polars has them: without `items`, and with its own `drop`."""

    def __init__(self, columns):
        self._columns, self.columns = columns, list(columns)

    def __getitem__(self, name):
        return self._columns[name]

    def __array__(self, dtype=None, copy=None):
        return np.stack([np.array(column, object) for column in self._columns.values()], axis=1)

    def drop(self, name):
        return Columns({key: column for key, column in self._columns.items() if key != name})


NUMBERS = pandas.DataFrame({"a": [1.0, 2.0, 4.0, 3.0], "b": [1, 0, 2, 5]})
NUMBERED = pandas.array([1, None, 3, 4], dtype="Int64")
UNUSABLE = {
    "a column of words": (NUMBERS.assign(city=list("pqpr")), "X, column 'city' holds words, such as 'p'"),
    "a column of categories": (NUMBERS.assign(k=pandas.Categorical(list("uvuv"))), "X, column 'k' holds words"),
    "numbers in words": (NUMBERS.assign(c=["1", "2", "4", "3"]), "X, column 'c' holds words, such as '1'"),
    "a column of dates": (NUMBERS.assign(w=pandas.date_range("2020", periods=4)), "X, column 'w' holds datetime64"),
    "another table": (Columns({"a": [1, 2, 4, 3], "s": list("xyzw")}), "X, column 's' holds words, such as 'x'"),
    "columns by name": ({"a": [1, 2, 4, 3]}, "X is a dict: expected an array, lists or a table"),
    "a data set": (xarray.Dataset({"a": ("x", [1.0, 2, 4, 3])}), "X makes no array (TypeError: "),
    "a column with a gap": (NUMBERS.assign(a=[1.0, np.nan, 4, 3]), "X, column 'a', row 2 (counted from 1): the value"),
    "a gap among whole numbers": (NUMBERS.assign(a=NUMBERED), "X, column 'a', row 2 (counted from 1): the value is m"),
    "a mask": (
        np.ma.masked_greater([[1.0, 2], [2, 9], [1, 1], [0, 1]], 5),
        "X, row 2, column 2 (counted from 1): the v",
    ),
    "a sparse matrix": (
        scipy.sparse.csr_array([[1.0, 2], [2, 0], [1, 1], [0, 3]]),
        "X is a csr_array: expected an arr",
    ),
    "a gap in a list": ([[1.0, 2], [2, None], [1, 1]], "X, row 2, column 2 (counted from 1): the value is missing"),
}


@pytest.mark.parametrize("make", [flowsim.LinearRegression, flowsim.EmpiricalRisk])
@pytest.mark.parametrize("case", UNUSABLE)
def test_a_table_without_numbers_is_refused_by_its_column_and_what_the_message_says_to_write_works(make, case):
    X, message = UNUSABLE[case]
    with refuses(message) as caught:
        make(X, [1.0, 0.0, 2.0, 1.0])
    _, _, write = str(caught.value).partition("; write ")
    for remedy in write.removesuffix(" for classes").split(", or ") if write else ():
        make(eval(remedy, {"X": X, "pandas": pandas, "numpy": np}), [1.0, 0.0, 2.0, 1.0])


@pytest.mark.parametrize(
    "y",
    [
        list("pqpr"),
        np.array(list("pqpr")),
        pandas.Series(list("pqpr")),
        pandas.Series(list("pqpr"), dtype="category"),
        pandas.DataFrame({"species": list("pqpr")}),
    ],
)
def test_words_as_labels_are_refused_and_become_classes_by_what_the_message_says_to_write(y):
    with refuses("holds words, such as 'p'") as caught:
        flowsim.EmpiricalRisk(NUMBERS, y, flowsim.losses.CrossEntropy())
    remedy = str(caught.value).partition("; write ")[2].removesuffix(" for classes")
    problem = flowsim.EmpiricalRisk(NUMBERS, eval(remedy, {"y": y, "numpy": np}), flowsim.losses.CrossEntropy())
    assert np.asarray(problem.y).tolist() == [0, 1, 0, 2]


def test_tables_of_numbers_are_their_numbers_whatever_their_types():
    whole = NUMBERS.astype("Int64")
    mixed = Columns({"a": [1, 2, 4, 3], "b": [1, 0, 2, 5.0]})
    for X in (NUMBERS, whole, mixed, NUMBERS.assign(b=NUMBERS["b"] > 0)):
        expected = np.stack([np.asarray(X[name], float) for name in X.columns], axis=1)
        np.testing.assert_array_equal(flowsim.EmpiricalRisk(X, whole["b"]).X, expected)
    assert flowsim.EmpiricalRisk(NUMBERS, whole["b"]).y.dtype.kind == "i"
    one_column = pandas.DataFrame({"y": [1.0, 2.0, 3.0, 5.0]})
    assert flowsim.LinearRegression(NUMBERS, one_column).optimum.shape == (2,)


@pytest.mark.parametrize(
    ("samples", "features", "outputs", "noise"), [(50, 5, 1, 1.0), (15, 20, 3, 1.0), (7, 7, 3, 0.0), (1, 1, 1, 0.0)]
)
def test_the_teacher_has_a_least_squares_regressor_of_norm_one(samples, features, outputs, noise):
    X, y = gaussian_teacher(np.random.default_rng(1), samples, features, noise=noise, outputs=outputs)
    assert X.shape == (samples, features)
    assert y.shape == ((samples,) if outputs == 1 else (samples, outputs))
    assert X.dtype == y.dtype == np.float64
    # w* is known to about cond(X) rounding errors.
    tolerance = 100 * np.linalg.cond(X) * np.finfo(float).eps
    assert np.linalg.norm(least_squares(X, y)) == pytest.approx(1.0, abs=tolerance)


def test_the_noise_multiplies_as_a_standard_deviation():
    X, y = gaussian_teacher(np.random.default_rng(2), 30, 4, noise=2.5)
    rng = np.random.default_rng(2)
    np.testing.assert_array_equal(X, rng.standard_normal((30, 4)))
    expected = X @ rng.standard_normal(4) + 2.5 * rng.standard_normal(30)
    np.testing.assert_allclose(y, expected / np.linalg.norm(least_squares(X, expected)), rtol=1e-12)


@pytest.mark.parametrize(("samples", "features"), [(30, 5), (4, 6)])
def test_a_condition_sets_the_eigenvalues_of_the_covariance(samples, features):
    X, y = gaussian_teacher(np.random.default_rng(0), samples, features, condition=100.0)
    rank = min(samples, features)
    eigenvalues = np.linalg.eigvalsh(X.T @ X / samples)[::-1][:rank]
    np.testing.assert_allclose(eigenvalues, np.geomspace(1, 0.01, rank), rtol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(np.linalg.pinv(X) @ y), 1, rtol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {"samples": 0},
        {"features": 2.0},
        {"outputs": "5"},
        {"noise": -1.0},
        {"noise": 1e308},
        {"condition": 0.5},
        {"condition": float("inf")},
        {"features": 1, "condition": 2.0},
    ],
)
def test_a_teacher_that_cannot_be_is_refused_by_the_name_of_its_argument(options):
    with refuses(f"{list(options)[-1]} is "):
        gaussian_teacher(np.random.default_rng(0), **{"samples": 5, "features": 2} | options)


def test_one_two_three_becomes_plus_and_minus_the_root_of_three_halves():
    root, X = np.sqrt(1.5), np.array([[1.0, 7.0], [2.0, 7.0], [3.0, 7.0]])
    np.testing.assert_allclose(standardize(X), [[-root, 0.0], [0.0, 0.0], [root, 0.0]], rtol=1e-15)
    np.testing.assert_array_equal(X, [[1.0, 7.0], [2.0, 7.0], [3.0, 7.0]])  # as it was
    np.testing.assert_array_equal(standardize([[3.0, -1e9]]), [[0.0, 0.0]])


def test_standardizing_forgets_the_unit_of_a_column_and_a_large_mean_costs_no_digits():
    X = np.random.default_rng(0).standard_normal((20, 3))
    for scale in (1e-200, 1e200):
        np.testing.assert_allclose(standardize(scale * X), standardize(X), rtol=1e-12, atol=1e-14)
    X = np.array([[0.0], [1.0], [5.0]])
    np.testing.assert_allclose(standardize(X + 2.0**48), standardize(X), rtol=1e-14)


@pytest.mark.parametrize("column", [[0.1 + 0.2, 0.3, 0.3], [-1e300, -1e300, -1e300 * (1 + 2**-52)], 3 * [5e-324]])
def test_a_constant_column_becomes_zero_and_leaves_the_others_alone(column):
    other = [1.0, 2.0, 3.0]
    result = standardize(np.column_stack([column, other]))
    np.testing.assert_array_equal(result[:, 0], 0.0)
    np.testing.assert_array_equal(result[:, 1], standardize(np.array([other]).T)[:, 0])


@pytest.fixture
def table(tmp_path):
    """Write a CSV file from text or bytes and read it."""

    def read(content, target="y", features=None):
        path = tmp_path / "data.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_table(path, target, features)

    return read


def test_the_diabetes_data_are_those_of_the_paper():
    X, y = read_table(DIABETES, "progression")
    assert X.shape == (442, 10)
    np.testing.assert_array_equal(X[0], [59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87])
    np.testing.assert_array_equal(X[-1], [36, 1, 19.6, 71, 250, 133.2, 97, 3, 4.5951, 92])
    assert (y[0], y[-1], y.sum()) == (151, 57, 67243)
    X = standardize(X)
    assert np.linalg.cond(X.T @ X / len(X)) == pytest.approx(470.08, abs=0.01)


def test_features_are_the_columns_named_in_that_order_or_all_others_and_a_list_of_targets_makes_a_matrix(table):
    X, y = table("a,y,b\n1,2,3\n4,5,6\n")
    np.testing.assert_array_equal(X, [[1, 3], [4, 6]])
    np.testing.assert_array_equal(y, [2, 5])
    assert X.dtype == y.dtype == np.float64
    text = "name,a,y,b,\nfoo,1,2,3,\n,4,5,6,NA\n"  # others may hold anything
    np.testing.assert_array_equal(table(text, features=["b", "a"])[0], [[3, 1], [6, 4]])
    np.testing.assert_array_equal(table(text, ["b", "y"], "a")[1], [[3, 2], [6, 5]])
    assert table(text, ["y"], ["a"])[1].shape == table(text, "y", "a")[0].shape == (2, 1)


def test_written_numbers_are_read_back_to_the_last_bit(tmp_path):
    least, most = np.finfo(float).smallest_subnormal, np.finfo(float).max
    values = np.array([[0.1, -0.0, least], [most, -most, np.pi], [1 / 3, 1e-200, 2**53 + 1.0]])
    with (tmp_path / "data.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([["a", "y", "b"], *values.tolist()])
    X, y = read_table(tmp_path / "data.csv", "y")
    np.testing.assert_array_equal(X, values[:, [0, 2]])
    np.testing.assert_array_equal(y, values[:, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, f"the value is missing ({text!r}): expected a finite number") for text in ("", "n/a", "-nan")),
        ("1e400", "the value is infinite ('1e400')"),
        *((text, f"{text!r} is not a number") for text in ("high", "1,5", "1_000")),
        ("x" * 100_000, "is not a number"),
    ],
)
def test_what_is_no_finite_number_is_refused_where_it_is_in_the_file(table, text, message):
    with refuses("data.csv, row 5, column 'b': ", message) as caught:  # blank lines count
        table(f'y,b\n\n\n1,2\n3,"{text}"\n')
    assert len(str(caught.value)) < 500


# fmt: off
BAD_TABLES = {
    "a long row": ("a,y\n1,2\n1,2,3\n3,4\n", {}, "data.csv, row 3: the row has 3 values and the header 2"),
    "a column twice": ("a,y,a\n1,2,3\n", {}, "data.csv, row 1: column 'a' is named 2 times"),
    "a near name": ("age,y\n1,2\n", {"target": "AGE"},
        "data.csv, target: there is no column 'AGE' (did you mean 'age'?): expected one of 'age', 'y'"),
    "no features": ("a,y\n1,2\n", {"features": []}, "data.csv, features: no column is named or left"),
    "no name": (",a,y\n0,1,2\n", {}, "data.csv, row 1, column number 1: the column has no name"),
    "semicolons": ("a;y\n1;2\n", {}, "data.csv, row 1: there is one column, 'a;y': expected two or more, separated by"),
    "an empty file": ("\ufeff\n\n", {}, "data.csv: the file is empty"),
    "no rows": ("a,y\n\n", {}, "data.csv: there are no rows of data"),
    "another encoding": ("name,y\nRené,2\n".encode("latin-1"), {}, "data.csv, row 2: byte 0xe9 is not UTF-8"),
    "open quotation": ('a,y\n1,2\n"3,4\n5,6\n', {}, "data.csv, row 3: not valid CSV ("),
}
# fmt: on


@pytest.mark.parametrize(("content", "options", "message"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_table_that_is_no_data_is_refused_with_the_place(table, content, options, message):
    with refuses(message):
        table(content, **options)


@pytest.mark.parametrize(
    "content", ["a;b;y\n1,5;2;3\n2;3,25;4\n", "a;b;y\n1.5;2;3\n2;3.25;4\n", "a\tb\ty\n1.5\t2\t3\n2\t3.25\t4\n"]
)
def test_a_table_with_other_separators_is_read_after_what_the_message_says_to_write(tmp_path, content):
    (tmp_path / "data.csv").write_text(content)
    with refuses("separated by commas; write pandas.read_csv(") as caught:
        read_table(tmp_path / "data.csv", "y")
    eval(str(caught.value).partition("; write ")[2], {"pandas": pandas})
    np.testing.assert_array_equal(read_table(tmp_path / "data_commas.csv", "y")[0], [[1.5, 2], [2, 3.25]])


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    for name, message in {
        "data.csv": f"{tmp_path / 'data.csv'}: no such file, seen from {Path.cwd()}",
        ".": "this is a folder: expected a .csv or .npz file",
        "data.csv.gz": "file type '.gz' is not supported",
        "x" * 300 + ".csv": "the file cannot be read: File name too long",
    }.items():
        with refuses(message):
            read_table(tmp_path / name, "y")


@pytest.fixture
def archive(tmp_path):
    """Write arrays to an NPZ file and read it."""

    def read(target="y", features=None, **contents):
        path = tmp_path / "data.npz"
        np.savez(path, **contents)
        return read_table(path, target, features)

    return read


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_saved_arrays_are_read_back_to_the_last_bit(tmp_path, save):
    X, y = np.random.default_rng(0).standard_normal((4, 3)), np.array([[1e-308, -0.0], [1 / 3, 1e308]] * 2)
    save(tmp_path / "data.npz", inputs=X, labels=y, X=np.array("unused"))
    path = (tmp_path / "data.npz").rename(tmp_path / "DATA.NPZ")
    for read, saved in zip(read_table(path, "labels", "inputs"), (X, y), strict=True):
        np.testing.assert_array_equal(read, saved)


@pytest.mark.parametrize("dtype", [np.uint64, np.float16, np.longdouble, ">f8"])
def test_every_real_type_becomes_float64(archive, dtype):
    X, y = archive(X=np.array([[1], [2]], dtype), y=np.array([3, 4], dtype))
    assert X.dtype == y.dtype == np.float64
    np.testing.assert_array_equal(y, [3, 4])


@pytest.mark.parametrize(
    ("contents", "parts"),
    [
        ({"y": np.ones(1), "x": np.ones((1, 1))}, ["features: there is no array 'X' (did you mean 'x'?)"]),
        ({"X": np.ones((3, 2)), "y": np.ones((3, 1, 1))}, ["array 'y' has shape (3, 1, 1)"]),
        ({"X": np.ones((3, 2)), "y": np.ones(4)}, ["array 'X' has 3 rows and", "array 'y' has 4: expected one"]),
        ({"X": np.ones((1, 1)), "y": np.array([True])}, ["array 'y' holds bool: expected real numbers"]),
        ({"X": np.ones((1, 1)), "y": np.array([None])}, ["array 'y': the array cannot be read (Object arrays"]),
        (
            {"X": np.full((1, 1), np.nan), "y": np.ones(1)},
            ["array 'X', row 1, column 1 (counted from 1): the value is"],
        ),
        ({"X": np.ones((2, 2)), "target": "X"}, ["target and features: array 'X' is named 2 times"]),
        ({"X": np.ones((2, 2)), "target": ["y", "z"]}, ["target: found ['y', 'z']: expected the name of one array"]),
    ],
)
def test_arrays_that_do_not_make_a_regression_are_refused(archive, contents, parts):
    with refuses("data.npz, ", *parts):
        archive(**contents)


def test_what_is_no_archive_or_a_damaged_one_is_refused(tmp_path):
    path, y = tmp_path / "data.npz", io.BytesIO()
    path.write_bytes(b"PK\x03\x04 and no more")
    with refuses("data.npz: not an .npz archive ("):
        read_table(path, "y")
    np.savez(path, X=np.full((2, 2), 7.25), y=np.ones(2))
    path.write_bytes(path.read_bytes().replace(np.float64(7.25).tobytes(), np.float64(8.25).tobytes()))
    with refuses("array 'X': the array cannot be read (Bad CRC-32"):
        read_table(path, "y")
    np.save(y, np.ones(2))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", b"not an array")
        archive.writestr("y.npy", y.getvalue())
    with refuses("array 'X': the array cannot be read ("):
        read_table(path, "y")
