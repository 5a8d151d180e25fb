"""Sample completions from the current policy."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from storage import checkpoints, tables
from storage.manifest import Provenance
from storage.refs import DatasetRef, ModelRef, Place
from tasks.policy.loading import load_model, load_tokenizer
from tasks.rollout.config import OPERATIONAL, EngineConfig, SamplingConfig
from tasks.rollout.engine import Greedy, PolicyWeights
from tasks.rollout.engines import make_engine
from tasks.rollout.prompting import eos_token_ids
from tasks.rollout.rollouts import completion_rows, requests_for
from tasks.runtime import residents
from tasks.runtime.config import MachineConfig
from tasks.runtime.inline import prepare
from tasks.runtime.progress import progress


@task(cache_policy=NO_CACHE)
def generate(
    place: Place,
    selection: DatasetRef,
    policy: ModelRef,
    engine: EngineConfig,
    sampling: SamplingConfig,
    machine: MachineConfig,
    num_samples: int,
    seed: int,
) -> DatasetRef:
    """``num_samples`` completions per selected prompt; every seed is derived from ``seed``, the group and the index."""
    provenance = Provenance(
        stage="completions",
        inputs={"selection": selection.digest, "policy": policy.digest},
        config={
            "engine": engine.model_dump(mode="json", exclude=OPERATIONAL),
            "sampling": sampling.model_dump(mode="json"),
            "num_samples": num_samples,
        },
        seed=seed,
    )
    return _completions(place, selection, policy, engine, sampling, machine, num_samples, provenance, seed)


@task(cache_policy=NO_CACHE)
def generate_greedily(
    place: Place,
    selection: DatasetRef,
    policy: ModelRef,
    engine: EngineConfig,
    sampling: SamplingConfig,
    machine: MachineConfig,
) -> DatasetRef:
    """The most likely completion of every selected prompt, token by token (for evaluation; never trained on)."""
    greedy = Greedy(max_new_tokens=sampling.max_new_tokens, stop=sampling.stop)
    provenance = Provenance(
        stage="completions",
        inputs={"selection": selection.digest, "policy": policy.digest},
        config={
            "engine": engine.model_dump(mode="json", exclude=OPERATIONAL),
            "greedy": {"max_new_tokens": greedy.max_new_tokens, "stop": greedy.stop},
        },
    )
    return _completions(place, selection, policy, engine, greedy, machine, 1, provenance, 0)


def _completions(
    place: Place,
    selection: DatasetRef,
    policy: ModelRef,
    engine: EngineConfig,
    sampling: SamplingConfig | Greedy,
    machine: MachineConfig,
    num_samples: int,
    provenance: Provenance,
    seed: int,
) -> DatasetRef:
    if found := tables.find(place, "completions", provenance):
        return found
    folder = checkpoints.open_folder(policy)
    tokenizer = residents.get("tokenizer", policy.digest, lambda: load_tokenizer(folder))
    device = prepare(machine)
    model = residents.get("policy", policy.digest, lambda: load_model(folder, device=device))
    requests = requests_for(tables.read(selection), num_samples=num_samples, seed_parts=(seed,))
    weights = PolicyWeights(model, tokenizer, policy.digest, folder, place.log_folder)
    with progress("generate", "completions") as on_progress:
        result = make_engine(engine, weights).generate(requests, sampling, on_progress)
    rows, metrics = completion_rows(
        requests,
        result,
        tokenizer=tokenizer,
        eos_ids=eos_token_ids(model.generation_config, tokenizer),
        temperature=sampling.temperature if isinstance(sampling, SamplingConfig) else 0.0,
        policy_digest=policy.digest,
    )
    return tables.publish(place, "completions", rows, provenance, metrics=metrics)
