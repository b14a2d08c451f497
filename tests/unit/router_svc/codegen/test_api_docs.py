"""The documentation's tables: complete, linked, and saying how each field is treated."""

import re
from pathlib import Path

import pytest
from json_fields import REQUESTS, field_names
from proto_files import compile_request, contents

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "api.md"

EVERY_TREATMENT = """
// Asks for a thing.
message MakeThingRequest {
  // How many | how few <tags>.
  optional int32 n = 1 [(octavo.http.v1.field) = {minimum: 1 maximum: 8 default_json: "2"}];
  // Who asks.
  optional string user = 2 [(octavo.http.v1.field) = {no_effect: "nobody looks" max_length: 9}];
  // Kept for later.
  optional bool store = 3 [(octavo.http.v1.field) = {refused: "there is no shelf"}];
  // How hard.
  Effort effort = 4 [(octavo.http.v1.field) = {required: true note: "only if hard"}];
}
// Words or a number.
message Effort {
  option (octavo.http.v1.message) = {union: UNION_UNTAGGED};
  oneof kind {
    Level level = 1;
    double share = 2 [(octavo.http.v1.field) = {above: 0 maximum: 1}];
    Plan plan = 3;
  }
}
// Levels.
enum Level { LEVEL_UNSPECIFIED = 0; LEVEL_LOW = 1; LEVEL_HIGH = 2; }
// A plan.
message Plan {
  option (octavo.http.v1.message) = {union: UNION_TAGGED tag: "type" tag_default: "steps"};
  oneof kind { Steps steps = 1; }
}
// Steps.
message Steps { repeated string items = 1 [(octavo.http.v1.field) = {min_items: 1}]; }
message Thing { int32 a = 1; }
"""


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("protos")
    return contents(compile_request(directory, "treated", EVERY_TREATMENT))["api.md"]


@pytest.mark.parametrize(
    "row",
    [
        "| `n` | integer | `2` | 1 to 8 | How many \\| how few &lt;tags>. | effective |",
        "| `user` | string |  | at most 9 characters | Who asks. | no effect: nobody looks |",
        "| `store` | boolean |  |  | Kept for later. | **refused**: there is no shelf |",
        '| `effort` | string or number or [Plan](#plan) | **required** | `"low"`, `"high"`, '
        "above 0, at most 1 | How hard. | effective; only if hard |",
        "| `items` | array of string |  | at least 1 elements |  | effective |",
    ],
)
def test_a_field_says_all_its_options(document: str, row: str) -> None:
    assert row in document


def test_a_union_says_what_its_tag_is(document: str) -> None:
    assert 'Told by `type`, which is `"steps"` if absent:\n\n`"type": "steps"`: Steps.' in document


@pytest.mark.parametrize("route", REQUESTS)
def test_every_field_of_a_body_is_in_its_table(route: str) -> None:
    text = DOCUMENT.read_text("utf-8")
    section = text.partition(f"### POST {route}\n")[2].partition("\n### ")[0]

    rows = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)

    assert rows == field_names(route)


def test_every_link_leads_to_a_heading() -> None:
    text = DOCUMENT.read_text("utf-8")

    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}

    assert set(re.findall(r"\]\(#([^)]*)\)", text)) <= anchors
