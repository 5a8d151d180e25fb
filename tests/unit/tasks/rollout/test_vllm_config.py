"""The settings of the vLLM engine: what is refused, and what a table's provenance holds of them."""

import pytest
from pydantic import TypeAdapter, ValidationError

from tasks.rollout.config import OPERATIONAL, EngineConfig, TransformersEngineConfig, VllmEngineConfig
from tasks.rollout.vllm_server import check_engine

ENGINE = TypeAdapter(EngineConfig)


def engine(**settings):
    return ENGINE.validate_python({"kind": "vllm", **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"server": {"urls": ["10.0.0.5:8000"]}}, r'write it as "http://HOST:PORT"'),
        ({"server": {"urls": ["http://a:1", "http://a:1/"]}}, "an address stands twice"),
        ({"server": {"urls": ["http://a:1"], "weight_update": "restart"}}, "needs a server of this run's own"),
        (
            {"server": {"urls": ["http://a:1"], "max_restarts": 1}},
            "max_restarts: of no use for servers that run already",
        ),
        ({"dtype": "bfloat16"}, r"parity_tolerance: its default of 0.02 nats is for float32"),
        ({"server": {"parity_tolerance": 0.0}}, "greater than 0"),
        ({"server": {"num_probes": 0}}, "greater than or equal to 1"),
        ({"top_p": 0.9}, "Extra inputs"),
    ],
)
def test_settings_that_can_not_work_are_refused_with_their_cure(settings, message):
    with pytest.raises(ValidationError, match=message):
        engine(**settings)


def test_settings_survive_being_written_down():
    for found in (
        engine(),
        engine(dtype="bfloat16", server={"parity_tolerance": 0.2}),
        engine(server={"urls": ["http://a:1/"]}),
    ):
        assert ENGINE.validate_json(ENGINE.dump_json(found)) == found
    assert found.server.urls == ("http://a:1",)


def test_where_an_engine_runs_is_no_part_of_a_tables_provenance_and_what_it_samples_is():
    def provenance(**settings):
        return engine(**settings).model_dump(mode="json", exclude=OPERATIONAL)

    assert (
        provenance()
        == provenance(server={"urls": ["http://a:1"]})
        == {
            "kind": "vllm",
            "dtype": "float32",
            "max_model_len": None,
        }
    )
    assert provenance(max_model_len=512) != provenance()
    assert TransformersEngineConfig().model_dump(exclude=OPERATIONAL) == TransformersEngineConfig().model_dump()


def test_an_engine_whose_environment_is_missing_is_refused_before_any_compute():
    check_engine(TransformersEngineConfig())
    check_engine(engine(server={"urls": ["http://a:1"]}))
    with pytest.raises(ValueError, match="run `make vllm`"):
        check_engine(VllmEngineConfig.model_validate({"kind": "vllm", "server": {"python": "nowhere/python"}}))
