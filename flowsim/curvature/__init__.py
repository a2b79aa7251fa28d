"""The Hessian as an operator, and its certified top eigenpair."""

from .eigenpair import Eigenpair as Eigenpair
from .gauss_newton import GaussNewton as GaussNewton, HasOutputs as HasOutputs, gauss_newton as gauss_newton
from .hessian import dense_hessian as dense_hessian, hessian_operator as hessian_operator
from .sharpness import (
    sharpness as sharpness,
    sharpness_along as sharpness_along,
    top_eigenpair as top_eigenpair,
)
