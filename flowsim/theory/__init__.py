"""The statements of Marion and Chizat (2024) as measurable quantities."""

from .check import SUBJECTS as SUBJECTS, check as check, statements as statements
from .gradients import GradientsAlong as GradientsAlong
from .large_products import (
    LargeProducts as LargeProducts,
    LargeProductsSample as LargeProductsSample,
    binomial_interval as binomial_interval,
    sample_large_products as sample_large_products,
)
from .max_margin import Separator as Separator, max_margin as max_margin
from .minimizers import (
    critical_learning_rate as critical_learning_rate,
    flat_minimizer as flat_minimizer,
    flat_minimizer_statements as flat_minimizer_statements,
    layer_norm_bound as layer_norm_bound,
    minimal_sharpness_bounds as minimal_sharpness_bounds,
    minimal_sharpness_bounds_of as minimal_sharpness_bounds_of,
    sharp_minimizer as sharp_minimizer,
    sharp_minimizer_bound as sharp_minimizer_bound,
)
from .path import FlowPath as FlowPath, deep_linear as deep_linear, follow as follow, path_of as path_of
from .residual import (
    convergence_statement as convergence_statement,
    gradient_bounds as gradient_bounds,
    residual_displacements as residual_displacements,
)
from .small_scale import (
    LeadingSingular as LeadingSingular,
    assumption_1 as assumption_1,
    assumption_2 as assumption_2,
    conservation_drift as conservation_drift,
    initialization_epsilon as initialization_epsilon,
)
from .statement import (
    Assumption as Assumption,
    Claim as Claim,
    Statement as Statement,
    Statements as Statements,
    Verdict as Verdict,
    judge as judge,
    listed as listed,
    mark_outside_sweep as mark_outside_sweep,
    unmeasured as unmeasured,
)
