"""Progressive sharpening along the gradient flow: the open problem of Marion (2024), *Three stories on deep linear
networks* (slides, CIRM), "Why does the sharpness increase during the early phase of training?"

A plug-in: nothing else in flowsim knows of it. In a scenario, with `flowsim.papers.marion_2024:` before each name:
`record: [SharpnessCourse]` and `figure: Sharpening`.
"""

from .course import SharpnessCourse as SharpnessCourse
from .figure import Sharpening as Sharpening
