"""Checks, before anything runs, that a component is written in a way that topo can run.

Users arrive with Storm's Java names, with streamparse's, and with coroutines. Each of these would
fail late or, worse, never be called; so each has an entry here, with the name that was meant.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from topo.columns import ByColumns
from topo.components import BasicBolt, Bolt, Component, Spout
from topo.errors import ComponentError, Problem, TopoError, shown
from topo.functions import FunctionBolt
from topo.shipping.requirements import parse_requirement
from topo.tuples import Fields
from topo.ways import BY_BATCH, BY_TUPLE, BY_VALUES, asked_by, hook_of, place_of

_SPOUT_HOOKS = (
    "open",
    "close",
    "activate",
    "deactivate",
    "next_tuple",
    "ack",
    "fail",
    "is_exhausted",
)
_BOLT_HOOKS = ("prepare", "execute", "on_tick", "cleanup", "init_state")
_COMMON_HOOKS = (
    "restored",
    "pre_commit",
    "committed",
    "get_component_configuration",
    "declare_output_fields",
)
_JAVA_NAMES = {
    "nextTuple": "next_tuple",
    "declareOutputFields": "declare_output_fields",
    "getComponentConfiguration": "get_component_configuration",
    "initState": "init_state",
    "preCommit": "pre_commit",
    "isExhausted": "is_exhausted",
}


def component_problems(component: Component, where: str) -> list[Problem]:
    """Return all problems of this component's class."""
    return [
        *_hook_problems(component, where),
        *_foreign_names(component, where),
        *_signature_problems(component, where),
        *_way_problems(component, where),
        *_saving_problems(component, where),
        *_requirement_problems(component, where),
        *_moved_problems(component, where),
    ]


def sleeping_warnings(component: Component, where: str) -> Iterator[str]:
    """Yield a warning if a spout sleeps in `next_tuple`, as Storm's examples do."""
    hook = inspect.unwrap(getattr(component, "next_tuple", None) or _nothing)
    code, names = getattr(hook, "__code__", None), getattr(hook, "__globals__", {})
    if code is None or "sleep" not in code.co_names:
        return
    by_module = any(names.get(name) is time for name in code.co_names)
    if by_module or names.get("sleep") is time.sleep:
        yield (
            f"{where}: next_tuple sleeps{_line(hook)}, and meanwhile no task of its slot does "
            "anything; emit nothing and return: topo asks again after topology.batch.poll.ms"
        )


def check_component(component: Component) -> None:
    """Raise ComponentError for the first problem; for callers without a topology."""
    kind = "spout" if isinstance(component, Spout) else "bolt"
    for problem in component_problems(component, f"{kind} {type(component).__name__}"):
        raise ComponentError(problem.message, hint=problem.hint, code=problem.code)


def _hooks_of(component: Component) -> tuple[str, ...]:
    own = _SPOUT_HOOKS if isinstance(component, Spout) else _BOLT_HOOKS
    return own + _COMMON_HOOKS


def _moved_problems(component: Component, where: str) -> Iterator[Problem]:
    moved: Any = type(component).moved
    names = [*moved, *moved.values()] if isinstance(moved, Mapping) else [moved]
    for name in names:
        if not isinstance(name, str) or not all(name.partition(":")):
            yield Problem(
                "moved",
                where,
                f"{where}: moved has {shown(name)}, which names no class",
                'moved = {"old.module:Old": "new.module:New"}',
            )


def _hook_problems(component: Component, where: str) -> Iterator[Problem]:
    for name in _hooks_of(component):
        hook = inspect.unwrap(getattr(component, name, None) or _nothing)
        if inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook):
            yield Problem(
                "hook-coroutine",
                where,
                f"{where}: {name} is a coroutine{_line(hook)}",
                "write it with def, for nobody awaits it; docs/guide/asyncio.md shows a bolt with "
                "a loop of its own",
            )
        elif inspect.isgeneratorfunction(hook):
            yield Problem(
                "hook-generator",
                where,
                f"{where}: {name} is a generator{_line(hook)}, so calling it runs nothing",
                "emit with self.emit([...]); to yield values, write a function with @bolt",
            )


def _foreign_names(component: Component, where: str) -> Iterator[Problem]:
    own = _own_names(component)
    for name, meant in _JAVA_NAMES.items():
        if name in own:
            yield Problem("foreign-name", where, f"{where} has {name!r}", f"it is {meant!r} here")
    start = "open" if isinstance(component, Spout) else "prepare"
    if isinstance(component, Bolt) and "execute" not in own and {"process", "process_batch"} & own:
        name = "process" if "process" in own else "process_batch"
        hint = "it is 'execute' here; or subclass topo.BasicBolt, which acks for the bolt"
        text = f"{where} has {name!r}, and acks by hand, for which it needs the tuple"
        yield Problem("foreign-name", where, text, hint)
    if "initialize" in own and start not in own:
        yield Problem(
            "foreign-name",
            where,
            f"{where} has 'initialize', streamparse's name",
            f"it is '{start}(self, conf, context, collector)' here",
        )
    if "process" not in own:
        for name in sorted({"auto_ack", "auto_anchor", "auto_fail"} & own):
            yield Problem(
                "foreign-name",
                where,
                f"{where} has {name!r}, a switch of streamparse's",
                "subclass topo.BasicBolt to anchor and ack by itself, topo.Bolt to do it by hand, "
                "or topo.streamparse.Bolt, which has the switch",
            )
    config = getattr(component, "config", None)
    if (
        isinstance(config, Mapping)
        and any(str(key).startswith("topology.") for key in config)
        and "get_component_configuration" not in own
    ):
        yield Problem(
            "foreign-name",
            where,
            f"{where} has an attribute 'config', as streamparse's components do",
            "return it from get_component_configuration, or subclass topo.streamparse's classes",
        )
    if "output" in own and "outputs" not in own and "declare_output_fields" not in own:
        yield Problem(
            "near-miss", where, f"{where} has an attribute 'output'", "the declaration is 'outputs'"
        )


