"""The examples that learn, compared with plain loops over the same data."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("river")

from river import drift, metrics, utils

from examples import odd_sensors, text_classifier
from topo.testing import complete_topology


def test_the_classifier_does_as_well_as_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    count = 2000
    result = complete_topology(text_classifier.topology(str(count)))
    model, detector, chance = text_classifier.classifier(), drift.ADWIN(), random.Random(1)
    accuracy, latest = metrics.Accuracy(), utils.Rolling(metrics.Accuracy, window_size=100)
    rows, drifts, learnt = [], [], 0
    for number in range(count):
        text, liked = text_classifier.headline(chance, number, count)
        if number % 10 == 9:
            continue
        prediction = model.predict_one({"text": text})
        if prediction is not None:
            accuracy.update(liked, prediction)
            latest.update(liked, prediction)
            detector.update(prediction != liked)
            if detector.drift_detected:
                drifts.append([learnt])
                model, detector = text_classifier.classifier(), drift.ADWIN()
        model.learn_one({"text": text}, liked)
        learnt += 1
        if learnt % 200 == 0:
            rows.append([learnt, accuracy.get(), latest.get()])
    assert result.tuples("learn", "evaluation") == rows
    assert result.tuples("learn", "drift") == drifts
    assert len(drifts) == 1
    assert rows[-1][2] > 0.9
    assert f"after {drifts[0][0]}: the interest has changed" in capsys.readouterr().out
    assert len(result.tuples("score")) == count // 10


def test_odd_readings_score_as_in_a_loop(capsys: pytest.CaptureFixture[str]) -> None:
    count = 1200
    result = complete_topology(odd_sensors.topology(str(count)))
    models = {machine: odd_sensors.detector() for machine in odd_sensors.MACHINES}
    chance, rows = random.Random(1), []
    for number in range(count):
        machine, heat, speed = odd_sensors.reading(chance, number)
        example = {"heat": heat, "speed": speed}
        score = models[machine].score_one(example)
        models[machine].learn_one(example)
        rows.append([number, machine, heat, speed, score])
    assert sorted(result.tuples("odd")) == rows
    odd = [row[0] for row in rows if row[-1] > odd_sensors.LIMIT and row[0] > 300]
    assert odd == [400, 600, 800, 1000]
    said = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert sorted(said, key=int) == ["400", "600", "800", "1000"]
