"""Formulas of the documentation become MathML, and docstrings lists of what is raised; `nox -s docs` runs this."""

import importlib.util
import re

import pytest
from shown_outputs import ROOT

pytest.importorskip("math_core", reason="pip install '.[docs]'")
pytest.importorskip("griffe", reason="pip install '.[docs]'")
import markdown


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def formulas():
    return script("formulas")


@pytest.fixture(scope="module")
def listed_raises():
    return script("docstrings").listed_raises


@pytest.fixture(scope="module")
def html(formulas):
    return lambda text: markdown.Markdown(extensions=["tables", formulas.Formulas()]).convert(text)


def test_a_formula_keeps_its_sign_and_its_power_its_line_and_the_signs_beside_it(html):
    assert html(r"$-\eta^2$").startswith("<math><mo")
    assert '<math display="block">' in html("so\n\n$$R = 0.$$\n\nand")
    assert '<span class="formula">(<math><mi>S</mi></math>),</span>' in html("the sharpness ($S$), here")
    assert "−</mo><msup><mi>η</mi><mn>2</mn></msup></math>" in html(r"$-\eta^2$")


@pytest.mark.parametrize("text", ["`$S$`", "from 3 $ to 4 $", "a $ S$ b", r"\$S\$"])
def test_what_is_no_formula_stays_as_it_is(text, html):
    assert "<math" not in html(text)


TORN, MISTAKEN = ["w^*", "|a|", r"a\,b", r"\hat{w}_k", "a<b"], [r"\sharpness S", "a}"]


@pytest.mark.parametrize("formula", [*TORN, *MISTAKEN])
def test_a_formula_that_github_would_tear_or_that_holds_a_mistake_is_refused(formula, formulas):
    with pytest.raises(ValueError, match="GitHub takes" if formula in TORN else r"^\$.*\$: "):
        formulas.mathml(formula, display=False)


def test_the_sentence_that_says_what_is_raised_becomes_a_list(listed_raises):
    said = "Read. Raises `TypeError` or `ValueError` for one\nthat is wrong, and `OSError` where none is. And so on."
    listed = "Raises:\n    TypeError | ValueError: For one that is wrong.\n    OSError: Where none is."
    assert listed_raises(said) == f"Read. And so on.\n\n{listed}"
    assert listed_raises("One.\n\nRaises `A` for b. Two.").startswith("One.\n\nTwo.\n\nRaises:")


@pytest.mark.parametrize(
    "said", ["Raises as `read` does.", "`f` raises.", "Do.\n\nRaises:\n    ValueError: For `a`. Raises `B` if c."]
)
def test_what_is_no_such_sentence_stays_as_it_is(said, listed_raises):
    assert listed_raises(said) == said


@pytest.fixture(scope="module")
def gallery():
    pytest.importorskip("nbconvert", reason="pip install '.[docs]'")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "scripts"))
        return script("gallery")


def test_every_scenario_and_every_example_has_its_page_and_its_card_in_the_gallery(gallery):
    found = [*(ROOT / "scenarios").rglob("*.yaml"), *(ROOT / "papers").rglob("*.yaml")]
    found += [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").rglob("*.yaml")]
    made = dict(gallery.made())
    for path in found:
        name = f"{'_'.join(path.parent.relative_to(ROOT).parts)}_{path.stem}" if "examples" in path.parts else path.stem
        if name != "all_keys":
            assert f"]({name}.md)" in made["gallery/index.md"]
            assert path.relative_to(ROOT).as_posix() in made[f"gallery/{name}.md"]
            assert made[f"gallery/files/{path.relative_to(ROOT).as_posix()}"] == path.read_bytes()
    there = dict(gallery.pictures.made())
    pages = [text for name, text in made.items() if name.endswith(".md")]
    assert set(re.findall(r"\]\(\.\./(pictures/[^)]+)\)", "".join(pages))) <= there.keys()
    # And what a scenario needs is downloaded with it.
    assert made["gallery/files/scenarios/data/diabetes.csv"] == (ROOT / "scenarios/data/diabetes.csv").read_bytes()
    assert "(files/papers/wu_2024/wu_2024.py)" in made["gallery/logistic.md"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mine.yaml", "# A title\n#\n# It shows this. Does it?\nseed: 0\n"),
        ("mine.yaml", "# Is a title enough?\nseed: 0\n"),
        ("mine.py", '"""A title.\n\npython mine.py\n"""\n'),
    ],
)
def test_a_file_without_a_question_has_no_card_and_is_told_what_to_write(name, text, gallery, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"{name}: .*expected a question.*write a title, an empty line"):
        gallery.said(path)


def test_a_file_says_its_title_its_question_and_the_rest(gallery, tmp_path):
    (tmp_path / "mine.yaml").write_text("# A title\n#\n# Does it go on\n# to here? It does.\nseed: 0\n")
    assert gallery.said(tmp_path / "mine.yaml") == ("A title", "Does it go on to here?", "It does.")


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        (r"a step of $\eta$", r"\eta"),
        ("it costs 3 $ a day", "3 $ a"),
        (r"<math><mi>\badly</mi></math>", r"\badly"),
        ("<math><merror><mtext>?</mtext></merror></math>", "an error in MathML"),
        (
            "<p><code>$HOME</code></p><pre><code>r'$\\eta$'</code></pre><script>$(a)</script><math><mi>η</mi></math>",
            None,
        ),
    ],
)
def test_a_site_with_a_formula_that_was_not_set_is_found_out(shown, found, tmp_path):
    (tmp_path / "page.html").write_text(f"<html><title>$</title><body>{shown}</body></html>")
    wrong = script("check_site").unset(tmp_path)
    assert len(wrong) == (found is not None)
    assert all(found in one for one in wrong)
