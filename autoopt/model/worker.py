"""What workers do with models, as functions of JSON: `locate`, `admit` and `inspect`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from autoopt.model.files import bytes_in, digest_folder, files_in


def admit(payload: dict[str, Any]) -> dict[str, Any]:
    """Copy the model at `source` safely into the folder `dest`: `{"digest", "bytes", "files"}`.

    `source` is a path or a URL; downloads are kept in the folder `cache` (default: beside `dest`).
    Refused where the model or its external data breaks a rule of admission.
    """
    from autoopt.model.admit import admit_model, download_model
    from autoopt.model.fetch import is_url

    source, dest = str(payload["source"]), Path(payload["dest"])
    if is_url(source):
        cache = Path(payload.get("cache") or dest.parent / "downloads")
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            admit_model(download_model(source, Path(folder), cache), dest)
    else:
        admit_model(Path(source), dest)
    return {"digest": digest_folder(dest), "bytes": bytes_in(dest), "files": list(files_in(dest))}


def locate(payload: dict[str, Any]) -> dict[str, Any]:
    """The model's file behind `source` on this machine, as `{"path"}`: of a URL what is kept of it in the folder
    `cache`, of a folder of MLflow the file that it holds."""
    from autoopt.model.fetch import fetch
    from autoopt.model.mlflow import is_packaged, packaged_model

    path = fetch(str(payload["source"]), Path(payload["cache"]))
    return {"path": str(packaged_model(path) if is_packaged(path) else path)}


def inspect(payload: dict[str, Any]) -> dict[str, Any]:
    """The `Inspection` of the model at `path`, as JSON. Reads the graph only."""
    from autoopt.model.examine import inspect_model
    from autoopt.model.io import parse

    path = Path(payload["path"])
    return inspect_model(parse(path), path).to_json()


def providers(payload: dict[str, Any]) -> dict[str, Any]:
    """The execution providers of the installed onnxruntime: `{"providers": [name, ...]}`, best first."""
    import onnxruntime

    return {"providers": list(onnxruntime.get_available_providers())}


def runtime(payload: dict[str, Any]) -> dict[str, Any]:
    """What this interpreter would run models with: `{"python", "onnxruntime", "providers", "numpy"}`.

    `onnxruntime` is its version, empty where it is not installed; `providers` are the execution providers built in.
    """
    import platform

    try:
        import onnxruntime
    except ImportError:
        version, providers = "", []
    else:
        version, providers = onnxruntime.__version__, list(onnxruntime.get_available_providers())
    try:
        import numpy
    except ImportError:
        numpy_version = ""
    else:
        numpy_version = numpy.__version__
    return {
        "python": platform.python_version(),
        "onnxruntime": version,
        "providers": providers,
        "numpy": numpy_version,
    }
