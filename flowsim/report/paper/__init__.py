"""The figures of Marion and Chizat (2024) and what they are said to show."""

from .claim import Claim as Claim
from .claims import claims as claims
from .claims_table import claims_summary as claims_summary, claims_table as claims_table
from .figure import paper_figure as paper_figure