def _signature_problems(component: Component, where: str) -> Iterator[Problem]:
    if isinstance(component, FunctionBolt):
        return
    own = _own_names(component)
    main, owner = ("next_tuple", Spout) if isinstance(component, Spout) else ("execute", None)
    if main not in own and owner is None and not isinstance(component, Bolt | BasicBolt):
        return
    if main not in own:
        has_text = isinstance(component, ByColumns)
        if not has_text and not {"process", "process_batch", "nextTuple"} & own:
            yield Problem(
                "missing-hook",
                where,
                f"{where} does not override {main!r}",
                f"write def {main}(self...)",
            )
        return
    expected = {"execute": 1, "prepare": 3}
    if isinstance(component, Spout):
        expected = {"next_tuple": 0, "open": 3}
    for name, count in expected.items():
        if name in own and (found := _wrong_arity(getattr(component, name), count)) is not None:
            yield Problem(*_arity_problem(component, where, name, found, count))


def _way_problems(component: Component, where: str) -> Iterator[Problem]:
    """Yield a problem for a basic bolt whose hook is not clear, or cannot be called."""
    if not isinstance(component, BasicBolt):
        return
    try:
        hook = hook_of(component)
        if hook == BY_VALUES:
            asked_by(component)
    except ComponentError as error:
        yield Problem("hook-signature", where, f"{where}: {error.message}", error.hint)
        return
    function = getattr(component, hook)
    if hook == BY_BATCH and (count := _wrong_arity(function, 1)) is not None:
        text = f"{where}: {hook} takes {count} arguments{place_of(function)}"
        yield Problem("hook-signature", where, text, f"write def {hook}(self, batch)")
    unwrapped = inspect.unwrap(function)
    if hook != BY_TUPLE and inspect.iscoroutinefunction(unwrapped):
        text = f"{where}: {hook} is a coroutine{place_of(function)}"
        yield Problem("hook-coroutine", where, text, "write it with def, for nobody awaits it")
    if hook == BY_BATCH and inspect.isgeneratorfunction(unwrapped):
        text = f"{where}: process_batch is a generator{place_of(function)}"
        yield Problem("hook-generator", where, text, "call self.emit_batch(columns)")


def _arity_problem(
    component: Component, where: str, name: str, found: int, count: int
) -> tuple[str, str, str, str]:
    wanted = {
        "execute": "execute(self, tup)",
        "next_tuple": "next_tuple(self)",
        "prepare": "prepare(self, conf, context, collector)",
        "open": "open(self, conf, context, collector)",
    }[name]
    hint = f"write def {wanted}"
    if name == "execute" and found == 2:
        hint += "; Storm's execute(tuple, collector) is a BasicBolt here, with self.emit([...])"
    line = _line(getattr(component, name))
    return ("hook-signature", where, f"{where}: {name} takes {found} arguments{line}", hint)


def _wrong_arity(hook: Callable[..., Any], count: int) -> int | None:
    try:
        signature = inspect.signature(hook)
        signature.bind(*range(count))
    except TypeError:
        return len(signature.parameters)
    except ValueError:
        return None
    return None


def _own_names(component: Component) -> set[str]:
    """Return the names that the user's classes or the instance define, without inherited ones."""
    names = set(vars(component))
    for cls in type(component).__mro__:
        if cls.__module__ != Component.__module__:
            names.update(vars(cls))
    return names - set(vars(object))


def _saving_problems(component: Component, where: str) -> Iterator[Problem]:
    """Yield a problem if the component hears of commits, but keeps nothing until then."""
    if component.stateless and type(component).committed is not Component.committed:
        yield Problem(
            "stateless-committed",
            where,
            f"{where} says stateless = True and overrides committed",
            "take stateless away: what committed publishes has to be saved until then",
        )


def _requirement_problems(component: Component, where: str) -> Iterator[Problem]:
    try:
        for text in Fields(component.requires):
            parse_requirement(text)
    except TopoError as error:
        yield Problem("requires", where, f"{where}: {error.message}", error.hint)


def _line(hook: Callable[..., Any]) -> str:
    code = getattr(hook, "__code__", None)
    return f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""


def _nothing() -> None:
    return None
