"""The catapult of Lewkowycz et al. (2020): two linear layers on one sample; README.md says how it is reproduced."""

from .figure import Phases as Phases
from .model import OneSample as OneSample, Start as Start, TwoLayers as TwoLayers, ends as ends
