"""Writes chat.json: what Jinja2, set up as transformers does for chat templates, makes of templates.

    pip install jinja2==3.1.6 && python tests/reference/make_chat.py

`renders`: the templates of chat_templates.py with its conversations. `cases`: small templates, some
written here and some drawn from a fixed seed; null where Jinja2 refuses.
"""

import copy
import datetime
import json
import pathlib
import random
import re

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from chat_cases import CASES, VARIABLES, draw
from chat_templates import CONVERSATIONS, TEMPLATES, TOOLS

NOW = datetime.datetime(2024, 7, 6, 5, 4, 3)
# What transformers gives every template, without a conversation.
BARE = {"messages": [], "tools": None, "documents": None, "add_generation_prompt": False}


class Generation(Extension):
    """The tag that transformers adds: it renders its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                         extensions=[Generation, loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = NOW.strftime
    return made


ENVIRONMENT = environment()


def render(template, variables):
    try:
        return ENVIRONMENT.from_string(template).render(**copy.deepcopy(variables))
    except Exception:  # whatever Python throws, the template is refused
        return None


def renders():
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    for name, template in TEMPLATES.items():
        for number, (title, messages) in enumerate(CONVERSATIONS.items()):
            options = {"add_generation_prompt": number % 2 == 0}
            if title == "tools":
                options["tools"] = TOOLS
            if title == "thinking":
                options["extra"] = {"enable_thinking": False, "tools_in_user_message": False}
            if name == "documents":
                options["documents"] = [{"id": 1, "title": "the loom-weaver's (new) BOOK"},
                                        {"id": "x"}, {"id": 2, "title": "the loom-weaver's (new) BOOK"}]
            variables = {"tools": None, "documents": None, **tokens, **options, **options.get("extra", {})}
            variables.pop("extra", None)
            yield {"template": name, "conversation": title, "options": options,
                   "text": render(template, {"messages": messages, **variables})}


def is_comparable(text):
    """Leaves out results that weft refuses by design: addresses, integers beyond 64 bits."""
    return text is None or not (re.search(r"<[\w. ]*(object|method|function|generator|Namespace)|dict_|range\(|j\)",
                                          text) or any(len(d) > 18 for d in re.findall(r"\d+", text))
                                or len(text) > 400)


def main():
    cases = [[template, render(template, {**BARE, **VARIABLES})] for template in CASES]
    rng = random.Random(1)
    drawn = set()
    refused = 0
    while len(drawn) < 420:
        template = "{{ " + draw(rng) + " }}"
        text = render(template, {**BARE, **VARIABLES})
        # Slices of constants that have none are undefined where Jinja2 folds them, and else errors.
        if text == "" and re.search(r"\[[-0-9:]*:[-0-9:]*\]|\)\[", template):
            continue
        if template in drawn or len(template) > 120 or not is_comparable(text):
            continue
        if text is None:
            if refused >= 120:
                continue
            refused += 1
        drawn.add(template)
        cases.append([template, text])
    folder = pathlib.Path(__file__).parent
    result = {"jinja2": jinja2.__version__, "templates": TEMPLATES, "conversations": CONVERSATIONS,
              "renders": list(renders()), "variables": VARIABLES, "cases": cases}
    lines = json.dumps(result, ensure_ascii=False, separators=(",", ":"))
    lines = re.sub(r'(\],|\},)(?=\["\{|\{"template")', "\\1\n", lines)
    (folder / "chat.json").write_text(lines + "\n", encoding="utf-8")
    print(len(lines.encode()), "bytes;", sum(c[1] is None for c in cases), "of", len(cases),
          "cases refused;", sum(r["text"] is None for r in result["renders"]), "of",
          len(result["renders"]), "renders refused")


if __name__ == "__main__":
    main()
