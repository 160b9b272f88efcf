"""Prints the results of run.py: a text table of each case, and Markdown for docs/benchmarks.md."""
import statistics

from workloads import CASES

HEAD = ["case", "side", "median", "spread", "items/s", "first step s", "warm", "peak GB", "loss",
        "off weft's", "ratio"]


def number(value, digits=3):
    """Formats at least three significant digits, without cutting thousands."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def percent(part, whole):
    return f"{100 * part / whole:.0f} %" if part and whole else "-"


def row(result, side):
    """Formats a side; a peer's ratio is its time over weft's: above 1, weft is faster."""
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
    # The text of a failure may extend over the other columns.
    fits = [r for r in rows if not r[2].startswith("failed")]
    widths = [max(len(r[i]) for r in (rows if i < 2 else fits)) for i in range(len(HEAD))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths)).rstrip() for r in rows)


def lines(head, rows):
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for r in rows:
        yield "| " + " | ".join(c.replace("|", "/") for c in r) + " |"


# ---- rows of steps

def weft_of(result):
    side = result["sides"].get("weft", {})
    return side if "time" in side else None


def peers_cell(result):
    cells = []
    for name, side in result["sides"].items():
        if name == "weft":
            continue
        text = f"{name.replace('-channels-last', ' last')} {number(side.get('time'))}"
        cells.append(f"**{text}**" if name == result["best_peer"] else text)
    return "; ".join(cells) or "-"


def goals(result):
    """Yields (what, reached, goal) for each goal of a measured case."""
    case, weft = CASES.get(result["case"]), weft_of(result)
    if case is None or weft is None:
        return []
    limits, best = result.get("limits", {}), result["sides"].get(result["best_peer"], {})
    found = []
    if case.ratio and "ratio" in best:
        found.append((f"{case.ratio:g}x", best["ratio"], case.ratio))
    if case.ceiling and limits.get("products_ms"):
        found.append((f"{100 * case.ceiling:.0f} % of the products",
                      limits["products_ms"] / weft["time"], case.ceiling))
    if case.floor and limits.get("floor_ms"):
        found.append((f"{100 * case.floor:.0f} % of the floor",
                      limits["floor_ms"] / weft["time"], case.floor))
    return found


def missed(result):
    return [what for what, reached, goal in goals(result) if reached < goal]


def step_row(result):
    weft, best = weft_of(result), result["sides"].get(result["best_peer"], {})
    limits, case = result.get("limits", {}), CASES.get(result["case"])
    cells = [case.title if case else result["case"]]
    if weft is None:
        return [*cells, "failed"] + ["-"] * 6
    time = weft["time"]
    cells.append(f"{number(time)} {result['unit']} ({number(weft['least'])}-{number(weft['most'])})")
    cells.append(peers_cell(result))
    cells.append(f"{best['ratio']:.2f} ({best['ratio_least']:.2f}-{best['ratio_most']:.2f})"
                 if "ratio" in best else "-")
    bound = "arithmetic" if limits.get("compute_ms", 0) > limits.get("memory_ms", 0) else "memory"
    floor = limits.get("floor_ms")
    cells.append(f"{percent(floor, time)} of {number(floor)} ms ({bound})" if floor else "-")
    products = limits.get("products_ms")
    cells.append(f"{percent(products, time)} of {number(products)} ms" if products else "-")
    cells.append(number(best.get("loss_off"), 2))
    verdicts = [f"{what} {'met' if reached >= goal else 'missed'}"
                for what, reached, goal in goals(result)]
    return [*cells, "; ".join(verdicts) or "-"]


STEP_HEAD = ["workload", "weft", "peers, ms", "ratio to the best", "floor reached",
             "products alone", "loss off", "goals"]


# ---- the other rows

def memory_rows(results):
    result = results.get("gpt2-4x64")
    if not result:
        return
    sides = [f"{name} {number(side['peak_rss_gb'])}" for name, side in result["sides"].items()
             if side.get("peak_rss_gb")]
    yield ["peak memory of the process, GPT-2 4 x 64, GB", "; ".join(sides), "weft at most 1.8"]


def plan_rows(results):
    seen = {name: r["limits"] for name, r in results.items() if "arena_bytes" in r.get("limits", {})}
    if not seen:
        return
    # "Used" ends at the last byte that is touched; a kernel may leave the end of its workspace
    # unused.
    unused = {name: (l["arena_bytes"] - l["used_arena_bytes"]) / max(1, l["arena_bytes"])
              for name, l in seen.items()}
    most = max(unused, key=unused.get)
    over = [name for name in unused if unused[name] < 0]
    yield ["arena used against planned", f"equal to the byte in {list(unused.values()).count(0)} of "
           f"{len(unused)}; most unused: {most}, {unused[most]:.2%}"
           + (f"; beyond the plan: {', '.join(over)}" if over else ""), "equal"]
    left = {name: l["planned_process_bytes"] / 2**20 - l["peak_rss_gb"] * 1e9 / 2**20
            for name, l in seen.items()}
    allowed = {name: max(32, 0.02 * l["planned_process_bytes"] / 2**20) for name, l in seen.items()}
    worst = max(left, key=lambda name: max(left[name] / allowed[name], -left[name]))
    within = sum(0 <= left[name] <= allowed[name] for name in left)
    yield ["process below its plan", f"within 2 % or 32 MiB in {within} of {len(left)}; farthest off: "
           f"{worst}, {abs(left[worst]):.0f} MiB {'below' if left[worst] >= 0 else 'above'}", "2 % or 32 MiB, never over"]


def time_rows(results):
    """Compares plans at the roofline, and with kernel times from an earlier process."""
    ratios = {}
    for name, result in results.items():
        weft, profile = weft_of(result), result.get("profile", {})
        if weft and profile.get("kernels_ms") and result["unit"] == "ms":
            ratios[name] = (profile["roofline_ms"] / weft["time"],
                            profile["kernels_ms"] / weft["time"])
    if ratios:
        planned, calibrated = zip(*ratios.values())
        worst = max(ratios, key=lambda name: abs(ratios[name][1] - 1))
        within = sum(abs(c - 1) <= 0.05 for c in calibrated)
        yield ["planned step time, at the roofline of the machine", "median "
               f"{statistics.median(planned):.2f} of the measured ({min(planned):.2f}-{max(planned):.2f})",
               "-"]
        yield ["the same from the kernels' times in another process", f"within 5 % in {within} of "
               f"{len(ratios)}; farthest off: {worst}, {ratios[worst][1]:.2f} of the measured", "5 %"]


def update_row(results):
    adamw, gpt2 = results.get("adamw"), results.get("gpt2-4x64")
    if not adamw or not gpt2 or not adamw["best_peer"]:
        return
    rows = gpt2.get("profile", {}).get("operations", [])
    inside = sum(r["ms"] for r in rows if r["operation"] == "update")
    peer = adamw["sides"][adamw["best_peer"]]["time"]
    if inside:
        yield ["AdamW inside GPT-2's step, 4 x 64", f"{number(inside)} ms, {inside / peer:.2f} of the "
               f"fused peer's {number(peer)} ms alone", "0.6"]


def fact_rows(document):
    results, found = document["results"], document["facts"]
    if s := found.get("start"):
        yield ["start to first GPT-2 step done, less one step, s", f"weft {number(s['cold'])} with "
               f"an empty cache, {number(s['warm'])} warm; eager {number(s['eager'])} (its reading of "
               "the weights left out)", "0.5; 0.25"]
    yield from memory_rows(results)
    yield from update_row(results)
    if ns := found.get("dispatch", {}).get("ns"):
        yield ["a kernel of one element, ns", number(ns), "100"]
    yield from plan_rows(results)
    yield from time_rows(results)


def reasons(results):
    """Prints the time by kind of operation for rows that miss a goal."""
    for name, result in results.items():
        profile = result.get("profile", {})
        if not missed(result) or not profile.get("operations"):
            continue
        whole = sum(r["ms"] for r in profile["operations"])
        parts = ", ".join(f"{r['operation']} {number(r['ms'])} ms" for r in profile["operations"]
                          if r["ms"] > 0.01 * whole)
        yield f"- {CASES[name].title} misses {' and '.join(missed(result))}: {parts}. " \
              f"{profile['bottleneck']}"


def peaks_of(results):
    seen = [r["limits"]["peaks"] for r in results.values() if "peaks" in r.get("limits", {})]
    for key, name in (("f32", "GFLOP/s f32"), ("bf16", "bf16"), ("bandwidth", "GB/s")):
        values = [peaks[key] for peaks in seen]
        if values:
            yield f"{number(min(values))}-{number(max(values))} {name}"


def markdown(document):
    who, results = document["identity"], document["results"]
    versions = ", ".join(f"{k} {v}" for k, v in who["versions"].items())
    text = [f"{document['date']}, {who['machine']['processor']}, {who['machine']['cores']} cores, "
            f"{who['threads']} threads; {versions}; {document['seconds'] / 60:.0f} minutes of "
            f"`{document['command']}`.", ""]
    if peaks := ", ".join(peaks_of(results)):
        text += [f"Peaks, measured before each case: {peaks}.", ""]
    text += ["Median of visits (least-most). Ratio: the best peer's time over that of weft just before "
             "it. Floor: operations over the peak (of the rows of the last four: the same kernels on rows "
             "in the caches) or least bytes over the bandwidth, the longer. "
             "Products alone: each matrix product and convolution by the fastest kernel there is for "
             "it. Loss off: relative difference of the last losses, from equal weights and batch.", ""]
    text += lines(STEP_HEAD, map(step_row, results.values()))
    rows = list(fact_rows(document))
    if rows:
        text += ["", *lines(["", "measured", "goal"], rows)]
    why = list(reasons(results))
    if why:
        text += ["", "Where the time goes:", "", *why]
    text += ["", "Every side (* best peer):", ""]
    text += lines(HEAD, rows_of(results.values()))
    return "\n".join(text) + "\n"
