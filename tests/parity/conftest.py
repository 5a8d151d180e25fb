"""The largest differences to the peer, collected over the parity tests and printed at the very end; no network."""

import socket

import pytest

DIFFERENCES = pytest.StashKey[dict[str, dict[str, float]]]()


def pytest_configure(config):
    config.stash[DIFFERENCES] = {"loss": {}, "gradient": {}, "advantages": {}}


@pytest.fixture
def differences(request):
    """Quantity -> case -> relative difference, as it was measured."""
    return request.config.stash[DIFFERENCES]


@pytest.fixture(autouse=True)
def no_host_is_looked_up(monkeypatch):
    """Looked at afterwards as well: a library that sends statistics swallows the error."""
    asked = []

    def refuse(host, *args, **kwargs):
        asked.append(host)
        raise OSError(f"a parity test looked up {host!r}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    yield
    assert asked == []


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter, config):
    measured = config.stash[DIFFERENCES]
    if not all(measured.values()):
        return
    import trl

    parts = []
    for quantity, by_case in measured.items():
        worst = max(by_case, key=by_case.get)
        parts.append(f"of the {quantity} {by_case[worst]:.1e} ({worst})")
    terminalreporter.write_line(
        f"parity with TRL {trl.__version__} over {len(measured['loss'])} cases: largest relative difference "
        + ", ".join(parts)
    )
