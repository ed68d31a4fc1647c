"""The text of a chain: the operators' functions as calls in nested code.

The operators that hang together behind a source form a tree; its leaves are the exits. Operators
that several exits have in common are written once. The text reads the values of an input as f0, f1
and so on, so that the same text works on the columns of a frame and on a tuple.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from topo.columns import EmitText, LoopText, field_name
from topo.errors import StreamError
from topo.operators.codegen import Code
from topo.streams.graph import KEY, VALUE, Node
from topo.streams.partials import PanePartials, Partials
from topo.streams.records import lasting
from topo.streams.window_results import BOUNDS, PANE, Window, WindowResult, reported

STATELESS = {
    "map", "filter", "flat_map", "filter_map", "map_values", "flat_map_values", "key_by", "peek",
    "branch", "with_value", "values", "keys", "pairs",
}  # fmt: skip

LAST_IN_WINDOW: dict[str, Any] = {
    "ms": 1, "us": 1, "s": 0.000_001, "datetime": timedelta(microseconds=1),
}  # fmt: skip
"""By unit, from the last time in a window to its end."""


@dataclass
class ChainExit:
    """A place where elements leave the tree of a chain."""

    node: Node
    branch: str | None = None
    stream: str | None = None
    """The stream on which they are emitted; None for an action."""
    action: str | None = None
    """"for_each", "for_each_batch", "partial" or "panes"."""
    function: Any = None
    option: Any = None
    for_lookup: bool = False
    """The reader looks a table up, to which elements without a value are none."""
    needs_no_value: bool = False
    """The reader looks at keys alone, so that values need not travel."""
    reader: Node | None = None
    """The operator whose work is begun here, in part: errors are its."""


@dataclass(frozen=True)
class ChainSource:
    """The way in which the elements of a chain come out of a tuple."""

    fields: tuple[str, ...]
    keyed: bool
    window: bool = False
    """The fields are those of the result of a window, whose key is (key, window)."""
    by_window: bool = False
    """The keys are (key, window) already."""
    late: bool = False
    """The one field holds a tuple of key and value that came too late."""
    time: int | None = None
    """The position of the event time in the tuple; None if the stream is untimed."""
    hides_time: bool = False
    """The time was added by a chain before, so it is no part of the element."""
    time_is_end: bool = False
    """The time is the end of a window, and that of its result the last one in it."""
    unit: str = "ms"
    """That of the bounds of windows."""

    @property
    def is_single(self) -> bool:
        """True iff an element is one value of the tuple, not the tuple itself."""
        return len(self.fields) - self.hides_time == 1


@dataclass
class ChainPlan:
    """The plan of a chain bolt: picklable, without code."""

    source: ChainSource
    exits: list[ChainExit] = field(default_factory=list)
    timed: bool = False
    times: Any = None
    """A function of an element that gives it its time; None if it has one already, or none."""


@dataclass
class Gathered:
    """The things that exits of a chain gather within a batch; `by_exit` has their functions."""

    partials: list[tuple[str, Partials]] = field(default_factory=list)
    panes: list[tuple[str, PanePartials]] = field(default_factory=list)
    batches: list[tuple[Any, list[Any]]] = field(default_factory=list)
    by_exit: dict[int, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, exits: list[ChainExit]) -> Gathered:
        made = cls()
        for number, leaving in enumerate(exits):
            if leaving.action == "for_each_batch":
                items: list[Any] = []
                made.batches.append((leaving.function, items))
                made.by_exit[number] = items.append
            elif leaving.action == "partial":
                partial = Partials(leaving.option, keyed=leaving.node.keyed)
                made.partials.append((leaving.stream or "", partial))
                made.by_exit[number] = partial.add
            elif leaving.action == "panes":
                panes = PanePartials(*leaving.option)
                made.panes.append((leaving.stream or "", panes))
                made.by_exit[number] = panes.add
        return made


def path_to(node: Node) -> Iterator[Node]:
    """Yield the stateless operators from the source of a chain to a node, in order."""
    if node.kind in STATELESS:
        yield from path_to(node.inputs[0])
        yield node


@dataclass
class _Tree:
    """The operators of all exits, those they have in common once."""

    exits: list[ChainExit] = field(default_factory=list)
    children: list[tuple[Node, _Tree]] = field(default_factory=list)
    branches: dict[str, _Tree] = field(default_factory=dict)

    @classmethod
    def of(cls, exits: list[ChainExit]) -> _Tree:
        root = cls()
        for leaving in exits:
            tree = root
            for node in path_to(leaving.node):
                tree = tree.child(node)
                if node.kind == "branch":
                    tree = tree.branch(node.options["taken"])
            tree.exits.append(leaving)
        return root

    def child(self, node: Node) -> _Tree:
        same = node.options.get("branch", node)
        for known, tree in self.children:
            if known.options.get("branch", known) is same:
                return tree
        tree = _Tree()
        self.children.append((node, tree))
        return tree

    def branch(self, name: str) -> _Tree:
        return self.branches.setdefault(name, _Tree())


class ChainCode(Code[Node]):
    """A writer of the text of one chain; the owners of its lines are operators."""

    def __init__(self, plan: ChainPlan, gathered: Gathered, emits: EmitText) -> None:
        super().__init__()
        self._plan = plan
        self._gathered = gathered
        self._emits = emits
        self._reads: dict[int, None] = {}
        self._windowed_key = ""
        """The variable of a key (key, window), which makes a pair the result of a window."""
        source = plan.source
        self._makes_tuple = not (source.window or source.keyed or source.is_single)

    def text(self) -> LoopText:
        """Return the text of the operators from the source to each exit."""
        source = self._plan.source
        value, key = "tup", None
        if source.window:
            key, value = self._window_key(), self._field(source.fields.index(VALUE))
        elif source.late:
            key, value = self.variable(), self.variable()
            of_tuple = self._field(0)
            self.line(f"{key}, {value} = {of_tuple}[0], {of_tuple}[1]", None)
        elif source.keyed:
            key, value = self._field(0), self._field(1)
            self._windowed_key = key if source.by_window else ""
        elif source.is_single:
            value = self._field(0)
        self._write_children(_Tree.of(self._plan.exits), value, key)
        reads = sorted(self._reads) or [0]
        return LoopText(self.lines, {**self.names, **self._emits.names}, reads, self._makes_tuple)

    def _window_key(self) -> str:
        """Write the key (key, window) of a window's result; return its variable."""
        fields = self._plan.source.fields
        parts = [self._field(fields.index(name)) for name in BOUNDS]
        pane = [f"{name}={self._field(fields.index(name))}" for name in PANE if name in fields]
        window = self.name("window", reported if pane else Window)
        key = self._windowed_key = self.variable()
        of_key = self._field(fields.index(KEY))
        self.line(f"{key} = ({of_key}, {window}({', '.join(parts + pane)}))", None)
        return key

    # -- text ---------------------------------------------------------------------------------

    def _field(self, position: int) -> str:
        self._reads[position] = None
        return field_name(position)

    def _time(self) -> str:
        source = self._plan.source
        assert source.time is not None, "the chain is timed"
        text = self._field(source.time)
        if source.time_is_end:
            return f"{text} - {self.name('tick', LAST_IN_WINDOW[source.unit])}"
        return text

    def _whole(self, value: str, key: str | None) -> str:
        """Return the expression of an element: the value, a pair, or the result of a window."""
        if key is None:
            return value
        pair = f"({key}, {value})"
        if key == self._windowed_key:
            return f"{self.name('result', WindowResult)}({pair})"
        return pair

    # -- operators ----------------------------------------------------------------------------

    def _write_children(self, tree: _Tree, value: str, key: str | None) -> None:
        for leaving in tree.exits:
            self._write_exit(leaving, value, key)
        for node, child in tree.children:
            before = self.depth
            if node.kind == "branch":
                self._write_branch(node, child, value, key)
            elif (each := self._each(node, child, value, key)) is not None:
                self._write_children(child, *each)
            self.depth = before

    def _each(
        self, node: Node, child: _Tree, value: str, key: str | None
    ) -> tuple[str, str | None] | None:
        """Write one operator; return the variables of its elements, None if they have left."""
        if node.kind != "flat_map":
            return self._write_operator(node, value, key)
        fresh = self.variable()
        whole = self._whole(value, key)
        each = f"{self.name(node.kind, node.function)}({whole}) or ()"
        if self._write_each(node, child, fresh, each):
            return None
        self.line(f"for {fresh} in {each}:", node)
        self.depth += 1
        return fresh, None

    def _write_operator(self, node: Node, value: str, key: str | None) -> tuple[str, str | None]:
        """Write one operator; return the variables of its elements."""
        function = "" if node.function is None else self.name(node.kind, node.function)
        fresh = self.variable()
        whole = self._whole(value, key)
        kind = node.kind
        if kind == "map":
            self.line(f"{fresh} = {function}({whole})", node)
            return fresh, None
        if kind == "map_values":
            self.line(f"{fresh} = {function}({value})", node)
            return fresh, key
        if kind == "flat_map_values":
            self.line(f"for {fresh} in {function}({value}) or ():", node)
            self.depth += 1
            return fresh, key
        if kind == "filter_map":
            self.line(f"{fresh} = {function}({whole})", node)
            self.line(f"if {fresh} is not None:", node)
            self.depth += 1
            return fresh, None
        if kind == "filter":
            self.line(f"if {function}({whole}):", node)
            self.depth += 1
            return value, key
        if kind == "with_value":
            self.line(f"if {value} is not None:", node)
            self.depth += 1
            return value, key
        if kind == "peek":
            self.line(f"{function}({whole})", node)
            return value, key
        if kind == "key_by":
            # A tuple of the runtime is equal to nothing but itself, which no key may be.
            made = self._lasting(f"{function}({whole})" if function else whole)
            self.line(f"{fresh} = {made}", node)
            return value if key is None else whole, fresh
        if kind == "values":
            return value, None
        if kind == "keys":
            return str(key), None
        if kind == "pairs":
            self.line(f"{fresh}k, {fresh} = {whole}", node)
            return fresh, f"{fresh}k"
        raise StreamError(f"internal error: no chain has {kind!r}; please report this")

    def _write_branch(self, node: Node, child: _Tree, value: str, key: str | None) -> None:
        whole = self._whole(value, key)
        word = "if"
        for name, predicate in node.function:
            part = child.branch(name)
            if predicate is None:
                self.line("else:" if word == "elif" else "if True:", node)
            else:
                self.line(f"{word} {self.name('branch', predicate)}({whole}):", node)
            word = "elif"
            self.depth += 1
            self.line("pass", None)
            before = self.depth
            self._write_children(part, value, key)
            self.depth = before - 1

    def _write_exit(self, leaving: ChainExit, value: str, key: str | None) -> None:
        whole = self._whole(value, key)
        if leaving.action == "for_each":
            self.line(f"{self.name('for_each', leaving.function)}({whole})", leaving.node)
            return
        if leaving.action is None:
            for line in self._emits.emit(leaving.stream or "", self._row(leaving, value, key)):
                self.line(line, leaving.node)
            return
        lasting_value = self._lasting(value)
        gather = self.name(leaving.action, self._gathered.by_exit[self._plan.exits.index(leaving)])
        if leaving.action == "for_each_batch":
            arguments = self._whole(lasting_value, key)
        elif leaving.action == "partial":
            arguments = f"{key}, {lasting_value}"
        else:
            arguments = f"{key}, {lasting_value}, {self._time()}"
        self.line(f"{gather}({arguments})", leaving.reader or leaving.node)

    def _row(self, leaving: ChainExit, value: str, key: str | None) -> list[str]:
        value = "None" if leaving.needs_no_value else self._lasting(value)
        row = [value] if key is None else [key, value]
        if not self._plan.timed:
            return row
        if self._plan.times is None:
            return [*row, self._time()]
        return [*row, f"{self.name('times', self._plan.times)}({self._whole(value, key)})"]

    def _lasting(self, value: str) -> str:
        """Return the expression of a value that outlives its input, which may be the tuple."""
        return f"{self.name('lasting', lasting)}({value})" if self._makes_tuple else value

    def _write_each(self, node: Node, child: _Tree, fresh: str, each: str) -> bool:
        """Write an operator whose results leave as they are in one line, if that can be done."""
        if self._makes_tuple:
            return False
        key: str | None = None
        while not child.exits and len(child.children) == 1:
            (renaming, child) = child.children[0]
            if renaming.kind != "key_by" or renaming.function is not None:
                return False
            key = fresh
        if child.children or len(child.exits) != 1 or child.exits[0].action is not None:
            return False
        leaving = child.exits[0]
        row = self._row(leaving, fresh, key)
        line = self._emits.emit_each(leaving.stream or "", row, fresh, each)
        if line is not None:
            self.line(line, node)
        return line is not None
