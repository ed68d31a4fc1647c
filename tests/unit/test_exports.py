"""What `topo export` writes, read by the tools that it is for, where they are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.pages import ROOT
from topo.cli.exports.request import USER
from topo.cli.exports.yaml import stream_of
from topo.cli.root import run

Captured = pytest.CaptureFixture[str]
K8S_MASTER = "k8s://https://kubernetes.default.svc"
_TEXTS = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.just("\n"))
_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda parts: st.lists(parts) | st.dictionaries(_TEXTS, parts),
    max_leaves=8,
)


def exported(capsys: Captured, *argv: str) -> str:
    assert run(["export", *argv]) == 0
    return capsys.readouterr().out


def documents(text: str) -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def checked(text: str, place: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Return what a tool says of a file; skip the test if there is no such tool."""
    tool = shutil.which(command[0])
    if tool is None:
        pytest.skip(f"{command[0]} is not installed")
    place.write_text(text)
    return subprocess.run(
        [tool, *command[1:], str(place)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("argv", "ends"), [([], "up"), (["--standby"], "up --standby")])
def test_the_unit_runs_the_keeper(capsys: Captured, argv: list[str], ends: str) -> None:
    lines = exported(capsys, "systemd", *argv).splitlines()
    (begun,) = (line for line in lines if line.startswith("ExecStart="))
    assert begun.endswith(f" {ends}")


@given(st.dictionaries(_TEXTS, _TREES, min_size=1))
def test_trees_are_read_as_they_were_written(tree: dict[str, Any]) -> None:
    assert yaml.safe_load(stream_of([tree])) == tree


@pytest.mark.parametrize(
    "argv",
    [
        ["--image", "registry/words:7"],
        ["--master", K8S_MASTER, "--checkpoint", "s3a://states/words", "--secret", "words"],
    ],
    ids=["in the pod", "a pod a slot"],
)
def test_kubernetes_takes_it(capsys: Captured, tmp_path: Path, argv: list[str]) -> None:
    text = exported(capsys, "k8s", "word_count.py", *argv)
    command = ("kubernetes-validate", "--strict")
    valid = checked(text, tmp_path / "topology.yaml", *command)
    assert valid.returncode == 0, valid.stdout + valid.stderr
    misspelt = text.replace("failureThreshold", "failuresThreshold")
    assert checked(misspelt, tmp_path / "misspelt.yaml", *command).returncode != 0


def test_kustomize_takes_it(capsys: Captured, tmp_path: Path) -> None:
    text = exported(capsys, "k8s", "word_count.py", "--monitor")
    (tmp_path / "kustomization.yaml").write_text("resources: [topology.yaml]\n")
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    (tmp_path / "topology.yaml").write_text(text)
    built = subprocess.run([kubectl, "kustomize", tmp_path], capture_output=True, check=True)
    assert documents(built.stdout.decode()) == documents(text)


def test_a_pod_keeps_its_state_and_has_time_to_end(capsys: Captured) -> None:
    parts = documents(exported(capsys, "k8s", "word_count.py", "--grace", "50", "--", "a b"))
    pod = parts["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["terminationGracePeriodSeconds"] == 80
    assert container["args"] == [
        *("run", "word_count.py", "-n", "word_count", "--config", "/etc/topo/settings.json"),
        *("--master", "local[2]", "--grace", "50", "--", "a b"),
    ]
    settings = json.loads(parts["ConfigMap"]["data"]["settings.json"])
    assert settings["topology.checkpoint.dir"] == "/state/word_count"
    assert parts["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    claim = parts["PersistentVolumeClaim"]["metadata"]["name"]
    assert {"name": "state", "persistentVolumeClaim": {"claimName": claim}} in pod["volumes"]
    assert "Role" not in parts, "it starts no pods"
    assert not parts["ServiceAccount"]["automountServiceAccountToken"]


def test_executors_find_their_driver(capsys: Captured) -> None:
    argv = ("--master", K8S_MASTER, "--checkpoint", "s3a://b/w", "-c", "spark.driver.port=9")
    parts = documents(exported(capsys, "k8s", "Word_Count.py", *argv))
    settings = json.loads(parts["ConfigMap"]["data"]["settings.json"])
    assert settings["spark.driver.host"] == parts["Service"]["metadata"]["name"] == "word-count"
    assert settings["spark.driver.port"] == 9, "what is asked for wins"
    ports = {port["port"] for port in parts["Service"]["spec"]["ports"]}
    assert {settings["spark.blockManager.port"], 7070, 9101} <= ports
    assert "pods" in parts["Role"]["rules"][0]["resources"]
    assert "PersistentVolumeClaim" not in parts, "state is elsewhere"


def test_compose_takes_it(capsys: Captured, tmp_path: Path) -> None:
    text = exported(capsys, "compose", "word_count.py", "--", "$HOME")
    project = yaml.safe_load(text)
    service = project["services"]["word-count"]
    assert service["command"][-1] == "$$HOME", "not a variable of compose"
    assert service["stop_grace_period"] == "50s"
    assert service["volumes"] == ["state:/state"]
    if shutil.which("docker"):
        (tmp_path / "compose.yaml").write_text(text)
        command = ["docker", "compose", "version"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            command = ["docker", "compose", "-f", str(tmp_path / "compose.yaml"), "config", "-q"]
            subprocess.run(command, check=True)


def test_the_operator_of_spark_gets_an_application(capsys: Captured) -> None:
    text = exported(capsys, "spark-operator", "word_count.py", "--workers", "3", "--", "7")
    application = yaml.safe_load(text)
    assert application["kind"] == "SparkApplication"
    spec = application["spec"]
    assert (spec["type"], spec["mode"], spec["pythonVersion"]) == ("Python", "cluster", "3")
    assert spec["mainApplicationFile"] == "local:///app/word_count.py"
    assert (spec["executor"]["instances"], spec["executor"]["cores"]) == (3, 1)
    assert (spec["arguments"], spec["restartPolicy"]["type"]) == (["7"], "OnFailure")


def test_the_script_for_yarn_submits(capsys: Captured, tmp_path: Path) -> None:
    argv = ("-c", "spark.yarn.queue=a b'c", "--", "$(date)")
    text = exported(capsys, "yarn", "word_count.py", *argv)
    (tmp_path / "spark-submit").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "spark-submit").chmod(0o755)
    (tmp_path / "submit.sh").write_text(text)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", str(tmp_path / "submit.sh"), "more"]
    bare = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**environ, "ENVIRONMENT": ""}
    )
    assert bare.returncode != 0
    environ |= {"HADOOP_CONF_DIR": "/etc/hadoop", "ENVIRONMENT": "env.tar.gz"}
    called = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    words = called.stdout.splitlines()
    assert words[:4] == ["--master", "yarn", "--deploy-mode", "cluster"]
    assert "spark.yarn.queue=a b'c" in words
    assert words[-4:] == ["env.tar.gz#environment", "word_count.py", "$(date)", "more"]
    plain = exported(capsys, "yarn", "word_count.py", "--", "7")
    linted = checked(plain, tmp_path / "linted.sh", "shellcheck")
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["k8s"], "topo export k8s needs a TARGET"),
        (["systemd", "a.py"], "topo.service is for all topologies"),
        (["k8s", "a.py", "-n", "a\nb"], "cannot be a topology's name"),
        (["k8s", "a.py", "-c", "topology.worker=1"], "no key 'topology.worker'"),
        (["compose", "a.py", "--master", "yarn"], "compose runs one container"),
        (["yarn", "package.module"], "spark-submit runs a file"),
        (["yarn", "a.py", "-c", "topology.workers=1"], "spark.* settings alone"),
    ],
)
def test_mistakes(capsys: Captured, argv: list[str], message: str) -> None:
    assert run(["export", *argv]) == 2
    assert message in capsys.readouterr().err


