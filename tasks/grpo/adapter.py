"""LoRA: the update trains low-rank additions to the weights; what it leaves behind is a plain model and the adapter beside it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig as PeftConfig
from peft import get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from tasks.grpo.components import LoraConfig
from tasks.runtime.views import ModelView

WEIGHTS_FILE = "adapter_model.safetensors"
SETTINGS_FILE = "adapter_config.json"
LINEAGE_FILE = "lineage.json"


class Adapter:
    """A LoRA adapter inside ``model``, whose own weights (the base) are frozen and never change.

        W' = W + (alpha / rank) B A,    A [rank, in] at random, B [out, rank] = 0 at first

    Source: Hu et al., arXiv:2106.09685, section 4.1; merging at every iteration's end as ReLoRA, arXiv:2307.05695.
    """

    def __init__(self, model: PreTrainedModel, config: LoraConfig, *, base_digest: str, seed: int) -> None:
        """Put a new adapter into ``model``.

        Errors: ValueError for target modules that the model has not.
        """
        self.model = model
        self.config = config
        self.base_digest = base_digest
        settings = PeftConfig(
            r=config.rank,
            lora_alpha=config.alpha,
            lora_dropout=config.dropout,
            target_modules=config.target_modules
            if isinstance(config.target_modules, str)
            else [*config.target_modules],
            fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
            task_type="CAUSAL_LM",
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            try:
                self._peft: Any = get_peft_model(model, settings)
            except ValueError as error:
                raise ValueError(f"update.lora.target_modules {config.target_modules!r}: {error}") from error
        model.eval()

    def load(self, folder: Path) -> None:
        """Go on with a saved adapter.

        Errors: ValueError when it belongs to another base.
        """
        saved = json.loads((folder / LINEAGE_FILE).read_text())
        if saved["base_digest"] != self.base_digest:
            raise ValueError(
                f"{folder} was trained on base {saved['base_digest'][:12]}, not on {self.base_digest[:12]}; its sums with "
                "another base are no policy of this lineage"
            )
        set_peft_model_state_dict(self._peft, load_file(folder / WEIGHTS_FILE))

    def save(self, folder: Path) -> None:
        """Write the adapter in PEFT's format, with the digest of its base. The same adapter gives the same bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.detach().cpu().contiguous() for name, value in self._state().items()}
        save_file(tensors, folder / WEIGHTS_FILE)
        settings = {
            name: sorted(value) if isinstance(value, set) else value
            for name, value in self._peft.peft_config["default"].to_dict().items()
        }
        settings["inference_mode"] = True
        (folder / SETTINGS_FILE).write_text(json.dumps(settings, indent=1, sort_keys=True, default=str) + "\n")
        lineage = {"base_digest": self.base_digest, "rank": self.config.rank, "alpha": self.config.alpha}
        (folder / LINEAGE_FILE).write_text(json.dumps(lineage, indent=1) + "\n")

    def base(self) -> ModelView:
        """The model without the adapter: what it was before, to the last bit, in the memory of one model."""
        decoder: Any = self.model.get_decoder()

        def decode(**inputs: Any) -> Any:
            with self._disabled():
                return decoder(**inputs)

        return ModelView(self.model, decode)

    @torch.no_grad()
    def merged(self) -> PreTrainedModel:
        """A plain model of the sums, for everybody who knows nothing of adapters; on the CPU."""
        state = {
            name.replace(".base_layer.", "."): value.detach().cpu()
            for name, value in self.model.state_dict().items()
            if ".lora_" not in name
        }
        for name, module in self.model.named_modules():
            if isinstance(module, LoraLayer):
                delta = module.get_delta_weight("default").cpu()
                state[f"{name}.weight"] = state[f"{name}.weight"] + delta.to(state[f"{name}.weight"].dtype)
        with torch.device("meta"):
            plain = type(self.model)(self.model.config)
        plain.load_state_dict(state, assign=True)
        plain.tie_weights()
        plain.generation_config = self.model.generation_config
        return plain

    def metrics(self) -> dict[str, float]:
        """lora_rank; lora_delta_norm: Frobenius norm of all that the adapter adds; num_trained_parameters."""
        with torch.no_grad():
            deltas = [m.get_delta_weight("default") for m in self.model.modules() if isinstance(m, LoraLayer)]
            norm = torch.stack([delta.double().square().sum() for delta in deltas]).sum().sqrt()
        return {
            "lora_rank": float(self.config.rank),
            "lora_delta_norm": float(norm),
            "num_trained_parameters": float(sum(value.numel() for value in self._state().values())),
        }

    def _state(self) -> dict[str, Tensor]:
        return get_peft_model_state_dict(self._peft)  # type: ignore[no-any-return]

    @contextmanager
    def _disabled(self) -> Iterator[None]:
        layers = [module for module in self.model.modules() if isinstance(module, LoraLayer)]
        for layer in layers:
            layer._disable_adapters = True
        try:
            yield
        finally:
            for layer in layers:
                layer._disable_adapters = False
