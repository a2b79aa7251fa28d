"""The figures of Marion and Chizat (2024), *Deep linear networks for regression are implicitly regularized towards
flat minima*, and what they are said to show. A plug-in: nothing else in flowsim knows of it.

In a scenario: `figure: flowsim.papers.marion_chizat_2024:Figure1`.
"""

from .figures import (
    AppendixC as AppendixC,
    Figure1 as Figure1,
    Figure2 as Figure2,
    Figure3 as Figure3,
    Figure4 as Figure4,
    Figure5 as Figure5,
    Figure6 as Figure6,
    Figure7 as Figure7,
)
