"""The whole spectrum of the Hessian along a run, and the sharpness of each layer."""

from dataclasses import replace
from typing import Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..curvature import check_spectrum, layer_sharpness, spectrum
from ..curvature.spectrum import EXACT_UP_TO
from ..networks import numbered_layers
from ..networks.weights import weight_count
from .probe import OF_EIGENPAIR, PROBES, Label, Moment, Probe

_NODES = Label(
    "spectrum_nodes", "eigenvalues of the Hessian, or nodes that stand for them", r"$\lambda$", drawn="nothing"
)
_WEIGHTS = Label("spectrum_weights", "share of the spectrum that a node stands for", "share", drawn="nothing")
_RESIDUALS = Label("spectrum_residuals", "distance of a node to an eigenvalue, at most", "residual", drawn="nothing")
_TRACE = Label("spectrum_trace", "trace of the Hessian", r"trace $\mathrm{tr}\,H$", logarithmic=False)
_TRACE_ERROR = Label("spectrum_trace_error", "standard error of the trace", "standard error of the trace")
_TOP = Label(
    "spectrum_top",
    "largest eigenvalues of the Hessian, from its spectrum",
    r"eigenvalues $\lambda_i$ of the Hessian",
    logarithmic=False,
)
_NEGATIVE = Label(
    "spectrum_negative",
    "number of negative eigenvalues of the Hessian, below −1e-6 of the largest in size (float32: −2e-5)",
    "negative eigenvalues",
    logarithmic=False,
)
_NEGATIVE_ERROR = Label(
    "spectrum_negative_error",
    "how far off the number of negative eigenvalues may be",
    "error of the negative eigenvalues",
    logarithmic=False,
)


@PROBES.register("spectrum")
class SpectralDensity(Probe):
    """The spectrum of the Hessian: `nodes` and `weights`, the `top` ones, `trace`, and the number of `negative` ones.

    Exact, as by default up to 2000 weights, `nodes` are all eigenvalues in increasing order, from as many products and
    a full decomposition at each record, and there are no `weights` and `residuals`. Else the estimate of
    `flowsim.curvature.spectrum`, which takes vectors × products Hessian–vector products at each record: then all
    numbers have an error, in `trace_error` and `negative_error`. The random vectors are the same ones at every record.
    `report` draws the density along the run from the nodes.
    """

    exact: bool | None = None
    """Whether all eigenvalues are computed; null: up to 2000 weights."""
    vectors: int = 10
    """How many random vectors an estimate averages over."""
    products: int = 80
    """How many products an estimate makes with each of them."""
    seed: int = 0
    """What the random vectors of an estimate are drawn by."""
    top: int = 5
    """How many of the largest eigenvalues are recorded by themselves; of fewer weights, or products, as many."""
    label: Label = eqx.field(
        static=True,
        default=Label(
            "spectrum",
            "spectrum of the Hessian of the risk",
            "spectrum of the Hessian",
            parts=(_NODES, _WEIGHTS, _RESIDUALS, _TOP, _TRACE, _TRACE_ERROR, _NEGATIVE, _NEGATIVE_ERROR),
        ),
    )
    """What it is called in tables and figures."""

    def __check_init__(self):
        check_spectrum(self.vectors, self.products, self.seed)
        if not isinstance(self.top, int) or isinstance(self.top, bool) or self.top < 1:
            raise ValueError(f"top is {self.top!r}: expected how many of the largest eigenvalues to record, 1 or more")

    def gradients(self, network: PyTree) -> float:
        """Return the number of products."""
        weights = weight_count(network)
        exact = weights <= EXACT_UP_TO if self.exact is None else self.exact
        return 2.0 * weights if exact else 1.5 * self.vectors * self.products  # with what makes vectors orthogonal

    def measure(self, moment: Moment) -> dict[str, Float[Array, "..."]]:
        """Return the spectrum, and what follows from it."""
        options = {"vectors": self.vectors, "products": self.products, "seed": self.seed}
        found = spectrum(moment.network, moment.problem, exact=self.exact, **options)
        told = {"top": found.largest(self.top), "trace": found.trace, "negative": found.negative}
        if found.exact:
            return {"nodes": found.nodes[0], **told}
        errors = {"trace_error": found.trace_error, "negative_error": found.negative_error}
        estimated = {"nodes": found.nodes, "weights": found.weights, "residuals": found.residuals}
        return {**estimated, **told, **errors}


@PROBES.register("layer_sharpness")
class LayerSharpness(Probe):
    """The sharpness of each layer, the largest eigenvalue of the Hessian in the weights of that layer alone.

    See `flowsim.curvature.layer_sharpness`: a search for each layer at every record.
    """

    label: Label = eqx.field(
        static=True,
        default=Label(
            "layer_sharpness",
            "sharpness of each layer, the largest eigenvalue of its block of the Hessian",
            r"sharpness $S_\ell$ of layer $\ell$",
            drawn="layers",
        ),
    )
    """What it is called in tables and figures; its rows bear the names of the layers of the run."""

    def begin(self, network: PyTree) -> Self:
        """Return the probe with the names of the layers."""
        return replace(self, label=replace(self.label, rows=numbered_layers(network).names))

    def gradients(self, network: PyTree) -> float:
        """Return about those of a search for each layer."""
        return OF_EIGENPAIR * len(numbered_layers(network).names)

    def measure(self, moment: Moment) -> Float[Array, " layers"]:
        """Return the sharpness of each layer, NaN where one could not be certified."""
        found = layer_sharpness(moment.network, moment.problem, dense=False)
        return jnp.asarray(found)
