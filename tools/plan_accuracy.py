#!/usr/bin/env python3
"""Writes docs/plan-accuracy.md: how far estimates are from published runs that no fit has seen.

    tools/plan_accuracy.py BUILD    BUILD: a build folder, whose bench/plan_accuracy estimates

Needs PyYAML.
"""
import collections
import pathlib
import statistics
import subprocess
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "bench/published"
PAGE = ROOT / "docs/plan-accuracy.md"
HEAD = """# How accurate are estimates?

`make plan-accuracy` wrote this page. It estimates the steps of published training runs (`bench/published`: source, date
and caution of each) by formula (`weft/estimate`), with constants that `tools/fit_costs.py` fitted to one half of the
runs. The rows below are of the other half, which the fit has never read. The error is (estimated / published - 1); a
published time is itself uncertain by some per cent, and a caution says where it is by more.

Constants alone (operations over the peak, times what a device, type and program reach in the median) are off by 13.2 % in
the median on the 62 language models of that half, 21 of them within 10 %.
"""


def line(name, errors):
    within = sum(abs(error) <= 10 for error in errors)
    return (f"| {name} | {len(errors)} | {statistics.median(map(abs, errors)):.1f} % | {within} | "
            f"{max(errors, key=abs):+.0f} % |")


def table(title, groups):
    rows = [f"\n## {title}\n", "| | runs | median error | within 10 % | largest |", "|---|---|---|---|---|"]
    return rows + [line(name, errors) for name, errors in groups.items()]


def estimates(program, *flags):
    """Yields each run's id, what was published, what is estimated, and the error."""
    printed = subprocess.run([program, *flags], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    for words in map(str.split, printed.splitlines()):
        yield words[0], float(words[1]), float(words[2]), float(words[3].rstrip("%"))


def memory_table(program, held_out):
    """Returns lines on the peak of memory, a run each."""
    rows, errors = [], []
    for name, published, estimated, error in estimates(program, "--memory"):
        run = held_out[name]
        errors.append(error)
        rows.append(f"| {run['id']} | {run['devices']} x {run['device']} | {run['program']} | "
                    f"{published / 2**30:.1f} GiB | {estimated / 2**30:.1f} GiB | {error:+.1f} % |")
    head = (f"\n## Memory\n\nThe peak of a device, of the {len(errors)} training runs that say it: median error "
            f"{statistics.median(map(abs, errors)):.1f} %, {sum(abs(error) <= 5 for error in errors)} within 5 %, "
            f"{sum(error < -2 for error in errors)} estimated too low by more than 2 %.\n")
    return [head, "| run | device | program | published | estimated | error |", "|---|---|---|---|---|---|", *rows]


def main():
    program = pathlib.Path(sys.argv[1]).resolve() / "bench/plan_accuracy"
    held_out = {run["id"]: run for run in yaml.safe_load((PUBLISHED / "holdout.yaml").read_text(encoding="utf-8"))}
    fitted = yaml.safe_load((PUBLISHED / "fitted.yaml").read_text(encoding="utf-8"))
    known = {(run["device"], run.get("products")) for run in fitted if "step_seconds" in run}
    by = {key: collections.defaultdict(list) for key in ("known", "device", "program", "series")}
    each = ["\n## Each run\n", "| run | device | program | published | estimated | error |", "|---|---|---|---|---|---|"]
    for name, published, estimated, error in estimates(program):
        run = held_out[name]
        is_known = (run["device"], run["products"]) in known
        by["known"]["device and type have fitted runs" if is_known else "they have none"].append(error)
        for key in ("device", "program", "series"):
            by[key][run[key]].append(error)
        each.append(f"| {run['id']} | {run['devices']} x {run['device']} | {run['program']} | {published:.4g} s | "
                    f"{estimated:.4g} s | {error:+.1f} % |")
    everything = [error for errors in by["known"].values() for error in errors]
    lines = table("All", {"all": everything, **by["known"]})
    for key in ("device", "program", "series"):
        lines += table(f"By {key}", dict(sorted(by[key].items())))
    lines += memory_table(program, held_out)
    PAGE.write_text(HEAD + "\n".join(lines + each) + "\n", encoding="utf-8")
    print("\n".join(table("All", {"all": everything, **by["known"]})))


if __name__ == "__main__":
    main()
