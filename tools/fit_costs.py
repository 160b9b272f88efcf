#!/usr/bin/env python3
"""Fits the constants of estimates (catalogue/costs/fitted.yaml) to measured runs.

    tools/fit_costs.py BUILD            writes catalogue/costs/fitted.yaml
    tools/fit_costs.py BUILD --check    says what each run would be estimated at if it were not known

BUILD is a build folder; its bench/plan_accuracy computes the estimates. Needs NumPy, SciPy and PyYAML.

A constant is the prior (catalogue/costs/priors.yaml) times a factor, whose logarithm is drawn to zero by the
spread in SPREAD: a device's constant stays near its architecture's unless its own runs ask for another.
Runs that are held out (bench/published/holdout.yaml) are never read here: plan_accuracy refuses them.
"""
import math
import pathlib
import random
import subprocess
import sys
import typing

import numpy
import yaml
from scipy.optimize import least_squares

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRIORS = ROOT / "catalogue/costs/priors.yaml"
COSTS = ROOT / "catalogue/costs/fitted.yaml"
MODELS = ROOT / "bench/published/models.yaml"
RUNS = ROOT / "bench/published/fitted.yaml"
NUMBERS = ("f32", "tf32", "f16", "bf16", "f8", "f4")
MEASURED = 0.05  # what a published time is off by, at one standard deviation

# How far a constant may be from its parent's, in the logarithm: for all, for an architecture beside all,
# for a device beside its architecture, for a program beside all, for a program on an architecture beside
# the program. 0: the scope has none.
SPREAD = {
    "bandwidth": (0.08, 0.06, 0, 0, 0),
    "ramp": (0.5, 0, 0, 0, 0),
    "unaligned": (0.4, 0, 0, 0, 0),
    "tile.waste": (0.4, 0, 0, 0, 0),
    "power.exponent": (0.2, 0, 0, 0, 0),
    "casts": (0.4, 0, 0, 0, 0),
    "products.grouped": (0.2, 0, 0, 0, 0),
    "attention": (0.1, 0.1, 0, 0.1, 0.2),
    "attention.narrow": (0.15, 0, 0, 0, 0),
    "attention.backward": (0.1, 0, 0, 0, 0),
    "attention.unfused": (0.3, 0, 0, 0, 0),
    "attention.passes": (0.2, 0, 0, 0.2, 0),
    "rows": (0.2, 0, 0, 0.35, 0),
    "rows.routing": (0.3, 0, 0, 0, 0),
    "rows.convolution": (0.3, 0.2, 0, 0, 0),
    "logits.bytes": (0.3, 0, 0, 0.2, 0),
    "convolution.ramp": (0.6, 0, 0, 0, 0),
    "link.near": (0.15, 0, 0, 0, 0),
    "link.far": (0.15, 0, 0, 0, 0),
    "exposed.tensor": (0.1, 0, 0, 0.3, 0),
    "exposed.context": (0.4, 0, 0, 0, 0),
    "exposed.expert": (0.3, 0, 0, 0, 0),
    "hidden.shards": (0.1, 0, 0, 0, 0),
    "hidden.replicas": (0.15, 0, 0, 0, 0),
    "straggling": (0.5, 0, 0, 0, 0),
    "pace": (0, 0, 0, 0.1, 0.06),
    **{f"products.{number}": (0.12, 0.12, 0.06, 0, 0) for number in NUMBERS},
    **{f"convolution.{number}": (0.2, 0.3, 0.06, 0, 0) for number in ("f32", "tf32", "f16", "bf16")},
}


