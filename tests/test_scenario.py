"""A scenario is read as it is meant, and overrides take the place of what it says."""

import itertools
import json
import math

import numpy as np
import pytest
import yaml
from pydantic import ValidationError
from scenario_texts import GOOD, TABLE

from flowsim.dynamics.stopping import Stopping
from flowsim.networks import PerceptronNetwork, shape_errors
from flowsim.results.store import result_folder
from flowsim.scenarios.reading import ScenarioError, parse_overrides, read_scenario, resolved, scenario_json_schema


def test_numbers_are_read_by_the_rules_of_yaml_1_2(write):
    read = read_scenario(write(GOOD))
    assert read.flow.rtol == 1e-5
    assert read.flow.t1 == read_scenario(write(GOOD.replace("t1: inf", "t1: +inf"))).flow.t1 == math.inf
    assert read.descent.learning_rates == (0.005, 0.02)
    assert (read.descent.steps, type(read.descent.steps)) == (4000, int)
    assert type(read.network.scale) is float


def test_what_is_left_out_has_its_default(write):
    least = "data: {kind: gaussian, samples: 2, features: 1}\nnetwork: {kind: mlp, depth: 1, scale: 0}"
    read = read_scenario(write(least))
    assert (read.seed, read.precision) == (0, "float64")
    assert (read.data.noise, read.data.outputs) == (1.0, 1)
    assert (read.network.width, read.network.activation) == (None, "linear")
    flow = read.flow
    assert (flow.solver, flow.rtol, flow.t1, flow.max_steps) == ("auto", None, math.inf, 10**6)
    assert (read.descent.learning_rates, read.descent.steps, read.sharpness) == ((), None, None)
    assert resolved(read)["descent"]["steps"] == 4000


def test_every_criterion_of_a_flow_stops_it(write):
    for criterion in ("gradient_norm", "excess_risk", "risk", "remaining", "margin", "direction"):
        scenario = read_scenario(write(GOOD), parse_overrides([f"flow.{criterion}=0.125"]))
        assert scenario.flow.stopping == Stopping(**{criterion: 0.125})


def test_a_single_name_is_a_list_of_one_and_only_the_file_knows_the_sizes_of_an_archive(write):
    X, y = np.array([[1.0, 2.0], [4.0, 5.0], [7.0, 8.0]]), np.array([3.0, 6.0, 10.0])
    path = write(TABLE.replace("y, f", "y, standardize: false, unit_regressor: false, f"))
    (path.parent / "table.csv").write_text("a,b,y\n1,2,3\n4,5,6\n7,8,10\n")
    np.savez(path.parent / "table.npz", a=X, y=y)
    table = read_scenario(path).data
    archive = read_scenario(write(path.read_text().replace("csv", "npz").replace("[a, b]", "a"))).data
    assert (table.target, table.features) == (("y",), ("a", "b"))
    assert (table.dimensions(), archive.dimensions()) == ((2, 1), (None, None))
    for data in (table, archive):
        for read, stored in zip(data.load(np.random.default_rng(0), path.parent).training, (X, y), strict=True):
            np.testing.assert_array_equal(read, stored)


def test_a_byte_order_mark_is_no_part_of_a_scenario_which_does_not_change(write):
    read = read_scenario(write(GOOD))
    assert read_scenario(write("\ufeff" + GOOD)) == read
    assert hash(read) == hash(read_scenario(write(GOOD)))
    with pytest.raises(ValidationError, match="frozen"):
        read.seed = 4


def test_a_resolved_scenario_reads_back_as_the_same(write):
    for text in (GOOD, TABLE):
        read = read_scenario(write(text))
        again = read_scenario(write(yaml.safe_dump(resolved(read))))
        # Without a time t1, steps that are left out are 4000, and said.
        assert again == read.model_copy(update={"descent": read.descent.model_copy(update={"steps": 4000})})
        assert resolved(again) == resolved(read) == yaml.safe_load(yaml.safe_dump(resolved(read)))


