"""The catapult of Lewkowycz et al. (2020), *The large learning rate phase of deep learning: the catapult mechanism*
(arXiv 2003.02218): two linear layers on one sample, whose descents obey a recursion of two numbers.

A plug-in: nothing else in flowsim knows of it. In a scenario, with `flowsim.papers.lewkowycz_2020:` before each name:
`data: {kind: OneSample}`, `network: {kind: TwoLayers, width: 1024}` and `figure: Phases`.
"""

from .figure import Phases as Phases
from .model import OneSample as OneSample, Start as Start, TwoLayers as TwoLayers, ends as ends
