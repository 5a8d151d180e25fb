"""Disks, signals, neighbours and broken bytes: one function per fault, its expected outcome in the docstring.

A function gives what was not as expected, and raises ``NotHere`` where the machine can not do it.
"""

import contextlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from storage.digests import sha256_of_file
from tests.chaos.bench import Bench, Findings
from tests.chaos.runs import Subject

FREE_AT_LAST_MIB = 256
LOCK_SECONDS = 60.0


class NotHere(Exception):
    """The fault can not be made on this machine; the message says what is missing."""


def _mount(*arguments: str) -> None:
    try:
        done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise NotHere("there is no mount command") from error
    if done.returncode != 0:
        raise NotHere(f"mount {' '.join(arguments)} is refused: {done.stderr.strip()}; it needs root")


@contextlib.contextmanager
def _small_disk(folder: Path, num_bytes: int) -> Iterator[None]:
    _mount("-t", "tmpfs", "-o", f"size={num_bytes // 1024}k", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)


def full_disk(bench: Bench) -> list[str]:
    """The run stops with one line that names the store, what is free and what is needed; with room the same command finishes."""
    found, subject = Findings(), bench.subject("full-disk")
    whole = bench.straight(subject.arguments).num_bytes
    with _small_disk(subject.store, whole // 4):
        for share in (0.25, 0.6):
            _mount("-o", f"remount,size={int(whole * share) // 1024}k", str(subject.store))
            done = subject.run()
            found.ended(f"with room for {share:.0%}", done, 1, str(subject.store), "is full", "free at least")
            left = [str(path) for path in subject.store.glob("small/**/.tmp-*")]
            found.expect(not left, f"with room for {share:.0%}: unfinished writes fill the disk: {left}")
        _mount("-o", f"remount,size={FREE_AT_LAST_MIB}m", str(subject.store))
        found.ended("with room", subject.run(), 0)
        found += bench.as_undisturbed(subject)
    return found


def read_only_store(bench: Bench) -> list[str]:
    """The run is refused with one line that names the store; writable again, the same command finishes."""
    found, subject = Findings(), bench.subject("read-only")
    with _small_disk(subject.store, FREE_AT_LAST_MIB << 20):
        found.ended("the first half", subject.run(CHAOS_AT_WRITE=_half(bench)), -signal.SIGKILL)
        _mount("-o", "remount,ro", str(subject.store))
        found.ended("read-only", subject.run(), 1, str(subject.store), "can not be written to")
        _mount("-o", "remount,rw", str(subject.store))
        found.ended("writable", subject.run(), 0)
        found += bench.as_undisturbed(subject)
    return found


def second_run(bench: Bench) -> list[str]:
    """The second run ends at once, names the process of the first, and changes nothing; the first ends undisturbed."""
    found, subject = Findings(), bench.subject("two-runs")
    first = subject.start()
    holder = subject.store / "small" / "holder.json"
    deadline = time.monotonic() + LOCK_SECONDS
    while not holder.is_file() and time.monotonic() < deadline and first.process.poll() is None:
        time.sleep(0.05)
    found.expect(holder.is_file(), "the first run never took the lineage")
    second = subject.run()
    found.ended("the second run", second, 1, "is held by process", str(first.process.pid))
    found.expect(first.process.poll() is None, "the first run had ended before the second did: nothing was tried")
    found.ended("the first run", first.end(), 0)
    return found + bench.as_undisturbed(subject)


def _after_one_iteration(bench: Bench, name: str, found: Findings) -> Subject:
    """A store with the first of the two iterations in it; its command then asks for the other."""
    subject = bench.subject(name)
    one = tuple("1" if word == "2" else word for word in subject.arguments)
    found.ended("the first iteration", subject.run(*one), 0)
    return subject


def _change_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _finish_the_second(subject: Subject, found: Findings) -> None:
    one = tuple("1" if word == "2" else word for word in subject.arguments)
    for _ in range(2):  # the rebuilt iteration is what the first of them asks for
        if (subject.store / "small" / "iteration-0002" / "record").is_dir():
            break
        found.ended("after the cure", subject.run(*one), 0)


def corrupted_part(bench: Bench) -> list[str]:
    """A changed byte in a table is refused by its digest, the file is named; deleted as the line says, it is made again, equal."""
    found = Findings()
    subject = _after_one_iteration(bench, "corrupt-part", found)
    folder = subject.store / "small" / "iteration-0001" / "labels"
    if not folder.is_dir():
        folder = subject.store / "small" / "iteration-0001" / "pairs"
    (part,) = folder.glob("*.parquet")
    _change_a_byte(part)
    one = tuple("1" if word == "2" else word for word in subject.arguments)
    found.ended("with a changed byte", subject.run(*one), 1, str(part), "has sha256", "delete")
    shutil.rmtree(folder)
    _finish_the_second(subject, found)
    return found + bench.as_undisturbed(subject)


def corrupted_weights(bench: Bench) -> list[str]:
    """A changed byte in a weight file is refused by its digest, the file is named; restored from a copy, the run goes on."""
    found = Findings()
    subject = _after_one_iteration(bench, "corrupt-weights", found)
    weights = subject.store / "small" / "iteration-0001" / "step-002" / "policy" / "model.safetensors"
    before = sha256_of_file(weights)
    _change_a_byte(weights)
    one = tuple("1" if word == "2" else word for word in subject.arguments)
    found.ended("with a changed byte", subject.run(*one), 1, str(weights), "has sha256", "restore")
    _change_a_byte(weights)
    found.expect(sha256_of_file(weights) == before, "the copy is not the file")
    found.ended("restored", subject.run(*one), 0)
    return found + bench.as_undisturbed(subject)


def truncated_part(bench: Bench) -> list[str]:
    """A table of the wrong size is moved aside, said so, and made again, equal."""
    found, subject = Findings(), bench.subject("short-part")
    found.ended("the first half", subject.run(CHAOS_AT_WRITE=_half(bench)), -signal.SIGKILL)
    part = sorted(subject.store.glob("small/iteration-0001/step-001/completions/*.parquet"))[0]
    part.write_bytes(part.read_bytes()[:-7])
    found.ended("with a short part", subject.run(), 0)
    return found + bench.as_undisturbed(subject, num_set_aside=1)


def _half(bench: Bench) -> str:
    return str(bench.straight(bench.scripted).num_writes // 2)


def no_usable_group(bench: Bench) -> list[str]:
    """Every iteration is recorded as no_signal with the weights it began with; the run stops at the third, with one line."""
    found = Findings()
    recipe = bench.folder / "hopeless.toml"
    text = (bench.folder / "small.toml").read_text()
    script = text[text.index("script = [") : text.index("]", text.index("script = [")) + 1]
    hopeless = text.replace(script, 'script = ["<answer>x</answer>"]')
    recipe.write_text(hopeless.replace("reward_model_weight = 0.1", "reward_model_weight = 0.0"))
    subject = bench.subject("hopeless", ("run", str(recipe), "--iterations", "5"))
    found.ended("the run", subject.run(), 1, "the last 3 iterations of small had no group")
    folder = subject.store / "small"
    records = [json.loads((folder / f"iteration-{n:04d}/record/record.json").read_text()) for n in range(4)]
    found.expect([each["outcome"] for each in records[1:]] == ["no_signal"] * 3, "an iteration is not no_signal")
    weights = {sha256_of_file(subject.store / each["policy"]["uri"] / "model.safetensors") for each in records}
    found.expect(len(weights) == 1, "the weights moved although there was nothing to learn from")
    found.expect(not (folder / "iteration-0004" / "record").exists(), "a fourth iteration was finished")
    return found


def _signal_during_a_commit(bench: Bench, name: str, statuses: tuple[int, ...]) -> list[str]:
    found, subject = Findings(), bench.subject(f"during-commit-{name.lower()}")
    for share in (0.3, 0.6, 0.9):
        number = int(bench.straight(subject.arguments).num_writes * share * 0.5)
        done = subject.run(CHAOS_AT_WRITE=str(number), CHAOS_SIGNAL=name)
        found.ended(f"{name} at write {number}", done, done.status if done.status in statuses else statuses[0])
    found.ended("the same command", subject.run(), 0)
    return found + bench.as_undisturbed(subject)


def terminated(bench: Bench) -> list[str]:
    """SIGTERM while a stage commits ends the run, nothing of it outlives it; the same command finishes."""
    return _signal_during_a_commit(bench, "SIGTERM", (143, -signal.SIGTERM))


def hung_up(bench: Bench) -> list[str]:
    """SIGHUP (a terminal that closes) while a stage commits ends the run, nothing outlives it; the same command finishes."""
    return _signal_during_a_commit(bench, "SIGHUP", (129, -signal.SIGHUP))


def interrupted(bench: Bench) -> list[str]:
    """Ctrl-C while a stage commits ends the run with one line (status 1); the same command finishes."""
    return _signal_during_a_commit(bench, "SIGINT", (1,))
