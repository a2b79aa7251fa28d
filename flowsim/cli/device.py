"""On which device to compute."""

import jax

from ..scenarios import ScenarioError


def choose_device(kind: str | None) -> None:
    """Compute on a kind of device from now on, `None` for what JAX finds best. Raises `ScenarioError` for none."""
    if kind is None:
        return
    try:
        device, *_ = jax.devices(kind)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ScenarioError(f"--device {kind}: there is none here ({reason}); leave the option out") from None
    jax.config.update("jax_default_device", device)
