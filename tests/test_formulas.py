"""Formulas of the documentation become MathML; `nox -s docs` runs this, where math-core is."""

import importlib.util

import pytest
from shown_outputs import ROOT

pytest.importorskip("math_core", reason="pip install '.[docs]'")
import markdown


@pytest.fixture(scope="module")
def formulas():
    spec = importlib.util.spec_from_file_location("formulas", ROOT / "docs" / "scripts" / "formulas.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def html(formulas):
    return lambda text: markdown.Markdown(extensions=["tables", formulas.Formulas()]).convert(text)


def test_a_formula_keeps_its_sign_and_its_power(html):
    assert html(r"$-\eta^2$").startswith("<math><mo")
    assert "−</mo><msup><mi>η</mi><mn>2</mn></msup></math>" in html(r"$-\eta^2$")


def test_a_formula_between_two_dollars_stands_on_a_line_of_its_own(html):
    assert '<math display="block">' in html("so\n\n$$R = 0.$$\n\nand")


def test_signs_beside_a_formula_stay_on_its_line(html):
    assert '<span class="formula">(<math><mi>S</mi></math>),</span>' in html("the sharpness ($S$), here")


@pytest.mark.parametrize("text", ["`$S$`", "from 3 $ to 4 $", "a $ S$ b", r"\$S\$"])
def test_what_is_no_formula_stays_as_it_is(text, html):
    assert "<math" not in html(text)


@pytest.mark.parametrize("formula", ["w^*", "|a|", r"a\,b", r"\hat{w}_k", "a<b"])
def test_a_formula_that_github_would_tear_is_refused(formula, formulas):
    with pytest.raises(ValueError, match="GitHub takes"):
        formulas.mathml(formula, display=False)


@pytest.mark.parametrize("formula", [r"\sharpness S", r"\frac{1}{2", "a}"])
def test_a_formula_with_a_mistake_is_refused(formula, formulas):
    with pytest.raises(ValueError, match=r"^\$.*\$: "):
        formulas.mathml(formula, display=False)
