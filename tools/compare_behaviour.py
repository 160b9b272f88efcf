#!/usr/bin/env python3
"""Whether two builds behave alike: what they print, plan and write, byte for byte, but for times.

    tools/compare_behaviour.py BEFORE NOW [GROUP ...]   builds, as ../old/build/release

Meant for changes of structure, on one machine. Groups: help (usage, references, recipes as they are
read), plans (those of the recipes, with their remedies), runs (small trainings of every method, their
checkpoints and what other verbs make of them). Exit code 1: something differs.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
RECIPES = sorted(file.stem for file in (SOURCE / "recipes").glob("*.yaml"))
GPUS = "h100,rtx4090"
# Keys of log lines and reports that a clock or the operating system decides.
TIMED = re.compile(r"data|eta|mfu|mem|.*/s|verdict|process_peak|.*seconds|.*per_second")

TEXT_ALONE = "--data.format text --data.path text.txt --data.seq_len 32"
TEXT = TEXT_ALONE + " --steps 6 --batch 4 --checkpoint.every 3"
SIZES = ("--model.config.num_hidden_layers 2 --model.config.hidden_size 32 "
         "--model.config.num_attention_heads 2")
GPT = f"--model.name gpt {SIZES} {TEXT}"
LLAMA = f"--model.name llama {SIZES} {TEXT} --data.tokenizer bytes"
TABLE = "--data.format csv --data.path table.csv --data.target y --data.features [a,b] --steps 6 --batch 8"
MLP = f"--model.name mlp {TABLE}"
NET = f"net.yaml {TABLE}"
CLASSES = f"--model.name mlp --task classification {TABLE.replace('target y', 'target kind')}"


def help_commands(weft):
    """Every verb's --help, and those of the verbs within."""
    found, open_verbs = [], [[]]
    while open_verbs:
        verb = open_verbs.pop()
        found.append([*verb, "--help"])
        shown = subprocess.run([weft, *verb, "--help"], capture_output=True, text=True).stdout
        sections = re.split(r"\n(?=\S)", shown)
        for section in sections:
            head = section.split("\n")[0]
            if head not in ("Usage", "Flags", "Examples", "Environment") and not head.endswith("."):
                open_verbs += [[*verb, name] for name in re.findall(r"^  ([a-z]+)  ", section, re.M)
                               if len(verb) < 1 or head == "Verbs"]
    return found


def commands(group, weft):
    if group == "help":
        return [*help_commands(weft), ["config", "reference"], ["config", "schema"], ["list", "--json"],
                *(["config", "print", f"recipes/{name}.yaml"] for name in RECIPES)]
    if group == "plans":
        return [*(["plan", f"recipes/{name}.yaml", "--json"] for name in RECIPES if "llama-" not in name),
                *(["plan", f"recipes/{name}.yaml", "--on", GPUS] for name in RECIPES),
                ["plan", "recipes/gpt2.yaml", "--explain"],
                ["plan", "recipes/gpt2.yaml", "--memory", "1.9GiB"],
                ["plan", "recipes/resnet50.yaml", "--memory", "200MiB"]]
    return [line.split() for line in f"""
train {GPT} --name gpt
train {GPT} --name bf16 --precision bf16-mixed
train {GPT} --name fp16 --precision fp16-mixed
train {GPT} --name parts --train.micro_batch_size 2 --train.grad_clip 1
train {GPT} --name again --recompute full
train {GPT} --name files --train.offload [optimizer]
train {GPT} --name valued --data.val_split 0.2 --checkpoint.best loss
train gpt --resume --steps 9
train {LLAMA} --name llama
train {MLP} --name mlp
train {NET} --name net
train {NET} --name pruned --pruning.pattern unstructured --pruning.sparsity 0.5 --pruning.end_step 4
train {NET} --name rounded --quantization.activations dynamic
train {CLASSES} --name classes
train {CLASSES} --name student --distillation.teacher classes
eval valued
generate gpt --prompt the --max-new-tokens 12 --temperature 0
generate gpt --prompt cat --max-new-tokens 12 --seed 3
runs ls
runs show gpt
runs compare gpt bf16
ckpt ls gpt
ckpt inspect gpt
ckpt verify gpt
inspect gpt
convert llama hf --to hf
convert hf hf.gguf --to gguf
quantize hf q8 --to Q8_0
train --model.pretrained hf {TEXT} --adapter.type lora --adapter.r 2 --name lora
train --model.pretrained hf {TEXT} --name tuned
merge lora merged
generate lora --prompt the --max-new-tokens 12 --temperature 0
generate hf --prompt the --max-new-tokens 12 --temperature 0 --dtype bf16
generate q8 --prompt the --max-new-tokens 12 --temperature 0
generate hf.gguf --prompt the --max-new-tokens 12 --temperature 0
eval hf {TEXT_ALONE}
plan hf --context 32
convert net net.onnx --to onnx
inspect net.onnx
plan net.onnx
train --model.pretrained net.onnx {TABLE} --name imported
train --resume nosuch
train --data.format csv --data.path nosuch.csv --data.target y --model.name mlp --steps 3
plan {GPT} --task nonsense
""".strip().split("\n")]


