"""Files of results as anybody may have made them: only the file itself is read, and its size limits memory and time."""

import io
import json
import math
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from ..kinds import reason_of
from ..runtime.errors import UserError

if TYPE_CHECKING:
    import h5py
    import xarray

AGAIN = "run the scenario again, with --overwrite"


class StoreError(UserError, RuntimeError):
    """Results that cannot be written or read: the message says where, why, and what to do instead."""


class ForeignContentError(ValueError):
    """Legible content of a kind that flowsim does not write."""


def damaged(path: Path, error: Exception) -> StoreError:
    """Return the error for a file whose content cannot be used."""
    if isinstance(error, ForeignContentError):
        return StoreError(f"{path}: holds what flowsim does not write ({error}); {AGAIN}")
    return StoreError(f"{path}: is damaged ({reason_of(error)}); {AGAIN}")


def refuse_missing(folder: Path) -> None:
    """Raise `StoreError` where results are to be read and there is no folder."""
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "there is no such folder"
        raise StoreError(f"{folder}: {found}; give the folder of one scenario's results, such as results/residual")


def read_bytes(path: Path, *, most: float = float("inf")) -> bytes:
    """Return the content of a file of results.

    Raises `StoreError` for a pipe or a device, a link that leads out of its folder, more than `most` bytes, and what
    cannot be read.
    """
    try:
        if not path.is_file():  # a pipe would be waited for
            raise StoreError(f"{path}: is no file; {AGAIN}")
        # The content gets into a page that may be published: a link in a foreign folder must not choose a private file.
        if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
            raise StoreError(f"{path}: is a link to a file outside of its folder; put the file itself in its place")
        size = path.stat().st_size
        if size > most:
            raise StoreError(f"{path}: has {size} bytes, where flowsim writes at most {most:.0f}; {AGAIN}")
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror or error}; {AGAIN}") from None


def read_json(path: Path, *, most_bytes: int = 2**24) -> dict[str, Any]:
    """Return the object in a JSON file. Raises `StoreError` for anything else, as `read_bytes`."""

    def refuse(constant: str) -> None:
        raise ForeignContentError(f"the number {constant}, which is not JSON")

    content = read_bytes(path, most=most_bytes)
    try:
        stored = json.loads(content, parse_constant=refuse)
        if not isinstance(stored, dict):
            raise ForeignContentError(f"a {type(stored).__name__} in place of an object with keys")
    except (ValueError, RecursionError) as error:
        raise damaged(path, error) from None
    return stored


def read_yaml(path: Path, *, most_bytes: int = 2**23) -> dict[str, Any]:
    """Return the mapping in a YAML file of plain values. Raises `StoreError` for anything else, as `read_bytes`.

    A scenario has at most 2**20 bytes, and its resolved values, one a line, some times as many.
    """
    content = read_bytes(path, most=most_bytes)
    try:
        stored = yaml.load(content, _PlainLoader)  # which is a safe loader
        if not isinstance(stored, dict):
            raise ValueError("it holds no keys")
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise damaged(path, error) from None
    return stored


