"""Constrained output of the real model: whatever it would rather say, what it says is valid."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import jsonschema
import pytest
from google.rpc.error_details_pb2 import BadRequest
from google.rpc.status_pb2 import Status
from octavo.engine.v1 import engine_pb2 as pb
from tokenizers import Tokenizer

from tests.support.constrained import PROMPT, collect, engine_process, request
from tests.support.json_schemas import SCHEMAS

WIDTH = 8
SPECULATION = (
    '--speculative-config={"method":"ngram","num_speculative_tokens":4,'
    '"prompt_lookup_max":3,"prompt_lookup_min":1}'
)
ARGS = ("--max-model-len=1024", "--kv-cache-memory-bytes=100000000")
THOUGHT_AND_NUMBER = {
    "type": "sequence",
    "elements": [
        {
            "type": "tag",
            "begin": "<t>",
            "content": {"type": "any_text", "max_chars": 40},
            "end": "</t>",
        },
        {"type": "regex", "pattern": "[0-9]{2}"},
    ],
}
PERSON = json.dumps(SCHEMAS["person"])


class Model:
    """The engine and its tokeniser."""

    def __init__(self, stub, tokenizer):
        self.stub = stub
        self._tokenizer = tokenizer

    def ids(self, text):
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, answer):
        """Of an answer that ended by itself, all but its end token."""
        ids = answer.token_ids
        if answer.stop_token_id is not None:
            assert ids[-1] == answer.stop_token_id
            ids = ids[:-1]
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def ask(self, constraint, prompt=PROMPT, **fields):
        return collect(self.stub.Generate(request(self.ids(prompt), constraint, **fields)))

    def ask_together(self, many):
        """Answers to (constraint, fields) each, WIDTH at a time."""
        with ThreadPoolExecutor(WIDTH) as threads:
            return list(threads.map(lambda one: self.ask(one[0], **one[1]), many))


@pytest.fixture(scope="module")
def tokenizer(smollm2_checkpoint):
    return Tokenizer.from_file(str(smollm2_checkpoint / "tokenizer.json"))


@pytest.fixture(scope="module")
def model(smollm2_checkpoint, tokenizer):
    with engine_process(smollm2_checkpoint, "--dtype=bfloat16", *ARGS) as stub:
        yield Model(stub, tokenizer)


@pytest.fixture(scope="module")
def guessing_model(smollm2_checkpoint, tokenizer):
    with engine_process(smollm2_checkpoint, "--dtype=bfloat16", SPECULATION, *ARGS) as stub:
        yield Model(stub, tokenizer)


def refusal(model, constraint, **fields):
    """The field that a refused request names, and the message."""
    with pytest.raises(grpc.RpcError) as refused:
        model.ask(constraint, **fields)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    metadata = dict(refused.value.trailing_metadata())
    (packed,) = Status.FromString(metadata["grpc-status-details-bin"]).details
    details = BadRequest()
    packed.Unpack(details)
    (violation,) = details.field_violations
    return violation.field, violation.description


def test_every_finished_answer_is_valid_by_its_schema(model):
    assert len(SCHEMAS) >= 60
    asked = [
        (pb.Constraint(json_schema=json.dumps(schema)), {"seed": 1000 + i, "max_tokens": 300})
        for i, schema in enumerate(SCHEMAS.values())
    ]

    answers = [answer for (answer,) in model.ask_together(asked)]

    finished = 0
    for (name, schema), answer in zip(SCHEMAS.items(), answers, strict=True):
        text = model.text(answer)
        if answer.is_complete:
            finished += 1
            jsonschema.validate(json.loads(text), schema), name
        else:
            assert len(answer.token_ids) == 300, name
        assert not re.search(r"[ \n]{2}", re.sub(r'"(\\.|[^"\\])*"?', '""', text)), name
    assert finished >= 0.9 * len(SCHEMAS)


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        (pb.Constraint(regex=r"^\d{3}-\d{4}$"), r"\d{3}-\d{4}"),
        (pb.Constraint(regex="(ab|ба|😀){2,3}"), "(ab|ба|😀){2,3}"),
        (pb.Constraint(choice=pb.ChoiceList(items=["yes", "no", "yes, but", "ні"])),
         "yes|no|yes, but|ні"),
        (pb.Constraint(ebnf='start: N ("+" N)?\nN: /[0-9]{1,3}/'), r"\d{1,3}(\+\d{1,3})?"),
        (pb.Constraint(ebnf='root ::= [a-c] [a-c] "!"?'), "[a-c]{2}!?"),
        (pb.Constraint(structural_tag=json.dumps({"format": THOUGHT_AND_NUMBER})),
         r"(?s)<t>.{0,40}</t>\d\d"),
    ],
    ids=["regex", "unicode", "choice", "lark", "gbnf", "formats"],
)  # fmt: skip
def test_other_notations(model, constraint, pattern):
    answers = model.ask(constraint, n=4)

    assert all(answer.is_complete for answer in answers)
    assert all(re.fullmatch(pattern, model.text(answer)) for answer in answers)


def test_a_tag_obliges_once_its_trigger_is_written(model):
    tag = {
        "type": "structural_tag",
        "triggers": ["Answer"],
        "structures": [{"begin": "Answer: ", "schema": {"enum": [41, 42]}, "end": "."}],
    }
    constraint = pb.Constraint(structural_tag=json.dumps(tag))
    prompt = "Question: 6*7? Answer: 42. Question: 40+1? Answer: 41. Question: 84/2?"

    answers = model.ask(constraint, prompt, temperature=0.0, max_tokens=24)

    (text,) = map(model.text, answers)
    assert "Answer" in text
    assert re.fullmatch(r"(?s)((?!Answer).)*(Answer: 4[12]\.((?!Answer).)*)+", text)


@pytest.mark.parametrize(
    ("constraint", "field", "words"),
    [
        (pb.Constraint(), "constraint", "needs one of"),
        (pb.Constraint(json_schema='{"type": "stsring"}'), "constraint.json_schema", "stsring"),
        (pb.Constraint(json_schema="{"), "constraint.json_schema", "not JSON"),
        (pb.Constraint(json_schema="true"), "constraint.json_schema", "object"),
        (pb.Constraint(json_schema='{"$ref": "#"}'), "constraint.json_schema", "nothing"),
        (pb.Constraint(json_schema='{"$ref": "http://x/y"}'), "constraint.json_schema", "http://x"),
        (pb.Constraint(json_schema='{"enum": []}'), "constraint.json_schema", "nsatisfiable"),
        (pb.Constraint(json_schema='{"uniqueItems": true}'), "constraint.json_schema", "uniqueIt"),
        (pb.Constraint(json_schema=" " * 300_000), "constraint.json_schema", "262144"),
        (pb.Constraint(regex="(a"), "constraint.regex", "unclosed group"),
        (pb.Constraint(regex="a(?=b)"), "constraint.regex", "look-around"),
        (pb.Constraint(choice=pb.ChoiceList()), "constraint.choice", "at least one"),
        (pb.Constraint(choice=pb.ChoiceList(items=["a", ""])), "constraint.choice", "empty"),
        (pb.Constraint(ebnf='a: "b"'), "constraint.ebnf", "start"),
        (pb.Constraint(ebnf="root ::= ("), "constraint.ebnf", "GBNF"),
        (pb.Constraint(structural_tag="[]"), "constraint.structural_tag", "object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_enforced_is_refused(model, constraint, field, words):
    named, message = refusal(model, constraint)

    assert named == field
    assert words in message


def test_nothing_overrules_a_grammar(model):
    newline = model.ids("\n")[0]
    sampling = pb.SamplingParams(logit_bias={newline: 100.0}, presence_penalty=-2.0)

    (answer,) = model.ask(pb.Constraint(json_schema=PERSON), sampling=sampling, seed=3)

    text = model.text(answer)
    assert answer.is_complete
    assert "\n\n" not in text
    jsonschema.validate(json.loads(text), SCHEMAS["person"])


def test_a_grammar_that_is_complete_ends_the_output_whatever_else_is_asked(model):
    constraint = pb.Constraint(choice=pb.ChoiceList(items=["yes", "no"]))
    stopping = pb.StoppingParams(max_tokens=50, min_tokens=20, ignore_eos=True)

    (answer,) = model.ask(constraint, stopping=stopping)

    assert (answer.reason, answer.stop_token_id) == (pb.FINISH_REASON_STOP, None)
    assert model.text(answer) in ("yes", "no")


def test_log_probabilities_are_of_the_model_not_of_the_grammar(model):
    logprobs = pb.LogprobsParams(top_k=0)
    (answer,) = model.ask(pb.Constraint(json_schema=PERSON), logprobs=logprobs, seed=5)

    again = request(
        model.ids(PROMPT) + answer.token_ids,
        max_tokens=1,
        logprobs=pb.LogprobsParams(prompt_top_k=0, prompt_from=len(model.ids(PROMPT))),
    )
    scored = [
        value
        for event in model.stub.Generate(again)
        for value in event.prompt_logprobs.logprobs.token_logprobs
    ]

    assert answer.logprobs == scored


def test_alone_batched_guessed_and_with_logprobs_the_tokens_are_the_same(model, guessing_model):
    names = ["person", "chain", "array of objects", "enum in scripts", "invoice", "wide"]
    asked = [
        (
            pb.Constraint(json_schema=json.dumps(SCHEMAS[name])),
            {"seed": i, "temperature": i % 2 * 0.8, "max_tokens": 120, "n": 2},
        )
        for i, name in enumerate(names)
    ]
    with_logprobs = [(c, more | {"logprobs": pb.LogprobsParams(top_k=2)}) for c, more in asked]

    def tokens(answers):
        return [[answer.token_ids for answer in choices] for choices in answers]

    alone = tokens(model.ask(constraint, **more) for constraint, more in asked)

    assert tokens(model.ask_together(asked)) == alone
    assert tokens(model.ask_together(with_logprobs)) == alone
    assert tokens(guessing_model.ask_together(asked)) == alone
    assert tokens(guessing_model.ask(constraint, **more) for constraint, more in asked) == alone


def test_a_resumed_output_goes_on_as_it_would_have(model):
    constraint = pb.Constraint(json_schema=PERSON)
    (whole,) = model.ask(constraint, seed=9)

    for cut in (1, 4, len(whole.token_ids) - 1):
        resume = [pb.ResumeChoice(output_token_ids=whole.token_ids[:cut])]
        (rest,) = model.ask(constraint, seed=9, resume=resume)
        assert rest.token_ids == whole.token_ids[cut:]
        assert rest.stop_token_id == whole.stop_token_id


def test_an_output_that_was_complete_when_it_was_cut_off_ends_at_once(model):
    constraint = pb.Constraint(choice=pb.ChoiceList(items=["yes", "no"]))
    (whole,) = model.ask(constraint)

    resume = [pb.ResumeChoice(output_token_ids=whole.token_ids)]
    (rest,) = model.ask(constraint, resume=resume)

    assert (rest.token_ids, rest.reason) == ([], pb.FINISH_REASON_STOP)


def test_a_resumed_output_that_breaks_the_grammar_is_refused(model):
    resume = [pb.ResumeChoice(output_token_ids=model.ids("perhaps"))]
    constraint = pb.Constraint(choice=pb.ChoiceList(items=["yes", "no"]))

    assert refusal(model, constraint, resume=resume)[0] == "resume"


def test_requests_of_a_session_are_compiled_beside_each_other(model):
    good = pb.Constraint(choice=pb.ChoiceList(items=["yes", "no"]))
    schema = json.dumps(SCHEMAS["invoice"] | {"title": "not compiled before"})
    submits = {
        1: request(model.ids(PROMPT), pb.Constraint(regex="(")),
        2: request(model.ids(PROMPT), pb.Constraint(json_schema=schema)),
        3: request(model.ids(PROMPT), good, n=2),
        4: request(model.ids(PROMPT), max_tokens=3),
    }
    frames = [pb.SessionRequest(stream_id=i, submit=submit) for i, submit in submits.items()]
    frames.insert(2, pb.SessionRequest(stream_id=2, cancel=pb.CancelFrame()))
    frames.append(pb.SessionRequest(stream_id=3, cancel=pb.CancelFrame(choice=1)))
    done = threading.Event()

    def sent():
        yield from frames
        done.wait(60)

    finished, failed = Counter(), {}
    for message in model.stub.Session(sent()):
        for event in message.events:
            if event.WhichOneof("outcome") == "failure":
                failed[event.stream_id] = event.failure
            elif event.event.WhichOneof("event") == "finish":
                finished[event.stream_id] += 1
        if finished[3] == 2 and finished[4] == 1 and failed:
            done.set()

    assert finished == {3: 2, 4: 1}
    assert failed.keys() == {1}
    assert failed[1].code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "constraint.regex" in failed[1].message


def test_many_may_ask_for_the_same_new_grammar_at_once(model):
    schema = json.dumps(SCHEMAS["shapes"] | {"title": "new as well"})

    answers = model.ask_together(
        [(pb.Constraint(json_schema=schema), {"seed": i}) for i in range(16)]
    )

    for (answer,) in answers:
        assert answer.is_complete
        jsonschema.validate(json.loads(model.text(answer)), SCHEMAS["shapes"])
