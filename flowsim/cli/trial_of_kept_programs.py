"""A process that keeps compiled programs in a folder, or loads those there, and prints what they compute.

`python trial_of_kept_programs.py FOLDER keep|load`; it fails where one is compiled that should have been loaded.
"""

import sys

import jax
import jax.numpy as jnp

COMPILED, LOADED = "/jax/compilation_cache/cache_misses", "/jax/compilation_cache/cache_hits"


def factorized(matrix):
    """Return what LAPACK, a loop, a branch, a sort and elementary functions make of a matrix."""

    def improve(carry):
        count, x = carry
        step = jax.lax.cond(count % 2 == 0, lambda: jnp.tanh(x) / 3, lambda: jnp.exp(-x * x))
        return count + 1, x + step @ matrix / 10

    _, moved = jax.lax.while_loop(lambda carry: carry[0] < 20, improve, (0, matrix))
    positive = moved @ moved.T / 50 + jnp.eye(matrix.shape[0])
    solved = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(positive), moved)
    values, _ = jnp.linalg.eigh(positive)
    return solved, jnp.sort(jnp.sin(moved), axis=0), values


def drawn(key):
    """Return normal numbers."""
    return jax.random.normal(key, (17, 17), jnp.float64)


def main(folder, task):
    """Print what the programs compute."""
    events = []
    jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    matrix = jax.jit(drawn)(jax.random.key(0))
    print([leaf.tobytes().hex() for leaf in jax.device_get(jax.jit(factorized)(matrix))])
    if task == "load" and (COMPILED in events or LOADED not in events):
        sys.exit("a program that had been kept was compiled")


if __name__ == "__main__":
    main(*sys.argv[1:])
