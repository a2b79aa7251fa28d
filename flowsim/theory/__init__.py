"""The statements of Marion and Chizat (2024) as measurable quantities."""

from .sharpness_bounds import (
    critical_learning_rate as critical_learning_rate,
    minimal_sharpness_bounds as minimal_sharpness_bounds,
)
