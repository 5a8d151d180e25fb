"""The engines by their settings."""

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tasks.rollout.config import EngineConfig, ScriptedEngineConfig, TransformersEngineConfig
from tasks.rollout.engine import Engine
from tasks.rollout.scripted_engine import ScriptedEngine
from tasks.rollout.transformers_engine import TransformersEngine

ENGINES: dict[type, Callable[[PreTrainedModel, PreTrainedTokenizerBase, Any], Engine]] = {
    TransformersEngineConfig: TransformersEngine,
    ScriptedEngineConfig: ScriptedEngine,
}


def make_engine(config: EngineConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Engine:
    """The engine that ``config`` names, over ``model``'s weights."""
    return ENGINES[type(config)](model, tokenizer, config)
