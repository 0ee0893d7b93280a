"""What the core says in English, as a visitor who reads another language meets it."""

import ast
from itertools import chain
from pathlib import Path
from string import Formatter

import pytest

from cube3d import errors
from cube3d.checks import MAX_PROMPT
from cube3d.page import strings, translation
from cube3d.page.translation import translate
from cube3d.records import Request

CORE = Path(errors.__file__).parent
SPOKEN = (
    "records",
    "checks",
    "wording",
    "mesh",
    "limbs",
    "field",
    "surface",
    "scan",
    "store",
    "pipeline",
    "worker",
    "scene/reading",
    "scene/assembly",
    "page/zero_gpu",
)
NOBODY = (
    "must be text",
    "slots",
    "pip install",
    "Evicted",
    "Weights in",
    "weights must",
)  # what no visitor of a page can cause or see
OTHERS = strings.LANGUAGES[1:]


def said(node: ast.AST) -> str | None:
    """A string in the source as it may come out, with a 7 for each value; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "7" for part in node.values)
    return None


def sentences(module: str) -> list[str]:
    """Every string of a module that ends as a sentence and is handed to an error or kept as a notice."""
    tree = ast.parse((CORE / f"{module}.py").read_text(encoding="utf-8"))
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [said(node) for node in ast.walk(tree) if node not in parts | docs]
    return [text for text in found if text and text.endswith(".") and text.count(" ") > 1]


SENTENCES = sorted({text for text in chain.from_iterable(map(sentences, SPOKEN)) if not any(w in text for w in NOBODY)})


def test_the_core_is_searched():
    assert len(SENTENCES) > 30
    assert "The prompt is empty; describe an object, for example 'a wooden chair'." in SENTENCES


@pytest.mark.parametrize("language", OTHERS)
@pytest.mark.parametrize("english", SENTENCES)
def test_every_sentence_a_visitor_may_meet_is_translated(english, language):
    assert translate(english, language) != english


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_names_what_its_original_names(language):
    for pattern, said in translation.phrasebook(language).sentences:
        named = {name for _, name, _, _ in Formatter().parse(said) if name}
        assert named <= set(pattern.groupindex), said
        assert set(pattern.groupindex) - named <= {"what", "kind"}, said


def test_values_and_the_names_of_fields_are_carried_over():
    vi, es = (lambda english: translate(english, "vi")), (lambda english: translate(english, "es"))
    assert vi("mini never saw “a.b; c”; closest I know: a cat.") == (
        "mini chưa từng thấy “a.b; c”; gần nhất tôi biết: a cat."
    )
    assert (
        vi("seed must be a whole number from 0 to 9, not -1.")
        == "Hạt giống phải là số nguyên từ 0 đến 9, không phải -1."
    )
    assert (
        es("The prompt has 3,000 characters; shorten it to 2,000.")
        == "La descripción tiene 3,000 caracteres; acórtalo a 2,000."
    )
    assert es("{braces} may be anyone's. Check the path.") == "{braces} may be anyone's. Check the path."


def test_english_stays_and_so_does_what_nobody_translated():
    assert translate("Read as: a cat.", "en") == "Read as: a cat."
    assert translate("No such thing.", "vi") == "No such thing."


@pytest.mark.parametrize("prompt", ["", "x" * (MAX_PROMPT + 1), "nul\0"])
def test_a_refused_request_is_told_in_the_visitors_language(prompt):
    with pytest.raises(errors.RequestError) as caught:
        Request(prompt)
    assert translate(str(caught.value), "vi").startswith("Mô tả")
