"""Loaded by the workers of a vLLM server that this project starts: new weights in place, the packed copies too."""

from typing import Any


class ReloadAndRepack:
    """Mixed into vLLM's worker (``--worker-extension-cls``); ``self`` is the worker.

    vLLM's own ``reload_weights`` processes a layer again when weights were loaded into it. An output layer that is tied to
    the embedding gets none: its packed copy (oneDNN, on a CPU) would stay that of the old weights, without an error.
    """

    def reload_and_repack(self: Any, weights_path: str) -> int:
        """Read the weights of a folder, then pack the layers anew that share theirs; gives how many."""
        self.model_runner.reload_weights(weights_path=weights_path)
        shared = [layer for layer in self.model_runner.get_model().modules() if _has_packed_copy(layer)]
        for layer in shared:
            layer.quant_method.process_weights_after_loading(layer)
        return len(shared)


def _has_packed_copy(layer: Any) -> bool:
    """Whether a layer computes with a packed copy and still has the weights that it was packed from."""
    weight = getattr(layer, "weight", None)
    return hasattr(layer, "cpu_linear") and weight is not None and weight.numel() > 0
