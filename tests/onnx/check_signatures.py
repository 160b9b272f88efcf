"""Holds the signatures of weft's operators against the onnx package's schemas.

    check_signatures.py FILE

FILE has a line for each operator and operator set: domain, name, set, the first set with the
operator, most operands and results, and attributes, as tests/onnx/opset_test.cpp writes them.
"""

import collections
import sys

import onnx

NEWEST = {"": onnx.defs.onnx_opset_version(), "ai.onnx.ml": 5}  # others have one set
OLDEST = {"": 7}
# Attributes of sets before 7, or up to 8 (spatial), that change nothing where files still have them.
HARMLESS = {"consumed_inputs", "is_test", "output_sequence", "spatial"}


def count(most):
    return "*" if most == 2**31 - 1 else str(most)


def difference(name, opset, since, got, schemas):
    """Returns what is wrong with a signature in an operator set; None if nothing."""
    until = [each for each in schemas if each.since_version <= opset]
    if (opset < since) != (not until):
        return f"it is in sets from {since} on"
    if not until:
        return None
    own = until[-1]
    want = count(own.max_input), count(own.max_output)
    if got[:2] != want:
        return f"{' -> '.join(got[:2])} and not {' -> '.join(want)}"
    attributes, older = set(got[2].split()), set().union(*(each.attributes for each in until))
    lacks, more = set(own.attributes) - attributes, attributes - set(own.attributes)
    if name == "Gemm":
        more.discard("broadcast")  # its operand broadcasts in any case
    if lacks or more - (older & HARMLESS):
        return f"lacks attributes {sorted(lacks)}, has {sorted(more)} more"
    return None


def main(file):
    history = collections.defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        history[schema.domain, schema.name].append(schema)
    wrong, checked = [], 0
    for line in open(file):
        domain, name, opset, since, *got = line.rstrip("\n").split("\t")
        if not OLDEST.get(domain, 1) <= int(opset) <= NEWEST.get(domain, 1):
            continue
        schemas = sorted(history[domain, name], key=lambda each: each.since_version)
        what = difference(name, int(opset), int(since), tuple(got), schemas)
        checked += 1
        if what:
            wrong.append(f"{domain or 'ai.onnx'}.{name}, opset {opset}: {what}")
    print(f"{checked} signatures checked against onnx {onnx.__version__}", *wrong, sep="\n")
    return 1 if wrong or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
