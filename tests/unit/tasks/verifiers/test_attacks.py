"""Programs that try to be paid for nothing, or to reach what is outside the sandbox: each gets 0.0 and leaves nothing.

A row of ATTEMPTS is the body of a function that gives True when the harm is done; only then is the program a right answer.
So a reward of 1.0 is a hole. A row of CHEATS is a whole program that claims the reward by other means.
"""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tasks.verifiers import code
from tasks.verifiers.call_kinds import CodeVerifier
from tasks.verifiers.isolation import NOBODY
from tasks.verifiers.verdict import ScoreItem

pytestmark = pytest.mark.sandbox

CONFIG = CodeVerifier(kind="code", timeout_seconds=1.0, total_seconds=2.0)
SECRET = "igrpo-secret-of-the-tests"
GOLD = json.dumps({"tests": [f"assert f(1) == 2, '{SECRET}'", "assert f(2) == 3"]})
CTYPES = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"

ATTEMPTS = {
    "fork_bomb": "import os\nfor n in range(500):\n    if os.fork() == 0:\n        import time; time.sleep(30); os._exit(0)\nreturn True",
    "fork_bomb_of_sessions": "import os, time\nfor n in range(40):\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork(): os._exit(0)\n        time.sleep(30)\nreturn True",
    "thread_bomb": "import threading, time\nfor n in range(200):\n    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\nreturn True",
    "memory": "block = bytearray(1 << 30)\nreturn True",
    "memory_by_mapping": "import mmap\nmaps = [mmap.mmap(-1, 64 << 20) for n in range(16)]\nreturn True",
    "disk_fill": "with open('/tmp/igrpo-attack', 'wb') as file:\n    for n in range(64): file.write(bytes(1 << 20))\nreturn True",
    "disk_fill_in_many_files": "for n in range(64):\n    with open(f'/tmp/igrpo-attack-{n}', 'wb') as file: file.write(bytes(1 << 20))\nreturn True",
    "socket_internet": "import socket\nsocket.create_connection(('127.0.0.1', 22), 0.2)\nreturn True",
    "socket_udp": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nreturn True",
    "socket_unix": "import socket\nsocket.socket(socket.AF_UNIX)\nreturn True",
    "socket_to_the_hypervisor": "import socket\nsocket.socket(40, socket.SOCK_STREAM)\nreturn True",
    "ptrace": CTYPES + "import os\nreturn libc.ptrace(16, os.getppid(), 0, 0) == 0",
    "read_other_memory": CTYPES + "import os\nbuf = ctypes.create_string_buffer(8)\nreturn libc.process_vm_readv(os.getppid(), buf, 0, buf, 0, 0) == 0",
    "read_etc_passwd": "return 'root' in open('/etc/passwd').read()",
    "read_etc_shadow": "return bool(open('/etc/shadow').read())",
    "read_home": "import os\nreturn any(name for home in ('/root', '/home') for name in os.listdir(home) if name != '.pyenv')",
    "read_the_repository": f"import os\nreturn os.path.exists({str(Path(__file__))!r}) or os.path.exists({str(Path.cwd())!r})",
    "read_a_store": "import os\nreturn bool({'work', 'mnt', 'srv', 'var', 'opt', 'proc', 'sys', 'run', 'boot'} & set(os.listdir('/')))",
    "walk_for_the_tests": f"import os\nfor folder, _, names in os.walk('/'):\n    for name in names:\n        path = os.path.join(folder, name)\n        if '/lib/' not in path and not path.startswith('/dev') and {SECRET[:5]!r} + {SECRET[5:]!r} in open(path, errors='replace').read(): return True\nreturn False",
    "search_own_memory_for_the_tests": f"import gc, sys\nwanted = {SECRET[:5]!r} + {SECRET[5:]!r}\nframe = sys._getframe()\nwhile frame:\n    if any(wanted in repr(value) for value in frame.f_locals.values() if value is not wanted): return any(wanted in json for json in [])\n    frame = frame.f_back\nreturn any(isinstance(each, str) and wanted in each and each is not wanted for each in gc.get_objects())",
    "proc_walk": "import os\nreturn any(name.isdigit() for name in os.listdir('/proc'))",
    "proc_parent_memory": "import os\nreturn bool(open(f'/proc/{os.getppid()}/mem', 'rb'))",
    "kill_the_parent": "import os, signal, time\nparent = os.getppid()\nos.kill(parent, signal.SIGKILL)\ntime.sleep(0.1)\nreturn os.getppid() != parent",
    "kill_pid_1": "import os, signal, time\nos.kill(1, signal.SIGKILL)\ntime.sleep(0.1)\nos.kill(1, 0)\nreturn False",
    "kill_everything": "import os, signal\nos.kill(-1, signal.SIGKILL)\nreturn False",
    "stop_the_parent": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nreturn False",
    "see_other_processes": "import os\ndef lives(pid):\n    try: os.kill(pid, 0)\n    except ProcessLookupError: return False\n    except PermissionError: return True\n    return True\nreturn any(lives(pid) for pid in range(3, 40000) if pid != os.getpid())",
    "inherited_descriptors": "import os\nfound = 0\nfor n in range(3, 64):\n    try: os.fstat(n)\n    except OSError: continue\n    found += 1\nreturn found > 2",
    "write_the_interpreter": "import os, sys\nopen(sys.executable, 'ab').write(b'x')\nreturn True",
    "write_the_standard_library": "import os\nopen(os.__file__, 'a').write('x')\nreturn True",
    "write_the_root": "import os\nos.mkdir('/igrpo-attack')\nreturn True",
    "tamper_with_the_harness": "import glob\npaths = glob.glob('/harness/**/*.py', recursive=True)\nopen(paths[0], 'a').write('x')\nreturn True",
    "import_the_runner_for_the_tests": "from tasks.verifiers.sandboxed import tests_runner\nimport sys\nreturn 'tests' in str(vars(tests_runner).get('brief', ''))",
    "import_the_product": "import tasks.verifiers.trials\nreturn True",
    "import_installed_packages": "import pydantic\nreturn True",
    "delete_everything": "import os, shutil\nshutil.rmtree('/', ignore_errors=True)\nreturn not os.path.exists(os.__file__)",
    "symlink_out_of_tmp": "import os\nos.symlink('/etc/passwd', '/tmp/link')\nreturn bool(open('/tmp/link').read())",
    "symlink_through_proc": "import os\nos.symlink('/proc/1/root', '/tmp/link')\nreturn bool(os.listdir('/tmp/link'))",
    "chroot": "import os\nos.chroot('/tmp')\nreturn True",
    "mount": CTYPES + "return libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None) == 0",
    "remount_writable": CTYPES + "return libc.mount(None, b'/', None, 32 | 4096, None) == 0",
    "unshare_user": CTYPES + "return libc.unshare(0x10000000) == 0",
    "clone_user": CTYPES + "pid = libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)\nif pid == 0: libc._exit(0)\nreturn pid > 0",
    "clone3_user": CTYPES + "args = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)\npid = libc.syscall(435, ctypes.byref(args), 88)\nif pid == 0: libc._exit(0)\nreturn pid > 0",
    "setuid_root": "import os\nos.setuid(0)\nreturn True",
    "kernel_keyring": CTYPES + "return libc.syscall(248, b'user', b'igrpo-attack', b'x', 1, -4) > 0",
    "shared_memory": CTYPES + "return libc.shmget(0x1657, 4096, 0o1666) >= 0",
    "message_queue": CTYPES + "return libc.msgget(0x1657, 0o1666) >= 0",
    "posix_queue": CTYPES + "return libc.syscall(240, b'igrpo-attack', 0o102, 0o600, None) >= 0",
    "memory_file": "import os\nreturn os.memfd_create('x') >= 0",
    "io_uring": CTYPES + "return libc.syscall(425, 8, ctypes.create_string_buffer(120)) >= 0",
    "bpf": CTYPES + "return libc.syscall(321, 5, ctypes.create_string_buffer(120), 120) >= 0",
    "perf_events": CTYPES + "return libc.syscall(298, ctypes.create_string_buffer(120), 0, -1, -1, 0) >= 0",
    "raise_own_limits": "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))\nreturn True",
    "environment": "import os\nreturn not set(os.environ) <= {'LANG', 'LC_CTYPE', 'PYTHONHASHSEED', 'HOME', 'PWD'}",
    "hostname": "import os\nreturn os.uname().nodename != 'sandbox'",
    "run_a_shell": "import os\nreturn os.system('true') == 0",
    "core_file": "import resource\nreturn resource.getrlimit(resource.RLIMIT_CORE)[1] != 0",
    "files_open": "files = [open('/dev/null') for n in range(1000)]\nreturn True",
    "device_files": "import os\nos.mknod('/tmp/disk', 0o60600, os.makedev(8, 0))\nreturn True",
    "terminal": "import os\nos.open('/dev/tty', os.O_RDWR)\nreturn True",
    "set_the_clock": "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)\nreturn True",
}  # fmt: skip

