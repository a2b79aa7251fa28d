from .figure import FIGURES as FIGURES, Figure as Figure, figures_of as figures_of
from .reading import StoreError as StoreError, refuse_missing as refuse_missing
from .results import Results as Results, open_results as open_results
from .store import (
    BLOCKS as BLOCKS,
    SWEEP as SWEEP,
    THEORY as THEORY,
    ResultFolder as ResultFolder,
    difference as difference,
    refuse_obstacles as refuse_obstacles,
    refuse_unwritable as refuse_unwritable,
    result_folder as result_folder,
    write_atomically as write_atomically,
)
from .theory import (
    CheckedFlow as CheckedFlow,
    TheoryResults as TheoryResults,
    theory_from_dataset as theory_from_dataset,
    theory_to_dataset as theory_to_dataset,
)
