"""The engines by their settings."""

from collections.abc import Callable
from typing import Any

from tasks.rollout.config import EngineConfig, ScriptedEngineConfig, TransformersEngineConfig, VllmEngineConfig
from tasks.rollout.engine import Engine, PolicyWeights
from tasks.rollout.scripted_engine import ScriptedEngine
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.rollout.vllm_engine import resident_vllm


def in_process(weights: PolicyWeights, config: TransformersEngineConfig) -> Engine:
    """The trainer's own weights, in this process.

    Source: ours, see ``TransformersEngine``.
    """
    return TransformersEngine(weights.model, weights.tokenizer, config)


def scripted(weights: PolicyWeights, config: ScriptedEngineConfig) -> Engine:
    """Completions from a script.

    Source: ours, see ``ScriptedEngine``.
    """
    return ScriptedEngine(weights.model, weights.tokenizer, config)


ENGINES: dict[type, Callable[[PolicyWeights, Any], Engine]] = {
    TransformersEngineConfig: in_process,
    ScriptedEngineConfig: scripted,
    VllmEngineConfig: resident_vllm,
}


def make_engine(config: EngineConfig, weights: PolicyWeights) -> Engine:
    """The engine that ``config`` names, over ``weights``."""
    return ENGINES[type(config)](weights, config)
