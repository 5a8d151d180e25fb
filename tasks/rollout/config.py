"""How completions are sampled, and by which engine."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from tasks.values.frozen import Frozen

PARITY_TOLERANCE = 0.02
OWN_SERVER_FIELDS = (
    "python",
    "max_restarts",
    "start_deadline_seconds",
    "cpu_kv_cache_gib",
    "gpu_memory_share",
    "extra_arguments",
)


class SamplingConfig(Frozen):
    """The sampling distribution: softmax(logits / temperature) over the whole vocabulary.

    top_p, top_k and min_p are not offered for training: the engine would renormalise over the kept tokens and its
    log-probabilities would belong to another distribution than the trainer's.
    """

    temperature: float = Field(default=1.0, gt=0, le=10)
    max_new_tokens: int = Field(ge=1)
    stop: tuple[str, ...] = ()
    """Strings that end a completion once its text contains them; the ids keep them."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_truncated_distributions(cls, values: object) -> object:
        if isinstance(values, dict):
            for knob in ("top_p", "top_k", "min_p"):
                if knob in values:
                    raise ValueError(
                        f"{knob} is refused for training rollouts: it renormalises the distribution, so the ratio to the "
                        "policy would be wrong. Remove it and use temperature."
                    )
            if values.get("temperature") == 0:
                raise ValueError("temperature 0 has no log-probabilities to learn from; take a value above 0")
        return values

    @model_validator(mode="after")
    def _refuse_empty_stops(self) -> "SamplingConfig":
        if "" in self.stop:
            raise ValueError("an empty stop string would end every completion at once")
        return self


class TransformersEngineConfig(Frozen):
    """The engine in this process, on any transformers causal language model."""

    kind: Literal["transformers"] = "transformers"
    max_batch_rows: int = Field(default=128, ge=1)
    """Completions decoded together, at most: bounds the logits, rows x vocabulary."""
    max_batch_tokens: int = Field(default=65_536, ge=2)
    """Tokens of the key-value cache, rows x columns (a column for each token of the longest prompt and completion, and an
    eighth more): bounds its memory. A token takes 2 x layers x key-value heads x head size numbers, 46 kB for
    SmolLM2-135M in float32."""


class ScriptedEngineConfig(Frozen):
    """A deterministic stand-in: draws each completion from a script by its seed; no model is asked."""

    kind: Literal["scripted"]
    script: tuple[str, ...] = Field(min_length=1)
    """Completion texts; "{answer}" stands for the prompt's answer."""


class VllmServerConfig(Frozen):
    """How vLLM is run or reached: may change between runs of one lineage, since it does not change what is sampled."""

    python: str = ".venv-vllm/bin/python"
    """Interpreter of the environment that has vLLM (`make vllm` makes this one); relative to the checkout."""
    urls: tuple[str, ...] = ()
    """Servers that run already, for example "http://10.0.0.5:8000"; they must see the store under the same paths. The load is
    spread over them. None: this run starts a server of its own on 127.0.0.1, which ends with it."""
    weight_update: Literal["reload", "restart"] = "reload"
    """How a running server gets new weights: read in place, or a new start from the checkpoint (a minute or more)."""
    parity_tolerance: float = Field(default=PARITY_TOLERANCE, gt=0)
    """Nats: the largest difference between the server's log-probability of a token and the trainer's own weights'."""
    num_probes: int = Field(default=4, ge=1, le=64)
    """Completions compared after each start and each change of weights."""
    max_restarts: int = Field(default=3, ge=0)
    """Times that a server which died is started again, in the whole run."""
    start_deadline_seconds: float = Field(default=600.0, gt=0)
    """From the launch to the first answer."""
    request_timeout_seconds: float = Field(default=600.0, gt=0)
    """For one completion, its wait in the server's queue included."""
    max_concurrent_requests: int = Field(default=64, ge=1, le=1024)
    """Per server; each is one completion."""
    cpu_kv_cache_gib: int = Field(default=2, ge=1)
    """GiB for keys and values; of the CPU build."""
    gpu_memory_share: float = Field(default=0.9, gt=0, lt=1)
    """Share of the GPU's memory that vLLM may use, weights included; of the CUDA build."""
    sleeps: bool = False
    """Whether the server gives the GPU's memory back between the stages that sample, for a trainer on the same GPU."""
    extra_arguments: tuple[str, ...] = ()
    """Further arguments of the server that this run starts, for example ("--tensor-parallel-size", "2")."""

    @field_validator("urls")
    @classmethod
    def _urls_are_addresses(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f'{url!r} is not an address; write it as "http://HOST:PORT"')
        if len({url.rstrip("/") for url in urls}) < len(urls):
            raise ValueError(f"an address stands twice in {list(urls)}: its server would be asked twice as much")
        return tuple(url.rstrip("/") for url in urls)

    @model_validator(mode="after")
    def _only_an_own_server_is_started(self) -> "VllmServerConfig":
        if self.urls:
            if self.weight_update == "restart":
                raise ValueError(
                    'weight_update "restart" needs a server of this run\'s own; remove urls, or take "reload"'
                )
            fields = type(self).model_fields
            if idle := sorted(name for name in OWN_SERVER_FIELDS if getattr(self, name) != fields[name].default):
                raise ValueError(f"{', '.join(idle)}: of no use for servers that run already (urls); remove it")
        return self


class VllmEngineConfig(Frozen):
    """vLLM in a process and an environment of its own, asked over HTTP: token ids in, token ids and log-probabilities out."""

    kind: Literal["vllm"]
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the weights and activations that sample. The log-probabilities are those of this precision."""
    max_model_len: int | None = Field(default=None, ge=2)
    """Tokens of prompt and completion together; None takes the model's own context."""
    server: VllmServerConfig = VllmServerConfig()

    @model_validator(mode="after")
    def _tolerance_fits_the_precision(self) -> "VllmEngineConfig":
        if self.dtype != "float32" and "parity_tolerance" not in self.server.model_fields_set:
            raise ValueError(
                f"server.parity_tolerance: its default of {PARITY_TOLERANCE} nats is for float32; say how far {self.dtype} "
                "may be from the trainer's float32 weights (measure once: the stage reports parity_max_difference)"
            )
        return self


OPERATIONAL = {"server"}
"""Fields of an engine's settings that say where it runs, not what it samples: no part of a table's provenance."""

EngineConfig = Annotated[
    TransformersEngineConfig | ScriptedEngineConfig | VllmEngineConfig, Field(discriminator="kind")
]


class RolloutConfig(Frozen):
    """One step's rollouts."""

    prompts_per_step: int = Field(ge=1)
    group_size: int = Field(ge=2)
    """Completions per prompt. A group of one has no baseline: its advantage would be 0 by definition."""
    sampling: SamplingConfig
    engine: EngineConfig = TransformersEngineConfig()

    @model_validator(mode="before")
    @classmethod
    def _refuse_groups_of_one(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(size := values.get("group_size"), int) and size < 2:
            raise ValueError(f"group_size {size} gives every completion advantage 0; take at least 2")
        return values
