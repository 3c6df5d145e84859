"""The hypervolume that points of losses dominate."""

from __future__ import annotations

from collections.abc import Sequence


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """The volume between points of losses and a reference point, by slices along the last loss."""
    inside = [point for point in points if all(a < b for a, b in zip(point, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(point[0] for point in inside)
    volume, inside = 0.0, sorted(inside, key=lambda point: point[-1])
    for number, point in enumerate(inside):
        end = inside[number + 1][-1] if number + 1 < len(inside) else reference[-1]
        if end > point[-1]:
            volume += (end - point[-1]) * hypervolume([p[:-1] for p in inside[: number + 1]], reference[:-1])
    return volume
