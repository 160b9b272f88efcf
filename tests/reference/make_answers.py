"""Writes answers.json: the samples of conversations, as transformers' chat templates write them.

    pip install transformers==5.24.0 jinja2==3.1.6 && python tests/reference/make_answers.py

Each answer is learned in the text of the conversation up to it: the tokens behind those that the
text has in common with its prompt (add_generation_prompt), as TRL learns a completion, or those that
return_assistant_tokens_mask gives where the template has {% generation %}. Texts that go on from the
one before are one sample with it. Where a template forgets the reasoning of earlier calls as it writes
an answer, the answer is what it writes behind a prompt without that reasoning. Templates are those of chat_templates.py, and those here.
"""

import json
import pathlib
import re

from transformers import PreTrainedTokenizerFast

from chat_templates import TEMPLATES

HERE = pathlib.Path(__file__).parent
TURN = "<|start_header_id|>{{ m.role }}<|end_header_id|>"
OWN = {
    # DeepSeek's and Gemma's prompts end with what their texts of conversations lack.
    "thinking prompt": "{% for m in messages %}" + TURN + "{{ m.content }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|><think>\n{% endif %}",
    # gpt-oss ends the last answer by another token, and drops the reasoning of earlier ones.
    "other last end": "{% for m in messages %}" + TURN + "{% if loop.last and m.thinking %}({{ m.thinking }}){% endif %}"
    "{{ m.content }}{% if loop.last and m.role == 'assistant' %}<|end_of_text|>{% else %}<|eot_id|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}",
    # gpt-oss drops the reasoning of calls, too, once an answer follows them.
    "forgetful calls": "{% for m in messages %}" + TURN + "{% set later = messages[loop.index:] | selectattr('role', 'equalto', "
    "'assistant') | rejectattr('tool_calls') | list %}{% if m.tool_calls %}{% if m.reasoning_content and not later %}({{ m.reasoning_content }}){% endif %}"
    "{{ m.tool_calls | tojson }}{% else %}{{ m.content }}{% endif %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}",
    "marked": "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}<|eot_id|>"
    "{% endgeneration %}{% else %}{{ m.content }}<|eot_id|>{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}",
    # The mark has the header of an answer, which its prompt ends with.
    "marked forgetful calls": "{% for m in messages %}{% set later = messages[loop.index:] | selectattr('role', 'equalto', 'assistant')"
    " | rejectattr('tool_calls') | list %}{% if m.role == 'assistant' %}{% generation %}" + TURN + "{% if m.reasoning_content and not later %}"
    "({{ m.reasoning_content }}){% endif %}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{{ m.content }}<|eot_id|>"
    "{% endgeneration %}{% else %}" + TURN + "{{ m.content }}<|eot_id|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}",
    # A token of the text goes over the end of what is marked, which then has it.
    "marked within a word": "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}ing.\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}",
    "marked with its header": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}" + TURN + "{{ m.content }}"
    "<|eot_id|>{% endgeneration %}{% else %}" + TURN + "{{ m.content }}<|eot_id|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}",
    "parts": "{% for m in messages %}" + TURN + "{% for p in m.content %}{% if p['type'] == 'text' %}{{ p['text'] }}"
    "{% endif %}{% endfor %}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{% endif %}",
}
TEXTS = {**TEMPLATES, **OWN}

TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {
    "place": {"type": "string"}}, "required": ["place"]}}}]


def call(place):
    return {"type": "function", "function": {"name": "weather", "arguments": {"place": place, "at": [1, 2.5]}}}


TURNS = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hello there"},
         {"role": "user", "content": "who weaves"}, {"role": "assistant", "content": "the loom <tag>"}]
REASONS = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "reasoning_content": "add", "content": "4"},
           {"role": "user", "content": "3+3?"}, {"role": "assistant", "reasoning_content": "again", "content": "6"}]
CALLS = [{"role": "user", "content": "Zürich?"}, {"role": "assistant", "content": "", "tool_calls": [call("Zürich")]},
         {"role": "tool", "name": "weather", "content": "sun"}, {"role": "assistant", "content": "Sunny."},
         {"role": "user", "content": "Bonn?"}, {"role": "assistant", "content": "Let me look.", "tool_calls": [call("Bonn")]},
         {"role": "tool", "name": "weather", "content": "rain"}, {"role": "assistant", "content": "It rains."}]

REASONED_CALLS = [{**m, "reasoning_content": "Where is it?"} if m.get("tool_calls") else m for m in CALLS]
NO_CONTENT = [{**m, "content": None} if m.get("tool_calls") else m for m in CALLS]


def nulls(messages):
    """A table has every key in every row."""
    keys = {key: None for message in messages for key in message}
    return [{**keys, **message} for message in messages]


