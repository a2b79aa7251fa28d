"""Arrays of samples and how they are scaled, and the sources that scenarios take them from."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
