"""What is handed to ranks by file comes out as it went in."""

import json
import math

import pytest

from tasks.grpo.config import UpdateConfig
from tasks.grpo.presets import PRESETS
from tasks.grpo.ranked_update import JOB_FILE, METRICS_FILE, ROWS_FILE, UpdateJob, read_metrics, write_job
from tasks.runtime.config import MachineConfig

NEEDED = {"cispo": {"objective": {"clip_high": 4.0}}, "ppo": {"critic": {"optimiser": {"learning_rate": 1e-2}}}}


def job(config, reference=None):
    return UpdateJob(
        policy="p",
        trainer="p/trainer",
        reference=reference,
        updated="u",
        updated_trainer="u/trainer",
        config=config,
        machine=MachineConfig(num_processes=2),
        max_new_tokens=9,
        seed=2**62 + 1,
    )


@pytest.mark.parametrize("algorithm", PRESETS)
def test_the_settings_of_every_preset_survive_as_json(algorithm, tmp_path):
    optimiser = {"learning_rate": 0.1 + 0.2}
    config = UpdateConfig.model_validate({"algorithm": algorithm, "optimiser": optimiser, **NEEDED.get(algorithm, {})})
    for given in (job(config), job(config, reference="r")):
        write_job(tmp_path, given, [])
        assert UpdateJob.model_validate_json((tmp_path / JOB_FILE).read_text()) == given


def test_rows_keep_every_bit_and_what_is_unknown(tmp_path):
    config = UpdateConfig.model_validate({"algorithm": "dapo", "optimiser": {"learning_rate": 1e-3}})
    rows = [
        {"group_id": "g", "sampler_logprobs": [-0.1 - 0.2, None, -math.inf, 5e-324], "token_advantages": None},
        {"group_id": "둘", "sampler_logprobs": None, "advantage": -1 / 3, "has_signal": True},
    ]
    write_job(tmp_path, job(config), rows)
    assert [json.loads(line) for line in (tmp_path / ROWS_FILE).read_text().splitlines()] == rows
    write_job(tmp_path, job(config), [{"advantage": math.nan}])
    assert math.isnan(json.loads((tmp_path / ROWS_FILE).read_text())["advantage"])


def test_metrics_are_numbers(tmp_path):
    (tmp_path / METRICS_FILE).write_text('{"num_updates": 3, "loss": -0.25}')
    assert read_metrics(tmp_path) == {"num_updates": 3.0, "loss": -0.25}
