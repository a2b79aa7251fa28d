"""How numbers, tables and progress look; nothing here knows of the subject."""

from .hearing import heard as heard
from .numbers import finite_or_none as finite_or_none, format_number as format_number
from .progress import Heard as Heard, Listener as Listener, Progress as Progress, check_progress as check_progress
