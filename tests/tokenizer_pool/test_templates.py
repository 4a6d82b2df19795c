"""Both template engines render as transformers does, and a template cannot hurt us."""

from collections.abc import Callable
from typing import Any

import pytest

from tokenizer_pool.parity import prove_template
from tokenizer_pool.templates import (
    FastTemplate,
    ReferenceTemplate,
    TemplateEngine,
    TemplateRefused,
    render_open,
    template_wants_parts,
)

Engine = Callable[[str], TemplateEngine]
both = pytest.mark.parametrize("engine", [ReferenceTemplate, FastTemplate])

CONTEXT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "a<b>é"}],
    "tools": None,
    "documents": None,
    "add_generation_prompt": True,
}


@both
@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        ("{{ messages[0].content }}", "a<b>é"),
        ("{{ messages|tojson }}", '[{"role": "user", "content": "a<b>é"}]'),
        ("  {% if true %}\nx\n{% endif %}\n", "x\n"),
        ("{% for m in messages %}{% break %}{% endfor %}y", "y"),
        ("{{ missing }}{{ messages[0].missing }}z", "z"),
        ("{{ messages[0].content.startswith('a') and 'yes' }}", "yes"),
        ("{{ messages[0].content.split('<')[-1] }}", "b>é"),
    ],
)
def test_the_language_is_that_of_transformers(engine: Engine, source: str, prompt: str) -> None:
    assert engine(source).render(CONTEXT) == prompt


@both
def test_a_clock_is_at_hand(engine: Engine) -> None:
    assert len(engine("{{ strftime_now('%d %b %Y') }}").render({})) == len("01 Jan 2026")


@both
@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ missing.attribute }}",
        "{{ messages|tojson|unknown_filter }}",
        "{{ messages.__len__() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    ],
)
def test_what_a_template_refuses_is_one_error(engine: Engine, source: str) -> None:
    with pytest.raises(TemplateRefused):
        engine(source).render(CONTEXT)


@both
def test_what_is_no_template_is_refused_at_once(engine: Engine) -> None:
    with pytest.raises(TemplateRefused):
        engine("{% for %}")


def test_the_generation_block_renders_its_body() -> None:
    source = "{% generation %}{{ messages[0].content }}{% endgeneration %}!"
    assert ReferenceTemplate(source).render(CONTEXT) == "a<b>é!"


def test_an_endless_template_is_stopped() -> None:
    source = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"
    with pytest.raises(TemplateRefused):
        FastTemplate(source).render({})


@both
@pytest.mark.parametrize("number", [2**64 - 1, -(2**63), 1.5, 1e-7, 1e22])
def test_numbers_of_64_bits_come_out_as_python_prints_them(engine: Engine, number: float) -> None:
    assert engine("{{ x|tojson }}").render({"x": number}) == str(number)


@both
@pytest.mark.parametrize("depth", [200, 5000])
def test_deep_values_crash_nobody(engine: Engine, depth: int) -> None:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}
    try:
        prompt = engine("{{ x|tojson }}").render({"x": value})
    except TemplateRefused:
        assert depth > 500
    else:
        assert prompt.count("{") == depth


OPEN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
TRIM = "{% for m in messages %}<{{ m.role }}>{{ m.content|trim }}</>{% endfor %}"


@both
@pytest.mark.parametrize(
    ("source", "content", "prompt"),
    [
        (OPEN, "so far ", "<user>hi</><assistant>so far "),
        (TRIM, "so far ", "<user>hi</><assistant>so far"),
        (OPEN, "", "<user>hi</><assistant>"),
    ],
)
def test_the_final_message_stays_open(
    engine: Engine, source: str, content: str, prompt: str
) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}]
    assert render_open(engine(source), {"messages": messages}) == prompt


def test_a_message_that_does_not_come_out_cannot_stay_open() -> None:
    messages = [{"role": "assistant", "content": "hi"}]
    with pytest.raises(TemplateRefused):
        render_open(ReferenceTemplate("{{ messages[0].content|upper }}"), {"messages": messages})
    with pytest.raises(TemplateRefused):
        render_open(ReferenceTemplate("x"), {"messages": [{"role": "assistant", "content": []}]})


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", False),
        ("{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", True),
        ("{% for m in messages %}{% for c in m['content'] %}{% endfor %}{% endfor %}", True),
        ("{% for m in messages %}{% for c in m.content|list %}{% endfor %}{% endfor %}", True),
        ("{% for m in messages[1:] %}{% for c in m.content %}{% endfor %}{% endfor %}", True),
        (
            "{% set loop_messages = messages %}{% for m in loop_messages %}"
            "{% for c in m.content %}{% endfor %}{% endfor %}",
            True,
        ),
        (
            "{% for m in messages %}{% set content = m.content %}"
            "{% for c in content %}{% endfor %}{% endfor %}",
            True,
        ),
        (
            "{% macro show(x) %}{% for c in x %}{% endfor %}{% endmacro %}"
            "{% for m in messages %}{{ show(m.content) }}{% endfor %}",
            True,
        ),
        (
            "{% macro show(x, y=1) %}{% for c in y %}{% endfor %}{% endmacro %}"
            "{% for m in messages %}{{ show(1, y=m.content) }}{% endfor %}",
            True,
        ),
        (
            "{% macro show(content) %}{% for c in content %}{% endfor %}{% endmacro %}"
            "{% for m in messages %}{{ show(m.tool_calls) }}{% endfor %}",
            False,
        ),
        ("{% for t in tools %}{% for c in t.content %}{% endfor %}{% endfor %}", False),
        ("{% for m in messages %}{% for c in m.tool_calls %}{% endfor %}{% endfor %}", False),
        ("{% for a, b in messages %}{% endfor %}", False),
        ("{% for %}", False),
    ],
)
def test_a_loop_over_the_content_means_parts(source: str, parts: bool) -> None:
    assert template_wants_parts(source) is parts


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ messages[0].content|wordcount }}", "differs"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "compile"),
        ("{{ raise_exception('no') }}", "refused every"),
        # Jinja's sandbox forbids it, minijinja does not: only the sandbox gets such a template.
        ("{{ messages.append(1) }}", "differs"),
    ],
)
def test_the_fast_engine_is_not_taken_where_it_is_not_equal(source: str, why: str) -> None:
    proof = prove_template(source, {})
    assert not proof.fast
    assert why in proof.reason


def test_the_fast_engine_is_taken_where_it_is_equal() -> None:
    assert prove_template(OPEN, {"bos_token": "<s>"}).fast


PRINT = (
    "{% for t in tools or [] %}{% for p in t.function.parameters.properties.values() %}"
    "{{ p.default|tojson }}{% endfor %}{% endfor %}{{ messages[0].content }}"
)


def test_where_whole_floats_differ_the_proof_says_so() -> None:
    assert not prove_template(PRINT, {}).floats
    assert prove_template("{{ messages[0].content }}{{ tools|tojson }}", {}).floats
