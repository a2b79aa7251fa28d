import csv
import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from flowsim.data import DataError, gaussian_teacher, read_table, standardize, unit_regressor

DIABETES = Path(__file__).parents[1] / "scenarios" / "data" / "diabetes.csv"
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def refuses(*parts):
    """Expect a DataError whose message holds the parts in this order."""
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(part) for part in parts))


def least_squares(X, y):
    return np.linalg.lstsq(X, y, rcond=None)[0]


def test_orthonormal_features_make_the_regressor_norm_that_of_the_coefficients():
    X = np.eye(4)[:, :2]
    y = np.array([3.0, 4.0, 7.0, 0.0])  # w* = (3, 4); the 7 is residual
    np.testing.assert_allclose(unit_regressor(X, y), y / 5, rtol=1e-15)


def test_underdetermined_data_use_the_regressor_of_minimal_norm():
    # w* = (3/2, 3/2) has norm 3/√2.
    np.testing.assert_allclose(unit_regressor([[1.0, 1.0]], [3.0]), [np.sqrt(2)], rtol=1e-15)


def test_collinear_features_share_the_regressor():
    X = np.array([[1.0, 1.0], [2.0, 2.0], [0.0, 0.0]])
    y = np.array([1.0, 2.0, 5.0])  # w* = (1/2, 1/2)
    np.testing.assert_allclose(unit_regressor(X, y), y * np.sqrt(2), rtol=1e-14)


def test_several_outputs_are_divided_by_one_frobenius_norm():
    X, y = np.eye(2), np.array([[1.0, 2.0, 0.0], [2.0, 0.0, 4.0]])
    np.testing.assert_allclose(unit_regressor(X, y), y / 5, rtol=1e-15)


@pytest.mark.parametrize("X_scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("y_scale", [1e-200, 1.0, 1e200])
def test_unit_regressor_scales_with_the_features_and_ignores_the_scale_of_the_targets(X_scale, y_scale):
    X, y = gaussian_teacher(np.random.default_rng(0), 12, 3)
    np.testing.assert_allclose(unit_regressor(X * X_scale, y * y_scale), y * X_scale, rtol=1e-13)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1.0], [1.0]], [1.0, -1.0]),
        ([[0.1], [0.3]], [0.3, -0.1]),
        ([[1.0], [2.0]], [0.0, 0.0]),
        ([[0.0], [0.0]], [1.0, 2.0]),
    ],
    ids=["orthogonal", "orthogonal up to rounding", "zero targets", "zero features"],
)
def test_a_zero_regressor_is_refused(X, y):
    with refuses("least-squares regressor w* of y on X is zero", "expected a y that is not orthogonal"):
        unit_regressor(X, y)


@pytest.mark.parametrize(
    ("X", "y", "parts"),
    [
        ([1.0, 2.0], [1.0, 2.0], ["X has shape (2,): expected (n, columns), with no empty axis"]),
        ([[1.0]], 1.0, ["y has shape (): expected (n,) or (n, columns), with no empty axis"]),
        (np.ones((0, 2)), np.ones(0), ["X has shape (0, 2): expected (n, columns), with no empty axis"]),
        (np.ones((3, 2)), np.ones(2), ["X has 3 rows and y has 2: expected one of each per sample"]),
        ([["a"]], [1.0], ["X holds <U1: expected real numbers"]),
        ([[1j]], [1.0], ["X holds complex128: expected real numbers"]),
        (
            [[1.0, 2.0], [3.0, np.nan]],
            [1.0, 2.0],
            ["X, row 2, column 2 (counted from 1): the value is missing"],
        ),
        ([[1.0], [2.0]], [1.0, -np.inf], ["y, row 2 (counted from 1): the value is infinite ('-inf')"]),
    ],
)
def test_arrays_that_are_not_data_are_refused(X, y, parts):
    with refuses(*parts):
        unit_regressor(X, y)


@pytest.mark.parametrize(("samples", "features"), [(50, 5), (15, 20), (7, 7), (1, 1)])
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("noise", [0.0, 1.0])
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