def make_inputs(folder):
    draw = random.Random(1)
    sentence = "the a cat dog sat ran on mat hill and then far away".split()
    lines = (" ".join(draw.choice(sentence) for _ in range(12)) for _ in range(400))
    (folder / "text.txt").write_text("\n".join(lines) + "\n")
    rows = (f"{draw.random():.4f},{draw.random():.4f},{draw.choice('uvw')},{draw.random():.4f}"
            for _ in range(64))
    (folder / "table.csv").write_text("a,b,kind,y\n" + "\n".join(rows) + "\n")
    (folder / "net.yaml").write_text(
        "model: {layers: [{linear: {out_features: 16}}, relu, {linear: {out_features: 1}}]}\n")
    (folder / "recipes").symlink_to(SOURCE / "recipes")


def untimed(text):
    """Leaves out of JSON what is timed, and the bytes' hashes of files that have it."""
    def of(value):
        if isinstance(value, dict):
            return {key: of(item) for key, item in value.items() if not TIMED.fullmatch(key)}
        return [of(item) for item in value] if isinstance(value, list) else value

    lines = []
    for line in text.splitlines():
        try:
            lines.append(json.dumps(of(json.loads(line))))
        except json.JSONDecodeError:
            lines.append(line)
    return "\n".join(lines)


def shown(text):
    """Removes what a clock decides from a report for people."""
    text = re.sub(r"\d\d\d\d-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?", "DATE", text)
    text = re.sub(r"(?m)^.*(ms|step time|/s|process |speed| ago|in \d\d:\d\d).*$", "", text)
    text = re.sub(r"(?m)^memory( +[\d.]+ \w+)+$", "", text)  # measured
    return untimed(text)


def files_of(folder):
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and not file.is_symlink() and "recipes" not in file.parts:
            data = file.read_bytes()
            name = str(file.relative_to(folder))
            found[name] = untimed(data.decode()) if file.suffix == ".jsonl" else data
    return found


def main(before, now, *groups):
    builds = [str(pathlib.Path(build).resolve() / "weft") for build in (before, now)]
    wrong = count = 0
    for group in groups or ("help", "plans", "runs"):
        with tempfile.TemporaryDirectory() as root:
            folders = [pathlib.Path(root) / name for name in ("before", "now")]
            for folder in folders:
                folder.mkdir()
                make_inputs(folder)
            for command in commands(group, builds[0]):
                count += 1
                said = []
                for weft, folder in zip(builds, folders):
                    done = subprocess.run([weft, *command], cwd=folder, capture_output=True, text=True,
                                          env={**os.environ, "WEFT_CACHE_DIR": str(folder.parent / "cache")})
                    said.append((done.returncode, shown(done.stdout), shown(done.stderr)))
                for what, one, other in zip(("exit code", "output", "messages"), *said):
                    if one != other:
                        wrong += 1
                        print(f"weft {' '.join(command)}: another {what}\n- {one}\n+ {other}")
            written = [files_of(folder) for folder in folders]
            for name in sorted(written[0].keys() | written[1].keys()):
                if written[0].get(name) != written[1].get(name):
                    wrong += 1
                    print(f"{name}: another file")
            print(f"compare_behaviour: {group}: {len(written[1])} files", flush=True)
    print(f"compare_behaviour: {count} commands, {wrong} differences")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
