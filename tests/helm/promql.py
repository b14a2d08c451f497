"""What a PromQL expression asks for."""

from __future__ import annotations

from typing import Any

import promql_parser


def selectors(expr: Any) -> list[Any]:
    """All selectors of series within an expression."""
    match expr:
        case promql_parser.VectorSelector():
            return [expr]
        case promql_parser.MatrixSelector():
            return [expr.vector_selector]
        case promql_parser.BinaryExpr():
            return selectors(expr.lhs) + selectors(expr.rhs)
        case promql_parser.Call():
            return [found for each in expr.args for found in selectors(each)]
        case promql_parser.AggregateExpr() | promql_parser.ParenExpr():
            return selectors(expr.expr)
        case promql_parser.NumberLiteral():
            return []
    raise AssertionError(f"what is {expr}?")
