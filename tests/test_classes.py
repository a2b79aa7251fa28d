"""Samples of classes: how labels become numbers, what is drawn and held out, the scale of inputs, and the formats."""

import itertools
import re
import warnings
from importlib.resources import files

import numpy as np
import pytest

from flowsim.data import SOURCES, Data, DataError, DataWarning, check_data, read_labelled, standardize
from flowsim.kinds import seeds
from flowsim.losses import CrossEntropy, SquaredError

IRIS = "length,species,width\n1,b,5\n2,a,6\n3,b,7\n5,c,9\n"


def source(kind, **options):
    return SOURCES[kind](kind=kind, **options)


def loaded(kind, folder=None, seed=0, **options):
    return source(kind, **options).load(seeds.generator(seed, "data"), folder)


def refuses(*parts):
    return pytest.raises(DataError, match="(?s)" + ".*".join(re.escape(part) for part in parts))


@pytest.fixture
def table(tmp_path):
    def write(text):
        (tmp_path / "t.csv").write_text(text)
        return tmp_path

    return write


def archive(folder, **arrays):
    np.savez(folder / "t.npz", **arrays)
    return folder


def batch(path, labels, value=7):
    path.parent.mkdir(exist_ok=True)
    records = np.full((len(labels), 3073), value, np.uint8)
    records[:, 0] = labels
    records.tofile(path)


def test_words_become_numbers_in_sorted_order_and_those_of_classes_that_are_not_asked_for_are_left_out(table):
    data = loaded("labelled", table(IRIS), path="t.csv", target="species", scaling="none")
    np.testing.assert_array_equal(data.training[0], [[1, 5], [2, 6], [3, 7], [5, 9]])
    np.testing.assert_array_equal(data.training[1], [1, 0, 1, 2])
    assert (data.classes, data.outputs, data.held_out) == (3, 3, None)

    data = loaded("labelled", table("x,y\n0,10\n1,9\n2,10.0\n"), path="t.csv", scaling="none")
    np.testing.assert_array_equal(data.training[1], [1, 0, 1])  # as numbers

    data = loaded("labelled", table(IRIS), path="t.csv", target="species", classes=("c", "b"), scaling="none")
    np.testing.assert_array_equal(data.training[0][:, 0], [1, 3, 5])
    np.testing.assert_array_equal(data.training[1], [0, 0, 1])


