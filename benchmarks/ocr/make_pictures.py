"""Write pictures.npz: pictures with four lines of random letters, as the detection of PP-OCR takes them."""

from __future__ import annotations

import string

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PICTURES, SIZE, LINES = 32, 320, 4
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def picture(rng: np.random.Generator) -> np.ndarray:
    """One picture (3, rows, columns), float32."""
    image = Image.new("RGB", (SIZE, SIZE), "white")
    draw = ImageDraw.Draw(image)
    for line in range(LINES):
        letters = "".join(rng.choice(list(string.ascii_letters), rng.integers(6, 12)))
        font = ImageFont.load_default(int(rng.integers(20, 32)))
        draw.text((20, 20 + line * SIZE // LINES), letters, fill="black", font=font)
    pixels = (np.asarray(image, np.float32) / 255 - MEAN) / DEVIATION
    return pixels.transpose(2, 0, 1).astype(np.float32)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    np.savez("pictures.npz", x=np.stack([picture(rng) for _ in range(PICTURES)]))
