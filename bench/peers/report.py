"""Prints what run.py saw: a text table, and a Markdown one for the notebook of benchmarks."""

HEAD = ["case", "side", "median", "spread", "items/s", "first step s", "warm", "peak GB", "loss",
        "off weft's", "ratio"]


def number(value, digits=3):
    """Three significant digits at least, thousands whole."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def row(result, side):
    """A peer's ratio is its time over weft's: above 1, weft is the faster."""
    s = result["sides"][side]
    name = side + (" *" if side == result["best_peer"] else "")
    if "error" in s:
        return [result["case"], name, f"failed: {s['error'][:60]}"] + [""] * (len(HEAD) - 3)
    ratio = "-"
    if "ratio" in s:
        ratio = f"{s['ratio']:.2f} ({s['ratio_least']:.2f}-{s['ratio_most']:.2f})"
    return [result["case"], name, f"{number(s['time'])} {result['unit']}",
            f"{number(s['least'])}-{number(s['most'])}", number(s.get("items_per_s"), 4),
            number(s.get("first_step_cold_s")), number(s.get("first_step_s")),
            number(s.get("peak_rss_gb")), number(s.get("loss"), 6), number(s.get("loss_off"), 2), ratio]


def rows_of(results):
    return [row(result, side) for result in results for side in result["sides"]]


def table(results):
    rows = [HEAD, *rows_of(results)]
    # a failure's text may run over the other columns
    fits = [r for r in rows if not r[2].startswith("failed")]
    widths = [max(len(r[i]) for r in (rows if i < 2 else fits)) for i in range(len(HEAD))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows)


def headline(result):
    """Case, weft, best peer, ratio."""
    ours, best = result["sides"].get("weft", {}), result["best_peer"]
    theirs = result["sides"].get(best, {})
    cells = [result["case"]]
    for side in (ours, theirs):
        cells.append(f"{number(side['time'])} {result['unit']} ({number(side['least'])}-"
                     f"{number(side['most'])})" if "time" in side else "-")
    ratio = f"**{theirs['ratio']:.2f}** ({theirs['ratio_least']:.2f}-{theirs['ratio_most']:.2f})" \
        if "ratio" in theirs else "-"
    off = number(theirs.get("loss_off"), 2)
    memory = " / ".join(number(side.get("peak_rss_gb")) for side in (ours, theirs))
    first = " / ".join(number(side.get("first_step_cold_s")) for side in (ours, theirs))
    return [*cells, best or "-", ratio, off, memory, first]


def lines(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for r in rows:
        yield "| " + " | ".join(c.replace("|", "/") for c in r) + " |"


def markdown(document):
    versions = ", ".join(f"{k} {v}" for k, v in document["versions"].items())
    text = [f"{document['date']}, {document['machine']['processor']}, "
            f"{document['machine']['cores']} cores, {document['threads']} threads; {versions}; "
            f"`{document['command']}`", "",
            "Median of visits (least-most); ratio: peer's time over weft's in the same turn; loss "
            "off: relative difference of the last step's losses, from equal weights and batch.", ""]
    text += lines(["case", "weft", "best peer", "its setting", "ratio", "loss off", "peak GB weft / peer",
                   "first step s weft / peer"], map(headline, document["results"]))
    text += ["", "Every side (* best peer):", ""]
    text += lines(HEAD, rows_of(document["results"]))
    return "\n".join(text) + "\n"
