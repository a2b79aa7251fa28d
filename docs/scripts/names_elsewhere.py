"""Link the types of other libraries in signatures to their pages: a small inventory, so that none is fetched."""

from typing import Any

_JAX = "https://docs.jax.dev/en/latest/_autosummary/{}.html"
_SHAPES = "https://docs.kidger.site/jaxtyping/api/array/"
_NUMPY = "https://numpy.org/doc/stable/reference/{}"
_MATPLOTLIB = "https://matplotlib.org/stable/api/_as_gen/{}.html"
_DIFFRAX = "https://docs.kidger.site/diffrax/api/{}/#diffrax.{}"
_SOLVERS, _CONTROLLERS = "solvers/abstract_solvers", "stepsize_controller"

PAGES = {
    "jax.Array": _JAX.format("jax.Array"),
    "jaxtyping.Array": _JAX.format("jax.Array"),
    "jaxtyping.ArrayLike": _JAX.format("jax.typing.ArrayLike"),
    "jaxtyping.PyTree": "https://docs.kidger.site/jaxtyping/api/pytree/#jaxtyping.PyTree",
    **{f"jaxtyping.{name}": _SHAPES for name in ("Bool", "Float", "Int", "Integer", "PRNGKeyArray", "UInt32")},
    "equinox.Module": "https://docs.kidger.site/equinox/api/module/module/#equinox.Module",
    **{f"diffrax.{name}": _DIFFRAX.format(_SOLVERS, name) for name in ("AbstractSolver", "AbstractAdaptiveSolver")},
    "diffrax.AbstractAdaptiveStepSizeController": _DIFFRAX.format(_CONTROLLERS, "AbstractAdaptiveStepSizeController"),
    "optax.GradientTransformation": (
        "https://optax.readthedocs.io/en/latest/api/transformations.html#optax.GradientTransformation"
    ),
    "numpy.ndarray": _NUMPY.format("generated/numpy.ndarray.html"),
    "numpy.random.Generator": _NUMPY.format("random/generator.html#numpy.random.Generator"),
    "numpy.typing.ArrayLike": _NUMPY.format("typing.html#numpy.typing.ArrayLike"),
    "numpy.typing.NDArray": _NUMPY.format("typing.html#numpy.typing.NDArray"),
    "matplotlib.axes.Axes": _MATPLOTLIB.format("matplotlib.axes.Axes"),
    "matplotlib.figure.Figure": _MATPLOTLIB.format("matplotlib.figure.Figure"),
    "pandas.DataFrame": "https://pandas.pydata.org/docs/reference/api/pandas.DataFrame.html",
    "xarray.Dataset": "https://docs.xarray.dev/en/stable/generated/xarray.Dataset.html",
    "rich.table.Table": "https://rich.readthedocs.io/en/stable/reference/table.html#rich.table.Table",
    "rich.text.Text": "https://rich.readthedocs.io/en/stable/reference/text.html#rich.text.Text",
}


def on_env(env: Any, *, config: Any, **options: Any) -> None:
    """Tell MkDocs where these names are documented, before it resolves them."""
    for name, page in PAGES.items():
        config.plugins["autorefs"].register_url(name, page)
