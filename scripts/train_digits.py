"""Train the demo model: a small CNN on scikit-learn's handwritten digits, exported as an un-optimized ONNX graph.

    pip install -e '.[train]' && python scripts/train_digits.py [FOLDER]

Writes `model.onnx`, `evaluation.npz` and `calibration.npz` into FOLDER (default `dags/digits`) and prints the
accuracy. Items are 8x8 grey images, `image` float32 [items, 1, 8, 8] in 0..16; `labels` int64. The three parts of the
data (train, calibration, evaluation) share no item. One thread, fixed seeds: the same file on the same machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

SEED = 0
EVALUATION, CALIBRATION = 600, 200
EPOCHS = 60
OPSET = 18


def conv(inputs: int, outputs: int) -> nn.Sequential:
    """3x3 convolution and batch normalization, size kept."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """Two convolutions around a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = conv(channels, channels), conv(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


class Net(nn.Module):
    """Pixels in 0..16 to ten class scores."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.low = conv(1, 32), Block(32)
        self.widen, self.high = conv(32, 48), Block(48)
        self.drop = nn.Dropout(0.3)
        self.hidden, self.scores = nn.Linear(48 * 4 * 4, 32), nn.Linear(32, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = (image - 8.0) / 8.0
        x = self.low(torch.relu(self.stem(x)))
        x = self.high(torch.relu(self.widen(x)))
        x = nn.functional.max_pool2d(x, 2)
        x = self.drop(x.flatten(1))
        return self.scores(torch.relu(self.hidden(x)))


def split() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Train, calibration and evaluation parts, stratified by class."""
    digits = load_digits()
    images, labels = digits.images.astype(np.float32)[:, None], digits.target.astype(np.int64)
    rest, test, rest_labels, test_labels = train_test_split(
        images, labels, test_size=EVALUATION, random_state=SEED, stratify=labels
    )
    train, calibration, train_labels, calibration_labels = train_test_split(
        rest, rest_labels, test_size=CALIBRATION, random_state=SEED, stratify=rest_labels
    )
    return {
        "train": (train, train_labels),
        "calibration": (calibration, calibration_labels),
        "evaluation": (test, test_labels),
    }


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Each batch moved by up to one pixel either way: the only augmentation."""
    dy, dx = (int(v) for v in torch.randint(-1, 2, (2,), generator=generator))
    return torch.roll(images, (dy, dx), (2, 3))


def train(images: np.ndarray, labels: np.ndarray) -> Net:
    """Fit for a fixed number of epochs; nothing is chosen by looking at other parts of the data."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    net, data, target = Net(), torch.from_numpy(images), torch.from_numpy(labels)
    steps = EPOCHS * (len(data) // 64)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        order = torch.randperm(len(data), generator=generator)
        for start in range(0, len(data) - 63, 64):
            rows = order[start : start + 64]
            loss = nn.functional.cross_entropy(net(shifted(data[rows], generator)), target[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def export(net: Net, path: Path) -> None:
    """The graph as the exporter leaves it without optimization: BatchNormalization unfused, constants unfolded."""
    program = torch.onnx.export(
        net,
        (torch.zeros(2, 1, 8, 8),),
        dynamo=True,
        optimize=False,
        opset_version=OPSET,
        input_names=["image"],
        output_names=["scores"],
        dynamic_shapes={"image": {0: torch.export.Dim("batch", min=1)}},
        verbose=False,
    )
    proto = program.model_proto
    for place in (proto.graph, *proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        del place.metadata_props[:]  # source lines and paths of the machine that exported it
    path.write_bytes(proto.SerializeToString(deterministic=True))


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    folder.mkdir(parents=True, exist_ok=True)
    parts = split()
    net = train(*parts["train"])
    export(net, folder / "model.onnx")
    for name in ("calibration", "evaluation"):
        images, labels = parts[name]
        np.savez_compressed(folder / f"{name}.npz", image=images, labels=labels)
        with torch.no_grad():
            right = net(torch.from_numpy(images)).argmax(1).numpy() == labels
        print(f"{name}: {right.sum()} of {len(labels)} right, accuracy {right.mean():.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "dags" / "digits")
