"""Every `dagster.yaml` of deploy/ is what Dagster takes, with the environment that its guide names, and makes what it says."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config
from dagster._core.instance.ref import InstanceRef
from dagster_aws.s3.compute_log_manager import S3ComputeLogManager
from dagster_k8s import K8sRunLauncher
from dagster_k8s import launcher as kubernetes_launcher
from dagster_k8s.job import DagsterK8sJobConfig, UserDefinedDagsterK8sConfig, construct_dagster_k8s_job
from dagster_postgres import DagsterPostgresStorage
from kubernetes import client

from orchestration.celery_launcher import CELERY_SETTINGS, WatchedCeleryRunLauncher
from orchestration.celery_worker import application

DEPLOY = Path(__file__).parents[2] / "deploy"
ENGINES = ["postgres", "s3", "celery", "kubernetes"]
ENVIRONMENT = {
    "ZOOPORT_POSTGRES": "postgresql+psycopg2://zooport:secret@database/zooport",
    "ZOOPORT_REDIS": "redis://queue:6379/0",
    "ZOOPORT_LOG_BUCKET": "logs",
    "ZOOPORT_IMAGE": "registry.example.org/zooport:latest",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


def asked_for(settings: Any) -> Iterator[str]:
    """The environment variables that a file reads."""
    if isinstance(settings, dict):
        if set(settings) == {"env"}:
            yield settings["env"]
        for value in settings.values():
            yield from asked_for(value)


@pytest.mark.parametrize("engine", ENGINES)
def test_dagster_takes_it(engine: str) -> None:
    """Raises for a section or a field that it doesn't know."""
    settings, _ = dagster_instance_config(str(DEPLOY / engine))
    assert settings["telemetry"] == {"enabled": False}
    InstanceRef.from_dir(str(DEPLOY / engine))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_guide_names_all_that_it_reads(engine: str) -> None:
    guide = (DEPLOY / engine / "README.md").read_text()
    unnamed = set(asked_for(yaml.safe_load((DEPLOY / engine / "dagster.yaml").read_text()))) - set(re.findall(r"[A-Z][A-Z_]{4,}", guide))
    assert unnamed == set()


def test_every_engine_has_a_guide_and_the_overview_names_it() -> None:
    overview = (DEPLOY / "README.md").read_text()
    assert sorted(path.parent.name for path in DEPLOY.glob("*/dagster.yaml")) == sorted(ENGINES)
    assert all(f"({engine}/README.md)" in overview for engine in ENGINES)


@pytest.mark.parametrize("engine", ["postgres", "celery", "kubernetes"])
def test_runs_and_events_go_to_postgresql(engine: str) -> None:
    """Its class and URL: that the server takes it, the slow test shows."""
    data = InstanceRef.from_dir(str(DEPLOY / engine)).storage_data
    assert (data.module_name, data.class_name) == (DagsterPostgresStorage.__module__.rpartition(".")[0], DagsterPostgresStorage.__name__)
    assert data.config_dict["postgres_url"] == {"env": "ZOOPORT_POSTGRES"}


@pytest.mark.parametrize("engine", ["s3", "celery", "kubernetes"])
def test_the_output_of_runs_goes_to_s3(engine: str) -> None:
    manager = InstanceRef.from_dir(str(DEPLOY / engine)).compute_logs_data.rehydrate(as_type=S3ComputeLogManager)
    assert manager._s3_bucket == "logs"


def test_runs_go_through_redis_to_workers_that_are_watched() -> None:
    launcher = InstanceRef.from_dir(str(DEPLOY / "celery")).run_launcher_data.rehydrate(as_type=WatchedCeleryRunLauncher)
    assert launcher.celery.conf.broker_url == ENVIRONMENT["ZOOPORT_REDIS"]
    assert launcher.celery.conf.result_backend == ENVIRONMENT["ZOOPORT_REDIS"]
    assert {name: launcher.celery.conf[name] for name in CELERY_SETTINGS} == CELERY_SETTINGS
    assert not launcher.supports_resume_run
    assert launcher.silence_seconds == 60.0