class Estimates:
    """The program that estimates all runs anew for each set of constants."""

    def __init__(self, build):
        self.process = subprocess.Popen(
            [build / "bench/plan_accuracy", "--constants", PRIORS, "--models", MODELS, "--runs", RUNS, "--vary"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.runs = []
        for line in self.process.stdout:
            if not line.strip():
                break
            self.runs.append(dict(zip(("id", "device", "architecture", "program", "number", "seconds"), line.split())))
        self.measured = numpy.log([float(run["seconds"]) for run in self.runs])

    def __call__(self, constants):
        words = " ".join(f"{name} {scope} {value:.9g}" for (name, scope), value in constants.items())
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return numpy.log([float(word) for word in self.process.stdout.readline().split()])


class Unknown(typing.NamedTuple):
    """A constant of one scope, as a factor of its parent's."""
    name: str
    scope: str
    parent: str | None
    spread: float


def unknowns(runs):
    """Lists what these runs may say something of, parents before those that refer to them."""
    result = []
    for name, (of_all, of_architecture, of_device, of_program, of_both) in SPREAD.items():
        number = name.rpartition(".")[2]
        told = [run for run in runs if number not in NUMBERS or run["number"] == number]
        if not told:
            continue
        add = lambda scope, parent, spread: result.append(Unknown(name, scope, parent, spread))
        if of_all:
            add("all", None, of_all)
        if of_architecture:
            for scope in sorted({run["architecture"] for run in told}):
                add(scope, "all", of_architecture)
        if of_device:
            for scope, parent in sorted({(run["device"], run["architecture"]) for run in told}):
                add(scope, parent, of_device)
        if of_program:
            for scope in sorted({run["program"] for run in told}):
                add(scope, "all", of_program)
        if of_both:
            for program, architecture in sorted({(run["program"], run["architecture"]) for run in told}):
                add(f"{program}@{architecture}", program, of_both)
    return result


def constants_of(unknown, priors, x):
    values = {}
    for each, step in zip(unknown, x):
        prior = priors[each.name]
        value = prior.get(each.scope, prior.get(each.parent, prior["all"]))
        if each.parent is not None:  # moves with its parent
            of_parent = prior.get(each.parent, prior["all"])
            value *= values.get((each.name, each.parent), of_parent) / of_parent
        values[each.name, each.scope] = value * math.exp(step * each.spread)
    return values


def fit(estimates, priors, known):
    """Fits to the runs of the mask `known`, and returns the constants."""
    unknown = unknowns([run for run, use in zip(estimates.runs, known) if use])
    at = lambda x: estimates(constants_of(unknown, priors, x))

    def residuals(x):
        return numpy.concatenate([(at(x) - estimates.measured)[known] / MEASURED, x])

    def jacobian(x):
        here, step = at(x), 0.02
        columns = []
        for i in range(len(x)):
            moved = x.copy()
            moved[i] += step
            columns.append((at(moved) - here)[known] / MEASURED / step)
        return numpy.vstack([numpy.array(columns).T, numpy.eye(len(x))])

    found = least_squares(residuals, numpy.zeros(len(unknown)), jac=jacobian, loss="soft_l1", max_nfev=12)
    return constants_of(unknown, priors, found.x)


def show(title, off, runs, most=12):
    percent = 100 * numpy.abs(numpy.exp(off) - 1)
    print(f"{title}: median {numpy.median(percent):.1f} %, {(percent <= 10).sum()} of {len(percent)} within 10 %")
    for i in numpy.argsort(-percent)[:most]:
        print(f"  {100 * (math.exp(off[i]) - 1):+6.1f} %  {runs[i]['id']}")


def write(priors, constants):
    lines = ["# The constants of estimates, as tools/fit_costs.py fitted them to bench/published/fitted.yaml.",
             "# priors.yaml says what they mean. Written by the program: run it rather than edit this."]
    for name, prior in priors.items():
        scopes = {**prior, **{scope: value for (of, scope), value in constants.items() if of == name}}
        lines.append(f"{name}: {{" + ", ".join(f"{scope}: {value:.4g}" for scope, value in scopes.items()) + "}")
    COSTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main():
    priors = yaml.safe_load(PRIORS.read_text(encoding="utf-8"))
    estimates = Estimates(pathlib.Path(sys.argv[1]))
    runs, count = estimates.runs, len(estimates.runs)
    show("without a fit", estimates({}) - estimates.measured, runs)
    constants = fit(estimates, priors, numpy.ones(count, bool))
    show("fitted", estimates(constants) - estimates.measured, runs)
    if "--check" not in sys.argv:
        write(priors, constants)
        return
    order, folds, off = random.Random(1).sample(range(count), count), 8, numpy.zeros(count)
    for fold in range(folds):
        known = numpy.ones(count, bool)
        known[order[fold::folds]] = False
        error = estimates(fit(estimates, priors, known)) - estimates.measured
        off[~known] = error[~known]
    show("each eighth estimated by the others", off, runs, 40)


if __name__ == "__main__":
    main()
