"""How much memory there is, so that what needs more is refused before it is computed."""

import os

try:
    import resource
except ImportError:  # where there are no such limits, as under Windows
    resource = None

_OUT_OF_MEMORY = (
    "resource_exhausted",
    "out of memory",
    "bad_alloc",
    "cannot allocate memory",
    "failed to allocate",
    "array is too big",
    "maximum allowed dimension exceeded",
    "failed to map segment from shared object\n",  # of a library; a reason after it is another one than memory
)


def machine_bytes() -> float:
    """Return the memory of the machine, or the limit of this process if that is less; infinite where unknown."""
    limits = [float("inf")]
    if hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= os.sysconf_names.keys():
        limits.append(float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE"))
    if resource is not None and (most := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        limits.append(float(most))
    return min(limits)


def device_bytes() -> float:
    """Return the memory of the device that JAX computes on; that of the machine for a CPU."""
    import jax  # not above: where memory runs out, an error is recognized without importing more

    known = jax.local_devices()[0].memory_stats()  # of an accelerator alone
    return float(known["bytes_limit"]) if known and "bytes_limit" in known else machine_bytes()


def beyond_memory(needed: float) -> str | None:
    """Return a phrase for `needed` bytes beside those there are if that is too much, `None` for what may fit."""
    most = machine_bytes()
    return f"{in_bytes(needed)} of memory, of which there are {in_bytes(most)}" if needed > most else None


def is_out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an error, or one that caused it, says in words of Python, NumPy, XLA or C++ that memory ran out."""
    while error is not None:
        if isinstance(error, MemoryError) or any(words in f"{error}\n".casefold() for words in _OUT_OF_MEMORY):
            return True
        error = error.__cause__
    return False


def in_bytes(number: float) -> str:
    """Return a number of bytes in words: 3.2 GB."""
    units = ("bytes", "kB", "MB", "GB")
    power = next((power for power in range(len(units)) if number < 1000 ** (power + 1)), len(units) - 1)
    return f"{number / 1000**power:.3g} {units[power]}"