def test_without_noise_the_features_explain_the_targets():
    X, y = gaussian_teacher(np.random.default_rng(3), 40, 6, noise=0.0)
    np.testing.assert_allclose(X @ least_squares(X, y), y, atol=1e-13)


def test_the_teacher_follows_its_generator():
    first, again, other = (gaussian_teacher(np.random.default_rng(seed), 10, 3) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.any(first[1] == other[1])


@pytest.mark.parametrize("argument", ["samples", "features", "outputs"])
@pytest.mark.parametrize("size", [0, -3, 2.0, "5"])
def test_a_size_that_is_not_a_positive_whole_number_is_refused(argument, size):
    sizes = {"samples": 5, "features": 2, argument: size}
    with refuses(f"{argument} is {size!r}: expected a whole number, at least 1"):
        gaussian_teacher(np.random.default_rng(0), **sizes)


@pytest.mark.parametrize("noise", [-1.0, float("nan"), float("inf")])
def test_a_noise_that_is_no_standard_deviation_is_refused(noise):
    with refuses(f"noise is {noise!r}: expected a finite standard deviation, at least 0"):
        gaussian_teacher(np.random.default_rng(0), 5, 2, noise=noise)


def test_one_two_three_becomes_plus_and_minus_the_root_of_three_halves():
    root = np.sqrt(1.5)
    np.testing.assert_allclose(standardize([[1], [2], [3]]), [[-root], [0.0], [root]], rtol=1e-15)


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_standardizing_forgets_the_unit_of_a_column(scale):
    X = np.random.default_rng(0).standard_normal((20, 3))
    np.testing.assert_allclose(standardize(scale * X), standardize(X), rtol=1e-12, atol=1e-14)


def test_a_large_mean_costs_no_digits():
    X = np.array([[0.0], [1.0], [5.0]])
    np.testing.assert_allclose(standardize(X + 2.0**48), standardize(X), rtol=1e-14)


@pytest.mark.parametrize(
    "column",
    [
        [0.0, 0.0, 0.0],
        [0.1, 0.1, 0.1],
        [0.1 + 0.2, 0.3, 0.3],
        [-1e300, -1e300, -1e300 * (1 + 2**-52)],
        [5e-324, 5e-324, 5e-324],
    ],
)
def test_a_constant_column_becomes_zero_and_leaves_the_others_alone(column):
    other = [1.0, 2.0, 3.0]
    result = standardize(np.column_stack([column, other]))
    np.testing.assert_array_equal(result[:, 0], 0.0)
    np.testing.assert_array_equal(result[:, 1], standardize(np.array([other]).T)[:, 0])


def test_a_single_row_becomes_zero():
    np.testing.assert_array_equal(standardize([[3.0, -1e9]]), [[0.0, 0.0]])


def test_standardizing_leaves_its_argument_alone():
    X = np.array([[1.0, 7.0], [2.0, 7.0]])
    standardize(X)
    np.testing.assert_array_equal(X, [[1.0, 7.0], [2.0, 7.0]])


@settings(deadline=None)
@given(arrays(float, st.tuples(st.integers(1, 8), st.integers(1, 4)), elements=st.floats(-1e9, 1e9)))
def test_a_standardized_column_has_mean_zero_and_variance_one_or_is_zero(X):
    result = standardize(X)
    variances = np.mean(result**2, axis=0)
    np.testing.assert_allclose(result.mean(axis=0), 0.0, atol=1e-14)
    zero = np.all(result == 0, axis=0)
    np.testing.assert_allclose(variances, np.where(zero, 0.0, 1.0), atol=1e-14)
    varies = np.ptp(X, axis=0) > 1e-14 * np.abs(X).max(axis=0)
    assert not np.any(zero & varies)


def test_standardizing_refuses_what_is_not_a_table():
    with refuses("X has shape (3,): expected (n, columns)"):
        standardize([1.0, 2.0, 3.0])


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
    assert y.shape == (442,)
    np.testing.assert_array_equal(X[0], [59, 2, 32.1, 101, 157, 93.2, 38, 4, 4.8598, 87])
    np.testing.assert_array_equal(X[-1], [36, 1, 19.6, 71, 250, 133.2, 97, 3, 4.5951, 92])
    assert (y[0], y[-1], y.sum()) == (151, 57, 67243)


def test_the_standardized_diabetes_data_have_condition_number_470():
    X = standardize(read_table(DIABETES, "progression")[0])
    assert np.linalg.cond(X.T @ X / len(X)) == pytest.approx(470.08, abs=0.01)


def test_all_other_columns_are_the_features(table):
    X, y = table("a,y,b\n1,2,3\n4,5,6\n")
    np.testing.assert_array_equal(X, [[1, 3], [4, 6]])
    np.testing.assert_array_equal(y, [2, 5])
    assert X.dtype == y.dtype == np.float64


def test_named_features_come_in_the_order_of_their_names(table):
    X, _ = table("a,y,b,c\n1,2,3,0\n4,5,6,0\n", features=["b", "a"])
    np.testing.assert_array_equal(X, [[3, 1], [6, 4]])


def test_a_list_of_targets_makes_a_matrix_and_a_name_a_vector(table):
    text = "a,y,z\n1,2,3\n4,5,6\n"
    np.testing.assert_array_equal(table(text, ["z", "y"])[1], [[3, 2], [6, 5]])
    assert table(text, ["y"], ["a"])[1].shape == (2, 1)
    assert table(text, "y", "a")[0].shape == (2, 1)


def test_columns_that_are_not_used_may_hold_anything(table):
    X, _ = table("name,a,y,\nfoo,1,2,\n,3,4,NA\n", features=["a"])
    np.testing.assert_array_equal(X, [[1], [3]])


@pytest.mark.parametrize(
    "content",
    [
        "a,y\n1,2\n3,4",
        "\ufeffa,y\n1,2\n3,4\n",
        "a,y\r\n1,2\r\n3,4\r\n",
        "a,y\r1,2\r3,4\r",
        '"a","y"\n"1","2"\n3,4\n',
        " a , y\n 1, 2\n3 ,4\n",
        'a, "y"\n1, "2"\n3,4\n',
        "\na,y\n\n1,2\n  \n3,4\n\n\n",
        "a,y\n1e0,+2\n3.0,.4e1\n",
    ],
    ids=[
        "no last newline",
        "BOM",
        "CRLF",
        "CR",
        "quoted",
        "spaces",
        "quoted after space",
        "blanks",
        "floats",
    ],
)
def test_common_dialects_read_alike(table, content):
    X, y = table(content)
    np.testing.assert_array_equal(X, [[1], [3]])
    np.testing.assert_array_equal(y, [2, 4])


@settings(deadline=None)
@given(arrays(float, st.tuples(st.integers(1, 6), st.integers(2, 5)), elements=FINITE))
def test_written_numbers_are_read_back_to_the_last_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("numbers") / "data.csv"
    names = [f"c{column}" for column in range(values.shape[1])]
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([names, *values.tolist()])
    X, y = read_table(path, "c0")
    np.testing.assert_array_equal(X, values[:, 1:])
    np.testing.assert_array_equal(y, values[:, 0])


@settings(deadline=None)
@given(row=st.integers(0, 5), column=st.integers(0, 3), blanks=st.integers(0, 3))
def test_a_bad_entry_is_found_where_it_stands_in_the_file(tmp_path_factory, row, column, blanks):
    path = tmp_path_factory.mktemp("bad") / "data.csv"
    cells = [["1"] * 4 for _ in range(6)]
    cells[row][column] = "oops"
    path.write_text("a,b,c,d\n" + "\n" * blanks + "\n".join(map(",".join, cells)))
    with refuses(f"{path}, row {row + 2 + blanks}, column '{'abcd'[column]}': 'oops' is not a number"):
        read_table(path, "b")


@pytest.mark.parametrize(
    "text", ["", "  ", "NA", "n/a", "#N/A", "nan", "NaN", "-nan", "null", "NULL", "None", "?", "-", "."]
)
def test_a_missing_value_is_refused_with_its_place(table, text):
    with refuses(
        f"data.csv, row 3, column 'b': the value is missing ({text!r}): ",
        "expected a finite number; fill it in or drop the row",
    ):
        table(f'y,b\n1,2\n3,"{text}"\n')


@pytest.mark.parametrize("text", ["inf", "-Infinity", "1e400"])
def test_an_infinite_value_is_refused_with_its_place(table, text):
    with refuses(f"data.csv, row 2, column 'y': the value is infinite ('{text}'): expected a finite number"):
        table(f"a,y\n1,{text}\n")


@pytest.mark.parametrize("text", ["high", "1,5", "1.2.3", "1_000", "0x1f", "True", "1+2j", "€5", "1 000"])
def test_text_in_a_numeric_column_is_refused_with_its_place(table, text):
    with refuses(f"data.csv, row 3, column 'a': {text!r} is not a number: expected one written like 12.5 or 3e-4"):
        table(f'a,y\n1,2\n"{text}",4\n')


def test_a_long_text_is_shortened_in_the_message(table):
    with pytest.raises(DataError) as caught:
        table("a,y\n" + "x" * 100_000 + ",1\n")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(("row", "count"), [("1", 1), ("1,2,3", 3), ("1,2,", 3)])
def test_a_row_of_another_length_is_refused(table, row, count):
    with refuses(f"data.csv, row 3: the row has {count} values and the header 2: expected as many"):
        table(f"a,y\n1,2\n{row}\n3,4\n")


def test_a_repeated_column_is_refused(table):
    with refuses("data.csv, row 1: column 'a' is named 2 times: expected once"):
        table("a,y,a\n1,2,3\n")


@pytest.mark.parametrize(("target", "features"), [("y", ["a", "y"]), (["y", "y"], None), ("y", ["a", "a"])])
def test_a_column_chosen_twice_is_refused(table, target, features):
    with refuses("data.csv, target and features: column ", " is named 2 times: expected once"):
        table("a,y\n1,2\n", target, features)


@pytest.mark.parametrize("name", ["progresion", "PROGRESSION", "progression "])
def test_an_unknown_column_is_refused_with_the_nearest_name(table, name):
    with refuses(
        f"data.csv, target: there is no column {name!r} (did you mean 'progression'?): ",
        "expected one of 'age', 'progression'",
    ):
        table("age,progression\n1,2\n", name)
    with refuses(f"data.csv, features: there is no column {name!r} (did you mean 'progression'?)"):
        table("age,progression\n1,2\n", "age", ["age", name])


def test_an_unknown_column_like_no_other_is_refused_with_the_names_there_are(table):
    with refuses("there is no column 'zzz': expected one of 'a', 'y'"):
        table("a,y\n1,2\n", "zzz")


def test_a_choice_of_no_columns_is_refused(table):
    with refuses("data.csv, features: no column is named or left: expected at least one of 'a', 'y'"):
        table("a,y\n1,2\n", features=[])
    with refuses("data.csv, features: no column is named or left"):
        table("a,y\n1,2\n", ["a", "y"])
    with refuses("data.csv, target: no column is named or left"):
        table("a,y\n1,2\n", [])


def test_a_column_without_a_name_is_no_feature(table):
    with refuses("data.csv, row 1, column number 1: the column has no name: expected one"):
        table(",a,y\n0,1,2\n")


def test_other_separators_than_commas_are_refused(table):
    with refuses("data.csv, row 1: there is one column, 'a;y': expected two or more, separated by commas"):
        table("a;y\n1;2\n")


@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_refused(table, content):
    with refuses("data.csv: the file is empty: expected a row of column names, then rows of numbers"):
        table(content)


def test_a_file_without_rows_of_data_is_refused(table):
    with refuses("data.csv: there are no rows of data: expected at least one"):
        table("a,y\n\n")


def test_bytes_that_are_not_utf8_are_refused_with_their_row(table):
    with refuses("data.csv, row 2: byte 0xe9 is not UTF-8: save the file as UTF-8"):
        table("name,y\nRené,2\n".encode("latin-1"))


@pytest.mark.parametrize("content", ['a,y\n1,2\n"3,4\n5,6\n', 'a,y\n1,2\n"3"x,4\n'])
def test_broken_quotation_is_refused_with_its_row(table, content):
    with refuses("data.csv, row 3: not valid CSV (", "): check the quotation marks"):
        table(content)


@pytest.mark.parametrize("name", ["data.csv", "data.npz"])
def test_a_missing_file_is_refused(tmp_path, name):
    with refuses(f"{tmp_path / name}: no such file, seen from {Path.cwd()}"):
        read_table(tmp_path / name, "y")


def test_a_folder_is_refused(tmp_path):
    with refuses(f"{tmp_path}: this is a folder: expected a .csv or .npz file"):
        read_table(str(tmp_path), "y")


@pytest.mark.parametrize("suffix", [".xlsx", ".csv.gz", ".npy", ""])
def test_an_unsupported_file_type_is_refused(tmp_path, suffix):
    with refuses(f"file type {Path('x' + suffix).suffix!r} is not supported: expected .csv or .npz"):
        read_table(tmp_path / f"data{suffix}", "y")


def test_a_file_that_the_system_refuses_is_refused(tmp_path):
    with refuses("the file cannot be read: File name too long"):
        read_table(tmp_path / ("x" * 300 + ".csv"), "y")


def test_the_suffix_may_be_in_capitals(tmp_path):
    path = tmp_path / "DATA.CSV"
    path.write_text("a,y\n1,2\n")
    assert read_table(path, "y")[1] == 2


@pytest.fixture
def archive(tmp_path):
    """Write arrays to an NPZ file and read it."""

    def read(target="y", features=None, **contents):
        path = tmp_path / "data.npz"
        np.savez(path, **contents)
        return read_table(path, target, features)

    return read


@settings(deadline=None)
@given(
    X=arrays(float, (4, 3), elements=FINITE),
    y=arrays(float, st.sampled_from([(4,), (4, 2)]), elements=FINITE),
    save=st.sampled_from([np.savez, np.savez_compressed]),
)
def test_saved_arrays_are_read_back_to_the_last_bit(tmp_path_factory, X, y, save):
    path = tmp_path_factory.mktemp("arrays") / "data.npz"
    save(path, X=X, y=y)
    for read, saved in zip(read_table(path, "y"), (X, y), strict=True):
        np.testing.assert_array_equal(read, saved)


def test_arrays_have_the_names_asked_for(archive):
    X, y = archive("labels", "inputs", inputs=np.ones((2, 3)), labels=np.zeros(2), X=np.array("unused"))
    assert (X.shape, y.shape) == ((2, 3), (2,))


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.float32, np.longdouble, ">f8"])
def test_every_real_type_becomes_float64(archive, dtype):
    X, y = archive(X=np.array([[1], [2]], dtype), y=np.array([3, 4], dtype))
    assert X.dtype == y.dtype == np.float64
    np.testing.assert_array_equal(y, [3, 4])


