"""Releases in MLflow's model registry: a version for each, and the alias `released` on the current one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from autoopt.engine.tools.exports.mlflow_runs import id_of_experiment, mlflow_client
from autoopt.model.files import MODEL
from autoopt.results.release import Release

if TYPE_CHECKING:
    from mlflow import MlflowClient

ALIAS: Final = "released"
"""`models:/NAME@released` is the release in use."""
RELEASE_TAG: Final = "autoopt.release"
"""Tag of a version: `zoo/model number`."""
ARTIFACT_TAG: Final = "autoopt.artifact"
EXPERIMENT: Final = "autoopt releases"
ARTIFACT: Final = "model"


def add(folder: Path, release: Release, name: str) -> Callable[[], None]:
    """Register a package as a version of the model `name`, unless it is one; return the call that sets the alias.

    Args:
        folder: The package; an `MLmodel` file with the flavor onnx is added.
        release: The release.
        name: Name of the registered model. MLFLOW_TRACKING_URI and MLFLOW_REGISTRY_URI say where.

    Raises:
        InputError: MLflow is not installed or cannot be reached.
    """
    with mlflow_client() as client:
        version = _version_of(client, release, name) or _register(client, folder, release, name)
    return lambda: _set_alias(name, version)


def _set_alias(name: str, version: str) -> None:
    with mlflow_client() as client:
        client.set_registered_model_alias(name, ALIAS, version)


def _version_of(client: MlflowClient, release: Release, name: str) -> str | None:
    """The version that holds the release."""
    for version in client.search_model_versions(f"name = '{name}'"):
        tags = version.tags
        if (tags.get(RELEASE_TAG), tags.get(ARTIFACT_TAG)) == (release.name, release.model.artifact):
            return str(version.version)
    return None


def _register(client: MlflowClient, folder: Path, release: Release, name: str) -> str:
    """Log the package to a run of its own and register it; return the version."""
    from mlflow.exceptions import MlflowException
    from mlflow.models import Model

    model = Model(artifact_path=ARTIFACT, flavors={"onnx": {"data": MODEL}})
    model.save(str(folder / "MLmodel"))
    tags = {RELEASE_TAG: release.name, ARTIFACT_TAG: release.model.artifact, "autoopt.run": release.entry.run}
    run = client.create_run(id_of_experiment(client, EXPERIMENT), run_name=release.name, tags=tags).info
    client.log_artifacts(run.run_id, str(folder), ARTIFACT)
    client.set_terminated(run.run_id)
    try:
        client.get_registered_model(name)
    except MlflowException:
        client.create_registered_model(name)
    source = f"{run.artifact_uri}/{ARTIFACT}"
    description = f"{release.model.short_chain}, promoted by {release.by}"
    version = client.create_model_version(name, source, run.run_id, tags, description=description)
    return str(version.version)