def test_an_override_takes_the_place_of_the_file(write):
    overrides = parse_overrides(["network.scale=1e-3", "seed=7", "descent.learning_rates=[0.1, 1]", "flow.rtol=null"])
    read = read_scenario(write(GOOD), overrides)
    assert (read.network.depth, read.network.scale, read.seed) == (10, 1e-3, 7)
    assert (read.descent.learning_rates, read.flow.rtol) == ((0.1, 1.0), None)
    without = write(GOOD[: GOOD.index("flow")])
    assert read_scenario(without, parse_overrides(["flow.t1=3"])).flow.t1 == 3


def test_an_overridden_kind_keeps_the_keys_that_both_kinds_have_and_mean_the_same(write):
    overrides = ["network.kind=mlp", "network.activation=tanh", "network.width=4"]
    for given in (overrides, overrides[::-1]):
        network = read_scenario(write(GOOD), parse_overrides(given)).network
        assert (network.kind, network.depth, network.scale, network.width) == ("mlp", 10, 0.5, 4)
    activated = write(TABLE.replace("scale: 0.1", "scale: 0.1, activation: gelu"))
    assert read_scenario(activated, parse_overrides(["network.kind=residual"])).network.depth == 2
    # The features of drawn data are their number, those of a table its columns.
    table = parse_overrides(["data.kind=file", "data.path=table.csv", "data.target=y"])
    assert read_scenario(write(GOOD), table).data.features is None
    columns = parse_overrides(["data.features=[a]"])
    assert read_scenario(write(GOOD), [*columns, *table]).data.features == ("a",)


def test_a_section_is_overridden_before_its_keys_in_several_files_alike(write):
    overrides = parse_overrides(["network.depth=4", "network={kind: mlp, depth: 3, scale: 1}"])
    assert [read_scenario(write(GOOD), overrides).network.depth for _ in range(2)] == [4, 4]


def test_shapes_are_asked_again_once_the_data_are_read(write):
    network = read_scenario(write(GOOD)).network
    assert not list(shape_errors(network, (5,), 1))
    assert not list(shape_errors(network, (5,), 5))
    assert [error.type for error in shape_errors(network, (5,), 2)] == ["refused"]
    assert [error.type for error in shape_errors(network, (10**5,), 1)] == ["refused"]


def test_weights_are_counted_layer_by_layer():
    for depth, width, inputs, outputs in [(1, None, 5, 2), (2, 7, 5, 2), (4, 7, 5, 2), (3, None, 5, 1)]:
        network = PerceptronNetwork(kind="mlp", depth=depth, scale=1.0, width=width)
        widths = [inputs, *[width or inputs] * (depth - 1), outputs]
        assert network.count_weights(inputs, outputs) == sum(a * b for a, b in itertools.pairwise(widths))


def test_the_json_schema_is_json_and_describes_every_key():
    schema = scenario_json_schema()
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema
    for model in [schema, *schema["$defs"].values()]:
        assert model["additionalProperties"] is False
        assert all(key.get("description") for key in model["properties"].values()), model["title"]
    *known, outside = schema["properties"]["network"]["oneOf"]
    assert [kind["properties"]["kind"]["const"] for kind in known][:2] == ["residual", "mlp"]
    assert all(kind["required"][0] == "kind" for kind in known)
    assert outside["required"] == ["kind"]


def test_the_scenario_of_results_is_read_as_the_scenario_that_ran(write, tmp_path):
    scenario = read_scenario(write(GOOD))
    stored = result_folder(tmp_path / "out", "again", {}).write_scenario(resolved(scenario), {"jax": "0.10"}, "A title")
    assert read_scenario(stored) == scenario
    (line,) = [number for number, text in enumerate(stored.read_text().splitlines(), 1) if text.startswith("  seed:")]
    stored.write_text(stored.read_text().replace("  seed:", "  sede:"))
    with pytest.raises(ScenarioError, match=rf"scenario.yaml:{line}: sede: .* write seed"):
        read_scenario(stored)
