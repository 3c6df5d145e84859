"""Worker functions for models, JSON in and JSON out: `locate`, `admit`, `inspect` and `runtime`."""

from __future__ import annotations

import platform
from contextlib import suppress
from pathlib import Path
from typing import cast

from autoopt.json_codec import JsonObject, JsonValue, to_json
from autoopt.model.files import bytes_in, digest_folder, files_in
from autoopt.model.runtimes import find_providers, runtime_distribution
from autoopt.working_folder import working_folder


def admit(payload: JsonObject) -> dict[str, JsonValue]:
    """Copy the model at `source`, a path or a URL, safely into the folder `dest`.

    Downloads are cached in the folder `cache` (default: beside `dest`).

    Returns:
        `{"digest", "bytes", "files", "repairs"}` of the copy.

    Raises:
        NotAdmitted: the model or its external data breaks a rule of admission.
    """
    from autoopt.model.admit import admit_model, download_model
    from autoopt.model.fetch import is_url

    source, dest = str(payload["source"]), Path(str(payload["dest"]))
    if is_url(source):
        cache = Path(str(payload.get("cache") or dest.parent / "downloads"))
        with working_folder(cache) as folder:
            admitted = admit_model(download_model(source, folder, cache), dest)
    else:
        admitted = admit_model(Path(source), dest)
    return {
        "digest": digest_folder(dest),
        "bytes": bytes_in(dest),
        "files": list(files_in(dest)),
        "repairs": list(admitted.repairs),
    }


def name_data(payload: JsonObject) -> dict[str, JsonValue]:
    """Let the model at `path` look for its external data in files named after the file `out`.

    Returns:
        `{"files": {present name: new name}, "owned": [...]}`; `owned` are the files that the model at `out` refers to.
    """
    from autoopt.model.io import Unreadable, external_locations, external_tensors, parse

    path, out = Path(str(payload["path"])), Path(str(payload["out"]))
    model = parse(path)
    names = {name: f"{out.name}.data{number or ''}" for number, name in enumerate(sorted(external_locations(model)))}
    for tensor in external_tensors(model):
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = names[entry.value]
    path.write_bytes(model.SerializeToString(deterministic=True))
    owned: set[str] = set()
    if out.exists():
        with suppress(Unreadable):  # it is no model, and owns nothing
            owned = external_locations(parse(out))
    return {"files": names, "owned": sorted(owned)}


def locate(payload: JsonObject) -> dict[str, JsonValue]:
    """Find the model's file on this machine: `{"path"}`.

    A URL is fetched into the folder `cache`; in an MLflow folder the file is the model that it holds.
    """
    from autoopt.model.fetch import fetch
    from autoopt.model.packaged_models import is_packaged, packaged_model

    path = fetch(str(payload["source"]), Path(str(payload["cache"])))
    if is_packaged(path):
        path = packaged_model(path)
    return {"path": str(path)}


def inspect(payload: JsonObject) -> dict[str, JsonValue]:
    """Collect the `Inspection` of the model at `path`, as JSON. Reads the graph only."""
    from autoopt.model.inspection import first_unreadable_name, inspect_model
    from autoopt.model.io import Unreadable, parse

    path = Path(str(payload["path"]))
    model = parse(path)
    name = first_unreadable_name(model)
    if name:
        remedy = "export the model again with other names"
        raise Unreadable(f"the name {name!r} is not UTF-8 text", where=str(path), remedy=remedy)
    return inspect_model(model, path).to_json()


def load(payload: JsonObject) -> dict[str, JsonValue]:
    """Have the runtime load the model at `path` with its `session_options`; raises what it raises."""
    from autoopt.model.session import make_session

    make_session(str(payload["path"]), cast(JsonObject, payload["session_options"]))
    return {}


def runtime(payload: JsonObject) -> dict[str, JsonValue]:
    """Describe this interpreter: the versions of Python, numpy and onnxruntime, its distribution and its providers.

    Versions are empty for packages that are not installed. The fields of `Providers` say what can be used.
    """
    version = platform.python_version()
    description: dict[str, JsonValue] = {"python": version, "onnxruntime": "", "numpy": "", "providers": []}
    with suppress(ImportError):
        import numpy

        description["numpy"] = numpy.__version__
    with suppress(ImportError):
        import onnxruntime

        description |= {
            "onnxruntime": onnxruntime.__version__,
            "distribution": runtime_distribution(),
            **to_json(find_providers()),
        }
    return description
