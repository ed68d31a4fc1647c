"""The language of conditions: Python expressions that can run nothing, for patterns and rules.

A condition comes from a program, a file or a stream, so it is parsed and looked through node by
node, and what is not listed in `grammar` is refused with its place. Nothing of its text is ever
run: a new text is written from the tree, in which a name of the user's is a variable of topo's.

    condition = parse("price < 100 and city in ('Rome', 'Oslo')", "rule 'cheap'")
    condition.reads              Field("price"), Field("city"): what it reads, each once
    condition.fields             ("price", "city"), the names among them
    condition.check_fields(...)  raises a ConditionError that asks "did you mean?"
    condition.tables             the (table, field) pairs that it looks up

`parse(text, what, kind=...)`: `what` begins every message. The kinds:

    EVENT    fields of one event
    PATTERN  also `b.price` (the last taken event of part b), `b[0].price` (its first), and
             `count(b)`, `sum(b.price)` and the other aggregates over all that b took
    HAVING   also `count()`, `sum(bytes)` and the other aggregates over the events that count

Compiled, with None as the language has it (a comparison with None is false, arithmetic with it is
None; `x == None` asks as `x is None` does):

    row_function(condition, fields, lookup)   a function of a row of values
    mask_function(conditions, fields, lookup) bit n of a row's mask: condition n holds
    masks_by_value(conditions, places)        the same as a dict of one field's values, or None
    text_of(condition, read)                  the text of the expression, for own loops; `read`
                                              returns the text of a read, NAMES are its names
    raised_by(condition, error, values)       the ConditionError that tells text and values

`terms(condition)` is its disjunctive form, for an index: each term is a tuple of `Comparison`s of
a field with a constant, and of `Rest`s, which only a row decides. None if there are too many.
"""

from topo.conditions.code import (
    NAMES,
    mask_function,
    masks_by_value,
    raised_by,
    row_function,
    text_of,
    value_function,
)
from topo.conditions.condition import Condition, parse
from topo.conditions.grammar import EVENT, HAVING, PATTERN
from topo.conditions.reads import Aggregate, Field, PartField, Read
from topo.conditions.terms import Comparison, Rest, terms

__all__ = [
    "EVENT",
    "HAVING",
    "NAMES",
    "PATTERN",
    "Aggregate",
    "Comparison",
    "Condition",
    "Field",
    "PartField",
    "Read",
    "Rest",
    "mask_function",
    "masks_by_value",
    "parse",
    "raised_by",
    "row_function",
    "terms",
    "text_of",
    "value_function",
]
