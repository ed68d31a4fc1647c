"""Stateless operators as one bolt: a chain becomes one generated function.

The operators that hang together behind a source form a tree; its leaves are exits, each a stream of
the bolt or an action. The function of the tree is generated as text, with the operators' functions
as calls in nested code, so that an element passes five operators in five calls and no generator,
tuple or list in between.

An exception shows the user's function and line; which operator called it is read off the line of
the generated code, and added as a note. Nothing of this costs anything while nothing fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from keyword import iskeyword
from typing import Any

from topo.collectors import BasicOutputCollector
from topo.components import BasicBolt, OutputFieldsDeclarer
from topo.context import TopologyContext
from topo.errors import StreamError
from topo.streams.graph import Node
from topo.streams.partials import PanePartials, Partials
from topo.streams.records import lasting
from topo.traces import GENERATED
from topo.tuples import RESERVED_FIELD_NAMES, Tuple

KEY, VALUE, TIME = "key", "value", "ts"

STATELESS = {
    "map", "filter", "flat_map", "filter_map", "map_values", "flat_map_values", "key_by", "peek",
    "branch", "with_value", "values", "keys", "pairs",
}  # fmt: skip


_DROPS = {"filter", "flat_map", "filter_map", "flat_map_values", "branch"}
NEVER = -(1 << 63)
"""Before every time."""
LAST_IN_WINDOW: dict[str, Any] = {
    "ms": 1, "us": 1, "s": 0.000_001, "datetime": timedelta(microseconds=1),
}  # fmt: skip
"""By unit, from the last time in a window to its end."""


@dataclass
class Exit:
    """A place where elements leave the tree of a chain."""

    node: Node
    branch: str | None = None
    stream: str | None = None
    """The stream on which they are emitted; None for an action."""
    action: str | None = None
    """"for_each", "for_each_batch", "partial" or "panes"."""
    function: Any = None
    option: Any = None
    needs_no_value: bool = False
    """The reader looks at keys alone, so that values need not travel."""


@dataclass(frozen=True)
class Source:
    """The way in which the elements of a chain come out of a tuple."""

    fields: tuple[str, ...]
    keyed: bool
    window: bool = False
    time: int | None = None
    """The position of the event time in the tuple; None if the stream is untimed."""
    hides_time: bool = False
    """The time was added by a chain before, so it is no part of the element."""
    unit: str = "ms"
    """That of the bounds of windows: the time of a result is the last one in its window."""

    def read(self, place: int) -> str:
        """Return the source that reads a field: by attribute, which is faster, if that means it."""
        name = self.fields[place]
        by_name = name.isidentifier() and not iskeyword(name) and not name.startswith("_")
        return f"tup.{name}" if by_name and name not in RESERVED_FIELD_NAMES else f"tup[{place}]"


@dataclass
class ChainPlan:
    """The plan of a chain bolt: picklable, without code."""

    source: Source
    exits: list[Exit] = field(default_factory=list)
    timed: bool = False


class ChainBolt(BasicBolt):
    """The stateless operators behind one source."""

    stateless = True
    transient = ("run", "partials", "panes", "batches", "where", "seen")

    def __init__(self, plan: ChainPlan) -> None:
        self.plan = plan

    def declare_output_fields(self, declarer: OutputFieldsDeclarer) -> None:
        for leaving in self.plan.exits:
            if leaving.stream is not None:
                declarer.declare_stream(leaving.stream, *exit_fields(self.plan, leaving))

    def prepare(
        self, conf: Mapping[str, Any], context: TopologyContext, collector: BasicOutputCollector
    ) -> None:
        self.partials: list[tuple[str, Partials]] = []
        self.panes: list[tuple[str, PanePartials]] = []
        self.seen: list[Any] = [NEVER]
        self.batches: list[tuple[Any, list[Any]]] = []
        self.run, self.where = self._generate()

    def execute(self, tup: Tuple) -> None:
        try:
            self.run(tup)
        except Exception as error:
            self._name_operator(error)
            raise

    def pre_commit(self, batch_id: int) -> None:
        for stream, partial in self.partials:
            for row in partial.take():
                self.collector.emit(row, stream=stream)
        for stream, panes in self.panes:
            for ts in panes.take_highest():
                self.collector.observe_time(ts, stream)
            for row in panes.take():
                self.collector.emit(row, stream=stream)
        if self.seen[0] > NEVER:
            for leaving in self.plan.exits:
                if leaving.stream is not None and leaving.action != "partial":
                    self.collector.observe_time(self.seen[0], leaving.stream)
            self.seen[0] = NEVER
        for function, items in self.batches:
            gathered = items[:]
            items.clear()
            function(batch_id, gathered)

    def _name_operator(self, error: Exception) -> None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == GENERATED:
                node = self.where.get(trace.tb_lineno)
                if node is not None:
                    error.add_note(f"in {node}")
                return
            trace = trace.tb_next

    # -- generated code -----------------------------------------------------------------------

    def _generate(self) -> tuple[Callable[[Tuple], None], dict[int, Node]]:
        writer = _Writer()
        source = self.plan.source
        writer.line("def run(tup):", None)
        writer.depth += 1
        if source.window:
            bounds = "tup.start, tup.end"
            window = writer.name("window", _window)
            writer.line(f"key, value = (tup.key, {window}({bounds})), tup.value", None)
        elif source.keyed:
            writer.line(f"key, value = {source.read(0)}, {source.read(1)}", None)
        elif len(source.fields) - source.hides_time == 1:
            writer.line(f"value = {source.read(0)}", None)
        else:
            writer.line("value = tup", None)
        if source.time is not None:
            last = LAST_IN_WINDOW[source.unit]
            at_end = f" - {writer.name('tick', last)}" if source.window else ""
            writer.line(f"ts = {source.read(source.time)}{at_end}", None)
            if self._may_drop():
                # A selective filter must not hold the watermark back.
                seen, number = writer.name("seen", self.seen), "int"
                if source.window:
                    number = type(last).__name__
                writer.line(f"if type(ts) is {number} and ts > {seen}[0]: {seen}[0] = ts", None)
        writer.lasts = len(source.fields) - source.hides_time == 1 or source.keyed
        self._write_tree(writer)
        namespace = dict(writer.names)
        exec(compile("\n".join(writer.lines), GENERATED, "exec"), namespace)
        return namespace["run"], writer.where

    def _may_drop(self) -> bool:
        """Return True if an element may leave the chain by no stream."""
        path = {node.kind for leaving in self.plan.exits for node in path_to(leaving.node)}
        return bool(path & _DROPS) and any(leaving.stream for leaving in self.plan.exits)

    def _write_tree(self, writer: _Writer) -> None:
        """Write the operators from the source to each exit; common ones are written once."""
        tree = _Tree.of(self.plan.exits)
        self._write_children(writer, tree, "value", "key" if self.plan.source.keyed else None)

    def _write_children(self, writer: _Writer, tree: _Tree, value: str, key: str | None) -> None:
        for leaving in tree.exits:
            self._write_exit(writer, leaving, value, key)
        for node, child in tree.children:
            before = writer.depth
            if node.kind == "branch":
                self._write_branch(writer, node, child, value, key)
            else:
                new_value, new_key = self._write_operator(writer, node, value, key)
                self._write_children(writer, child, new_value, new_key)
            writer.depth = before

    def _write_operator(
        self, writer: _Writer, node: Node, value: str, key: str | None
    ) -> tuple[str, str | None]:
        """Write one operator; return the variables of its elements."""
        function = "" if node.function is None else writer.name(node.kind, node.function)
        fresh = writer.variable()
        whole = value if key is None else f"({key}, {value})"
        kind = node.kind
        if kind == "map":
            writer.line(f"{fresh} = {function}({whole})", node)
            return fresh, None
        if kind == "map_values":
            writer.line(f"{fresh} = {function}({value})", node)
            return fresh, key
        if kind in ("flat_map", "flat_map_values"):
            of = whole if kind == "flat_map" else value
            writer.line(f"for {fresh} in {function}({of}) or ():", node)
            writer.depth += 1
            return fresh, None if kind == "flat_map" else key
        if kind == "filter_map":
            writer.line(f"{fresh} = {function}({whole})", node)
            writer.line(f"if {fresh} is not None:", node)
            writer.depth += 1
            return fresh, None
        if kind == "filter":
            writer.line(f"if {function}({whole}):", node)
            writer.depth += 1
            return value, key
        if kind == "with_value":
            writer.line(f"if {value} is not None:", node)
            writer.depth += 1
            return value, key
        if kind == "peek":
            writer.line(f"{function}({whole})", node)
            return value, key
        if kind == "key_by":
            writer.line(
                f"{fresh} = {function}({whole})" if function else f"{fresh} = {value}", node
            )
            return value if key is None else whole, fresh
        if kind == "values":
            return value, None
        if kind == "keys":
            return str(key), None
        if kind == "pairs":
            writer.line(f"{fresh}k, {fresh} = {whole}", node)
            return fresh, f"{fresh}k"
        raise StreamError(f"internal error: no chain has {kind!r}; please report this")

    def _write_branch(
        self, writer: _Writer, node: Node, child: _Tree, value: str, key: str | None
    ) -> None:
        whole = value if key is None else f"({key}, {value})"
        word = "if"
        for name, predicate in node.function:
            part = child.branch(name)
            if predicate is None:
                writer.line("else:" if word == "elif" else "if True:", node)
            else:
                writer.line(f"{word} {writer.name('branch', predicate)}({whole}):", node)
            word = "elif"
            writer.depth += 1
            writer.line("pass", None)
            before = writer.depth
            self._write_children(writer, part, value, key)
            writer.depth = before - 1

    def _write_exit(self, writer: _Writer, leaving: Exit, value: str, key: str | None) -> None:
        whole = value if key is None else f"({key}, {value})"
        if leaving.action == "for_each":
            writer.line(f"{writer.name('for_each', leaving.function)}({whole})", leaving.node)
            return
        if not writer.lasts:
            as_record = writer.name("lasting", lasting)
            value = f"{as_record}({value})"
            whole = value if key is None else f"({key}, {value})"
        if leaving.action == "for_each_batch":
            items: list[Any] = []
            self.batches.append((leaving.function, items))
            writer.line(f"{writer.name('gather', items.append)}({whole})", leaving.node)
            return
        if leaving.action == "partial":
            assert leaving.stream is not None
            partial = Partials(leaving.option, keyed=key is not None)
            self.partials.append((leaving.stream, partial))
            add = writer.name("partial", partial.add)
            writer.line(f"{add}({key}, {value})", leaving.node)
            return
        if leaving.action == "panes":
            assert leaving.stream is not None
            panes = PanePartials(*leaving.option)
            self.panes.append((leaving.stream, panes))
            writer.line(f"{writer.name('panes', panes.add)}({key}, {value}, ts)", leaving.node)
            return
        emit = writer.name("emit", self.emit)
        if leaving.needs_no_value:
            value = "None"
        row = [value] if key is None else [key, value]
        if self.plan.timed:
            row.append("ts")
        stream = "" if leaving.stream == "default" else f", stream={leaving.stream!r}"
        writer.line(f"{emit}([{', '.join(row)}]{stream})", leaving.node)


def exit_fields(plan: ChainPlan, leaving: Exit) -> tuple[str, ...]:
    """Return the fields of the stream of an exit."""
    if leaving.action == "partial":
        return (KEY, VALUE) if leaving.node.keyed else (VALUE,)
    fields = (KEY, VALUE) if leaving.node.keyed else (VALUE,)
    return (*fields, TIME) if plan.timed else fields


def path_to(node: Node) -> Iterator[Node]:
    """Yield the stateless operators from the source of a chain to a node, in order."""
    if node.kind in STATELESS:
        yield from path_to(node.inputs[0])
        yield node


@dataclass
class _Tree:
    """The operators of all exits, those they have in common once."""

    exits: list[Exit] = field(default_factory=list)
    children: list[tuple[Node, _Tree]] = field(default_factory=list)
    branches: dict[str, _Tree] = field(default_factory=dict)

    @classmethod
    def of(cls, exits: list[Exit]) -> _Tree:
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


class _Writer:
    """Lines of generated code, the names they use, and the operator of each line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.where: dict[int, Node] = {}
        self.depth = 0
        self.lasts = True
        self._variables = 0

    def line(self, text: str, node: Node | None) -> None:
        self.lines.append("    " * self.depth + text)
        if node is not None:
            self.where[len(self.lines)] = node

    def name(self, what: str, value: Any) -> str:
        name = f"{what}_{len(self.names)}"
        self.names[name] = value
        return name

    def variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"


def _window(start: Any, end: Any) -> Any:
    from topo.streams.windowed import Window

    return Window(start, end)
