#!/usr/bin/env python3
"""Writes the pictures beside it, and what Pillow reads from them: NAME.npy, u8 [H, W, 3], and for
colours also NAME.gray.npy, u8 [H, W, 1]; and rgb.png resized, as FILTER_HEIGHTxWIDTH.npy. The
files here are those of Pillow 13.0.0."""
import pathlib
import numpy
from PIL import Image, ImageOps

here = pathlib.Path(__file__).parent
random = numpy.random.default_rng(0)
rows, columns = numpy.mgrid[0:11, 0:17]
smooth = numpy.stack([rows * 20, columns * 14, (rows + columns) * 9], -1).astype("u1")
noise = random.integers(0, 256, (7, 9, 4), dtype="u1")


def save(name, image, **options):
    image.save(here / name, **options)
    read = ImageOps.exif_transpose(Image.open(here / name))
    stem = name.split(".")[0]
    numpy.save(here / f"{stem}.npy", numpy.asarray(read.convert("RGB")))
    if read.mode == "RGB":
        numpy.save(here / f"{stem}.gray.npy", numpy.asarray(read.convert("L"))[..., None])


save("rgb.png", Image.fromarray(noise[..., :3]))
save("rgba.png", Image.fromarray(noise))
save("gray.png", Image.fromarray(noise[..., 0]))
save("bits.png", Image.fromarray(noise[..., 0] > 100))
save("palette.png", Image.fromarray(noise[..., :3]).quantize(16))
save("colours.jpg", Image.fromarray(smooth), quality=90)
save("progressive.jpg", Image.fromarray(smooth), quality=80, progressive=True)
save("gray_jpeg.jpg", Image.fromarray(smooth[..., 0]), quality=90)
save("cmyk.jpg", Image.fromarray(smooth).convert("CMYK"), quality=90)
for orientation in range(2, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    save(f"turned{orientation}.jpg", Image.fromarray(smooth), quality=90, exif=exif)

for height, width in (5, 6), (20, 31), (2, 3), (7, 4):
    for kind in Image.Resampling.BILINEAR, Image.Resampling.NEAREST:
        resized = Image.open(here / "rgb.png").resize((width, height), kind)
        numpy.save(here / f"{kind.name.lower()}_{height}x{width}.npy", numpy.asarray(resized))
