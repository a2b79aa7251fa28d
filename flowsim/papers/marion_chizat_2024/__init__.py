"""The figures of Marion and Chizat (2024) and their claims; README.md says which scenario makes which of them."""

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
