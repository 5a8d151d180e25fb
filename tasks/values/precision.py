"""The precisions that a forward pass may be asked for."""

from typing import Literal

Precision = Literal["auto", "float32", "bfloat16"]
