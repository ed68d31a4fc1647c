"""Learning: each example is predicted, measured and learnt once, whatever the batches and restarts.

The models are written for these tests, so that they run without river and scikit-learn; the last
ones are theirs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

import topo.learning.memory as memory
from tests.property.scale import seeds
from topo import (
    InvalidTopologyError,
    LearnBolt,
    LearnError,
    ScoreBolt,
    Spout,
    TopologyBuilder,
    UncaughtError,
)
from topo.testing import FeederSpout, TestCluster


class Majority:
    """Predicts the label that came most often with a value of `x`."""

    def __init__(self) -> None:
        self.counts: dict[Any, Counter[Any]] = {}

    def predict_proba_one(self, example: Mapping[str, Any]) -> dict[Any, float]:
        counts = self.counts.get(example["x"], Counter())
        return {label: count / counts.total() for label, count in counts.items()}

    def predict_one(self, example: Mapping[str, Any]) -> Any:
        counts = self.counts.get(example["x"])
        return counts.most_common(1)[0][0] if counts else None

    def learn_one(self, example: Mapping[str, Any], label: Any) -> None:
        if example["x"] == "poison":
            raise ValueError("bad x")
        self.counts.setdefault(example["x"], Counter())[label] += 1


class Lottery(Majority):
    """Learns an example or not, as its own random numbers say."""

    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(7)

    def learn_one(self, example: Mapping[str, Any], label: Any) -> None:
        if self.random.random() < 0.5:
            super().learn_one(example, label)


class Distance:
    """Scores how far a number is from the mean of those before."""

    def __init__(self) -> None:
        self.count, self.sum = 0, 0.0

    def score_one(self, example: Mapping[str, Any]) -> float:
        return abs(example["x"] - self.sum / self.count) if self.count else 0.0

    def learn_one(self, example: Mapping[str, Any]) -> None:
        self.count += 1
        self.sum += example["x"]


class Nearest:
    """Predicts the label whose mean is the nearest; learns in chunks."""

    def __init__(self) -> None:
        self.sums: dict[Any, tuple[float, int]] = {}
        self.chunks: list[int] = []

    def partial_fit(self, rows: Any, labels: Any, classes: Any = None) -> None:
        if not self.sums:
            self.sums = dict.fromkeys(classes.tolist(), (0.0, 0))
        self.chunks.append(len(rows))
        for (x,), label in zip(rows.tolist(), labels.tolist(), strict=True):
            total, count = self.sums[label]
            self.sums[label] = (total + x, count + 1)

    def predict(self, rows: Any) -> list[Any]:
        means = {label: total / count for label, (total, count) in self.sums.items() if count}
        return [min(means, key=lambda label: abs(means[label] - x)) for (x,) in rows.tolist()]


class Accuracy:
    def __init__(self) -> None:
        self.right, self.count = 0, 0

    def update(self, label: Any, prediction: Any) -> None:
        self.right += label == prediction
        self.count += 1

    def get(self) -> float:
        return self.right / self.count if self.count else 0.0


class Certainty(Accuracy):
    """The mean probability that the true label had."""

    requires_labels = False

    def update(self, label: Any, prediction: Any) -> None:
        self.right += prediction.get(label, 0.0)
        self.count += 1


class ThreeWrong:
    """Finds a drift when three predictions in a row are wrong."""

    def __init__(self) -> None:
        self.wrong = 0.0
        self.drift_detected = False

    def update(self, error: float) -> None:
        self.wrong = self.wrong + 1 if error else 0
        self.drift_detected = self.wrong == 3


class World:
    """A feeder `labelled`, the bolt `learn`, and a `ScoreBolt` that reads `requests`."""

    def __init__(
        self,
        bolt: LearnBolt,
        fields: Sequence[str] = ("x", "y"),
        *,
        score: ScoreBolt | None = None,
        tasks: int = 1,
        seed: int = 0,
    ) -> None:
        self.labelled, self.requests = FeederSpout(fields), FeederSpout(["id", *fields])
        builder = TopologyBuilder()
        builder.set_spout("labelled", self.labelled)
        declarer = builder.set_bolt("learn", bolt, tasks)
        if bolt.ensemble:
            declarer.all_grouping("labelled")
        elif bolt.key:
            declarer.fields_grouping("labelled", list(bolt.key))
        else:
            declarer.global_grouping("labelled")
        if score is not None:
            builder.set_spout("requests", self.requests)
            builder.set_bolt("score", score, 2).shuffle_grouping("requests").all_grouping(
                "learn", "model"
            )
        self.cluster = TestCluster(seed=seed)
        self.run = self.cluster.submit_topology("t", builder.create_topology())

    def feed(self, *rows: Sequence[Any]) -> None:
        for row in rows:
            self.labelled.feed(list(row), msg_id=object())
        self.run.settle()

    def ask(self, *rows: Sequence[Any]) -> list[list[Any]]:
        """Return what comes out for some requests."""
        before = len(self.run.tuples("score"))
        for row in rows:
            self.requests.feed(list(row))
        self.run.settle()
        return self.run.tuples("score")[before:]

    def out(self, stream: str = "default") -> list[list[Any]]:
        return self.run.tuples("learn", stream)

    def counter(self, name: str, component: str = "learn") -> int:
        counters = self.run.stats().components[component].counters
        return sum(value for key, value in counters.items() if key.partition("{")[0] == name)


def majority(**options: Any) -> LearnBolt:
    return LearnBolt(Majority(), label="y", emit="predictions", **options)


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LearnBolt(object(), label="y"), "neither learn_one nor partial_fit"),
        (lambda: LearnBolt(Majority, label="y"), r"is the class Majority; write Majority\(\)"),
        (lambda: LearnBolt(Majority()), "a Majority learns from labels, and label is None"),
        (lambda: LearnBolt(Distance(), metrics={"a": Accuracy()}), "metrics compares"),
        (lambda: LearnBolt(Distance(), drift=ThreeWrong()), "drift compares"),
        (lambda: majority(features=["x", "y"]), "the label 'y' is among the features"),
        (lambda: majority(key="y"), "or in the key"),
        (lambda: majority(metrics={"a": 1}), "the metric 'a' is 1, without update"),
        (lambda: majority(drift=object()), "without update and drift_detected"),
        (lambda: majority(on_drift="forget"), "on_drift is 'forget'; it must be 'report' or"),
        (lambda: majority(report=0), "report is 0; it takes a number of examples"),
        (lambda: majority(publish=timedelta(0)), "publish is"),
        (lambda: majority(max_models=True), "max_models is True"),
        (lambda: majority(key="x", ensemble=True), "take ensemble or key away"),
        (lambda: LearnBolt(Majority(), label="y", emit="all"), "emit is 'all'"),
        (lambda: ScoreBolt(object()), "neither learn_one nor partial_fit"),
        (lambda: ScoreBolt(Majority(), key="x"), "a given model has no key"),
    ],
)
def test_a_declaration_that_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(LearnError, match=message):
        make()


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        (lambda b: b.set_bolt("l", majority(), 2).shuffle_grouping("s"), "one model in 2 tasks"),
        (
            lambda b: b.set_bolt("l", majority(key="x"), 2).shuffle_grouping("s"),
            "has models by 'x' in 2 tasks",
        ),
        (
            lambda b: b.set_bolt("l", majority(ensemble=True), 2).shuffle_grouping("s"),
            "learn from all examples",
        ),
        (lambda b: b.set_bolt("l", majority(features=["xx"])).global_grouping("s"), "'xx' is no"),
        (lambda b: b.set_bolt("l", ScoreBolt("s")).global_grouping("s"), "does not read the"),
        (
            lambda b: (
                b.set_bolt("l", ScoreBolt("evil"))
                .global_grouping("s")
                .all_grouping("evil", "model")
            ),
            "which is no LearnBolt",
        ),
    ],
)
def test_a_topology_that_cannot_be(wire: Callable[[Any], Any], message: str) -> None:
    class Evil(Spout):
        outputs = {"model": ("version", "model", "member")}

    builder = TopologyBuilder()
    builder.set_spout("s", FeederSpout(["x", "y"]))
    builder.set_spout("evil", Evil())
    wire(builder)
    with pytest.raises(InvalidTopologyError, match=message):
        builder.create_topology()


def test_an_example_that_the_model_cannot_learn_is_named() -> None:
    world = World(majority())
    with pytest.raises(UncaughtError, match=r"cannot learn .*'poison'.* labelled 1: ValueError"):
        world.feed(["poison", 1])


# -- examples -------------------------------------------------------------------------------------


def test_each_example_is_predicted_before_it_is_learnt() -> None:
    world = World(majority(metrics={"accuracy": Accuracy()}, report=2))
    world.feed(["a", 1], ["a", 1], ["a", 0], ["a", None], ["b", 0])
    assert world.out() == [
        ["a", 1, None],
        ["a", 1, 1],
        ["a", 0, 1],
        ["a", None, 1],
        ["b", 0, None],
    ]
    assert world.out("evaluation") == [[2, 1.0], [4, 0.5]]


def test_measures_of_probabilities_get_probabilities() -> None:
    world = World(majority(metrics={"certainty": Certainty()}, report=1))
    world.feed(["a", 1], ["a", 0], ["a", 1])
    assert world.out("evaluation") == [[1, 0.0], [2, 0.0], [3, 0.25]]


def test_anomalies_are_scored_and_then_learnt() -> None:
    world = World(LearnBolt(Distance(), emit="predictions"), ["x"])
    world.feed([1.0], [3.0], [10.0])
    assert [score for _, score in world.out()] == [0.0, 2.0, 8.0]


def test_an_evaluation_by_time_comes_once_something_was_learnt() -> None:
    world = World(majority(report=timedelta(seconds=10)))
    world.cluster.advance(secs=60)
    assert world.out("evaluation") == []
    world.feed(["a", 1], ["a", 1])
    world.run.restart()
    world.cluster.advance(secs=9)
    assert world.out("evaluation") == []
    world.cluster.advance(secs=2)
    world.cluster.advance(secs=60)
    assert world.out("evaluation") == [[2]]


def test_a_drift_is_reported_and_begins_a_new_model() -> None:
    rows = [["a", 1]] * 5 + [["a", 0]] * 5
    reported = World(majority(drift=ThreeWrong()))
    reported.feed(*rows)
    assert [row[-1] for row in reported.out()[5:]] == [1] * 5
    reset = World(majority(drift=ThreeWrong(), on_drift="reset"))
    reset.feed(*rows)
    assert [row[-1] for row in reset.out()[5:]] == [1, 1, 1, 0, 0]
    assert reset.out("drift") == reported.out("drift") == [[7]]
    assert reset.counter("drifts") == 1


# -- batches and restarts -------------------------------------------------------------------------


def examples(count: int, seed: int) -> list[list[Any]]:
    chance = random.Random(seed)
    values = ["a", "b", None, 1, 1.5, float("nan")]
    return [[chance.choice(values), chance.choice([0, 1, 1, None])] for _ in range(count)]


def outcome(bolt: LearnBolt, batches: Iterable[Sequence[Any]], restart: bool) -> list[Any]:
    world = World(bolt, ["x", "y"], tasks=2 if bolt.key else 1)
    for batch in batches:
        world.feed(*batch)
        if restart:
            world.run.restart()
    return [
        sorted(map(repr, world.out(stream))) if bolt.key else list(map(repr, world.out(stream)))
        for stream in ("default", "evaluation", "drift")
    ]


def bolts() -> dict[str, Callable[[], LearnBolt]]:
    options: dict[str, Any] = {"label": "y", "emit": "predictions", "report": 3}
    options |= {"metrics": {"accuracy": Accuracy()}, "drift": ThreeWrong(), "on_drift": "reset"}
    return {
        "one": lambda: LearnBolt(Majority(), **options),
        "lottery": lambda: LearnBolt(Lottery(), **options),
        "keyed": lambda: LearnBolt(Lottery(), features="x", key="x", **options),
        "ensemble": lambda: LearnBolt(Majority(), ensemble=True, **options),
    }


@pytest.mark.parametrize("least_log", [0, 300, 1 << 20])
@pytest.mark.parametrize("name", bolts())
@pytest.mark.parametrize("seed", seeds(3))
def test_batches_and_restarts_change_nothing(
    name: str, seed: int, least_log: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = examples(40, seed)
    wanted = outcome(bolts()[name](), [rows], restart=False)
    monkeypatch.setattr(memory, "_LEAST_LOG", least_log)
    chance, cuts = random.Random(seed), [0]
    while cuts[-1] < len(rows):
        cuts.append(cuts[-1] + chance.randint(1, 7))
    batches = [rows[start:end] for start, end in pairwise(cuts)]
    assert outcome(bolts()[name](), batches, restart=True) == wanted


def test_what_would_take_long_to_learn_again_becomes_a_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_MOST_SECS", 0.0)
    monkeypatch.setattr(memory, "MAX_BLOB", 100)
    world = World(majority(report=1))
    world.feed(["a", 1], ["b", 0])
    learnt = Counter[str]()
    teach = Majority.learn_one
    monkeypatch.setattr(
        Majority, "learn_one", lambda self, x, y: (learnt.update(x["x"]), teach(self, x, y))[1]
    )
    world.run.restart()
    world.feed(["b", 0])
    assert learnt == {"b": 1}
    assert world.out()[-1] == ["b", 0, 0]
    assert world.out("evaluation") == [[1], [2], [3]]


@pytest.mark.parametrize("least_log", [0, 1 << 20])
def test_the_model_that_was_used_longest_ago_makes_room(
    least_log: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_LEAST_LOG", least_log)
    world = World(majority(features="x", key="x", max_models=2, report=1))
    for value in "abaca":
        world.feed([value, 1])
        world.run.restart()
    assert world.out("evaluation") == [["a", 1], ["b", 1], ["a", 2], ["c", 1], ["a", 3]]
    world.feed(["b", 1])
    assert world.out("evaluation")[-1] == ["b", 1]
    assert world.counter("dropped_models") == 2


# -- chunks ---------------------------------------------------------------------------------------


def test_a_chunk_is_predicted_whole_and_then_learnt() -> None:
    world = World(LearnBolt(Nearest(), label="y", emit="predictions", classes=["low", "high"]))
    world.feed([1, "low"], [9, "high"], [4, None])
    world.feed([2, "low"], [8.5, None])
    world.run.restart()
    world.feed([7, "high"])
    assert [row[-1] for row in world.out()] == [None, None, None, "low", "high", "high"]


def test_all_labels_must_be_known_before_the_first_chunk() -> None:
    world = World(LearnBolt(Nearest(), label="y"))
    with pytest.raises(UncaughtError, match=r"know all labels.*classes=\["):
        world.feed([1, "low"])


def test_two_labels_that_are_bools_need_no_classes() -> None:
    world = World(LearnBolt(Nearest(), label="y", emit="predictions"))
    world.feed([1, True])
    world.feed([1, True])
    assert world.out()[-1] == [1, True, True]


# -- scores ---------------------------------------------------------------------------------------


def test_a_published_model_is_used_in_the_next_batch() -> None:
    world = World(majority(publish=2), score=ScoreBolt("learn"))
    assert world.ask([1, "a", None]) == [[1, "a", None, None]]
    world.feed(["a", 1], ["a", 1], ["b", 0])
    assert world.ask([2, "a", None], [3, "b", None]) == [[2, "a", None, 1], [3, "b", None, None]]
    world.run.restart()
    world.feed(["b", 0])
    assert world.ask([4, "b", None]) == [[4, "b", None, 0]]
    assert world.counter("unscored", "score") == 2
    assert [row[0] for row in world.out("model")] == [2, 4]


def test_each_key_is_scored_by_its_own_model() -> None:
    bolt = LearnBolt(Distance(), features="x", key="k", publish=1, max_models=2)
    world = World(bolt, ["k", "x"], score=ScoreBolt("learn", key="k", method="score_one"))
    world.feed(["a", 1.0], ["b", 5.0])
    world.run.restart()
    rows = [[1, "a", 2.0], [2, "b", 2.0], [3, "c", 2.0]]
    assert sorted(row[-1] or 0 for row in world.ask(*rows)) == [0, 1.0, 3.0]
    world.feed(["c", 2.0])  # the model of a is dropped, here and there
    assert world.ask([4, "a", 2.0]) == [[4, "a", 2.0, None]]


@pytest.mark.parametrize(
    ("method", "wanted"), [("predict_one", 1), ("predict_proba_one", {1: 1.0})]
)
def test_the_members_of_an_ensemble_agree(method: str, wanted: Any) -> None:
    world = World(
        LearnBolt(Majority(), label="y", ensemble=True, publish=10),
        score=ScoreBolt("learn", method=method),
        tasks=3,
    )
    world.feed(*[["a", 1]] * 10)
    assert len(world.out("model")) == 3
    assert world.ask([1, "a", None]) == [[1, "a", None, wanted]]


def test_a_model_can_be_given_by_itself() -> None:
    model = Majority()
    model.learn_one({"x": "a"}, 1)
    feeder = FeederSpout(["x"])
    builder = TopologyBuilder()
    builder.set_spout("requests", feeder)
    builder.set_bolt("score", ScoreBolt(model), 2).shuffle_grouping("requests")
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        feeder.feed(["a"])
        run.settle()
        assert run.tuples("score") == [["a", 1]]


def test_a_request_without_what_the_model_has_learnt_is_named() -> None:
    labelled, requests = FeederSpout(["x", "y"]), FeederSpout(["id"])
    builder = TopologyBuilder()
    builder.set_spout("labelled", labelled)
    builder.set_spout("requests", requests)
    builder.set_bolt("learn", majority(publish=1)).global_grouping("labelled")
    score = builder.set_bolt("score", ScoreBolt("learn"))
    score.global_grouping("requests").all_grouping("learn", "model")
    run = TestCluster().submit_topology("t", builder.create_topology())
    labelled.feed(["a", 1])
    requests.feed([1])
    with pytest.raises(UncaughtError, match="the model has learnt 'x', no field of 'requests'"):
        run.settle()


# -- river ----------------------------------------------------------------------------------------


def test_a_pipeline_of_river_learns_is_measured_and_scores() -> None:
    from river import drift, linear_model, metrics, preprocessing

    model = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    bolt = LearnBolt(
        model,
        label="y",
        metrics={"auc": metrics.ROCAUC(), "accuracy": metrics.Accuracy()},
        drift=drift.ADWIN(),
        report=100,
        publish=timedelta(seconds=1),
    )
    world = World(bolt, score=ScoreBolt("learn", method="predict_proba_one"))
    assert bolt.requires == ("river>=0.26",)
    chance = random.Random(1)
    for _ in range(2):
        values = [chance.random() for _ in range(100)]
        world.feed(*[[x, x > 0.5] for x in values])
        world.run.restart()
    world.cluster.advance(secs=2)
    (first, auc, accuracy), (second, later_auc, later_accuracy) = world.out("evaluation")
    assert (first, second) == (100, 200)
    assert later_auc > auc > 0.5
    assert later_accuracy > accuracy > 0.5
    [[*_, scores]] = world.ask([1, 0.9, None])
    assert scores[True] > 0.5


def test_a_forest_of_river_is_the_same_after_restarts() -> None:
    from river import forest

    def predictions(*, restarts: bool) -> list[Any]:
        model = forest.ARFClassifier(n_models=3, seed=3)
        world = World(LearnBolt(model, label="y", emit="predictions"), ["x", "z", "y"])
        chance = random.Random(2)
        for _ in range(6):
            rows = [[chance.random(), chance.random()] for _ in range(10)]
            world.feed(*[[x, z, int(x > z)] for x, z in rows])
            if restarts:
                world.run.restart()
        return world.out()

    assert predictions(restarts=True) == predictions(restarts=False)


# -- scikit-learn ---------------------------------------------------------------------------------


def points(label: Callable[[float, float], Any], count: int = 30) -> list[list[Any]]:
    chance = random.Random(4)
    pairs = [(chance.random(), chance.random()) for _ in range(count)]
    return [[x, z, label(x, z)] for x, z in pairs]


def scikit_bolts() -> dict[str, Callable[[], tuple[LearnBolt, list[list[Any]]]]]:
    """Return bolts, and what they learn: labels of text, of bool, numbers, and none at all."""
    options: dict[str, Any] = {"features": ["x", "z"], "emit": "predictions", "report": 1}

    def of_text() -> tuple[LearnBolt, list[list[Any]]]:
        from sklearn.linear_model import SGDClassifier

        bolt = LearnBolt(
            SGDClassifier(loss="log_loss", random_state=1), label="y", classes=["no", "yes"],
            metrics={"accuracy": Accuracy(), "certainty": Certainty()},
            **options,
        )  # fmt: skip
        return bolt, points(lambda x, z: "yes" if x > z else "no")

    def of_bools() -> tuple[LearnBolt, list[list[Any]]]:
        from sklearn.neural_network import MLPClassifier

        bolt = LearnBolt(MLPClassifier((4,), random_state=1), label="y", **options)
        return bolt, points(lambda x, z: x > z)

    def of_numbers() -> tuple[LearnBolt, list[list[Any]]]:
        from sklearn.linear_model import SGDRegressor

        bolt = LearnBolt(SGDRegressor(random_state=1), label="y", **options)
        return bolt, points(lambda x, z: x + z)

    def of_nothing() -> tuple[LearnBolt, list[list[Any]]]:
        from sklearn.cluster import MiniBatchKMeans

        bolt = LearnBolt(MiniBatchKMeans(3, random_state=1, n_init=1), **options)
        return bolt, points(lambda x, z: None)

    kinds = {"text": of_text, "bools": of_bools, "numbers": of_numbers, "nothing": of_nothing}
    return dict(kinds)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("name", scikit_bolts())
def test_a_model_of_scikit_learn_is_that_of_the_chunks_it_learnt(name: str, restarts: bool) -> None:
    bolt, rows = scikit_bolts()[name]()
    assert bolt.requires == ("scikit-learn>=1.4",)
    world = World(scikit_bolts()[name]()[0], ["x", "z", "y"])
    for chunk in (rows[:12], rows[12:13], rows[13:]):
        world.feed(*chunk)
        if restarts:
            world.run.restart()
    model, wanted = bolt.model, list[Any]()
    ends = [row[0] for row in world.out("evaluation")]  # one a chunk
    for start, end in pairwise([0, *ends]):
        features = [row[:2] for row in rows[start:end]]
        labels = [] if bolt.label is None else [[row[2] for row in rows[start:end]]]
        wanted += model.predict(features).tolist() if start else [None] * end
        is_first = not start and name in ("text", "bools")
        classes = {"classes": bolt.classes or (False, True)} if is_first else {}
        model.partial_fit(features, *labels, **classes)
    assert [row[-1] for row in world.out()] == wanted
    assert len(wanted) == len(rows)


def test_a_classifier_of_scikit_learn_scores_and_is_measured() -> None:
    from sklearn.linear_model import SGDClassifier

    bolt = LearnBolt(
        SGDClassifier(loss="log_loss", random_state=1), label="y", classes=["no", "yes"],
        metrics={"accuracy": Accuracy()}, report=40, publish=40,
    )  # fmt: skip
    world = World(bolt, score=ScoreBolt("learn", method="predict_proba"))
    for number in range(4):
        world.feed(*[[v / 10, "yes" if v > 0 else "no"] for v in range(-10, 10)])
        assert len(world.out("model")) == (number + 1) // 2
    [[first, _], [second, accuracy]] = world.out("evaluation")
    assert (first, second, accuracy > 0.8) == (40, 80, True)
    [[*_, low], [*_, high]] = sorted(world.ask([1, -0.9, None], [2, 0.9, None]))
    assert (low["no"] > 0.5, high["yes"] > 0.5) == (True, True)


def test_what_scikit_learn_refuses_is_told_with_the_example() -> None:
    from sklearn.linear_model import SGDClassifier
    from sklearn.preprocessing import StandardScaler

    for value, reason in ((None, "contains NaN"), ("poison", "could not convert string")):
        bolt = LearnBolt(SGDClassifier(), label="y", classes=[0, 1])
        with pytest.raises(UncaughtError, match=f"begins with {{'x': {value!r}}}.*{reason}"):
            World(bolt).feed([value, 1])
    with pytest.raises(LearnError, match="a StandardScaler, has no predict"):
        LearnBolt(StandardScaler())