# The image


def test_the_images_user_is_that_of_its_pods() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert f"--uid {USER} " in text
    assert f"\nUSER {USER}\n" in text


def test_the_image_is_linted(tmp_path: Path) -> None:
    text = (ROOT / "Dockerfile").read_text()
    linted = checked(text, tmp_path / "Dockerfile", "hadolint")
    assert linted.returncode == 0, linted.stdout
    entry = (ROOT / "topo" / "cli" / "exports" / "entrypoint.sh").read_text()
    assert checked(entry, tmp_path / "entrypoint.sh", "shellcheck").returncode == 0


def entered(tmp_path: Path, *argv: str, **environ: str) -> list[str]:
    """Return what the image's entry would have started, word by word."""
    tini = tmp_path / "tini"
    tini.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tini.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = ["sh", str(ROOT / "topo" / "cli" / "exports" / "entrypoint.sh"), *argv]
    started = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PATH": path, **environ}
    )
    return started.stdout.splitlines()


def test_the_entry_runs_topo(tmp_path: Path) -> None:
    assert entered(tmp_path, "run", "a b.py") == ["-s", "--", "topo", "run", "a b.py"]
    assert entered(tmp_path) == ["-s", "--", "topo"]


def test_the_entry_runs_sparks_driver(tmp_path: Path) -> None:
    words = entered(tmp_path, "driver", "words.py", SPARK_DRIVER_BIND_ADDRESS="10.0.0.7")
    assert words[2:5] == ["spark-submit", "--deploy-mode", "client"]
    assert words[5:] == ["--conf", "spark.driver.bindAddress=10.0.0.7", "words.py"]
