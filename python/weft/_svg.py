"""Draws plans and losses as SVG, which notebooks and browsers show, without a plotting package."""

import html
import math

WIDTH, HEIGHT = 760, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 560, 34, 256  # the plot area; the legend is right of it
_INK, _PALE = "#333333", "#dddddd"
# Colours that can be told apart (Tableau 10). What memory is for has the same in every picture.
_PALETTE = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#ff9da7",
            "#9c755f")
_OTHER = "#bab0ac"
_PURPOSES = ("parameters", "optimizer", "buffers", "activations", "gradients", "workspace",
             "outputs", "inputs", "copies")


def _colour(purpose):
    purpose = purpose.removesuffix(" state")
    return _PALETTE[_PURPOSES.index(purpose)] if purpose in _PURPOSES else _OTHER


def bytes_text(amount):
    """Returns bytes as the command line writes them: "512 B", "1.5 GiB"."""
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    place = 0
    while amount >= 1024 and place + 1 < len(units):
        amount, place = amount / 1024, place + 1
    return f"{amount:.{int(place > 0 and amount < 99.95)}f} {units[place]}"


class _Canvas:
    """Shapes in pixels; (0, 0) is top left."""

    def __init__(self, title, height=HEIGHT):
        self._height = height
        self._parts = []
        self.text(8, 18, title, size=14)

    def line(self, x, y, to_x, to_y, colour=_INK, dashed=False):
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" '
                           f'stroke="{colour}"{dash}/>')

    def rectangle(self, x, y, width, height, colour):
        self._parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
                           f'height="{height:.1f}" fill="{colour}"/>')

    def path(self, points, colour, filled):
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        look = f'fill="{colour}"' if filled else f'fill="none" stroke="{colour}" stroke-width="1.5"'
        self._parts.append(f'<poly{"gon" if filled else "line"} points="{drawn}" {look}/>')

    def text(self, x, y, text, anchor="start", size=12):
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{_INK}" '
                           f'text-anchor="{anchor}">{html.escape(text)}</text>')

    def legend(self, row, colour, label):
        y = _TOP + 20 * row
        self.rectangle(_RIGHT + 16, y, 12, 12, colour)
        self.text(_RIGHT + 34, y + 10, label)

    def axes(self, x_ticks, y_ticks, below):
        """Ticks are pairs of a pixel and its label."""
        for y, label in y_ticks:
            self.line(_LEFT, y, _RIGHT, y, _PALE)
            self.text(_LEFT - 6, y + 4, label, "end")
        for x, label in x_ticks:
            self.line(x, _BOTTOM, x, _BOTTOM + 4)
            self.text(x, _BOTTOM + 17, label, "middle")
        self.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM)
        self.line(_LEFT, _TOP, _LEFT, _BOTTOM)
        self.text((_LEFT + _RIGHT) / 2, _BOTTOM + 36, below, "middle")

    def __str__(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self._height}" '
                f'viewBox="0 0 {WIDTH} {self._height}" font-family="sans-serif">'
                f'<rect width="{WIDTH}" height="{self._height}" fill="white"/>'
                + "".join(self._parts) + "</svg>")


def _ticks(first, last, unit=1):
    """Returns four to seven round multiples of `unit` from `first` to `last`."""
    span = (last - first) / unit
    power = 10 ** math.floor(math.log10(span / 5))
    step = next(f * power for f in (1, 2, 5, 10) if span / (f * power) <= 6) * unit
    return [step * i for i in range(math.ceil(first / step), math.floor(last / step) + 1)]


def _scale(first, last, from_pixel, to_pixel):
    return lambda value: from_pixel + (value - first) / (last - first) * (to_pixel - from_pixel)


def _steps(points, end):
    """Returns the corners of a line that keeps each point's height until the next one, or `end`."""
    corners = points[:1]
    for x, y in points[1:]:
        if y != corners[-1][1]:
            corners += [(x, corners[-1][1]), (x, y)]
    return corners + [(end, corners[-1][1])] if corners else []