@pytest.mark.parametrize(
    ("contents", "parts"),
    [
        ({"y": np.ones(1), "x": np.ones((1, 1))}, ["features: there is no array 'X' (did you mean 'x'?)"]),
        ({"X": np.ones((1, 1))}, ["target: there is no array 'y': expected one of 'X'"]),
        ({"X": np.ones(3), "y": np.ones(3)}, ["array 'X' has shape (3,): expected (n, columns)"]),
        ({"X": np.ones((3, 0)), "y": np.ones(3)}, ["array 'X' has shape (3, 0)", "no empty axis"]),
        ({"X": np.ones((0, 2)), "y": np.ones(0)}, ["array 'X' has shape (0, 2)", "no empty axis"]),
        ({"X": np.ones((3, 2)), "y": np.ones((3, 1, 1))}, ["array 'y' has shape (3, 1, 1)"]),
        (
            {"X": np.ones((3, 2)), "y": np.ones(4)},
            ["array 'X' has 3 rows and", "array 'y' has 4: expected one"],
        ),
        ({"X": np.array([["a"]]), "y": np.ones(1)}, ["array 'X' holds <U1: expected real numbers"]),
        ({"X": np.ones((1, 1)), "y": np.array([True])}, ["array 'y' holds bool: expected real numbers"]),
        ({"X": np.ones((1, 1)), "y": np.array([1j])}, ["array 'y' holds complex128: expected real numbers"]),
        (
            {"X": np.ones((1, 1)), "y": np.array([None])},
            ["array 'y': the array cannot be read (Object arrays", "): expected real numbers"],
        ),
        (
            {"X": np.array([[1.0, 2.0], [3.0, np.nan]]), "y": np.ones(2)},
            ["array 'X', row 2, column 2 (counted from 1): the value is missing ('nan'): expected a finite"],
        ),
        (
            {"X": np.ones((3, 1)), "y": np.array([1.0, 2.0, -np.inf])},
            ["array 'y', row 3 (counted from 1): the value is infinite ('-inf')"],
        ),
    ],
)
def test_arrays_that_do_not_make_a_regression_are_refused(archive, contents, parts):
    with refuses("data.npz, ", *parts):
        archive(**contents)


