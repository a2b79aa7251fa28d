"""The Hessian as an operator, certified eigenpairs at the ends of its spectrum, and how these change."""

from .eigenpair import (
    Eigenpair as Eigenpair,
    Eigenpairs as Eigenpairs,
    default_rtol as default_rtol,
    eigenpair_lanczos as eigenpair_lanczos,
    eigenpairs_lanczos as eigenpairs_lanczos,
    least_rtol as least_rtol,
    resolve_rtol as resolve_rtol,
)
from .gauss_newton import (
    GaussNewton as GaussNewton,
    ResidualCurvature as ResidualCurvature,
    dominant_curvature as dominant_curvature,
    gauss_newton as gauss_newton,
    gauss_newton_passes as gauss_newton_passes,
    knows_gram as knows_gram,
)
from .hessian import (
    dense_hessian as dense_hessian,
    hessian_operator as hessian_operator,
    hessian_product as hessian_product,
    preconditioned_eigenpair as preconditioned_eigenpair,
)
from .layers import layer_sharpness as layer_sharpness
from .quadratic_model import (
    LocalQuadraticModel as LocalQuadraticModel,
    extreme_eigenpairs as extreme_eigenpairs,
    local_quadratic_model as local_quadratic_model,
)
from .sharpness import (
    SpectralBounds as SpectralBounds,
    sharpness as sharpness,
    spectral_bounds as spectral_bounds,
    top_eigenpair as top_eigenpair,
    top_eigenpairs as top_eigenpairs,
)
from .spectrum import Spectrum as Spectrum, check_spectrum as check_spectrum, spectrum as spectrum
from .third_derivative import (
    Contractions as Contractions,
    SharpnessGradient as SharpnessGradient,
    contractions as contractions,
    sharpness_gradient as sharpness_gradient,
)
from .trajectory import (
    EigenpairsAlong as EigenpairsAlong,
    eigenpairs_along as eigenpairs_along,
    eigenvalues_along as eigenvalues_along,
    sharpness_along as sharpness_along,
)
from .vectors import inner_product as inner_product