def test_a_worker_listens_where_the_launcher_sends() -> None:
    launcher = InstanceRef.from_dir(str(DEPLOY / "celery")).run_launcher_data.rehydrate(as_type=WatchedCeleryRunLauncher)
    celery = application(launcher)
    assert "execute_job" in celery.tasks
    assert launcher.default_queue in {queue.name for queue in celery.conf.task_queues}


def test_a_worker_says_what_to_do_without_a_launcher_for_celery() -> None:
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(TypeError, match="deploy/celery"):
        application(instance.run_launcher)


def test_a_pod_for_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_launcher, "load_kubernetes_config", lambda **_: None)  # there is no cluster to load it from
    launcher = InstanceRef.from_dir(str(DEPLOY / "kubernetes")).run_launcher_data.rehydrate(as_type=K8sRunLauncher)
    assert launcher.job_image == ENVIRONMENT["ZOOPORT_IMAGE"]
    wanted = UserDefinedDagsterK8sConfig.from_dict(launcher.run_k8s_config)
    job = construct_dagster_k8s_job(DagsterK8sJobConfig(job_image=launcher.job_image), ["true"], "a-run", wanted)
    (container,) = job.spec.template.spec.containers
    assert job.spec.backoff_limit == 0
    assert container.resources.limits == {"cpu": "4", "memory": "16Gi"}
    assert job.spec.template.spec.termination_grace_period_seconds == 30


def test_the_manifests_name_each_other_and_what_the_launcher_names() -> None:
    folder = DEPLOY / "kubernetes"
    manifests = [each for each in yaml.safe_load_all((folder / "manifests.yaml").read_text()) if each]
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    launcher = yaml.safe_load((folder / "dagster.yaml").read_text())["run_launcher"]["config"]
    named = {(each["kind"], each["metadata"]["name"]) for each in manifests}
    config_maps = {each["name"] for each in kustomization["configMapGenerator"]}
    assert ("ServiceAccount", launcher["service_account_name"]) in named
    assert ("Namespace", launcher["job_namespace"]) in named
    assert kustomization["namespace"] == launcher["job_namespace"]
    assert {launcher["instance_config_map"], *launcher["env_config_maps"]} == config_maps
    for deployment in (each for each in manifests if each["kind"] == "Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        assert pod["serviceAccountName"] == launcher["service_account_name"]
        assert {volume["configMap"]["name"] for volume in pod["volumes"]} <= config_maps
        (container,) = pod["containers"]
        sources = [*container["envFrom"]]
        assert {each["configMapRef"]["name"] for each in sources if "configMapRef" in each} == set(launcher["env_config_maps"])
        assert {each["secretRef"]["name"] for each in sources if "secretRef" in each} == set(launcher["env_secrets"])


def test_the_manifests_have_only_fields_that_kubernetes_knows() -> None:
    kinds = {
        "Namespace": client.V1Namespace,
        "ServiceAccount": client.V1ServiceAccount,
        "Role": client.V1Role,
        "RoleBinding": client.V1RoleBinding,
        "Deployment": client.V1Deployment,
        "Service": client.V1Service,
    }
    for manifest in yaml.safe_load_all((DEPLOY / "kubernetes" / "manifests.yaml").read_text()):
        assert unknown_fields(manifest, kinds[manifest["kind"]], manifest["kind"]) == []


def unknown_fields(value: Any, kind: Any, where: str) -> list[str]:
    """Fields of a manifest that its model in Kubernetes' own client doesn't have."""
    types, names = kind.openapi_types, {outer: inner for inner, outer in kind.attribute_map.items()}
    found = []
    for name, inner in value.items():
        if name not in names:
            found.append(f"{where}.{name}")
            continue
        declared = types[names[name]]
        many = declared.startswith("list[")
        model = getattr(client, declared.removeprefix("list[").removesuffix("]"), None)
        if model is not None and hasattr(model, "openapi_types"):
            for each in inner if many else [inner]:
                found += unknown_fields(each, model, f"{where}.{name}")
    return found