_PLAIN = [f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")]


class _PlainLoader(yaml.SafeLoader):
    """Reads values of the types of JSON, without aliases: the text is as large as what it describes.

    Nesting is limited because whatever handles the values afterwards is recursive.
    """

    yaml_constructors: Final = {tag: yaml.SafeLoader.yaml_constructors[tag] for tag in _PLAIN} | {
        None: yaml.SafeLoader.yaml_constructors[None]
    }
    level, deepest, longest_number = 0, 30, 100

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise ForeignContentError(f"line {line}: an alias in place of a value")
        if self.level > self.deepest:
            raise ForeignContentError(f"line {line}: more than {self.deepest} levels of nesting")
        self.level += 1
        node = super().compose_node(parent, index)
        self.level -= 1
        return node

    def construct_scalar(self, node: yaml.ScalarNode) -> Any:
        # Python's integers are of any size, and take quadratic time to be read and written.
        if node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float") and len(node.value) > self.longest_number:
            raise ForeignContentError(f"line {node.start_mark.line + 1}: a number of {len(node.value)} characters")
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        values = super().construct_mapping(node, deep)
        for key in values:
            if not isinstance(key, str):
                raise ForeignContentError(f"line {node.start_mark.line + 1}: the key {key!r}, which is no text")
        return values


def read_dataset(path: Path) -> "xarray.Dataset":
    """Return the data set in a netCDF file, loaded.

    Raises `StoreError` for what is not netCDF, and before it reads a number for data in other files.
    """
    import h5py
    import xarray

    content = read_bytes(path)
    try:
        with h5py.File(io.BytesIO(content), "r") as file:
            if (foreign := next(_foreign_content(file, len(content)), None)) is not None:
                raise ForeignContentError(foreign)
        # No quantity of flowsim has a date for a unit, and none is without names of its axes: neither is made up.
        options = {"decode_times": False, "phony_dims": "access"}
        with xarray.open_dataset(io.BytesIO(content), engine="h5netcdf", **options) as stored:
            return stored.load()
    except Exception as error:  # whatever HDF5 and its readers raise for bytes that are not what they should be
        raise damaged(path, error) from None


def _foreign_content(
    file: "h5py.File", size: int, *, most_deflated: int = 1032, most_variables: int = 2000
) -> Iterator[str]:
    """Yield in words what of an HDF5 file of so many bytes must not be read.

    HDF5 can name data in other files (links, external storage, virtual data sets), load compiled filters, and declare
    any shape without storing a number. Deflate, the one compression that netCDF has by default, makes at most
    `most_deflated` bytes of one, so larger shapes are not stored here.
    """
    import h5py
    import numpy as np
    from h5py import h5d, h5o, h5z  # pyright: ignore[reportAttributeAccessIssue]  # which are compiled

    from ..runtime.memory import beyond_memory  # not above: it brings JAX

    plain_filters = {h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32}
    if len(file) > most_variables:
        yield f"{len(file)} variables"
    yield from _foreign_attributes(file)
    declared = 0
    for name in map(str, file):
        what = f"the variable {name[:40]!r}"
        if not isinstance(file.get(name, getlink=True), h5py.HardLink):
            yield f"{what} is a link"
        if h5o.get_info(file.id, name.encode()).type != h5o.TYPE_DATASET:
            yield f"{what} is a group or a type"
        stored = h5d.open(file.id, name.encode())
        layout = stored.get_create_plist()
        # Before its shape is looked at, which already opens the sources of some virtual data sets.
        if layout.get_layout() == h5d.VIRTUAL or layout.get_external_count():
            yield f"{what} is stored in another file"
        if not {layout.get_filter(index)[0] for index in range(layout.get_nfilters())} <= plain_filters:
            yield f"{what} is compressed in another way than by deflate"
        dataset = h5py.Dataset(stored)
        text = h5py.check_string_dtype(dataset.dtype)
        if text is None and dataset.dtype.kind not in "iufb":
            yield f"{what} is of the type {dataset.dtype}"
        cells = max(math.prod(shape) for shape in (dataset.shape or (), dataset.chunks or ()))
        declared += cells * dataset.dtype.itemsize
        if declared > most_deflated * size:
            yield f"{what} has the shape {dataset.shape}, more than a file of {size} bytes holds"
        if beyond := beyond_memory(2.0 * declared):  # as stored, and as xarray decodes it
            yield f"{what} takes {beyond}"
        yield from _foreign_attributes(dataset)
        if text is not None and text.length is None:
            # Texts of any length are stored aside, and any number of cells may refer to the same one.
            if cells * dataset.dtype.itemsize > size:
                yield f"{what} has the shape {dataset.shape}, more texts than a file of {size} bytes holds"
            length = 0
            for index in np.ndindex(dataset.shape):
                length += len(dataset[index])
                if length > size:
                    yield f"{what} repeats its texts"


def _foreign_attributes(place: "h5py.File | h5py.Dataset") -> Iterator[str]:
    for name in place.attrs:
        attribute = place.attrs.get_id(name)
        # Those of netCDF refer to the axes, within the file; others of many texts could repeat one of any length.
        if name not in ("DIMENSION_LIST", "REFERENCE_LIST"):
            many = math.prod(attribute.shape or ()) > 1000
            if attribute.dtype.kind not in "iufbSO" or (attribute.dtype.kind == "O" and many):
                yield f"the attribute {name[:40]!r} is of the type {attribute.dtype} with the shape {attribute.shape}"
