"""What weft did with the graphs of torch.compile: plans, fallbacks, recompilations."""

import collections
import dataclasses
import html

from .. import _html, _svg


@dataclasses.dataclass(frozen=True)
class Fallback:
    """An operation that torch computes between plans, and why."""

    operation: str
    reason: str
    line: str  # "net.py:12", of the user's program; "" where it is not known
    module: str

    def __str__(self):
        where = f" ({', '.join(p for p in (self.module, self.line) if p)})"
        return f"{self.operation}: {self.reason}" + (where if where != " ()" else "")


@dataclasses.dataclass
class GraphReport:
    """One graph that torch handed over: a forward pass, a backward pass, or inference."""

    name: str
    kind: str  # "forward" | "backward" | "inference" | "step"
    operations: int
    in_plans: int
    plans: int = 0
    sizes: int = 0  # of a graph with symbolic sizes: how many were planned
    in_torch: int = 0  # calls with sizes beyond the limit, which torch computes
    seconds: float = 0.0  # lowering and planning
    arena_bytes: int = 0  # of the largest plan; all plans share one arena
    argument_bytes: int = 0  # in torch's memory, at the most in one plan
    fallbacks: list[Fallback] = dataclasses.field(default_factory=list)


def _counted(count, what):
    return f"{count} {what}" + ("" if count == 1 else "s")


class Report:
    """Collects what happened since the start, or since reset(); print it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        from torch._dynamo.utils import counters

        self.graphs: list[GraphReport] = []
        self._breaks_before = counters["graph_break"].copy()

    @property
    def plans(self) -> int:
        return sum(graph.plans for graph in self.graphs)

    @property
    def fallbacks(self) -> collections.Counter[Fallback]:
        """Fallbacks with their number of nodes."""
        return collections.Counter(f for graph in self.graphs for f in graph.fallbacks)

    @property
    def graph_breaks(self) -> dict[str, int]:
        """Reasons for which dynamo cut the program, with their number; dynamo counts them."""
        from torch._dynamo.utils import counters

        return dict(counters["graph_break"] - self._breaks_before)

    def __str__(self):
        lines = [f"weft: {_counted(len(self.graphs), 'graph')}, {_counted(self.plans, 'plan')}"]
        for graph in self.graphs:
            lines.append(
                f"  {graph.kind:9} {graph.name}: {graph.in_plans} of {graph.operations} operations "
                f"in {_counted(graph.plans, 'plan')}, {graph.seconds:.2f} s to plan, arena "
                f"{_svg.bytes_text(graph.arena_bytes)}, in torch's memory "
                f"{_svg.bytes_text(graph.argument_bytes)}"
            )
        return "\n".join([*lines, *(f"  {remark}" for remark in self._remarks())])

    def _remarks(self):
        """Returns what ran outside of plans, a line each."""
        remarks = [f"torch computes {count} of {fallback}"
                   for fallback, count in self.fallbacks.most_common()]
        remarks += [f"torch computes {graph.in_torch} calls of {graph.name}, whose sizes came "
                    f"after the first {graph.sizes}" for graph in self.graphs if graph.in_torch]
        return remarks + [f"{count} graph breaks: {reason.splitlines()[0]}"
                          for reason, count in self.graph_breaks.items()]

    __repr__ = __str__

    def _repr_html_(self):
        rows = [["graph", "pass", "operations in plans", "plans", "s to plan", "arena",
                 "in torch's memory"]]
        rows += [[g.name, g.kind, f"{g.in_plans} of {g.operations}", g.plans, f"{g.seconds:.2f}",
                  _svg.bytes_text(g.arena_bytes), _svg.bytes_text(g.argument_bytes)]
                 for g in self.graphs]
        items = "".join(f"<li>{html.escape(remark)}</li>" for remark in self._remarks())
        return _html.table(rows) + (f"<ul>{items}</ul>" if items else "")


_report = Report()


def report() -> Report:
    """Returns the report of this process."""
    return _report