F = "def f(x): return x + 1\n"
CHEATS = {
    "exit_at_import": "import os\nos._exit(0)",
    "sys_exit_at_import": "import sys\nsys.exit(0)",
    "exit_in_the_call": "import os\ndef f(x): os._exit(0)",
    "sys_exit_in_the_call": "import sys\ndef f(x): sys.exit(0)",
    "equal_to_everything": "class A:\n    def __eq__(self, other): return True\n    __hash__ = object.__hash__\ndef f(x): return A()",
    "int_equal_to_everything": "class A(int):\n    def __eq__(self, other): return True\n    def __ne__(self, other): return False\ndef f(x): return A(5)",
    "true_in_every_way": "class A:\n    def __bool__(self): return True\n    def __getattr__(self, name): return lambda *a: True\ndef f(x): return A()",
    "equal_through_a_metaclass": "class M(type):\n    def __eq__(cls, other): return True\n    def __instancecheck__(cls, other): return True\nclass A(metaclass=M): pass\ndef f(x): return A",
    "print_success": "print('2 of 2 passed')\nprint('{\"passed\": true}')\ndef f(x): return 0",
    "write_success_to_every_descriptor": "import os\nfor n in range(64):\n    try: os.write(n, b'{\"passed\": true, \"reason\": \"\"}\\n{\"num_requests\": 2}\\n')\n    except OSError: pass\ndef f(x): return 0",
    "write_a_handle_to_nothing": "import os\nfor n in range(3, 64):\n    try: os.write(n, b'{\"value\": null}\\n{\"value\": [\"handle\", 0]}\\n' * 9)\n    except OSError: pass\nimport time; time.sleep(30)",
    "write_garbage": "import os\nfor n in range(3, 64):\n    try: os.write(n, b'\\xff\\xfe[[[[{\\n' * 9)\n    except OSError: pass\ndef f(x): return 0",
    "flood_stdout": "import os\ndef f(x):\n    while True: os.write(1, b'x' * 65536)",
    "flood_stderr": "import os\ndef f(x):\n    while True: os.write(2, b'x' * 65536)",
    "flood_the_channel": "import os\ndef f(x):\n    while True:\n        for n in range(3, 64):\n            try: os.write(n, b'x' * 65536)\n            except OSError: pass",
    "flood_the_reply": "def f(x): return 'x' * (1 << 24)",
    "deep_value": "def f(x):\n    value = []\n    for n in range(100000): value = [value]\n    return value",
    "value_that_holds_itself": "def f(x):\n    value = []\n    value.append(value)\n    return value",
    "huge_int": "def f(x): return 1 << (1 << 31)",
    "int_bomb": "def f(x): return 9 ** 9 ** 9",
    "patch_builtins": "import builtins\nfor name in ('isinstance', 'type', 'len', 'list', 'dict', 'int', 'repr', 'getattr', 'AssertionError'):\n    setattr(builtins, name, lambda *a, **k: True)\ndef f(x): return 0",
    "patch_json": "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'\njson.loads = lambda *a, **k: {}\ndef f(x): return 0",
    "patch_stdout": "import sys, io\nsys.stdout = sys.__stdout__ = sys.stderr = io.StringIO()\nsys.stdin = None\ndef f(x): return 0",
    "patch_the_codec": "import sys\ncodec = sys.modules['tasks.verifiers.sandboxed.values'].Codec\ncodec.encode = lambda self, value: ['passed', True]\ndef f(x): return 0",
    "trace_and_profile": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\ndef f(x): return 0",
    "exit_handlers": "import atexit, os\natexit.register(lambda: os.write(1, b'passed'))\ndef f(x): raise SystemExit(0)",
    "ignore_signals": "import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ndef f(x):\n    while True: pass",
    "sleep_past_the_limit": "import time\ndef f(x): time.sleep(60)",
    "endless_import": "while True: pass",
    "threads_that_never_end": "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\ndef f(x): return 0",
    "leave_a_sleeper_in_a_new_session": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\ndef f(x): return 0",
    "double_fork_daemon": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)\ndef f(x): return 0",
    "python_stack_bomb": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x): return f(x)",
    "c_stack_bomb": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x):\n    value = []\n    for n in range(10 ** 6): value = [value]\n    return repr(value)",
    "segmentation_fault": "import ctypes\ndef f(x): return ctypes.string_at(0)",
    "code_in_repr": "class A:\n    def __repr__(self): import os; os._exit(0)\n    __str__ = __format__ = __repr__\ndef f(x): return A()",
    "code_in_reduce": "class A:\n    def __reduce__(self): return (print, ('passed',))\n    def __reduce_ex__(self, n): return (print, ('passed',))\ndef f(x): return A()",
    "raise_assertion_with_lies": "class E(AssertionError):\n    def __str__(self): import os; os._exit(0)\ndef f(x): raise E",
    "raise_generator_exit": "def f(x): raise GeneratorExit",
    "raise_keyboard_interrupt": "def f(x): raise KeyboardInterrupt",
    "replace_itself": "import os, sys\ndef f(x): os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
    "kill_itself": "import os\ndef f(x): os.kill(os.getpid(), 9)",
    "close_every_descriptor": "import os\nos.closerange(0, 256)\ndef f(x): return 0",
    "garbage_collector_bomb": "class A:\n    def __del__(self):\n        self.__class__()\n        while True: pass\ndef f(x):\n    A()\n    return 0",
    "hash_seed_collision": "def f(x): return {n * (2 ** 61 - 1): 0 for n in range(20000)}",
    "fraction_bomb": "from fractions import Fraction\nimport os\ndef f(x):\n    for n in range(3, 64):\n        try: os.write(n, b'{\"value\": [\"Fraction\", \"1e999999999\"]}\\n')\n        except OSError: pass\n    return 0",
    "closed_fence_bomb": "(" * 5000 + ")" * 5000,
    "source_of_nul": "def f(x):\n    return 0\n\x00",
    "source_of_a_lone_surrogate": "def f(x): return '\ud800'",
    "source_nested_deeply": "x = " + "-" * 50000 + "1",
}  # fmt: skip


