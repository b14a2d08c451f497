"""Compiling constraints: once each, within bounds, and never on the event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from engine_svc.constraints import compiler as module
from engine_svc.constraints.compiler import (
    MAX_WAITING,
    CompilerBusyError,
    ConstraintError,
    GrammarCompiler,
)
from engine_svc.constraints.constraint import Constraint
from tests.support.byte_tokenizer import END, VOCAB_SIZE, ids_of, write_byte_tokenizer


@pytest.fixture
def compiler(tmp_path: Path):
    """One whose limit of time is beyond what a crowded machine takes for many grammars."""
    made = GrammarCompiler(
        write_byte_tokenizer(tmp_path), VOCAB_SIZE, frozenset({END}), max_seconds=60
    )
    yield made
    made.close()


@pytest.fixture
def gate(monkeypatch):
    """Holds every translation back until it is set; counts them in `calls`."""
    event = threading.Event()
    event.calls = []
    event.started = threading.Semaphore(0)
    translate = module.grammars.to_lark

    def held_back(kind, text, choices):
        event.calls.append((kind, threading.current_thread().name))
        event.started.release()
        assert event.wait(20)
        return translate(kind, text, choices)

    monkeypatch.setattr(module.grammars, "to_lark", held_back)
    yield event
    event.set()


async def test_a_constraint_is_compiled_once_for_all_who_wait(compiler, gate) -> None:
    waiting = [asyncio.create_task(compiler.compile(Constraint("regex", "a+"))) for _ in range(5)]
    await asyncio.to_thread(gate.started.acquire)
    gate.set()

    grammars = await asyncio.gather(*waiting)

    assert len({id(grammar) for grammar in grammars}) == 1
    assert grammars[0] is await compiler.compile(Constraint("regex", "a+"))
    assert [name.partition("-")[0] for _, name in gate.calls] == ["grammars"]


async def test_one_who_gives_up_does_not_take_the_grammar_from_the_others(compiler, gate) -> None:
    first, second = (
        asyncio.create_task(compiler.compile(Constraint("regex", "a+"))) for _ in range(2)
    )
    await asyncio.to_thread(gate.started.acquire)
    first.cancel()
    await asyncio.wait([first])
    gate.set()

    assert (await second).new_matcher(ids_of("aa")).error is None


async def test_a_fault_is_told_to_each_and_not_kept(compiler, gate) -> None:
    gate.set()

    for _ in range(2):
        with pytest.raises(ConstraintError, match="unclosed group"):
            await compiler.compile(Constraint("regex", "("))

    assert len(gate.calls) == 2


async def test_the_oldest_grammars_are_forgotten(compiler, gate, monkeypatch) -> None:
    gate.set()
    monkeypatch.setattr(module, "_MAX_CACHED", 2)
    for text in ("a", "b", "a", "c", "a", "b"):
        await compiler.compile(Constraint("regex", text))

    assert len(gate.calls) == 4  # a, b, c, and b again


async def test_few_large_grammars_are_kept(compiler, gate, monkeypatch) -> None:
    gate.set()
    monkeypatch.setattr(module, "_MAX_CACHED_BYTES", 100)
    for text in ("a" * 60, "b" * 60, "a" * 60):
        await compiler.compile(Constraint("regex", text))

    assert len(gate.calls) == 3


async def test_what_takes_too_long_is_refused(tmp_path, gate) -> None:
    compiler = GrammarCompiler(
        write_byte_tokenizer(tmp_path), VOCAB_SIZE, frozenset({END}), max_seconds=0.05
    )
    first = asyncio.create_task(compiler.compile(Constraint("regex", "a")))
    await asyncio.to_thread(gate.started.acquire)

    # The first's time may have been over before a thread took it up; this one's begins only now.
    with pytest.raises(ConstraintError, match=r"longer to compile than the limit of 0\.05 s"):
        await compiler.compile(Constraint("regex", "a"))

    await asyncio.wait([first])
    assert first.exception() is not None
    compiler.close()


async def test_who_comes_while_others_are_compiled_too_slowly_is_to_come_again(
    tmp_path, gate
) -> None:
    compiler = GrammarCompiler(
        write_byte_tokenizer(tmp_path), VOCAB_SIZE, frozenset({END}), max_seconds=0.2
    )
    slow = [asyncio.create_task(compiler.compile(Constraint("regex", text))) for text in "ab"]
    await asyncio.to_thread(gate.started.acquire)
    await asyncio.to_thread(gate.started.acquire)

    with pytest.raises(CompilerBusyError, match="faster than they compile"):
        await compiler.compile(Constraint("regex", "c"))

    await asyncio.wait(slow)
    assert all(task.exception() is not None for task in slow)
    compiler.close()


async def test_only_so_many_wait(compiler, gate) -> None:
    gate.set()
    await compiler.compile(Constraint("regex", "first"))  # which has the tokeniser read
    gate.clear()
    waiting = [
        asyncio.create_task(compiler.compile(Constraint("regex", f"a{i}")))
        for i in range(MAX_WAITING)
    ]
    await asyncio.sleep(0)  # each has come

    with pytest.raises(CompilerBusyError, match=str(MAX_WAITING)):
        await compiler.compile(Constraint("regex", "one more"))

    gate.set()
    await asyncio.gather(*waiting)


async def test_a_model_without_a_tokeniser_has_its_constraints_refused(tmp_path) -> None:
    compiler = GrammarCompiler(tmp_path, VOCAB_SIZE, frozenset({END}))

    with pytest.raises(ConstraintError, match=r"for this model.*tokenizer\.json"):
        await compiler.compile(Constraint("regex", "a"))

    compiler.close()


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint("ebnf", "start: r0\n" + "".join(f"r{i}: r{i + 1}\n" for i in range(1900))
                   + 'r1900: "x"\n'),
        Constraint("regex", "(" * 100_000 + "a" + ")" * 100_000),
        Constraint("ebnf", "start: " + "(" * 100_000 + '"a"' + ")" * 100_000),
        Constraint("ebnf", "root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000),
        Constraint("json_schema", '{"items":' * 25_000 + "{}" + "}" * 25_000),
        Constraint("json_schema", '{"$ref":"#/$defs/0","$defs":{'
                   + ",".join(f'"{i}":{{"$ref":"#/$defs/{i + 1}"}}' for i in range(1900))
                   + ',"1900":{"type":"null"}}}'),
        Constraint("regex", "((((a){50}){50}){50}){50}"),
    ],
    ids=["rules", "regex", "groups", "gbnf", "schema", "references", "repeats"],
)  # fmt: skip
async def test_deep_and_wide_constraints_are_compiled_or_refused_and_the_process_lives(
    compiler, constraint
) -> None:
    try:
        grammar = await compiler.compile(constraint)
    except ConstraintError:
        return
    assert grammar.new_matcher().error is None
