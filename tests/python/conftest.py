"""What the tests of the Python package share: `make test-python` runs those that are not slow."""


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes seconds to minutes; `make test-all` runs it")
