"""Descent at the edge of stability beside models of it (Marion 2026, Cohen et al. 2024); README.md says what agrees."""

from .figure import AtTheEdge as AtTheEdge
