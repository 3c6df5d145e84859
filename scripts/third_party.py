"""Write THIRD_PARTY.md: the licences of autoopt's dependencies, and theirs, as the installed packages state them.

python scripts/third_party.py THIRD_PARTY.md
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "autoopt"
EXTRAS = ("postgres", "s3", "data", "plots", "notebook", "mlflow", "hf")
"""Extras besides the base; torch and nncf bring many packages of their own and are left out."""
LONG_TEXTS = {
    "Apache License": "Apache-2.0",
    "BSD 3-Clause": "BSD-3-Clause",
    "Redistribution and use in source": "BSD-3-Clause",
    "MIT License": "MIT",
    "Permission is hereby granted, free of charge": "MIT",
}
"""Beginnings of licence texts that some packages give instead of a name."""
NAMES = {
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License v2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Apache Software License 2.0": "Apache-2.0",
    "Apache": "Apache-2.0",
    "BSD": "BSD",
    "BSD License": "BSD",
    "BSD 3-Clause": "BSD-3-Clause",
    "3-Clause BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "MIT license": "MIT",
    "The MIT License": "MIT",
}
"""Other spellings of the identifiers of SPDX."""
HEAD = """# Licences of dependencies

Made by `scripts/third_party.py` from the metadata of the installed packages: autoopt's dependencies, those of its
extras ({extras}), and theirs. autoopt contains none of their code.
The extras `torch` and `nncf` bring further packages.

| licence | packages |
|---|---|
"""


def closure(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """Yield the names of a package's installed dependencies and theirs."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    for requirement in requirements(name, extras):
        dependency = canonicalize_name(requirement.name)
        if is_installed(dependency):
            yield dependency
            yield from closure(dependency, frozenset(requirement.extras), seen)


def requirements(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    """Yield what a package needs on this platform, itself or for these extras."""
    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def is_installed(name: str) -> bool:
    """True if the package is there: some are for other platforms."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def licence_of(name: str) -> str:
    """The licence that a package states, by its SPDX identifier where that is known."""
    metadata = importlib.metadata.metadata(name)
    if metadata["License-Expression"]:
        return metadata["License-Expression"]
    text = (metadata["License"] or "").strip()
    for beginning, identifier in LONG_TEXTS.items():
        if len(text) > 60 and beginning in text:
            return identifier
    if text and "\n" not in text and len(text) <= 60:
        return NAMES.get(text, text)
    for classifier in metadata.get_all("Classifier") or ():
        if classifier.startswith("License :: OSI Approved :: "):
            name = classifier.rpartition(" :: ")[2]
            return NAMES.get(name, name)
    return "not stated"


def main() -> None:
    """Write the table."""
    missing = sorted({need.name for need in requirements(PROJECT, frozenset(EXTRAS)) if not is_installed(need.name)})
    if missing:
        sys.exit(f"install first, with constraints.txt: {' '.join(missing)}")
    by_licence: dict[str, list[str]] = {}
    for name in sorted(set(closure(PROJECT, frozenset(EXTRAS), set())) - {PROJECT}):
        version = importlib.metadata.version(name)
        by_licence.setdefault(licence_of(name), []).append(f"{name} {version}")
    lines = [f"| {licence} | {', '.join(packages)} |\n" for licence, packages in sorted(by_licence.items())]
    Path(sys.argv[1]).write_text(HEAD.format(extras=", ".join(EXTRAS)) + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
