"""A tiny model made awkward in the ways that real ones are, for a server that answers at once."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.tiny_models import make_tiny

CONTEXT = 256
EOS_IDS = (2, 7)
VOCAB_SIZE = 512  # padded beyond the tokeniser's
_STRICT_TEMPLATE = (
    "{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "{{ message['role'] + ': ' + message['content'] + '\n' }}"
    "{% endfor %}"
)


def make_awkward(out: Path) -> Path:
    """Writes the checkpoint.

    Its context is short, its vocabulary padded, two tokens end its answers, and its template wants
    neither a system turn nor two turns of one speaker.
    """
    make_tiny("llama", out, vocab_size=VOCAB_SIZE, max_position_embeddings=CONTEXT)
    (out / "chat_template.jinja").write_text(_STRICT_TEMPLATE)
    (out / "generation_config.json").write_text(json.dumps({"eos_token_id": EOS_IDS}))
    return out
