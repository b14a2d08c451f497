"""Which version of an adapter a fleet uses, and when it is forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

from router_svc.errors import ErrorKind
from router_svc.fleet.adapters import AdapterBook
from router_svc.generation_types import Adapter

V1, V2 = Adapter("sql", "v1"), Adapter("sql", "v2")


@dataclass
class Engine:
    """What the book looks at of a member."""

    name: str
    adapters: dict[str, Adapter] = field(default_factory=dict)
    may_serve: bool = True
    leaving: bool = False


def book_of(engines: list[Engine]) -> AdapterBook:
    return AdapterBook(lambda: engines)  # type: ignore[arg-type, return-value] -- see Engine


def test_the_first_version_is_used_until_no_ready_engine_has_it_and_does_not_come_back_then() -> (
    None
):
    first, second = Engine("a", {"sql": V1}), Engine("b", {"sql": V2})
    book = book_of([first, second])
    assert book.find("sql") == V1

    first.may_serve = False
    assert book.find("sql") == V2

    first.may_serve = True
    assert book.find("sql") == V2
    assert book.all() == [V2]


def test_an_adapter_whose_engines_are_away_stays_known() -> None:
    engine, other = Engine("a", {"sql": V1}), Engine("b")
    book = book_of([engine, other])

    engine.may_serve = False

    assert book.find("sql") == V1
    assert book.missing(V1) is None


def test_an_adapter_whose_engines_are_no_longer_found_is_gone_once_another_is_ready() -> None:
    engines = [Engine("a", {"sql": V1})]
    book = book_of(engines)
    assert book.all() == [V1]

    engines.clear()
    assert (book.all(), book.missing(V1)) == ([V1], None)  # as its model is

    engines.append(Engine("b"))
    assert book.all() == []
    gone = book.missing(V1)
    assert gone is not None
    assert (gone.kind, gone.code) == (ErrorKind.NOT_FOUND, "model_not_found")


def test_an_engine_that_leaves_has_nothing_for_new_requests() -> None:
    engines = [Engine("a", {"sql": V1}), Engine("b")]
    book = book_of(engines)

    engines[0].leaving = True

    assert book.find("sql") is None


def test_a_version_that_was_replaced_is_another_adapter() -> None:
    engine = Engine("a", {"sql": V1})
    book = book_of([engine])
    assert book.find("sql") == V1

    engine.adapters = {"sql": V2}

    replaced = book.missing(V1)
    assert replaced is not None
    assert (replaced.kind, replaced.code) == (ErrorKind.UNAVAILABLE, "adapter_replaced")
