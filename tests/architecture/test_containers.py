"""The container files: loopback ports, no secret with a default, a health check each, and nothing that is not there."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deployments"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
KUBERNETES = [
    item
    for path in sorted((FOLDER / "kubernetes").glob("*.yaml"))
    for item in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
SECRET = re.compile(r"PASSWORD|SECRET|AUTH_STRING|ACCESS_KEY|STORE_URI", re.IGNORECASE)
PINNED = re.compile(r"[a-z/]+:\d+\.\d+(\.\d+)?")
WORKLOADS = [item for item in KUBERNETES if item["kind"] == "Deployment"]


def names_of(items):
    return [item["metadata"]["name"] for item in items]


def secrets_of(environment):
    return {name: value for name, value in environment.items() if SECRET.search(name)}


def test_the_services_are_those_that_the_pages_speak_of():
    assert set(COMPOSE["services"]) == {"postgres", "prefect", "mlflow", "worker"}
    assert names_of(WORKLOADS) == ["postgres", "prefect", "mlflow", "worker"]


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_is_on_loopback_pinned_and_looked_after(name):
    service = COMPOSE["services"][name]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in service.get("ports", []))
    assert PINNED.fullmatch(service["image"])
    assert service["healthcheck"]["test"][0] == "CMD"
    for other, condition in service.get("depends_on", {}).items():
        assert "healthcheck" in COMPOSE["services"][other]
        assert condition == {"condition": "service_healthy"}
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        assert source in COMPOSE["volumes"] or (FOLDER / source).is_file(), volume


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_secret_comes_from_the_environment_and_has_no_default(name):
    for variable, value in secrets_of(COMPOSE["services"][name].get("environment", {})).items():
        assert re.findall(r"\$\{([A-Z_]+)(.)\?", value), f"{variable} is not required"
        without = re.sub(r"\$\{[A-Z_]+:\?[^}]*\}", "", value)
        assert without in ("", "postgresql://igrpo:@postgres:5432/mlflow"), f"{variable} says more than its secret"


def test_there_are_secrets_to_look_at():
    found = {name for service in COMPOSE["services"].values() for name in secrets_of(service.get("environment", {}))}
    assert found == {
        "POSTGRES_PASSWORD",
        "PREFECT_SERVER_DATABASE_PASSWORD",
        "PREFECT_SERVER_API_AUTH_STRING",
        "PREFECT_API_AUTH_STRING",
        "MLFLOW_BACKEND_STORE_URI",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    }


def test_the_image_has_every_room_and_no_root():
    lines = DOCKERFILE.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("COPY") and len(line.split()) == 3] == [
        "flows",
        "tasks",
        "storage",
        "deployments",
    ]
    assert "USER 10001" in lines
    assert PINNED.fullmatch(next(line.split()[1] for line in lines if line.startswith("FROM")).removesuffix("-slim"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = re.search(r"-e '\.\[([a-z0-9,]+)\]'", DOCKERFILE)[1].split(",")
    assert {"s3", "postgres"} <= set(asked) <= set(project["optional-dependencies"])
    assert f"torch=={re.search('torch==([0-9.]+)', project['dependencies'][0])[1]}" in DOCKERFILE
    assert COMPOSE["services"]["worker"]["image"] == f"igrpo:{project['version']}"


def test_what_the_worker_starts_is_there():
    script = FOLDER / "start-worker.sh"
    assert COMPOSE["services"]["worker"]["command"] == ["deployments/start-worker.sh"]
    assert script.stat().st_mode & 0o111
    assert "deployments/prefect.yaml" in script.read_text(encoding="utf-8")


def pod(item):
    return item["spec"]["template"]["spec"]


@pytest.mark.parametrize("item", WORKLOADS, ids=names_of(WORKLOADS))
def test_a_pod_is_unprivileged_pinned_and_looked_after(item):
    (container,) = pod(item)["containers"]
    assert item["spec"]["selector"]["matchLabels"] == item["spec"]["template"]["metadata"]["labels"]
    assert pod(item)["securityContext"]["runAsNonRoot"] is True
    assert pod(item)["automountServiceAccountToken"] is False
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert PINNED.fullmatch(container["image"])
    assert container["image"] == COMPOSE["services"][item["metadata"]["name"]]["image"]
    assert "livenessProbe" in container
    claims = names_of([each for each in KUBERNETES if each["kind"] == "PersistentVolumeClaim"])
    for volume in pod(item).get("volumes", []):
        assert volume.get("persistentVolumeClaim", {}).get("claimName", "postgres") in claims
    mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
    assert mounted == {volume["name"] for volume in pod(item).get("volumes", [])}


@pytest.mark.parametrize("item", WORKLOADS, ids=names_of(WORKLOADS))
def test_a_pod_has_its_secrets_by_reference_only(item):
    (container,) = pod(item)["containers"]
    says = (FOLDER / "kubernetes" / "igrpo.yaml").read_text(encoding="utf-8")
    for variable in container["env"]:
        if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
            assert reference["name"] == "igrpo"
            assert f"--from-literal={reference['key']}=" in says
        elif SECRET.search(variable["name"]):
            assert variable["value"] == "postgresql://igrpo:$(POSTGRES_PASSWORD)@postgres:5432/mlflow"
    settings = {variable["name"] for variable in container["env"]} - {"POSTGRES_PASSWORD", "PGDATA"}
    compose = COMPOSE["services"][item["metadata"]["name"]]["environment"]
    assert settings == set(compose) - {"POSTGRES_PASSWORD", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"}


def test_nothing_listens_outside_the_namespace():
    services = [item for item in KUBERNETES if item["kind"] == "Service"]
    assert names_of(services) == ["postgres", "prefect", "mlflow"]
    for item in services:
        assert item["spec"]["type"] == "ClusterIP"
        assert item["spec"]["selector"] == {"app": item["metadata"]["name"]}
    (policy,) = [item for item in KUBERNETES if item["kind"] == "NetworkPolicy"]
    assert policy["spec"]["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert {item["kind"] for item in KUBERNETES}.isdisjoint({"Ingress", "Secret"})
    assert {item["metadata"]["namespace"] for item in KUBERNETES} == {"igrpo"}
