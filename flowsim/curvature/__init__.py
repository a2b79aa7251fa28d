"""The Hessian as an operator, and certified eigenpairs at the ends of its spectrum."""

from .eigenpair import (
    Eigenpair as Eigenpair,
    Eigenpairs as Eigenpairs,
    eigenpair_lanczos as eigenpair_lanczos,
    eigenpairs_lanczos as eigenpairs_lanczos,
)
from .gauss_newton import GaussNewton as GaussNewton, gauss_newton as gauss_newton
from .hessian import (
    dense_hessian as dense_hessian,
    hessian_operator as hessian_operator,
    hessian_product as hessian_product,
)
from .residual import ResidualCurvature as ResidualCurvature
from .sharpness import (
    SpectralBounds as SpectralBounds,
    sharpness as sharpness,
    sharpness_along as sharpness_along,
    spectral_bounds as spectral_bounds,
    top_eigenpair as top_eigenpair,
    top_eigenpairs as top_eigenpairs,
)
from .surroundings import Surroundings as Surroundings, surroundings as surroundings
from .vectors import inner_product as inner_product
