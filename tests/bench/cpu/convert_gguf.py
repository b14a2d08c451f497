"""llama.cpp's own converter, told that every checkpoint here has SmolLM2's tokeniser.

It knows tokenisers by the hash of what they make of a test text, and refuses the random
checkpoints, which borrow SmolLM2's tokeniser with another model's vocabulary size. Runs in the
converter's environment with llama.cpp on the path; arguments are those of convert_hf_to_gguf.py.
"""

from __future__ import annotations

from typing import Any

import convert_hf_to_gguf
from conversion.base import TextModel


def _smollm(_model: Any, _tokenizer: Any) -> str:
    return "smollm"


TextModel.get_vocab_base_pre = _smollm
convert_hf_to_gguf.main()
