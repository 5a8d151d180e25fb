"""The largest differences to the peer, collected over the parity tests and printed at the very end."""

import pytest

DIFFERENCES = pytest.StashKey[dict[str, tuple[float, float]]]()


def pytest_configure(config):
    config.stash[DIFFERENCES] = {}


@pytest.fixture
def differences(request):
    """Case -> relative differences of loss and gradient, as they were measured."""
    return request.config.stash[DIFFERENCES]


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter, config):
    measured = config.stash[DIFFERENCES]
    if not measured:
        return
    import trl

    worst_loss = max(measured, key=lambda case: measured[case][0])
    worst_gradient = max(measured, key=lambda case: measured[case][1])
    terminalreporter.write_line(
        f"parity with TRL {trl.__version__} over {len(measured)} cases: largest relative difference of the loss "
        f"{measured[worst_loss][0]:.1e} ({worst_loss}), of the gradient {measured[worst_gradient][1]:.1e} "
        f"({worst_gradient})"
    )
