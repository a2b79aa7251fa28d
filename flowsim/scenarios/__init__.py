"""Scenarios: YAML, its schema and its errors; a scenario becomes a run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
