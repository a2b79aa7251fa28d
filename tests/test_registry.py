"""Kinds by name: registered ones, and those of a user's module."""

import sys

import pytest

from flowsim.kinds import Registry, UnknownKindError


class Shape:
    pass


@pytest.fixture
def shapes():
    registry = Registry(
        "a shape",
        accepts=lambda kind: isinstance(kind, type) and issubclass(kind, Shape),
        expected="a subclass of Shape",
    )

    @registry.register("circle")
    class Circle(Shape):
        pass

    return registry


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Provide a function that writes a module into a folder on the path."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)

    return write


def test_a_kind_is_found_by_its_name_or_its_place_and_named_by_it(shapes, outside):
    outside("shapes_of_mine", "from test_registry import Shape\nclass Square(Shape): pass\n")
    assert list(shapes) == ["circle"]
    assert shapes["shapes_of_mine:Square"].__name__ == "Square"
    for name in ("circle", "shapes_of_mine:Square"):
        assert shapes.name_of(shapes[name]) == name


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Circel", "found 'Circel'; expected one of circle, or a shape of your own as my_module:MyKind; write circle"),
        ("no_such_module_here:A", "but no module no_such_module_here"),
        ("broken_shapes:A", r"whose module fails \(ZeroDivisionError: division by zero\)"),
        ("needy_shapes:A", "write pip install absent_package"),
        ("plain_shapes:Squar", r"no Squar in plain_shapes; .*; write plain_shapes:Square"),
        ("plain_shapes:number", "found 'plain_shapes:number', which is not a shape; expected a subclass of Shape"),
    ],
)
def test_a_name_without_a_kind_says_what_to_write(shapes, outside, name, message):
    outside("broken_shapes", "1 / 0")
    outside("needy_shapes", "import absent_package")
    outside("plain_shapes", "number = 3\nclass Square: pass\n")
    with pytest.raises(UnknownKindError, match=message):
        shapes[name]


def test_a_name_is_registered_once_and_only_for_a_kind_of_the_thing(shapes):
    with pytest.raises(ValueError, match="a shape named 'circle' is registered already"):
        shapes.register("circle")(Shape)
    with pytest.raises(TypeError, match="is not a shape: expected a subclass of Shape"):
        shapes.register("number")(3)
