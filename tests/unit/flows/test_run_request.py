"""The parameters of the deployments: what their forms refuse, and that the file and the code agree."""

import importlib
import inspect
import typing
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from flows.environment import DEFAULTS
from flows.recipes import shipped
from flows.run_request import BootstrapRequest, EvaluateRequest, IterateRequest

ROOT = Path(__file__).parents[3]
FILE = yaml.safe_load((ROOT / "deployments" / "prefect.yaml").read_text())

REFUSED = [
    (IterateRequest, {"lineage": "../other"}),
    (IterateRequest, {"lineage": ""}),
    (IterateRequest, {}),
    (IterateRequest, {"lineage": "a", "num_iterations": 0}),
    (IterateRequest, {"lineage": "a", "num_iterations": 1001}),
    (IterateRequest, {"lineage": "a", "when_busy": "kill"}),
    (IterateRequest, {"lineage": "a", "max_wait_minutes": 0}),
    (IterateRequest, {"lineage": "a", "stop_at_iteration": 0}),
    (IterateRequest, {"lineage": "a", "overrides": ["guards"]}),
    (IterateRequest, {"lineage": "a", "iterations": 3}),
    (BootstrapRequest, {"lineage": "a", "recipe": "/etc/other.toml"}),
    (BootstrapRequest, {"lineage": "a", "recipe": "nothing"}),
    (EvaluateRequest, {"lineage": "a", "policy_version": 0}),
]


@pytest.mark.parametrize(("model", "values"), REFUSED)
def test_the_schema_refuses_what_the_model_refuses(model, values):
    """Prefect's server knows the schema only: what it lets through fails after a run was started."""
    with pytest.raises(ValidationError):
        model.model_validate(values)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, model.model_json_schema())


def test_a_recipe_is_chosen_from_those_that_are_shipped():
    assert BootstrapRequest.model_json_schema()["properties"]["recipe"]["enum"] == list(shipped())


@pytest.mark.parametrize("deployment", FILE["deployments"], ids=lambda each: each["name"])
def test_a_deployment_has_an_entry_point_and_parameters_that_its_form_accepts(deployment):
    path, name = deployment["entrypoint"].split(":")
    entry = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), name)
    (parameter,) = typing.get_type_hints(entry.fn, include_extras=True).keys() - {"return"}
    request = typing.get_type_hints(entry.fn)[parameter].model_validate(deployment["parameters"][parameter])
    assert request.lineage == "quickstart"
    assert inspect.getdoc(entry.fn)


def test_every_schedule_has_a_name_of_its_own_and_is_paused():
    schedules = [each for deployment in FILE["deployments"] for each in deployment.get("schedules", [])]
    assert {"cron", "interval"} <= {key for each in schedules for key in each}
    assert all(each["slug"] and each["active"] is False for each in schedules)
    assert len({each["slug"] for each in schedules}) == len(schedules)


def test_a_run_of_a_worker_has_the_settings_of_a_run_by_hand_but_for_its_log():
    """Telemetry of every library is off there too."""
    environment = FILE["definitions"]["work_pool"]["job_variables"]["env"]
    shared = {name: value for name, value in DEFAULTS.items() if not name.startswith("PREFECT_LOGGING")}
    assert {name: environment.get(name) for name in shared} == shared
    assert all(isinstance(value, str) for value in environment.values())
