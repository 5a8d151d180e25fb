"""The command lines that shut a program in."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tasks.verifiers.call_kinds import Isolation

HERE = Path(__file__).resolve().parent / "sandboxed"
ROOT = HERE.parents[2]
PACKAGE = "tasks.verifiers.sandboxed"
HARNESS = "/harness/tasks/verifiers/sandboxed"

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")

NOBODY = 65534
TMP = "/tmp"  # noqa: S108  # the sandbox's own
TMP_BYTES = 16 << 20

INSTALL = "install it (Debian, Ubuntu: apt-get install bubblewrap)"
SANDBOX_CURE = (
    "bubblewrap >= 0.8 must be allowed to make user namespaces (see `igrpo doctor`); or name the weaker "
    'isolation = "process"'
)

NAMESPACES = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
)
ENVIRONMENT = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "HOME": TMP}
"""Of every program: text is UTF-8 whatever the machine's locale is, and the order of sets is the same in each run."""

FLAGS = ("-S", "-s", "-P", "-B", "-X", "utf8")
"""Of the interpreter: no site-packages, the folder of the program not on the path, no byte code written, UTF-8."""


class SandboxError(Exception):
    """The sandbox itself failed: it says nothing about the program. The message names the cure."""


@dataclass(frozen=True)
class Limits:
    """Of each process in a sandbox; set inside, for outside they would count for the sandbox's own start."""

    memory_bytes: int
    cpu_seconds: int
    num_processes: int = 16
    """Processes and threads, all together."""
    num_files: int = 64
    file_bytes: int = 16 << 20

    def of_resources(self) -> dict[str, int]:
        """By the kernel's names."""
        return {
            "RLIMIT_AS": self.memory_bytes,
            "RLIMIT_CPU": self.cpu_seconds,
            "RLIMIT_NPROC": self.num_processes,
            "RLIMIT_NOFILE": self.num_files,
            "RLIMIT_FSIZE": self.file_bytes,
            "RLIMIT_CORE": 0,
            "RLIMIT_MSGQUEUE": 0,
        }


@cache
def interpreter() -> str:
    """The interpreter itself, not the link to it in a virtual environment."""
    return os.path.realpath(sys.executable)


@cache
def visible_files() -> tuple[str, ...]:
    """bubblewrap's arguments for all that a program can see: the interpreter, its standard library and the C libraries."""
    standard = sysconfig.get_path("stdlib", vars={"installed_base": sys.base_prefix, "base": sys.base_prefix})
    platform = sysconfig.get_path(
        "platstdlib", vars={"platbase": sys.base_prefix, "installed_platbase": sys.base_prefix}
    )
    shared = Path(str(sysconfig.get_config_var("LIBDIR"))) / str(sysconfig.get_config_var("INSTSONAME"))
    libraries = f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}"
    libraries = libraries if Path(libraries).is_dir() else "/usr/lib"
    found = [interpreter(), standard, platform, str(shared), libraries, "/usr/lib64", "/etc/ld.so.cache"]
    paths = [path for path in dict.fromkeys(found) if Path(path).exists()]
    parents = sorted(
        {str(parent) for path in [*paths, *DEVICES, HARNESS] for parent in Path(path).parents if parent != Path("/")}
    )
    arguments = [word for parent in parents for word in ("--perms", "0755", "--dir", parent)]
    for path in paths:
        if not any(path != other and Path(path).is_relative_to(other) for other in paths):
            arguments += ["--ro-bind", path, path]
    for folder in ("/lib", "/lib64"):
        if Path(folder).is_symlink():
            arguments += ["--symlink", os.readlink(folder), folder]
        elif Path(folder).exists():
            arguments += ["--ro-bind", folder, folder]
    for device in DEVICES:
        arguments += ["--dev-bind", device, device]
    for folder in ("site-packages", "dist-packages"):  # installed packages lie inside the standard library's folder
        if (Path(standard) / folder).is_dir():
            arguments += ["--tmpfs", str(Path(standard) / folder)]
    return tuple(arguments)


def command(
    isolation: Isolation, module: str, instructions: int, ready: int, *, status: int, call_filter: int | None
) -> list[str]:
    """The command line that runs a module's ``main`` shut in.

    Args:
        isolation: how.
        module: one of ``tasks.verifiers.sandboxed``.
        instructions, ready: descriptors that the module gets.
        status: descriptor on which the process id inside is reported and, when that ended by itself, its status.
        call_filter: descriptor of a filter of system calls; None without one.

    Raises:
        SandboxError: a command is missing.
    """
    if isolation == "process":
        python = _python(module, str(ROOT), str(instructions), str(ready))
        return _python(f"{PACKAGE}.process_guard", str(ROOT), str(status), str(os.getpid()), *python)
    return _sandboxed(_python(module, "/harness", str(instructions), str(ready)), status, call_filter)


def _python(module: str, root: str, *arguments: str) -> list[str]:
    package, _, name = module.rpartition(".")
    start = f"import sys; sys.path.append({root!r}); from {package} import {name}; {name}.main()"
    return [interpreter(), *FLAGS, "-c", start, *arguments]


def _sandboxed(program: Sequence[str], status: int, call_filter: int | None) -> list[str]:
    """The program in a sandbox: it sees the interpreter and an empty /tmp, no network, no other process, no /proc.

    Root can not be limited in its number of processes, and its interpreter may lie where nobody else may look. So a first
    bubblewrap, still as root, collects the files, setpriv gives root up for good, and a second one does the rest.
    """
    bwrap = _found("bwrap", INSTALL)
    is_root = os.geteuid() == 0
    inner = [bwrap, *NAMESPACES, "--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    inner += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox", "--json-status-fd", str(status)]
    inner += ["--seccomp", str(call_filter)] if call_filter is not None else []
    inner += [*visible_files(), "--ro-bind", HARNESS if is_root else str(HERE), HARNESS]
    inner += ["--size", str(TMP_BYTES), "--tmpfs", TMP, "--chdir", TMP, "--remount-ro", "/", "--clearenv"]
    inner += [word for name, value in ENVIRONMENT.items() for word in ("--setenv", name, value)]
    inner += ["--", *program]
    return [*_without_root(bwrap), *inner] if is_root else inner


def _without_root(bwrap: str) -> list[str]:
    setpriv = _found("setpriv", "install util-linux")
    outer = [bwrap, "--die-with-parent", *visible_files(), "--ro-bind", str(HERE), HARNESS]
    outer += ["--bind", "/proc", "/proc", "--perms", "0755", "--dir", TMP]
    for path in {bwrap, setpriv}:
        outer += ["--perms", "0755", "--dir", str(Path(path).parent), "--ro-bind", path, path]
    nobody = f"--reuid {NOBODY} --regid {NOBODY} --clear-groups --bounding-set=-all --inh-caps=-all"
    # The kernel forgets who must die with the parent when the user changes, so it is asked again afterwards.
    return [*outer, "--", setpriv, *nobody.split(), "--pdeathsig", "KILL", "--"]


@cache
def _found(name: str, cure: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise SandboxError(
            f'{name} is not installed, so no program is run; {cure}, or name the weaker isolation = "process"'
        )
    return os.path.realpath(found)
