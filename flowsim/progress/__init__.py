"""How far long work is.

What works long takes `progress`, which is True for a bar, False for silence, or a function of a `Progress`. Work that
is part of other work is given its listener, under the name that the whole calls it by: see `Heard.during`.
"""

from .event import (
    Heard as Heard,
    Listener as Listener,
    Progress as Progress,
    check_progress as check_progress,
)
from .hearing import heard as heard
