"""The words that connectors share, and the answers to names that they do not have."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.docs.vocabulary import SINKS, SOURCES, VOCABULARY, words_of
from topo import ComponentError
from topo.connectors.arguments import RENAMED
from topo.connectors.aws import KinesisSpout, SqsSpout
from topo.connectors.files import FileSpout
from topo.connectors.kafka import KafkaBolt, KafkaSpout
from topo.connectors.mqtt import MqttSpout
from topo.connectors.redis import RedisListSpout, RedisPubSubSpout, RedisStreamSpout
from topo.connectors.sql import SqlSpout

REDIS = "redis://h"


@pytest.mark.parametrize(
    ("connector", "values", "name", "instead"),
    [
        (KafkaSpout, ("b:1", "t"), "max_uncommitted", "max_in_flight"),
        (KafkaSpout, ("b:1", "t"), "group_id", "group"),
        (KafkaSpout, (), "bootstrap_servers", "servers"),
        (KafkaSpout, ("b:1",), "topic", "topics"),
        (KafkaBolt, ("b:1",), "topics", "topic"),
        (MqttSpout, ("mqtt://h", "t"), "max_unacked", "max_in_flight"),
        (SqsSpout, ("q",), "most", "max_in_flight"),
        (KinesisSpout, ("s",), "most", "page"),
        (FileSpout, ("p",), "rows_per_call", "page"),
        (RedisStreamSpout, (REDIS,), "stream", "keys"),
        (RedisPubSubSpout, (REDIS, "c"), "queue", "max_in_flight"),
    ],
)
def test_a_name_of_earlier_or_elsewhere_is_answered_with_the_one_here(
    connector: type[Any], values: Any, name: str, instead: str
) -> None:
    more: dict[str, Any] = {name: 1}
    with pytest.raises(ComponentError) as caught:
        connector(*values, **more)
    words = f"{connector.__name__} has no {name}=; it is called {instead}="
    assert caught.value.message == words


def test_what_is_not_given_is_named() -> None:
    more: dict[str, Any] = {}
    with pytest.raises(ComponentError, match="SqlSpout: missing a required argument: 'table'"):
        SqlSpout("sqlite://", **more)


def test_what_is_most_like_a_name_is_a_hint() -> None:
    more: dict[str, Any] = {"feilds": "n"}
    with pytest.raises(ComponentError) as caught:
        RedisListSpout(REDIS, "l", **more)
    assert "fields" in str(caught.value.hint)


@pytest.mark.parametrize("connector", [*SOURCES, *SINKS])
def test_every_connector_answers(connector: type[Any]) -> None:
    more: dict[str, Any] = {"nothing_is_called_so": 1}
    # Connectors of AWS hand what they do not know to boto3, once they have the rest.
    with pytest.raises(ComponentError, match=r"nothing_is_called_so|missing a required argument"):
        connector(**more)


@pytest.mark.parametrize("connector", [*SOURCES, *SINKS])
def test_no_connector_has_two_words_for_one_thing(connector: type[Any]) -> None:
    old = {name for name in RENAMED if RENAMED[name] in VOCABULARY} - {"format"}  # of files: a kind
    assert words_of(connector) & old == set()


@pytest.mark.parametrize("word", ["on_bad", "missing", "retry", "track", "tls", "retry_secs"])
def test_a_word_has_one_default(word: str) -> None:
    defaults = {
        inspect.signature(each).parameters[word].default
        for each in (*SOURCES, *SINKS)
        if word in words_of(each)
    }
    # An HTTP client may not stop a topology; a Schema Registry and all else are as one.
    assert defaults - {"refuse"} == {next(iter(defaults - {"refuse"}))}


def test_translate_takes_the_record_alone() -> None:
    more: dict[str, Any] = {"translate": lambda stream, number, entry: []}
    with pytest.raises(ComponentError, match="translate= is given one argument, the record"):
        RedisStreamSpout(REDIS, "s", fields="n", **more)


def test_a_word_that_nobody_has_is_no_word() -> None:
    for word in VOCABULARY:
        assert any(word in words_of(each) for each in (*SOURCES, *SINKS)), word
