"""One seed, of which every random object derives its own by name: none depends on which others there are."""

import hashlib
import zlib

import jax
import jax.numpy as jnp
import numpy as np


def key(seed: int, name: str) -> jax.Array:
    """Return the key of one random object, which depends on the seed and the name of the object alone."""
    return jax.random.fold_in(jax.random.key(seed), _number(name))


def start_key(seed: int, name: str, repetition: int) -> jax.Array:
    """Return the key of one initialization of a sweep, which depends on its own coordinates alone."""
    digest = hashlib.sha256(f"{seed} | {name} | repetition {repetition}".encode()).digest()
    return jax.random.wrap_key_data(jnp.asarray(np.frombuffer(digest[:8], "<u4")), impl="threefry2x32")


def generator(seed: int, name: str) -> np.random.Generator:
    """Return NumPy's generator of one random object, which depends on the seed and its name alone."""
    return np.random.default_rng([seed, _number(name)])


def _number(name: str) -> int:
    return zlib.crc32(name.encode())