def memory_svg(title, state, live, arena_bytes):
    """Draws the bytes that are live during each kernel of a plan: `live` of the arena, by category,
    on top of `state`, which is there throughout. A dashed line is what the plan takes."""
    kernels = max(map(len, live.values()), default=0)
    layers = {name: [float(amount)] * kernels for name, amount in state.items() if amount}
    for name, amounts in live.items():
        layers[name] = [sum(both) for both in zip(amounts, layers.get(name, [0] * kernels))]
    totals = [sum(column) for column in zip(*layers.values())]
    planned = sum(state.values()) + arena_bytes
    small = [name for name, amounts in layers.items() if max(amounts, default=0) < planned / 300]
    if len(small) > 1:
        layers["other"] = [sum(column) for column in zip(*map(layers.pop, small))]
    x = _scale(0, max(kernels, 1), _LEFT, _RIGHT)
    y = _scale(0, max(planned, 1) * 1.08, _BOTTOM, _TOP)
    canvas = _Canvas(title)
    unit = 1024 ** int(math.log(max(planned, 1), 1024))
    canvas.axes([(x(k), f"{k:g}") for k in _ticks(0, max(kernels, 1)) if k == int(k)],
                [(y(b), bytes_text(b)) for b in _ticks(0, max(planned, 1), unit)],
                "kernel of the plan")
    # A column of two pixels shows the kernel of those in it at which the most bytes are live.
    width = max(1, math.ceil(2 * kernels / (_RIGHT - _LEFT)))
    columns = [(k, min(k + width, kernels), max(range(k, min(k + width, kernels)),
                                                key=totals.__getitem__))
               for k in range(0, kernels, width)]
    below = [0.0] * len(columns)
    for row, (name, amounts) in enumerate(layers.items()):
        above = [b + amounts[shown] for b, (_, _, shown) in zip(below, columns)]
        upper, lower = (_steps([(x(k), y(bytes)) for bytes, (k, _, _) in zip(edges, columns)],
                               x(kernels)) for edges in (above, below))
        colour = _colour(name)
        canvas.path(upper + lower[::-1], colour, filled=True)
        canvas.legend(row, colour, name)
        below = above
    canvas.line(_LEFT, y(planned), _RIGHT, y(planned), dashed=True)
    canvas.text(_RIGHT, y(planned) - 4, f"planned: {bytes_text(planned)}", "end")
    if totals:
        canvas.text(_RIGHT + 16, _BOTTOM - 14, f"most: {bytes_text(max(totals))}")
        canvas.text(_RIGHT + 16, _BOTTOM, f"at kernel {totals.index(max(totals))} of {kernels}")
    return str(canvas)


def bars_svg(title, amounts):
    """Draws amounts of bytes as bars, the first on top."""
    amounts = {name: amount for name, amount in amounts.items() if amount}
    canvas = _Canvas(title, 40 + 22 * len(amounts))
    most = max(amounts.values(), default=1)
    for row, (name, amount) in enumerate(amounts.items()):
        top = 32 + 22 * row
        length = (_RIGHT - 150) * amount / most
        canvas.text(142, top + 12, name, "end")
        canvas.rectangle(150, top, max(length, 1), 16, _colour(name))
        canvas.text(150 + length + 6, top + 12, bytes_text(amount))
    return str(canvas)


def curves_svg(title, curves, below="step"):
    """Draws curves by name, each a list of pairs of a step and a value."""
    curves = {name: [(s, v) for s, v in points if math.isfinite(v)]
              for name, points in curves.items()}
    every = [point for points in curves.values() for point in points]
    steps, values = [s for s, _ in every] or [0], [v for _, v in every] or [0]
    least, most = min(values), max(values)
    margin = 0.05 * (most - least) or abs(most) / 2 or 1
    first, last = min(steps), max(max(steps), min(steps) + 1)
    x = _scale(first, last, _LEFT, _RIGHT)
    y = _scale(least - margin, most + margin, _BOTTOM, _TOP)
    canvas = _Canvas(title)
    canvas.axes([(x(s), f"{s:g}") for s in _ticks(first, last) if s == int(s)],
                [(y(v), f"{v:.4g}") for v in _ticks(least - margin, most + margin)], below)
    for row, (name, points) in enumerate(curves.items()):
        colour = _PALETTE[row % len(_PALETTE)]
        stride = max(1, len(points) // (_RIGHT - _LEFT))
        canvas.path([(x(s), y(v)) for s, v in points[::stride]], colour, filled=False)
        last_value = f" {points[-1][1]:.4g}" if points else ""
        canvas.legend(row, colour, f"{name}{last_value}")
    return str(canvas)