def test_an_array_chosen_twice_is_refused(archive):
    with refuses("data.npz, target and features: array 'X' is named 2 times: expected once"):
        archive("X", X=np.ones((2, 2)))


def test_a_list_of_arrays_is_refused(archive):
    with refuses("data.npz, target: found ['y', 'z']: expected the name of one array"):
        archive(["y", "z"], X=np.ones((2, 2)), y=np.ones(2), z=np.ones(2))


@pytest.mark.parametrize("content", [b"", b"a,y\n1,2\n", b"PK\x03\x04 and no more"])
def test_a_file_that_is_no_archive_is_refused(tmp_path, content):
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    with refuses("data.npz: not an .npz archive (", "): expected one saved by numpy.savez"):
        read_table(path, "y")


def test_a_damaged_array_is_refused(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, X=np.full((2, 2), 7.25), y=np.ones(2))
    path.write_bytes(path.read_bytes().replace(np.float64(7.25).tobytes(), np.float64(8.25).tobytes()))
    with refuses("array 'X': the array cannot be read (Bad CRC-32", "): expected real numbers, saved by numpy"):
        read_table(path, "y")


def test_an_entry_that_is_not_an_array_is_refused(tmp_path):
    path, y = tmp_path / "data.npz", io.BytesIO()
    np.save(y, np.ones(2))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", b"not an array")
        archive.writestr("y.npy", y.getvalue())
    with refuses("array 'X': the array cannot be read (", "): expected real numbers"):
        read_table(path, "y")


@pytest.mark.parametrize(("samples", "features"), [(30, 5), (4, 6)])
def test_a_condition_sets_the_eigenvalues_of_the_covariance(samples, features):
    X, y = gaussian_teacher(np.random.default_rng(0), samples, features, condition=100.0)
    rank = min(samples, features)
    eigenvalues = np.linalg.eigvalsh(X.T @ X / samples)[::-1][:rank]
    np.testing.assert_allclose(eigenvalues, np.geomspace(1, 0.01, rank), rtol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(np.linalg.pinv(X) @ y), 1, rtol=1e-9)


@pytest.mark.parametrize(("features", "condition"), [(3, 0.5), (3, np.inf), (3, np.nan), (1, 2.0)])
def test_a_condition_that_no_covariance_has_is_refused(features, condition):
    with pytest.raises(DataError, match="condition is"):
        gaussian_teacher(np.random.default_rng(0), 9, features, condition=condition)
