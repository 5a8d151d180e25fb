"""Who may reach the servers: this machine alone, or others with a password."""

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from storage.files import write_atomic
from tasks.runtime.guarded import HOST

PASSWORD = "IGRPO_UI_PASSWORD"  # noqa: S105  # the variable's name
MIN_PASSWORD_CHARACTERS = 12  # MLflow's own rule for its first user
SEVERAL = ("0.0.0.0", "::")  # noqa: S104  # compared with, not bound to


@dataclass(frozen=True)
class Access:
    """``host`` is bound to, ``address`` is what a browser is told; ``user`` and ``password`` are "" on this machine alone.

    The password is kept out of ``repr``, command lines and files: servers get it in their environment.
    """

    host: str = HOST
    address: str = HOST
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Access(host={self.host!r}, user={self.user!r})"

    @property
    def prefect_environment(self) -> dict[str, str]:
        """Prefect's own basic authentication, for its server and its clients."""
        if not self.password:
            return {}
        both = f"{self.user}:{self.password}"
        return {"PREFECT_SERVER_API_AUTH_STRING": both, "PREFECT_API_AUTH_STRING": both}

    @property
    def mlflow_arguments(self) -> list[str]:
        return ["--app-name", "basic-auth"] if self.password else []

    def mlflow_environment(self, root: Path) -> dict[str, str]:
        """MLflow's basic authentication; its table of users is made anew at each start, so that the password may change."""
        if not self.password:
            return {}
        users, settings = root / "mlflow-users.db", root / "mlflow-users.ini"
        users.unlink(missing_ok=True)
        text = f"[mlflow]\ndefault_permission = READ\ndatabase_uri = sqlite:///{users}\n"
        write_atomic(settings, text.encode())
        return {
            "MLFLOW_AUTH_CONFIG_PATH": str(settings),
            "MLFLOW_AUTH_ADMIN_USERNAME": self.user,
            "MLFLOW_AUTH_ADMIN_PASSWORD": self.password,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": self.password,
        }


def open_access(host: str, environment: Mapping[str, str]) -> Access:
    """Access through ``host``; without a password where only this machine can reach it.

    Raises:
        ValueError: another machine could reach it, and IGRPO_UI_PASSWORD is not USER:PASSWORD with a long password.
    """
    given = environment.get(PASSWORD, "")
    if _is_loopback(host) and not given:
        return Access(host, HOST if host in ("localhost", HOST) else host)
    user, _, password = given.partition(":")
    if not user or len(password) < MIN_PASSWORD_CHARACTERS:
        raise ValueError(
            f"--host {host} lets other machines in, who could run code here: set {PASSWORD}=USER:PASSWORD in the environment, "
            f"the password of at least {MIN_PASSWORD_CHARACTERS} characters (and put TLS in front of it)"
        )
    return Access(host, socket.gethostname() if host in SEVERAL else host, user, password)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