def program(body):
    attempt = textwrap.indent(body, "    ")
    return f"def attempt():\n{attempt}\ntry:\n    done = attempt()\nexcept BaseException as error:\n    done = False\ndef f(x): return x + 1 if done else 0\n"


PROGRAMS = {**{name: program(body) for name, body in ATTEMPTS.items()}, **CHEATS}


def leftovers():
    """What a program can leave on this machine: processes, mounts, files, keys, shared memory and queues of its user."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"verifiers.sandboxed" in (entry / "cmdline").read_bytes():
                state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
                found.add(("process", entry.name, state))
        except OSError:
            continue
    found.update(("mount", line) for line in Path("/proc/self/mountinfo").read_text().splitlines())
    for folder in ("/tmp", "/dev/shm", "/"):
        found.update(("file", str(each)) for each in Path(folder).iterdir() if "igrpo-attack" in each.name)
    for table in ("keys", "sysvipc/shm", "sysvipc/msg"):
        found.update((table, line) for line in Path("/proc", table).read_text().splitlines() if "igrpo" in line)
    return found


def mine(found):
    """Without the sandboxes of other test runs on this machine."""
    ours = set()
    for kind, *rest in found:
        if kind == "process":
            pid, ancestors = int(rest[0]), []
            while pid > 1:
                ancestors.append(pid)
                try:
                    pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                except OSError:
                    break
            if os.getpid() not in ancestors and pid == 1 and len(ancestors) > 1:
                continue  # it has living ancestors that are not this test's
        ours.add((kind, *rest))
    return ours


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_attack_is_worth_nothing_and_leaves_nothing(name):
    before = leftovers()
    started = time.monotonic()
    found = code.verify(CONFIG, ScoreItem("", GOLD, f"```python\n{PROGRAMS[name]}\n```", {}))
    seconds = time.monotonic() - started
    assert (found.status, found.reward) == ("scored", 0.0), found.reason
    assert SECRET not in found.reason or "AssertionError" in found.reason
    assert "does not load: SyntaxError" not in found.reason
    assert seconds < CONFIG.total_seconds + 1.0 + 2.0  # two more for the start of processes on a busy machine
    assert mine(leftovers() - before) == set()


def test_the_next_program_is_paid_after_all_of_them():
    assert code.verify(CONFIG, ScoreItem("", GOLD, F, {})).reward == 1.0


HARMLESS = [
    "read_etc_passwd", "proc_walk", "see_other_processes", "environment", "hostname", "run_a_shell", "socket_udp",
    "read_the_repository", "read_a_store", "memory_file", "files_open", "symlink_out_of_tmp",
]  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_the_same_attempt_succeeds_outside_the_sandbox(name):
    """Else the attempt would prove nothing."""
    source = PROGRAMS[name].replace("/tmp/link", f"/tmp/igrpo-link-{os.getpid()}") + "\nprint(f(1))"
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=Path.cwd())
    Path(f"/tmp/igrpo-link-{os.getpid()}").unlink(missing_ok=True)
    assert ran.stdout.strip() == "2", ran.stderr


def test_the_user_of_the_sandbox_is_nobody():
    source = (
        f"import os\ndef f(x): return x + 1 if os.getresuid() == ({NOBODY},) * 3 and not os.getgroups()[1:] else 0\n"
    )
    assert code.verify(CONFIG, ScoreItem("", GOLD, source, {})).reward == 1.0
