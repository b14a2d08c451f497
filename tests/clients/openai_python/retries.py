"""OpenAI's Python client waits as a busy server asks: python retries.py SERVER_URL"""

from __future__ import annotations

import sys
from typing import Any

from examples import show
from openai import OpenAI


def patient() -> Any:
    """Refused while the server is busy, the client asks again by itself."""
    with OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused", max_retries=60) as client:
        answer = client.chat.completions.with_raw_response.create(
            model="smollm2",
            messages=[{"role": "user", "content": "What is the capital of Japan?"}],
            temperature=0,
        )
    return {
        "text": answer.parse().choices[0].message.content,
        "retries": answer.retries_taken,
    }


if __name__ == "__main__":
    show(patient)
