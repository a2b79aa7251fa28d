"""A batch of small flows, and one large flow, on every kind of device that JAX finds here, in both precisions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from cases import Case, perceptron, residual
from console import begin, table
from timing import once

import flowsim
from flowsim.networks import cast

_LANES = 64


def main() -> None:
    """Print the times, and how far the limits are from those in float64 on the CPU."""
    quick = begin("Batches of flows and one large flow, on CPU and GPU")
    lanes, width = (4, 30) if quick else (_LANES, 300)
    batch = [perceptron(0.4, seed=seed) for seed in range(lanes)]
    large = residual(width=width, samples=4 * width)
    rows, exact = [], {}
    for device in _devices():
        for dtype in (jnp.float64, jnp.float32):
            with jax.default_device(device):
                for name, run in {
                    f"{lanes} flows, p = 230": _batch(batch, dtype),
                    f"p = {large.size}": _one(large, dtype),
                }.items():
                    limit = np.asarray(run())
                    error = np.linalg.norm(limit - exact.setdefault(name, limit)) / np.linalg.norm(exact[name])
                    seconds = min(once(run) for _ in range(3))
                    rows.append(
                        [name, device.platform, device.device_kind, jnp.dtype(dtype).name, seconds, float(error)]
                    )
    columns = ["flows", "device", "kind", "precision", "seconds", "limit against the first row"]
    table(
        "Warm; to the limit at the default tolerances of the precision", columns, sorted(rows, key=lambda row: row[0])
    )


def _devices() -> list[jax.Device]:
    found = [jax.devices("cpu")[0]]
    return found + [jax.devices()[0]] * (jax.default_backend() != "cpu")


def _batch(cases: list[Case], dtype: jnp.dtype):
    weights = cast(jax.tree.map(lambda *leaves: jnp.stack(leaves), *(case.network for case in cases)), dtype)
    run = eqx.filter_jit(eqx.filter_vmap(lambda network: flowsim.integrate(network, cases[0].problem, ts=[]).network))
    return lambda: _flat(run(weights))


def _one(case: Case, dtype: jnp.dtype):
    network = cast(case.network, dtype)
    return lambda: _flat(flowsim.integrate(network, case.problem, ts=[]).network)


def _flat(network: flowsim.DeepLinear) -> jax.Array:
    return jnp.concatenate([stack.ravel() for stack in network.stacks])


if __name__ == "__main__":
    main()
