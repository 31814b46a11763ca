"""The files to start several machines from: they can be read, and name what exists."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from amplifierd.control.main import app as daemon_app
from amplifierd.settings import Settings, load_settings
from amplifierd.settings_layers import read_environment

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
CONTAINERFILE = (ROOT / "Containerfile").read_text()

OTHERS = {"postgres:18"}
NOT_OURS = {"PGPASSWORD", "POD_NAME", "AMPLIFIERD_CLUSTER__TOKEN"}  # a secret is not a setting


def written(name: str) -> str:
    """Return what an instruction of the Containerfile says."""
    found = re.search(rf"^{name}[ =](.+)$", CONTAINERFILE, re.MULTILINE)
    assert found is not None
    return found[1]


IMAGE, PORT = written("LABEL org.opencontainers.image.title"), int(written("EXPOSE"))


def documents() -> Iterator[Mapping[str, Any]]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text())


def of_kind(kind: str) -> dict[str, Any]:
    return {found["metadata"]["name"]: found for found in documents() if found["kind"] == kind}


def values_in(value: Any, key: str) -> Iterator[Any]:
    """Yield every value of a key, however deep it stands."""
    if isinstance(value, Mapping):
        yield from (inner for name, inner in value.items() if name == key)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from values_in(item, key)


def environments() -> dict[str, dict[str, str]]:
    """Return the variables of every daemon, secrets made up, and what others fill in filled in."""
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    found = {name: dict(service["environment"]) for name, service in services.items() if service["image"] == IMAGE}
    (container,) = of_kind("StatefulSet")["amplifierd"]["spec"]["template"]["spec"]["containers"]
    own = {variable["name"]: variable.get("value", "x" * 40) for variable in container["env"]}
    found["pod"] = {**of_kind("ConfigMap")["amplifierd"]["data"], **own}
    return {name: {key: _filled(str(value)) for key, value in values.items()} for name, values in found.items()}


def _filled(text: str) -> str:
    return re.sub(r"\$\{\w+:\?[^}]*\}", "x" * 40, text.replace("$(POD_NAME)", "amplifierd-0"))


@pytest.mark.parametrize("name", ["one", "two", "three", "pod"])
def test_every_variable_is_a_setting_and_has_a_value_that_it_can_have(tmp_path: Path, name: str) -> None:
    variables = environments()[name]
    ours = {key: value for key, value in variables.items() if key not in NOT_OURS}

    settings = load_settings(tmp_path / "none.yaml", environ=ours)

    assert {key for key in ours if not key.startswith("AMPLIFIERD_")} == set()
    assert read_environment(Settings, ours).warnings == ()
    assert len(settings.model_fields_set) >= 5
    assert not settings.store.is_files
    assert settings.working_dir in settings.cluster.shared_paths
    assert str(settings.cluster.address).endswith(f":{PORT}")
    assert re.split(r"[/:]+", str(settings.cluster.address))[1] in settings.security.allowed_hosts


def test_images_and_ports_are_those_of_the_container_file() -> None:
    everything = [*documents(), yaml.safe_load(COMPOSE.read_text())]

    assert {*values_in(everything, "image")} == {IMAGE, *OTHERS}
    assert Settings.model_fields["port"].default == PORT
    commands = [*values_in(everything, "command"), *values_in(everything, "args")]
    served = [command for command in commands if command[:2] == ["amplifierd", "serve"]]
    assert served
    assert all(command[command.index("--port") + 1] == str(PORT) for command in served)
    published = [port for service in everything[-1]["services"].values() for port in service.get("ports", ())]
    assert {port.rpartition(":")[2] for port in published} == {str(PORT)}
    assert all(port.startswith("127.0.0.1:") for port in published)
    for found in (*of_kind("Service").values(), *of_kind("StatefulSet").values(), *of_kind("NetworkPolicy").values()):
        numbers = {*values_in(found, "containerPort"), *(n for n in values_in(found, "port") if isinstance(n, int))}
        assert numbers == {PORT if "amplifierd" in str(found) and found["metadata"]["name"] != "postgres" else 5432}


def test_every_command_of_ours_exists() -> None:
    everything = [*documents(), yaml.safe_load(COMPOSE.read_text())]
    commands = [*values_in(everything, "command"), *values_in(everything, "args")]
    ours = [command[1:] for command in commands if command[0] == "amplifierd"]

    assert {command[0] for command in ours} == {"serve", "cluster"}
    for words in ours:
        found: Any = typer.main.get_command(daemon_app)
        while words and words[0] in getattr(found, "commands", {}):
            found, words = found.commands[words[0]], words[1:]
        options = {name for parameter in found.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_probes_ask_for_what_the_daemon_answers() -> None:
    from amplifierd.server.api.system import unversioned

    known = {route.path for route in unversioned.routes}  # type: ignore[attr-defined] # routes of ours have one
    asked = [probe for found in of_kind("StatefulSet").values() for probe in values_in(found, "httpGet")]

    assert {probe["path"] for probe in asked} == {"/health", "/ready"} <= known
    assert {header["value"] for probe in asked for header in probe["httpHeaders"]} == {"localhost"}


def test_what_the_manifests_refer_to_is_there() -> None:
    names = {kind: {*of_kind(kind)} for kind in ("Service", "StatefulSet", "ConfigMap", "PersistentVolumeClaim")}
    pods = {name: found["spec"]["template"] for name, found in of_kind("StatefulSet").items()}
    labels = {template["metadata"]["labels"]["app"] for template in pods.values()}

    assert labels == names["StatefulSet"] == {"amplifierd", "postgres"}
    for found in documents():
        assert {app for app in values_in(found, "app")} <= labels
        assert {*values_in(found, "claimName")} <= names["PersistentVolumeClaim"]
        assert {*values_in(found, "serviceName")} <= names["Service"]
        assert {reference["name"] for reference in values_in(found, "configMapRef")} <= names["ConfigMap"]
    for name, found in of_kind("StatefulSet").items():
        made = {claim["metadata"]["name"] for claim in found["spec"]["volumeClaimTemplates"]}
        given = {volume["name"] for volume in pods[name]["spec"].get("volumes", ())}
        assert {mount["name"] for mounts in values_in(found, "volumeMounts") for mount in mounts} == made | given
    (kustomization,) = [found for found in documents() if found["kind"] == "Kustomization"]
    assert {*kustomization["resources"], "kustomization.yaml"} == {path.name for path in MANIFESTS}
    services = yaml.safe_load(COMPOSE.read_text())
    used = {volume.partition(":")[0] for service in services["services"].values() for volume in service["volumes"]}
    assert used == {*services["volumes"]}


def test_directories_that_are_shared_are_in_the_image_and_mounted() -> None:
    made = re.search(r"install --directory --owner amplifier (.+)", CONTAINERFILE)
    assert made is not None
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name, service in services.items():
        if service["image"] == IMAGE:
            assert {volume.partition(":")[2] for volume in service["volumes"]} == {*made[1].split()}, name
    mounts = next(values_in(of_kind("StatefulSet")["amplifierd"], "volumeMounts"))
    assert {mount["mountPath"] for mount in mounts} == {*made[1].split()}


def test_the_page_says_how_every_secret_is_made() -> None:
    page = (ROOT / "docs/scale-out.md").read_text()
    asked = {*re.findall(r"\$\{(\w+):\?", COMPOSE.read_text())}
    keys = {reference["key"] for found in documents() for reference in values_in(found, "secretKeyRef")}

    assert asked
    assert all(f"{name}=" in page for name in asked)
    assert all(f"--from-literal={key}=" in page for key in keys)
