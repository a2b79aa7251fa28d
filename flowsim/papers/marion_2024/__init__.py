"""Progressive sharpening along the gradient flow, an open problem of Marion (2024); README.md says what is measured."""

from .course import SharpnessCourse as SharpnessCourse
from .figure import Sharpening as Sharpening
