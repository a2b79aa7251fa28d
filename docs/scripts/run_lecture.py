"""Run the lecture's notebook from its first cell to its last: an error ends with one.

python docs/scripts/run_lecture.py            # check
python docs/scripts/run_lecture.py --write    # and store the outputs, which the page of the lecture shows
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "lecture.ipynb"
_MOST_BYTES, _SECONDS = 400_000, 300


def run(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with its outputs. Raises `CellExecutionError` for a cell that fails."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=_SECONDS, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times, which differ from run to run
    return notebook


if __name__ == "__main__":
    text = nbformat.writes(run(NOTEBOOK))
    if len(text.encode()) > _MOST_BYTES:
        raise SystemExit(f"{NOTEBOOK}: {len(text.encode())} bytes with its outputs; keep it to {_MOST_BYTES}")
    if "--write" in sys.argv[1:]:
        NOTEBOOK.write_text(text + "\n", encoding="utf-8")
