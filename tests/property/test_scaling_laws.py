"""Laws of decisions on slots: whatever the figures are, and however often the driver dies."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from topo.manage.scaling import Load, Sample, Scaler, ScalingRules

numbers = st.floats(0, 1e6)
looks = st.lists(
    st.fixed_dictionaries(
        {
            "secs": st.floats(0, 900),
            "tuples": st.floats(-10, 1e6),
            "busy": st.floats(0, 2),
            "lag": st.none() | numbers,
            "hot": st.integers(0, 20),
            "places": st.none() | st.integers(0, 20),
            "fate": st.sampled_from(["made", "made", "failed", "dies", "dies before"]),
        }
    ),
    max_size=60,
)
rules = st.builds(
    lambda least, more, **others: ScalingRules(least, least + more, **others),
    st.integers(1, 6),
    st.integers(0, 12),
    window_secs=st.floats(1, 600),
    up_secs=st.floats(0, 120),
    down_secs=st.floats(0, 600),
    rest_secs=st.floats(1, 600),
    retry_secs=st.floats(0, 3600),
)


@given(rules, st.integers(1, 20), looks)
def test_steps_are_within_the_limits_and_have_their_rest(
    rules: ScalingRules, slots: int, looks: list[dict[str, Any]]
) -> None:
    scaler, at, tuples, busy = Scaler(rules, 0.0), 0.0, 0.0, 0.0
    last_step = 0.0  # nobody steps at once after the start either
    for look in looks:
        at, tuples = at + look["secs"], tuples + look["tuples"]
        busy += look["busy"] * look["secs"]
        loads = {f"t{n}": Load(n % slots, (busy if n else busy * look["hot"])) for n in range(7)}
        sample = Sample(at, slots, tuples, busy, look["lag"], loads, look["places"])
        expected = scaler.peek(sample)
        decision = scaler.look(sample)
        assert decision == expected
        if decision.is_step:
            places = rules.most if look["places"] is None else max(1, look["places"])
            ceiling = min(rules.most, places)
            assert min(rules.least, ceiling) <= decision.to <= ceiling
            assert at - last_step >= rules.rest_secs * (1 - 1e-9)
            is_inside = rules.least <= slots <= ceiling
            if decision.to < slots and is_inside and decision.verdict == "down":
                assert slots - decision.to <= max(1, 0.4 * slots)
            last_step = at
            if look["fate"] != "failed":
                slots = decision.to
            if look["fate"] != "dies before":
                scaler.settle(at, slots, "no cores" if look["fate"] == "failed" else "")
        if look["fate"].startswith("dies"):
            scaler = Scaler(rules, at, json.loads(json.dumps(scaler.state())))
        assert len(scaler.decisions) <= 20


@given(looks)
def test_one_who_may_have_one_number_never_steps(looks: list[dict[str, Any]]) -> None:
    scaler, at = Scaler(ScalingRules(3, 3, up_secs=0, down_secs=0, rest_secs=1), 0.0), 0.0
    for look in looks:
        at += look["secs"]
        decision = scaler.look(Sample(at, 3, look["tuples"] * at, look["busy"] * at, look["lag"]))
        assert not decision.is_step