# Template, row, the messages that the row stands for, and which of the answers are learned.
ALL = None
CASES = [
    *((name, {"messages": TURNS}, TURNS, ALL) for name in
      ("chatml", "llama2", "gemma", "qwen3", "phi3", *OWN)),
    ("llama3", {"messages": TURNS, "date_string": "26 Jul 2024"}, TURNS, ALL),
    *((name, {"messages": REASONS}, REASONS, ALL) for name in ("qwen3", "other last end", "marked")),
    *((name, {"messages": CALLS, "tools": TOOLS}, CALLS, ALL) for name in ("qwen3", "marked")),
    *((name, {"messages": REASONED_CALLS}, REASONED_CALLS, ALL) for name in ("forgetful calls", "marked forgetful calls")),
    ("qwen3", {"messages": NO_CONTENT}, NO_CONTENT, ALL),
    ("llama3", {"messages": CALLS, "tools": TOOLS, "chat_template_kwargs": {"date_string": "26 Jul 2024"}}, CALLS, ALL),
    ("qwen3", {"messages": nulls(CALLS), "tools": json.dumps(TOOLS)}, CALLS, ALL),
    ("qwen3", {"messages": [{**m, "weight": int(i == 3)} for i, m in enumerate(TURNS)]}, TURNS, [3]),
    ("chatml", {"messages": [{**m, "train": i == 1} for i, m in enumerate(TURNS)]}, TURNS, [1]),
    ("qwen3", {"prompt": TURNS[:3], "completion": TURNS[3:]}, TURNS, [3]),
    ("thinking prompt", {"prompt": TURNS[:1], "completion": TURNS[1:2]}, TURNS[:2], [1]),
    ("chatml", {"conversations": [{"from": "human" if m["role"] == "user" else "gpt", "value": m["content"]} for m in TURNS],
                "system": "Be brief."}, [{"role": "system", "content": "Be brief."}, *TURNS], ALL),
    ("qwen3", {"conversations": [
        {"from": "human", "value": "Zürich?"},
        {"from": "function_call", "value": json.dumps(call("Zürich")["function"], ensure_ascii=False)},
        {"from": "observation", "value": "sun"}, {"from": "gpt", "value": "Sunny."}], "tools": TOOLS},
     [CALLS[0], {"role": "assistant", "tool_calls": [call("Zürich")]}, {"role": "tool", "content": "sun"}, CALLS[3]], ALL),
    ("chatml", {"instruction": "Add.", "input": "2 and 2", "output": "4"},
     [{"role": "user", "content": "Add.\n2 and 2"}, {"role": "assistant", "content": "4"}], ALL),
    ("chatml", {"messages": [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in TURNS]}, TURNS, ALL),
    ("qwen3", {"messages": TURNS[:2], "chat_template_kwargs": {"enable_thinking": False}}, TURNS[:2], ALL),
    ("qwen3", {"messages": TURNS[:2], "enable_thinking": False}, TURNS[:2], ALL),
]


def tokenizer_of(template):
    return PreTrainedTokenizerFast(tokenizer_file=str(HERE / "tokenizers" / "llama3.json"), bos_token="<|begin_of_text|>",
                                   eos_token="<|endoftext|>", chat_template=TEXTS[template])


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def samples(tokenizer, row, messages, learned):
    variables = {**row.get("chat_template_kwargs", {}), **{k: row[k] for k in ("enable_thinking", "date_string") if k in row}}
    tools = json.loads(row["tools"]) if isinstance(row.get("tools"), str) else row.get("tools")

    def apply(messages, **options):
        return tokenizer.apply_chat_template(messages, tools=tools, **variables, **options)

    marked = re.search(r"\{%-?\s*generation", tokenizer.chat_template) is not None
    found = []
    for i, message in enumerate(messages):
        if message["role"] != "assistant" or (learned is not ALL and i not in learned):
            continue
        prompt = apply(messages[:i], add_generation_prompt=True, return_dict=True)["input_ids"]
        whole = apply(messages[:i + 1], return_dict=True, return_assistant_tokens_mask=marked)
        ids, begin = whole["input_ids"], common(prompt, whole["input_ids"])
        if marked:  # what ends within the prompt belongs to earlier answers
            mask = list(whole["assistant_masks"])
            for part in re.finditer("1+", "".join(map(str, mask))):
                if part.end() <= begin:
                    mask[part.start():part.end()] = [0] * len(part.group())
        else:
            mask = [int(t >= begin) for t in range(len(ids))]
        text = apply(messages[:i + 1], tokenize=False)
        said = apply(messages[:i], tokenize=False)
        if not text.startswith(said):
            forgotten = [{k: v for k, v in m.items() if k != "reasoning_content"} for m in messages[:i]]
            short, long = (apply(m, tokenize=False, add_generation_prompt=True) for m in (forgotten, messages[:i]))
            assert text.startswith(short)
            text = long + text[len(short):]
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            # The answer is the last of the template's marks, if it has any, and may begin within the request.
            begin = max(p.start() for p in re.finditer("1+", "".join(map(str, mask)))) if marked else 0
            tail = len(whole["input_ids"]) - begin if marked else len(ids) - len(prompt)
            mask = [int(t >= len(ids) - tail) for t in range(len(ids))]
        if found and text.startswith(found[-1]["text"]):
            before = found.pop()["learned"]
            mask = [int(m or (t < len(before) and before[t])) for t, m in enumerate(mask)]
        found.append({"text": text, "ids": ids, "learned": mask})
    return [{"ids": one["ids"], "learned": one["learned"]} for one in found]


def main():
    cases = []
    for name, row, messages, learned in CASES:
        tokenizer = tokenizer_of(name)
        if name == "parts":
            messages = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in messages]
        cases.append({"template": name, "row": row, "samples": samples(tokenizer, row, messages, learned)})
    lines = ",\n".join(json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases)
    own = json.dumps(OWN, indent=0)
    (HERE / "answers.json").write_text(f'{{"templates": {own},\n"cases": [\n{lines}\n]}}\n', encoding="utf-8")
    print(len(lines.encode()), "bytes;", [len(case["samples"]) for case in cases])


if __name__ == "__main__":
    main()
