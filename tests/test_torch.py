"""PyTorch modules as networks: derivatives beside PyTorch's own, weights written back, and what is refused."""

import copy
import pickle
import re
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flowsim
from flowsim.networks import split

torch = pytest.importorskip("torch", reason="PyTorch is not there: pip install 'flowsim[torch]', or nox -s torch")
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

nn = torch.nn
CROSS_ENTROPY = nn.functional.cross_entropy


class Attention(nn.Module):
    """One block of a transformer with four tokens of a sample, and a head."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head((x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


class WrittenLayerNorm(nn.LayerNorm):
    """The formula of a layer norm: of PyTorch's own the third derivative is wrong (its issue 175754)."""

    def forward(self, x):
        apart = x - x.mean(-1, keepdim=True)
        return apart / torch.sqrt((apart**2).mean(-1, keepdim=True) + self.eps) * self.weight + self.bias


class Tied(nn.Module):
    """The same matrix twice, under two names."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def _perceptron(*activations):
    layers = [part for one in activations for part in (nn.Linear(4, 4), one)]
    return nn.Sequential(*layers, nn.Linear(4, 3))


def _images(*layers):
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))


MODULES = {
    "tanh": (lambda: _perceptron(nn.Tanh(), nn.Tanh()), (4,)),
    "gelu": (lambda: _perceptron(nn.GELU(), nn.GELU(approximate="tanh")), (4,)),
    "smooth": (lambda: _perceptron(nn.SiLU(), nn.Softplus(), nn.Sigmoid(), nn.ELU()), (4,)),
    "norms": (lambda: _perceptron(WrittenLayerNorm(4), nn.RMSNorm(4), nn.Tanh()), (4,)),
    "pooling": (
        lambda: _images(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 2, 2), nn.MaxPool2d(2)),
        (2, 6, 6),
    ),
    "convolutions": (
        lambda: _images(
            nn.Conv2d(2, 4, 3, stride=2, padding=(1, 0), groups=2, dilation=1),
            nn.GroupNorm(2, 4),
            nn.GELU(),
            nn.ConvTranspose2d(4, 2, 3, stride=2, groups=2, bias=False),
            nn.AdaptiveAvgPool2d((3, 2)),
        ),
        (2, 6, 6),
    ),
    "attention": (Attention, (4, 4)),
    "tied": (Tied, (4,)),
}


def _case(name, dtype=torch.float64):
    torch.manual_seed(0)
    made, shape = MODULES[name]
    module, samples = made().to(dtype), torch.randn(6, *shape, dtype=dtype)
    module(samples)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module, samples, torch.arange(6) % 3


def _derivatives(module, samples, labels, directions):
    """Return the risk's gradient, its Hessian times a direction, and the gradient of vᵀHv, from PyTorch's autograd."""
    parameters = dict(module.named_parameters())
    with sdpa_kernel(SDPBackend.MATH):  # the one kernel of attention that has a second derivative
        risk = CROSS_ENTROPY(module(samples), labels)
    found = [torch.autograd.grad(risk, list(parameters.values()), create_graph=True)]
    for _ in range(2):
        along = sum((slope * directions[name]).sum() for slope, name in zip(found[-1], parameters, strict=True))
        found.append(torch.autograd.grad(along, list(parameters.values()), create_graph=True))
    return [{name: part.detach().numpy() for name, part in zip(parameters, each, strict=True)} for each in found]


def _named(weights):
    return {f"{part}.{name}".lstrip("."): leaf for part, of in weights.weights.items() for name, leaf in of.items()}


@pytest.mark.parametrize(
    ("name", "dtype", "rounding"), [*((name, torch.float64, 1e-12) for name in MODULES), ("norms", torch.float32, 1e-6)]
)
def test_derivatives_up_to_the_third_are_those_of_pytorch(name, dtype, rounding):
    module, samples, labels = _case(name, dtype)
    directions = {name: torch.randn_like(part) for name, part in module.named_parameters()}
    network = flowsim.torch.network(module, samples)
    problem = flowsim.torch.risk(network, samples, labels, CROSS_ENTROPY)
    weights, rest = split(network)
    along = jax.tree_util.tree_map_with_path(
        lambda path, _: jnp.asarray(directions[f"{path[-2].key}.{path[-1].key}".lstrip(".")].numpy()), weights
    )

    def risk(moved):
        return problem(eqx.combine(moved, rest))

    def product(moved):
        return jax.jvp(jax.grad(risk), (moved,), (along,))[1]

    def curvature(moved):
        return sum(map(jnp.vdot, jax.tree.leaves(along), jax.tree.leaves(product(moved))))

    @jax.jit
    def derivatives(moved):
        reverse_over_forward = jax.grad(lambda moved: jax.jvp(risk, (moved,), (along,))[1])
        return jax.grad(risk)(moved), product(moved), jax.grad(curvature)(moved), reverse_over_forward(moved)

    of_pytorch = _derivatives(module, samples, labels, directions)
    for own, expected in zip(derivatives(weights), [*of_pytorch, of_pytorch[1]], strict=True):
        named = _named(own)
        scale = max(np.abs(part).max() for part in expected.values())
        assert named.keys() == expected.keys()
        for part in named:
            assert named[part].dtype == expected[part].dtype
            np.testing.assert_allclose(named[part], expected[part], rtol=0, atol=rounding * scale, err_msg=part)


def test_the_gradient_of_the_sharpness_with_a_layer_norm_is_that_of_finite_differences():
    torch.manual_seed(0)
    module, samples = _perceptron(nn.LayerNorm(4), nn.Tanh()).double(), torch.randn(6, 4, dtype=torch.float64)
    network = flowsim.torch.network(module, samples)
    problem = flowsim.torch.risk(network, samples, torch.arange(6) % 3, CROSS_ENTROPY)
    weights, rest = split(network)
    slope, _ = split(flowsim.sharpness_gradient(network, problem).gradient)
    step = 1e-4
    moved = [jax.tree.map(lambda w, s, h=h: w + h * s, weights, slope) for h in (step, -step)]
    rise = [float(flowsim.sharpness(eqx.combine(each, rest), problem)) for each in moved]
    square = sum(float(jnp.vdot(leaf, leaf)) for leaf in jax.tree.leaves(slope))
    # Central differences are off by the third derivative times step², some 1e-7 of the value.
    assert (rise[0] - rise[1]) / (2 * step) == pytest.approx(square, rel=1e-5)


def test_descent_ends_where_descent_in_pytorch_does_and_its_weights_are_written_back():
    module, samples, labels = _case("tanh")
    network = flowsim.torch.network(module, samples)
    problem = flowsim.EmpiricalRisk(samples, labels, flowsim.losses.CrossEntropy())
    descent = flowsim.descend(network, problem, learning_rate=0.5, steps=100)
    trained, written = copy.deepcopy(module), copy.deepcopy(module)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.5)
    for _ in range(100):
        optimizer.zero_grad()
        CROSS_ENTROPY(trained(samples), labels).backward()
        optimizer.step()
    flowsim.torch.load(written, descent.network)
    for one, other in zip(written.parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_the_risk_is_the_loss_of_pytorch():
    module, samples, labels = _case("tanh")
    network, ones = flowsim.torch.network(module, samples), nn.functional.one_hot(labels, 3).double()
    for loss, targets in (
        (CROSS_ENTROPY, labels),
        (nn.CrossEntropyLoss(label_smoothing=0.1), labels),
        (nn.MSELoss(), ones),
        (nn.functional.binary_cross_entropy_with_logits, ones),
    ):
        problem = flowsim.torch.risk(network, samples.numpy(), targets.numpy(), loss)
        assert float(problem(network)) == pytest.approx(loss(module(samples), targets).item(), rel=1e-12)


def test_a_loss_that_is_no_mean_over_samples_is_refused():
    module, samples, labels = _case("tanh", torch.float32)
    network = flowsim.torch.network(module, samples)
    for loss, targets in (
        (nn.MSELoss(reduction="sum"), nn.functional.one_hot(labels, 3).float()),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2, 3.0])), labels),
    ):
        with pytest.raises(ValueError, match=f"{type(loss).__name__}.*expected a mean over samples"):
            flowsim.torch.risk(network, samples, targets, loss)


ONE_NUMBER = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
FLAT = nn.Sequential(ONE_NUMBER, nn.Flatten(0)).double()


@pytest.mark.parametrize("made", [lambda y: y, lambda y: y.numpy(), lambda y: y.tolist()])
@pytest.mark.parametrize(("module", "shape"), [(ONE_NUMBER, (7,)), (FLAT, (7, 1))])
def test_targets_that_pytorch_pairs_with_predictions_of_other_samples_are_refused(module, shape, made):
    X, y = torch.randn(7, 3, dtype=torch.float64), made(torch.randn(shape, dtype=torch.float64))
    network = flowsim.torch.network(module, X)
    losses = nn.MSELoss(), nn.L1Loss(), nn.HuberLoss(), nn.SmoothL1Loss(), lambda p, t: ((p - t) ** 4).mean()
    for loss in losses:
        with pytest.raises(ValueError, match=r"predictions .* and y .*PyTorch broadcasts them.* write ") as caught:
            flowsim.torch.risk(network, X, y, loss)
    targets = eval(str(caught.value).partition("write ")[2], {"y": y, "numpy": np})
    problem = flowsim.torch.risk(network, X, targets, losses[2])
    meant = losses[2](module(X), torch.as_tensor(targets)).item()
    assert float(problem(network)) == pytest.approx(meant, rel=1e-12)


def test_a_network_that_starts_with_one_prediction_for_all_is_no_excuse_for_broadcasting():
    module = nn.Linear(3, 1, dtype=torch.float64)
    nn.init.zeros_(module.weight)
    X, y = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    network = flowsim.torch.network(module, X)
    with pytest.raises(ValueError, match=r"write y\[:, None\]"):
        flowsim.torch.risk(network, X, y, nn.MSELoss())
    # A loss that PyTorch itself refuses is paired by sample, and flowsim's own losses always are.
    for loss in (nn.BCEWithLogitsLoss(), flowsim.losses.SquaredError()):
        flowsim.torch.risk(network, X, (y > 0).double(), loss)


def test_a_module_or_a_tensor_in_place_of_a_network_is_refused_with_what_makes_one_of_it():
    X, y = np.ones((4, 3)), np.arange(4.0)[:, None]
    problem = flowsim.EmpiricalRisk(X, y)
    calls = (
        lambda network: flowsim.integrate(network, problem),
        lambda network: flowsim.descend(network, problem, learning_rate=0.1, steps=2),
        lambda network: flowsim.compare(network, problem, [0.1], steps=2),
        lambda network: flowsim.sharpness(network, problem),
        lambda network: flowsim.torch.risk(network, X, y, nn.MSELoss()),
        problem,
    )
    for call in calls:
        with pytest.raises(
            TypeError, match=r"is a torch.nn.Module, a Sequential: .* flowsim.torch.network\(module, X\)"
        ):
            call(ONE_NUMBER)
        with pytest.raises(TypeError, match=r"holds, at \['a'\], a torch.Tensor: .*asarray\(tensor.detach\(\).cpu\(\)"):
            call({"a": torch.ones(3)})
    assert float(flowsim.sharpness(flowsim.torch.network(ONE_NUMBER, X), problem)) > 0


def test_data_that_are_no_numbers_are_refused_for_modules_too():
    X = torch.randn(3, 3, dtype=torch.float64)
    network = flowsim.torch.network(ONE_NUMBER, X)
    with pytest.raises(ValueError, match="y holds words, such as 'a': expected real numbers"):
        flowsim.torch.risk(network, X, list("abc"), nn.MSELoss())
    with pytest.raises(ValueError, match=r"the loss, BCELoss, fails on predictions .* \(RuntimeError: all elements"):
        flowsim.torch.risk(network, X, 7 * torch.ones(3, 1, dtype=torch.float64), nn.BCELoss())


class Of(nn.Module):
    """A function of the samples, without weights."""

    def __init__(self, function):
        super().__init__()
        self.forward = function


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (nn.BatchNorm1d(4), r"submodule '1', a BatchNorm1d, normalizes by .* write module.eval\(\).* GroupNorm"),
        (nn.Dropout(0.2), r"submodule '1' .* draws random numbers .* write module.eval\(\), or p=0"),
        (nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), r"changes its buffers 1\.param.* module.eval\(\)"),
        (Of(lambda x: x if x.sum() > 0 else -x), "torch.export fails on the module, a Sequential"),
        (Of(lambda x: torch.softmax(x, 0)), "another value for a sample alone than among others"),
    ],
)
def test_a_module_without_a_risk_of_its_weights_is_refused(part, message):
    module = nn.Sequential(nn.Linear(4, 4), part)
    with pytest.raises(ValueError, match=message):
        flowsim.torch.network(module, torch.randn(6, 4))


def test_what_is_random_or_of_the_batch_in_training_is_held_in_evaluation():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 3)).double()
    samples = torch.randn(6, 4, dtype=torch.float64)
    module(samples)
    network = flowsim.torch.network(module.eval(), samples)
    np.testing.assert_allclose(jax.vmap(network)(jnp.asarray(samples.numpy())), module(samples).detach(), rtol=1e-12)


def test_a_frozen_parameter_is_held_and_a_shared_one_is_one_weight():
    module, samples, _ = _case("tied")
    module.head.weight.requires_grad_(False)
    network = flowsim.torch.network(module, samples)
    names = {"first.weight", "first.bias", "second.bias", "head.bias"}
    assert set(_named(network)) == names
    assert network.fixed.value["head"].keys() == {"weight"}
    moved = eqx.tree_at(lambda n: n.weights, network, jax.tree.map(lambda leaf: leaf + 1, network.weights))
    before = copy.deepcopy(module)
    flowsim.torch.load(module, moved)
    assert module.second.weight is module.first.weight
    torch.testing.assert_close(module.first.weight, before.first.weight + 1)
    torch.testing.assert_close(module.head.weight, before.head.weight, rtol=0, atol=0)
    np.testing.assert_allclose(jax.vmap(moved)(jnp.asarray(samples.numpy())), module(samples).detach(), rtol=1e-12)


def test_a_network_keeps_its_weights_while_the_module_is_trained():
    module = nn.Linear(64, 64).double()  # large enough for JAX to take over the memory of an array
    network = flowsim.torch.network(module, torch.zeros(2, 64))
    before = np.array(network.weights[""]["weight"])
    with torch.no_grad():
        module.weight.add_(1)
    np.testing.assert_array_equal(network.weights[""]["weight"], before)


def test_weights_of_another_module_are_refused_and_nothing_is_written():
    module, samples, _ = _case("tanh")
    network = flowsim.torch.network(module, samples)
    other = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=re.escape("2.bias, float64 (4,) and float64 (5,)")):
        flowsim.torch.load(other, network)
    with pytest.raises(ValueError, match=re.escape("0.bias, float64 (4,) and float32 (4,)")):
        flowsim.torch.load(copy.deepcopy(module).float(), network)
    with pytest.raises(TypeError, match="the module is a NoneType"):
        flowsim.torch.load(None, network)
    assert all(torch.equal(before[name], part) for name, part in other.state_dict().items())


def test_what_is_no_module_with_weights_is_refused():
    for module, error, message in (
        (nn.Linear(4, 3).half(), ValueError, "torch.float16: expected float32 or float64"),
        (nn.Tanh(), ValueError, "no parameter with requires_grad=True"),
        (nn.Linear, TypeError, "the module is a type"),
    ):
        with pytest.raises(error, match=message):
            flowsim.torch.network(module, np.zeros((2, 4)))


def test_an_index_that_an_embedding_does_not_have_is_no_prediction():
    module = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(4, 3)).double()
    tokens, labels = torch.tensor([[0], [1], [2], [3], [9]]), torch.arange(5) % 3
    network = flowsim.torch.network(module, tokens, checked=4)
    with pytest.raises(ValueError, match="the prediction for sample 4 is not finite"):
        flowsim.torch.risk(network, tokens, labels, CROSS_ENTROPY)
    with pytest.raises(TypeError, match="write flowsim"):
        flowsim.torch.risk(module, tokens, labels, CROSS_ENTROPY)
    with pytest.raises(TypeError, match="expected a function"):
        flowsim.torch.risk(network, tokens[:4], labels[:4], nn.CrossEntropyLoss)


def test_a_layer_in_single_precision_inside_a_module_in_double_precision_is_known():
    class Inside(nn.Linear):
        def forward(self, x):
            return super().forward(x).float().softmax(1).double()

    module, samples = Inside(4, 3).double(), torch.randn(6, 4, dtype=torch.float64)
    predictions = jax.vmap(flowsim.torch.network(module, samples))(jnp.asarray(samples.numpy()))
    np.testing.assert_allclose(predictions, module(samples).detach().numpy(), rtol=1e-6)


def test_what_was_lowered_is_the_same_when_it_is_lowered_again_and_needs_no_pytorch(tmp_path):
    module, samples, _ = _case("attention")
    network, again = (flowsim.torch.network(module, samples) for _ in range(2))
    assert jax.tree.structure(network) == jax.tree.structure(again)
    (tmp_path / "network").write_bytes(pickle.dumps((network, samples.numpy())))
    code = (
        "import jax, pickle, sys; jax.config.update('jax_enable_x64', True)\n"
        "network, X = pickle.load(open(sys.argv[1], 'rb')); print(float(jax.vmap(network)(X).sum()))\n"
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "network")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert float(printed) == pytest.approx(module(samples).sum().item(), rel=1e-12)
    with pytest.raises(ValueError, match=re.escape("lowered for one sample of shape (4, 4), and is given (4,)")):
        network(jnp.zeros(4))
