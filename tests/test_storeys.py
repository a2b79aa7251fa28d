"""The core runs and prints without the libraries of the lab, and both storeys share its columns."""

import subprocess
import sys

import numpy as np
import pytest
from made_runs import made_comparison

from flowsim import tables
from flowsim.columns import Columns
from flowsim.formatting.terminal import printed

LAB = {"yaml", "ruamel", "pydantic", "pydantic_core", "xarray", "pandas", "h5netcdf", "h5py"}
LAB |= {"bokeh", "jinja2", "matplotlib"}
CORE = """
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused!r}:
            raise ImportError(f"the core imports {{name}}")

sys.meta_path.insert(0, Refusal())
import flowsim, jax, jax.numpy as jnp

problem = flowsim.LinearRegression(jnp.eye(2), jnp.array([1.0, 2.0]))
network = flowsim.DeepLinear.gaussian(widths=[2, 2, 1], scale=0.5, key=jax.random.key(0))
flow = flowsim.integrate(network, problem)
both = flowsim.compare(network, problem, [0.1], steps=20, models=["gradient", "edge"])
statements = both.statements
bounds = flowsim.theory.minimal_sharpness_bounds(problem, depth=2)
print(flow, both, statements, flowsim.sharpness(network, problem), bounds, sep="\\n")
tables = [shown._repr_html_() for shown in (flow, both, statements)]
assert all(table and "<table" in table for table in tables), tables
"""


@pytest.mark.slow
def test_the_core_runs_compares_and_prints_without_the_libraries_of_the_lab():
    code = CORE.format(refused=LAB)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(words in done.stdout for words in ("GF by", "Theorem 2", "models of descent", "statements at the edge"))


def test_columns_are_the_same_after_a_data_set_of_xarray():
    columns = made_comparison(paths=True).to_columns({"note": {"a": 1}})
    dataset = columns.to_xarray()
    back = Columns.of(dataset)
    assert ([*back.data], [*back.coords], back.attrs) == ([*columns.data], [*columns.coords], columns.attrs)
    assert columns.sizes == back.sizes == dict(dataset.sizes)
    for name in (*columns, *columns.coords):
        assert (back[name].dims, back[name].attrs) == (columns[name].dims, columns[name].attrs)
        np.testing.assert_array_equal(back[name].values, columns[name].values)
        np.testing.assert_array_equal(columns.part("run", 1)[name].values, dataset.isel(run=1)[name].values)
    of_either = [[printed(table, 120) for table in tables.tables(one, "made")] for one in (columns, dataset)]
    assert of_either[0] == of_either[1]
