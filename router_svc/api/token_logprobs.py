"""The public form of an answer's log-probabilities, as chat and responses show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.inference.v1 import inference_pb2 as pb

from router_svc.api import params

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router_svc.api.conversation import Conversation
    from router_svc.generation_types import Logprob


def token_logprobs(conversation: Conversation, entries: Iterable[Logprob]) -> list[pb.TokenLogprob]:
    """An entry for each token.

    A control token that is left out of the text has no bytes: those of all entries, joined, are
    the text's.
    """
    tokenizer = conversation.model.tokenizer
    name_of = params.token_names(conversation.request, tokenizer)

    def shown_bytes(token_id: int) -> bytes:
        return tokenizer.token_bytes(token_id) if is_shown(conversation, token_id) else b""

    return [
        pb.TokenLogprob(
            token=name_of(entry.token_id),
            logprob=params.finite(entry.logprob),
            bytes=shown_bytes(entry.token_id),
            top_logprobs=[
                pb.TopLogprob(
                    token=name_of(token_id),
                    logprob=params.finite(logprob),
                    bytes=shown_bytes(token_id),
                )
                for token_id, logprob in entry.top
            ],
        )
        for entry in entries
    ]


def is_shown(conversation: Conversation, token_id: int) -> bool:
    """Whether a token's text is part of the answer's."""
    generation = conversation.generation
    hidden = generation.skip_special_tokens and conversation.model.tokenizer.is_special(token_id)
    return not hidden or token_id in generation.shown_special_ids
