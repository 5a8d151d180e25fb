"""Who may reach the servers: nobody but this machine, unless a password is set."""

import pytest

from flows.access import PASSWORD, Access, open_access

SECRET = "a long secret of ours"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.7"])
def test_this_machine_alone_needs_no_password(host):
    access = open_access(host, {})
    assert (access.host, access.password) == (host, "")
    assert (access.prefect_environment, access.mlflow_arguments) == ({}, [])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "example"])
@pytest.mark.parametrize("given", ["", "kim", "kim:", "kim:short", ":" + SECRET])
def test_another_address_without_a_long_password_is_refused_and_named(host, given):
    with pytest.raises(ValueError, match=rf"--host {host} lets other machines in.*set {PASSWORD}=USER:PASSWORD.* 12 "):
        open_access(host, {PASSWORD: given})


def test_a_password_reaches_both_servers_by_their_environment_alone(tmp_path):
    access = open_access("10.0.0.5", {PASSWORD: f"kim:{SECRET}"})
    assert access.prefect_environment["PREFECT_SERVER_API_AUTH_STRING"] == f"kim:{SECRET}"
    assert access.mlflow_arguments == ["--app-name", "basic-auth"]
    environment = access.mlflow_environment(tmp_path)
    assert environment["MLFLOW_AUTH_ADMIN_USERNAME"] == "kim"
    assert environment["MLFLOW_AUTH_ADMIN_PASSWORD"] == SECRET
    written = [path.read_text() for path in tmp_path.iterdir()]
    assert len(written) == 1
    assert SECRET not in written[0] + repr(access) + "".join(access.mlflow_arguments)


def test_all_addresses_are_bound_to_and_the_machine_s_name_is_told(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "trainer")
    access = open_access("0.0.0.0", {PASSWORD: f"kim:{SECRET}"})
    assert (access.host, access.address) == ("0.0.0.0", "trainer")


def test_access_by_default_is_this_machine():
    assert Access().host == "127.0.0.1"
