"""Every block of Python in the pages outside of docs/how_to runs, and every output that is shown is what is printed."""

import pytest
from shown_outputs import ROOT, run, with_code


@pytest.mark.slow
@pytest.mark.parametrize("page", with_code(how_to=False), ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_prints_what_it_shows(page, tmp_path):
    run(page, tmp_path)
