"""weft.progress(): one line that follows a loop."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Generic, SupportsFloat, TypeVar

from . import _svg


Item = TypeVar("Item")


def _notebook() -> Any:
    """Returns Jupyter's display function where a notebook runs the program."""
    ipython = sys.modules.get("IPython")  # which a notebook has imported
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display


def _time(seconds):
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Progress(Generic[Item]):
    """The items of a loop, with a line that says how far it is; see weft.progress()."""

    def __init__(self, items: Iterable[Item], total: int | None = None) -> None:
        self._items = items
        self.total = total if total is not None else getattr(items, "__len__", lambda: None)()
        self.done = 0
        # By name, pairs of an item's number and the value that was shown for it.
        self.values: dict[str, list[tuple[int, float]]] = {}
        self._shown = 0  # items of earlier loops over this progress

    def show(self, **values: SupportsFloat) -> None:
        """Shows values behind the line, as show(loss=loss), and keeps them for the curve."""
        for name, value in values.items():
            # torch warns where float() takes a tensor with a gradient.
            number = float(value.item() if hasattr(value, "item") else value)
            self.values.setdefault(name, []).append((self._shown + self.done, number))

    def __len__(self) -> int:
        if self.total is None:
            raise TypeError("the items of this loop have no length")
        return self.total

    def __iter__(self) -> Iterator[Item]:
        self._shown, self.done = self._shown + self.done, 0
        line = _Line(self)
        try:
            for item in self._items:
                try:
                    yield item
                finally:  # the loop may end in the middle of an item
                    self.done += 1
                line.follow()
        finally:
            line.end()

    def line(self, seconds: float | None = None) -> str:
        """Returns the line: items, values and, where it is told the seconds so far, the rate."""
        of = "" if self.total is None else f"/{self.total}"
        parts = [f"{self.done}{of}"]
        if self.done and seconds is not None:
            rate = self.done / max(seconds, 1e-9)
            parts.append(f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each")
            left = (self.total - self.done) / rate if self.total else 0
            parts.append(f"{_time(left)} left" if left > 0 else f"in {_time(seconds)}")
        parts += [f"{name} {points[-1][1]:.4g}" for name, points in self.values.items()]
        return "  ".join(parts)

    def svg(self) -> str:
        """Returns a picture of the values that were shown, as SVG text."""
        return _svg.curves_svg(", ".join(self.values), self.values)

    def __repr__(self):
        return f"<weft.progress: {self.line()}>"

    def _repr_html_(self):
        return self.svg() if self.values else f"<pre>{self.done} items</pre>"


class _Line:
    """Writes a progress: one line of a terminal, one display of a notebook, nothing elsewhere."""

    def __init__(self, progress):
        self._progress = progress
        self._begin = self._written = time.perf_counter()
        self._display = _notebook()
        self._handle = None
        is_terminal = self._display is None and sys.stderr is not None and sys.stderr.isatty()
        self._every = 0.1 if is_terminal else 0.5 if self._display else None  # seconds

    def follow(self):
        if self._every is None:
            return
        now = time.perf_counter()
        if now - self._written >= self._every:
            self._written = now
            self._write("")

    def end(self):
        if self._every is not None:
            self._write("\n")

    def _write(self, end):
        text = self._progress.line(time.perf_counter() - self._begin)
        if self._display is None:
            print(f"\r{text}\x1b[K", end=end, file=sys.stderr, flush=True)
            return
        data = {"text/plain": text}
        if end and any(len(points) > 1 for points in self._progress.values.values()):
            data["text/html"] = f"<pre>{text}</pre>{self._progress.svg()}"
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def progress(items: Iterable[Item], total: int | None = None) -> Progress[Item]:
    """Follows a loop by one line: how far it is, its rate, the time left, and values of it.

        for x, y in (run := weft.progress(loader)):
            run.show(loss=step(x, y))

    A terminal has the line on stderr; a notebook has one display, which is updated and ends with
    the curve of the values; where neither is there, nothing is written. `total` is the number of
    items where they have no length.
    """
    return Progress(items, total)
