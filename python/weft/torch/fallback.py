"""A graph of which weft lacks something: plans, with torch's operations between them."""

import copy
import warnings

import torch
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from .lower import Failed, line_of, origin_of, why_unsupported
from .plan import Plan
from .report import Fallback
from .rules import UNREAD, Unsupported

MOST_PLANS = 8  # in one graph, beyond which a warning says so: each crossing stores its values


class _InPlans(OperatorSupportBase):
    def __init__(self, refused):
        self._refused = refused

    def is_node_supported(self, modules, node):
        return node.op == "call_function" and node.name not in self._refused


class _Called(torch.nn.Module):
    def __init__(self, plan, is_single):
        super().__init__()
        self.plan, self.is_single = plan, is_single

    def forward(self, *args):
        outputs = self.plan(list(args))
        return outputs[0] if self.is_single else outputs


class Mixed:
    """The graph in parts, those of weft and those of torch."""

    def __init__(self, gm, options, refused):
        gm = copy.deepcopy(gm)
        self.plans = []
        partitioner = CapabilityBasedPartitioner(
            gm, _InPlans(refused), allows_single_node_partition=True
        )
        self.gm = partitioner.partition_and_fuse()
        for name, part in list(self.gm.named_children()):
            if not name.startswith("fused_"):
                continue
            output = next(n for n in part.graph.nodes if n.op == "output")
            is_single = not isinstance(output.args[0], (list, tuple))
            if is_single:
                output.args = ((output.args[0],),)
            examples = [n.meta["val"] for n in part.graph.nodes if n.op == "placeholder"]
            self.plans.append(Plan(part, examples, options))
            setattr(self.gm, name, _Called(self.plans[-1], is_single))
        self.gm.recompile()
        if len(self.plans) > MOST_PLANS:
            warnings.warn(
                f"[weft] {len(refused)} operations that torch computes cut a graph in "
                f"{len(self.plans)} plans: print(weft.torch.report()) names them",
                stacklevel=2,
            )

    def __call__(self, args):
        return self.gm(*args)


def planned(gm, examples, options, strict):
    """Returns what computes the graph, and the nodes that torch computes with their reasons.

    What a rule refuses is known only when it is lowered, so the graph is tried until nothing more
    is refused.
    """
    refused = {}
    for node in gm.graph.nodes:
        if node.op == "call_function":
            reason = why_unsupported(node)
            if reason is not None:
                refused[node.name] = node, reason
    while True:
        if strict and refused:
            node, reason = next(iter(refused.values()))
            raise Unsupported(str(fallback_of(node, reason)))
        try:
            whole = Mixed(gm, options, refused) if refused else Plan(gm, examples, options)
            return whole, list(refused.values())
        except Failed as failed:
            if failed.node.name in refused or failed.node.target in UNREAD:
                raise  # torch would read what the forward pass left out
            refused[failed.node.name] = failed.node, failed.reason


def fallback_of(node, reason):
    module = origin_of(node)[2]
    return Fallback(str(node.target), reason, line_of(node), module)
