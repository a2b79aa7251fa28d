"""Descent at the edge of stability beside models of it: Marion (2026), *Edge Flow* (arXiv 2606.18080), and Cohen et al.
(2024), *Understanding optimization in deep learning with central flows* (arXiv 2410.24206).

A plug-in: nothing else in flowsim knows of it. In a scenario: `figure: flowsim.papers.marion_2026:AtTheEdge`.
"""

from .figure import AtTheEdge as AtTheEdge
