"""Which of a process's interpreters may import weft."""

try:
    import _interpreters as _all  # from Python 3.13 on
except ImportError:
    try:
        import _xxsubinterpreters as _all
    except ImportError:
        _all = None


def check():
    """Refuses an interpreter beside the main one, which has the library's types, as NumPy does."""
    if _all is not None and _all.get_current() != _all.get_main():
        raise ImportError("weft runs in the main interpreter of a process alone")
