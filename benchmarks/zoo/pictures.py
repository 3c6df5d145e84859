"""Pictures for public.py: crops of photos, and drawn pages, tables, captchas and seals."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

Random = np.random.Generator
SEAL_RED = (200, 30, 30)


@dataclass(frozen=True)
class Sources:
    """Photos and words that the pictures are cut or drawn from."""

    photos: Sequence[Image.Image]
    texts: Sequence[str]


Maker = Callable[[Random, Sources, int, int], Image.Image]
"""Takes the random generator, the sources, height and width."""


def photo(random: Random, sources: Sources, height: int, width: int) -> Image.Image:
    """A crop of a photo, mirrored and in other light at random."""
    source = sources.photos[int(random.integers(len(sources.photos)))]
    share = random.uniform(0.5, 1.0)
    crop_width, crop_height = int(source.width * share), int(source.height * share)
    left = int(random.integers(source.width - crop_width + 1))
    top = int(random.integers(source.height - crop_height + 1))
    image = source.crop((left, top, left + crop_width, top + crop_height)).resize((width, height))
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return ImageEnhance.Brightness(image).enhance(float(random.uniform(0.7, 1.3)))


def page(random: Random, sources: Sources, height: int, width: int) -> Image.Image:
    """A page with a title, then paragraphs, figures and tables from top to bottom."""
    image = _paper(random, height, width)
    draw = ImageDraw.Draw(image)
    draw.text((width // 5, 20), _text(random, sources)[:30], fill=(10, 10, 10), font=_font(random, 28, 36))
    top = 80
    while top < height - 100:
        kind = random.random()
        if kind < 0.15:
            size = int(random.integers(100, 200))
            image.paste(photo(random, sources, size, size * 2), (int(random.integers(30, width // 3)), top))
            top += size + 20
        elif kind < 0.3:
            top += _table(random, draw, sources, (30, top, width - 30, top + int(random.integers(90, 180)))) + 20
        else:
            top = _paragraph(random, draw, sources, top, width) + 20
    return image


def table(random: Random, sources: Sources, height: int, width: int) -> Image.Image:
    """A table with text in its cells, white below it."""
    image = Image.new("RGB", (width, height), (255, 255, 255))
    _table(random, ImageDraw.Draw(image), sources, (2, 2, width - 3, int(random.uniform(0.3, 0.95) * height)))
    return image


def turned_page(random: Random, sources: Sources, height: int, width: int) -> Image.Image:
    """A part of a page, turned by a multiple of 90 degrees."""
    image = page(random, sources, 600, 600).resize((width + 32, height + 32)).crop((16, 16, width + 16, height + 16))
    return image.rotate(90 * int(random.integers(4)))


def captcha(random: Random, sources: Sources, height: int, width: int) -> Image.Image:
    """Turned characters over a photo, which a captcha asks to click, on grey."""
    image = Image.new("RGB", (width, height), (114, 114, 114))
    part = int(random.integers(height // 2, height))
    image.paste(photo(random, sources, part, width), (0, 0))
    for _ in range(int(random.integers(3, 8))):
        letter = string.ascii_uppercase[int(random.integers(26))]
        tile = Image.new("RGBA", (70, 70))
        colour = tuple(random.integers(0, 256, 3).tolist())
        ImageDraw.Draw(tile).text((12, 2), letter, fill=(*colour, 255), font=_font(random, 40, 58))
        tile = tile.rotate(float(random.uniform(-40, 40)))
        place = int(random.integers(width - 70)), int(random.integers(part - 70))
        image.paste(tile, place, tile)
    return image


def seal(random: Random, sources: Sources, height: int, width: int) -> Image.Image:
    """A round red seal with text along its rim, over the text of a page."""
    image = _paper(random, height, width)
    draw = ImageDraw.Draw(image)
    _paragraph(random, draw, sources, int(random.integers(10, 60)), width)
    radius = int(random.uniform(0.38, 0.47) * width)
    middle = width // 2 + int(random.integers(-10, 10))
    box = (middle - radius, middle - radius, middle + radius, middle + radius)
    draw.ellipse(box, outline=SEAL_RED, width=int(random.integers(6, 14)))
    letters = _text(random, sources).upper()[: int(random.integers(14, 22))]
    font = _font(random, 56, 76)
    for number, letter in enumerate(letters):
        angle = np.pi * (0.15 + 1.7 * number / len(letters)) + np.pi / 2
        tile = Image.new("RGBA", (100, 100))
        ImageDraw.Draw(tile).text((25, 8), letter, fill=(*SEAL_RED, 255), font=font, stroke_width=2)
        tile = tile.rotate(-float(np.degrees(angle)) - 90)
        x, y = middle + 0.78 * radius * np.cos(angle), middle + 0.78 * radius * np.sin(angle)
        image.paste(tile, (int(x) - 50, int(y) - 50), tile)
    return image


def _paper(random: Random, height: int, width: int) -> Image.Image:
    return Image.new("RGB", (width, height), tuple(random.integers(225, 256, 3).tolist()))


def _text(random: Random, sources: Sources) -> str:
    return sources.texts[int(random.integers(len(sources.texts)))]


def _font(random: Random, low: int, high: int) -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(size=float(random.integers(low, high)))


def _paragraph(random: Random, draw: ImageDraw.ImageDraw, sources: Sources, top: int, width: int) -> int:
    """Draw lines of text; returns the place below them."""
    size = int(random.integers(12, 20))
    font = ImageFont.load_default(size=float(size))
    for _ in range(int(random.integers(2, 7))):
        line = f"{_text(random, sources)} {_text(random, sources)}"[: int(1.8 * (width - 60) / size)]
        draw.text((30, top), line, fill=(20, 20, 20), font=font)
        top += int(1.4 * size)
    return top


def _table(random: Random, draw: ImageDraw.ImageDraw, sources: Sources, box: tuple[int, int, int, int]) -> int:
    """Draw a table with lines into a box; returns its height."""
    left, top, right, bottom = box
    rows, columns = int(random.integers(2, 8)), int(random.integers(2, 6))
    font = _font(random, 11, 15)
    for row in range(rows + 1):
        y = top + (bottom - top) * row // rows
        draw.line((left, y, right, y), fill=(0, 0, 0))
    for column in range(columns + 1):
        x = left + (right - left) * column // columns
        draw.line((x, top, x, bottom), fill=(0, 0, 0))
    for row in range(rows):
        for column in range(columns):
            x = left + (right - left) * column // columns + 4
            y = top + (bottom - top) * row // rows + 3
            word = _text(random, sources).split()[0][: (right - left) // columns // 8]
            draw.text((x, y), word, fill=(10, 10, 10), font=font)
    return bottom - top