def test_labels_are_written_as_the_loss_wants_them_and_never_centred():
    data = Data((np.zeros((3, 2)), np.array([1, 0, 2])), (np.zeros((1, 2)), np.array([2])), classes=3)
    assert (SquaredError().labels(3), CrossEntropy().labels(3)) == ("one_hot", "index")
    written = data.written_as("one_hot")
    np.testing.assert_array_equal(written.training[1], [[0, 1, 0], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(written.held_out[1], [[0, 0, 1]])
    assert (data.outputs, written.outputs) == (3, 3)
    assert data.written_as("index").training[1].dtype.kind == "i"
    with refuses("there are 3 classes: expected two for labels ±1"):
        data.written_as("sign")
    signs = Data((np.zeros((2, 2)), np.array([1, 0])), classes=2).written_as("sign")
    np.testing.assert_array_equal(signs.training[1], [1.0, -1.0])
    assert signs.outputs == 1


def test_the_digits_are_those_of_scikit_learn():
    data = loaded("digits", scaling="none")
    X, y = data.training
    assert (X.shape, data.inputs, data.classes) == ((1797, 1, 8, 8), 64, 10)
    # The description of the data set counts the digits, and its first image is a zero.
    np.testing.assert_array_equal(np.bincount(y), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180])
    np.testing.assert_array_equal(X[0, 0, 0], [0, 0, 5, 13, 9, 1, 0, 0])
    assert (X.min(), X.max(), y[0]) == (0, 16, 0)
    assert files("flowsim.data.sources").joinpath("digits.md").is_file()


def test_what_is_held_out_is_apart_and_neither_number_moves_the_other_set():
    whole = loaded("digits", scaling="none").training[0].reshape(1797, -1)
    one, more, other = (
        loaded("digits", seed=seed, samples=samples, test_samples=test)
        for seed, samples, test in ((0, 100, 50), (0, 100, 300), (1, 100, 50))
    )
    np.testing.assert_array_equal(one.training[0], more.training[0])
    np.testing.assert_array_equal(one.held_out[0], loaded("digits", samples=7, test_samples=50).held_out[0])
    assert not np.array_equal(one.training[0], other.training[0])
    rest = loaded("digits", test_samples=97)
    rows = np.concatenate([rest.training[0], rest.held_out[0]]).reshape(1797, -1) * 16
    np.testing.assert_array_equal(np.sort(rows, axis=0), np.sort(whole, axis=0))


def warned(folder, **options):
    """Return what is warned of a split, and what each warning says to write, as options."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded("labelled", folder, path="t.csv", **options)
    texts = [str(one.message) for one in caught if one.category is DataWarning]
    return texts, [
        {name: int(n) for name, n in re.findall(r"(\w+): (\d+)", text.partition("write ")[2])} for text in texts
    ]


def test_a_split_that_leaves_a_class_out_is_warned_of_and_what_the_warning_says_to_write_has_all_classes(table):
    folder = table("x,y\n" + "".join(f"{i},{'a' if i else 'b'}\n" for i in range(20)))
    for seed in range(8):
        (text,), (write,) = warned(folder, seed=seed, test_samples=10)  # the one b is on one side or the other
        if "training" in text:
            assert text.startswith("no training sample has the label b, as all 10 have the label a; write ")
            (text,), _ = warned(folder, seed=seed, **({"test_samples": 10} | write))
        assert text.startswith("no held-out sample has the label b, so test_risk and test_accuracy leave it out; ")
    folder = table("x,y\n" + "".join(f"{i},{'abc'[min(i // 9, 2)]}\n" for i in range(21)))
    numbers = [(8, None), (3, 4), (15, None), (18, 3), (19, None)]
    for seed, (held_out, samples) in itertools.product(range(12), numbers):
        options = {"seed": seed, "test_samples": held_out, "samples": samples}
        texts, writes = warned(folder, **options)
        for text, write in zip(texts, writes, strict=True):
            side = text.split()[1]
            assert write or text.endswith("write another seed")
            left = warned(folder, **options | write)[0] if write else []
            assert not any(f"no {side} sample" in other for other in left)
            assert {other.split()[1] for other in left} <= {"held-out", *(other.split()[1] for other in texts)}
    assert warned(folder, seed=0)[0] == []


def test_unit_scaling_is_one_map_for_all_inputs_and_standardizing_one_for_each():
    unit, plain = (loaded("digits", samples=60, test_samples=40, scaling=how) for how in ("unit", "none"))
    np.testing.assert_array_equal(unit.training[0] * 16, plain.training[0])
    standard = loaded("digits", samples=60, test_samples=40, scaling="standardized")
    X, X_test = (part[0].reshape(len(part[0]), -1) for part in (plain.training, plain.held_out))
    np.testing.assert_array_equal(standard.training[0].reshape(60, -1), standardize(X))
    deviation = X.std(axis=0)
    varies = deviation > 0
    expected = (X_test - X.mean(axis=0))[:, varies] / deviation[varies]
    np.testing.assert_allclose(standard.held_out[0].reshape(40, -1)[:, varies], expected, rtol=1e-12, atol=1e-14)
    assert not standard.held_out[0].reshape(40, -1)[:, ~varies].any()


@pytest.mark.parametrize(("shape", "expected"), [((6, 2), (2,)), ((6, 2, 3), (1, 2, 3)), ((6, 2, 3, 4), (2, 3, 4))])
def test_an_archive_holds_vectors_or_images(tmp_path, shape, expected):
    X = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    data = loaded("labelled", archive(tmp_path, X=X, y=np.array([3, 1] * 3)), path="t.npz")
    assert data.shape == expected
    # For a file the limits are those of the samples: the least becomes 0 and the largest 1.
    np.testing.assert_allclose(data.training[0].ravel(), np.linspace(0, 1, X.size), rtol=1e-14)
    np.testing.assert_array_equal(data.training[1], [1, 0] * 3)


def test_images_of_cifar_are_colours_row_by_row(tmp_path):
    folder = tmp_path / "bin"
    batch(folder / "data_batch_1.bin", [3, 1])
    record = np.arange(3073) % 251
    record[0] = 9
    record.astype(np.uint8).tofile(folder / "data_batch_2.bin")
    batch(folder / "test_batch.bin", [3], value=255)
    options = {"path": "bin", "batches": (1, 2), "test_samples": 1, "scaling": "none"}
    data = loaded("cifar10", tmp_path, **options)
    X, y = data.training
    assert X.shape == (3, 3, 32, 32)
    np.testing.assert_array_equal(y, [1, 0, 2])
    assert X[2, 1, 2, 5] == (1 + 1024 + 2 * 32 + 5) % 251
    np.testing.assert_array_equal(data.held_out[0], 255.0)
    assert source("cifar10", **options).files_read() == tuple(
        f"bin/{name}.bin" for name in ("data_batch_1", "data_batch_2", "test_batch")
    )


def test_a_file_that_is_not_of_cifars_format_is_refused(tmp_path):
    path = tmp_path / "bin" / "data_batch_1.bin"
    batch(path, [3, 10])
    with refuses("data_batch_1.bin: image 2 has the label 10: expected 0 to 9"):
        loaded("cifar10", tmp_path, path="bin", batches=(1,))
    path.write_bytes(b"x" * 3074)
    with refuses("the file has 3074 bytes: expected a multiple of 3073"):
        loaded("cifar10", tmp_path, path="bin", batches=(1,))
    (absent, *_) = source("cifar10", path="bin").absences(tmp_path)
    assert "found no file bin/data_batch_2.bin" in absent.message()


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("x,y\n1,a\n2,\n", {}, "row 3, column 'y': the label is missing"),
        ("x,y\n1,0.5\n2,1\n", {}, "row 2, column 'y': the label is 0.5: expected whole numbers up to 2^53 or words"),
        ("x,y\n1,a\ncat,b\n", {}, "row 3, column 'x': 'cat' is not a number"),
        ("x,y\n1,a\n2,a\n", {}, "all samples have the label a: expected two classes or more"),
        ("x,y\n1,a\n2,b\n", {"classes": ("a", "c")}, "t.csv: classes: no sample has the label 'c'"),
        ("x,y\n1,a\n2,b\n", {"samples": 3}, "t.csv: samples: 3 and test_samples: 0 ask for more than the 2"),
        ("x,y\n1,a\n2,b\n", {"test_samples": 2}, "ask for more than the 2"),
    ],
)
def test_tables_without_these_classes_are_refused(table, text, options, message):
    with refuses(message):
        loaded("labelled", table(text), path="t.csv", **options)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((3, 2)), np.array([0.0, np.nan, 1.0]), "array 'y', row 2 (counted from 1): the label"),
        (np.zeros((3, 2)), np.zeros(2), "has 3 samples and"),
        (np.zeros((3, 5, 5, 1)), np.zeros(3), "shape (3, 5, 5, 1), as of images with their channels last"),
        (np.zeros(3), np.zeros(3), "expected (n, columns) or (n, height, width) or (n, channels, height"),
        (np.full((2, 1, 2, 2), np.inf), np.arange(2), "sample 1, channel 1, row 1, column 1"),
    ],
)
def test_archives_without_classes_are_refused(tmp_path, X, y, message):
    with refuses(message):
        read_labelled(archive(tmp_path, X=X, y=y) / "t.npz", "y")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": (1,)}, "two or more to tell apart"),
        ({"classes": (1, 1)}, "found 1 twice"),
        ({"classes": (1, True)}, "found True; expected the label of a class"),
        ({"classes": (0, 1, 2), "labels": "sign"}, "3 of them beside labels ±1"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_read(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        source("digits", **options)


def test_a_source_from_outside_must_keep_to_its_number_of_classes():
    check_data(Data((np.zeros((2, 3)), np.array([0, 1])), classes=2))
    with pytest.raises(TypeError, match="beside 2 classes: expected whole numbers from 0 to 1"):
        check_data(Data((np.zeros((2, 3)), np.array([0, 2])), classes=2))
