"""A request has the same bits alone, in a batch, in chunks, and by a captured graph."""

from __future__ import annotations

import torch

from tests.gpu_check.comparing import Comparison
from tests.gpu_check.decoder_checks import gpu_decoder
from tests.gpu_check.device import Device
from tests.gpu_check.models import small_families
from tests.gpu_check.outcome import Findings
from tests.kernels.decoder_steps import DictSource, Run, random_weights


def check_decoder(device: Device, dtype: torch.dtype, family: str) -> Findings:
    """A request alone (decoding by graphs), in a batch of 64, chunked, and beside a prompt."""
    spec = small_families(tiny=device.is_interpreted)[family]
    others, length = (3, 9) if device.is_interpreted else (63, 300)
    prompt = [(7 * i) % (spec.vocab_size - 1) for i in range(length)]
    decodes = [5, 11, 3]
    decoder = gpu_decoder(
        device, spec, DictSource(random_weights(spec)), dtype,
        max_num_batched_tokens=1024, max_num_seqs=others + 1,
    )  # fmt: skip
    alone = Run(decoder)
    rows = [alone.step(("a", prompt))["a"]]
    rows += [alone.step(("a", [token]))["a"] for token in decodes]

    comparison = Comparison(dtype)
    together = Run(decoder)
    crowd = {f"other {i}": [i % 71, (3 * i) % 71, 1, 2] for i in range(others)}
    together.step(*((name, tokens[:3]) for name, tokens in crowd.items()))
    cut = length // 3
    first = together.step(("other 0", [4]), ("a", prompt[:cut]))["a"]
    second = together.step(("a", prompt[cut:]), ("other 1", [4]))["a"]
    comparison.equal("a prompt in two chunks", torch.cat((first, second)), rows[0])
    crowded = [(name, tokens[3:]) for name, tokens in crowd.items()]
    middle = len(crowded) // 2
    result = together.step(*crowded[:middle], ("a", decodes[:1]), *crowded[middle:])["a"]
    comparison.equal(f"decoded with {others} others, by a graph", result, rows[1])
    # A step that does not only decode launches kernel by kernel.
    result = together.step(("a", decodes[1:2]), ("new", [1, 2, 3]))["a"]
    comparison.equal("decoded beside a prompt, without a graph", result, rows[2])
    result = together.step(("new", [4]), ("other 2", [8]), ("a", decodes[2:]))["a"]
    comparison.equal("decoded with 2 others, by a padded graph", result, rows[3])
    return comparison.findings()
