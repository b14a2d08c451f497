"""Instructor: python example.py SERVER_URL"""

from __future__ import annotations

import sys
from typing import Any, Literal

import instructor
from examples import show
from openai import OpenAI
from pydantic import BaseModel, Field

client = OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="unused")
QUESTION = [{"role": "user", "content": "What is the capital of Japan?"}]


class City(BaseModel):
    """A city."""

    name: Literal["Tokyo", "Paris", "Rome"]
    districts: int = Field(ge=1, le=99)


def extract(mode: instructor.Mode) -> Any:
    city = instructor.from_openai(client, mode=mode).create(
        model="smollm2", messages=QUESTION, response_model=City, temperature=0, max_retries=0
    )
    return city.model_dump()


def by_tool() -> Any:
    return extract(instructor.Mode.TOOLS)


def by_json_schema() -> Any:
    return extract(instructor.Mode.JSON_SCHEMA)


if __name__ == "__main__":
    show(by_tool, by_json_schema)
