"""The memory of this process."""

import resource


def resident_bytes():
    """Returns the bytes that this process has in memory now; 0 where /proc is not mounted."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


_before = resident_bytes()
from . import _weft  # noqa: E402,F401

# What a plan counts as weft's own, and the process has from here on.
LIBRARY_BYTES = max(resident_bytes() - _before, 0)
