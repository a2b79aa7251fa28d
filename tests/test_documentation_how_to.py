"""Every block of Python in the pages of docs/how_to runs, and every output that is shown is what is printed."""

import pytest
from shown_outputs import ROOT, run, with_code


@pytest.mark.slow
@pytest.mark.parametrize("page", with_code(how_to=True), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_prints_what_it_shows(page, tmp_path):
    if page.name == "pytorch.md":
        pytest.importorskip("torch", reason="PyTorch is not there: pip install 'flowsim[torch]', or nox -s torch")
    run(page, tmp_path)
