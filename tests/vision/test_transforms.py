"""Transforms of images: against Pillow, NumPy and torch's resampling."""

from __future__ import annotations

import colorsys
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageOps

import minigrad
from minigrad.utils.data import DataLoader, Dataset
from minigrad.vision import transforms as T
from minigrad.vision.transforms import functional as F

pytestmark = pytest.mark.usefixtures("reference_backend")


@pytest.fixture
def pixels(rng):
    return rng.integers(0, 256, (23, 31, 3), dtype=np.uint8)


@pytest.fixture
def image(pixels):
    return Image.fromarray(pixels)


def planes(image):
    """An image of Pillow as an array (C, H, W)."""
    array = np.asarray(image)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def equal(found, wanted, tolerance=0):
    found = found.numpy() if isinstance(found, minigrad.Tensor) else planes(found)
    wanted = planes(wanted) if isinstance(wanted, Image.Image) else wanted
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.astype(float), wanted.astype(float), atol=tolerance, rtol=0)


# ------------------------------------------------------------------------ conversions


def test_images_to_tensors(image, pixels):
    x = F.to_tensor(image)
    assert x.dtype is minigrad.float32 and x.shape == (3, 23, 31)
    equal(x, pixels.transpose(2, 0, 1) / 255, 1e-7)
    equal(T.ToTensor()(pixels), x.numpy())
    equal(T.PILToTensor()(image), planes(image))
    for mode, dtype, scale in (
        *(("L", "float32", 255), ("1", "float32", 1), ("RGBA", "float32", 255)),
        *(("I", "int32", 1), ("F", "float32", 1), ("I;16", "int16", 1), ("P", "float32", 255)),
    ):
        other = image.convert("L").convert(mode) if mode != "RGBA" else image.convert(mode)
        x = F.to_tensor(other)
        assert str(x.dtype) == f"minigrad.{dtype}"
        equal(x, planes(other) / scale, 1e-6)
    assert F.to_tensor(pixels[..., 0].astype(np.float64)).dtype is minigrad.float64
    with pytest.raises(TypeError, match="should be PIL Image or ndarray. Got minigrad.Tensor"):
        F.to_tensor(minigrad.ones(2, 2))
    with pytest.raises(ValueError, match="Got 4 dimensions"):
        F.to_tensor(pixels[None])


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK", "HSV", "I", "F", "I;16"])
def test_tensors_to_images_and_back(mode, image):
    image = image.convert("L") if mode in ("I", "F", "I;16") else image
    image = image.convert(mode)
    x = F.pil_to_tensor(image)
    if mode == "I;16":
        x = minigrad.from_numpy(x.numpy().astype(np.int16))
    back = F.to_pil_image(x, mode)
    assert back.mode == mode and back.size == (31, 23)
    equal(back, image)


def test_images_of_floats_and_wrong_ones(pixels):
    x = minigrad.from_numpy(pixels.transpose(2, 0, 1).astype(np.float32) / 255)
    assert np.abs(planes(T.ToPILImage()(x)).astype(int) - pixels.transpose(2, 0, 1)).max() <= 1
    for wrong, mode, error, text in (
        ([1], None, TypeError, "Tensor or ndarray. Got list"),
        (np.zeros((2, 3, 5), np.uint8), None, ValueError, "> 4 channels. Got 5"),
        (np.zeros((1, 2, 3, 3), np.uint8), None, ValueError, "Got 4 dimensions"),
        (np.zeros((2, 3, 3), np.int32), None, TypeError, "Input type int32 is not supported"),
        (np.zeros((2, 3, 3), np.uint8), "L", ValueError, "3 channels of uint8 can have mode"),
    ):
        with pytest.raises(error, match=text):
            F.to_pil_image(wrong, mode)


def test_dtypes_are_scaled():
    x = minigrad.tensor([[[0.0, 0.5, 1.0]]])
    assert F.convert_image_dtype(x, minigrad.uint8).tolist() == [[[0, 127, 255]]]
    assert F.convert_image_dtype(x, minigrad.int16).tolist() == [[[0, 16383, 32767]]]
    y = T.ConvertImageDtype()(minigrad.tensor([[[0, 51, 255]]], dtype=minigrad.uint8))
    assert y.dtype is minigrad.float32 and y.tolist() == [[[0, pytest.approx(0.2), 1]]]
    wide = F.convert_image_dtype(minigrad.tensor([[3]], dtype=minigrad.uint8), minigrad.int16)
    assert wide.item() == 3 * 128
    assert F.convert_image_dtype(wide, minigrad.uint8).item() == 3
    with pytest.raises(RuntimeError, match="float32 to minigrad.int32 cannot be performed safely"):
        F.convert_image_dtype(x, minigrad.int32)


def test_normalize(rng):
    x = rng.normal(size=(2, 3, 4, 5)).astype(np.float32)
    mean, std = [0.1, 0.2, 0.3], [1.0, 2.0, 4.0]
    wanted = (x - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    own = minigrad.from_numpy(x.copy())
    equal(T.Normalize(mean, std)(own), wanted, 1e-6)
    equal(own, x)
    tracked = minigrad.from_numpy(x).requires_grad_()
    result = F.normalize(tracked, mean, std)
    equal(result.detach(), wanted, 1e-6)
    result.sum().backward()
    assert tracked.grad[0, :, 0, 0].tolist() == [1, 0.5, 0.25]
    assert F.normalize(own, mean, std, inplace=True) is own
    equal(own, wanted, 1e-6)
    assert F.normalize(own.double(), 0.5, 0.5).dtype is minigrad.float64
    for wrong, error, text in (
        (x, TypeError, "Got numpy.ndarray"),
        (own.long(), TypeError, "float tensor. Got minigrad.int64"),
        (own[0, 0], ValueError, r"size \(..., C, H, W\)"),
    ):
        with pytest.raises(error, match=text):
            F.normalize(wrong, mean, std)
    with pytest.raises(ValueError, match="std evaluated to zero"):
        F.normalize(own, mean, [1, 0, 1])


# ------------------------------------------------------------------------ places of pixels


@pytest.mark.parametrize(
    ("size", "wanted"),
    [(10, (10, 13)), ([10], (10, 13)), ((40, 9), (40, 9)), (50, (50, 67)), (23, (23, 31))],
)
def test_resize(size, wanted, image, pixels):
    for mode in T.InterpolationMode:
        found = F.resize(image, size, mode)
        name = "NEAREST" if mode.name == "NEAREST_EXACT" else mode.name
        equal(found, image.resize(wanted[::-1], Image.Resampling[name]))
    small = T.Resize(size)(F.pil_to_tensor(image))
    assert small.dtype is minigrad.uint8
    equal(small, image.resize(wanted[::-1], Image.Resampling.BILINEAR), 1)
    tall = F.resize(image.transpose(Image.Transpose.ROTATE_90), size)
    assert tall.size == (wanted if not isinstance(size, tuple) else wanted[::-1])


def test_resize_limits(image):
    assert F.resize(image, 20, max_size=22).size == (22, 16)
    for wrong, options, text in (
        ((2, 3), {"max_size": 9}, "only be passed if size specifies"),
        (20, {"max_size": 20}, "must be strictly greater"),
        ((1, 2, 3), {}, "not a 3 element"),
    ):
        with pytest.raises(ValueError, match=text):
            F.resize(image, wrong, **options)
    with pytest.raises(ValueError, match="by lanczos is not available"):
        F.resize(F.to_tensor(image), 5, T.InterpolationMode.LANCZOS)
    with pytest.raises(TypeError, match="InterpolationMode"):
        T.Resize(5, "bilinear")
    with pytest.raises(
        TypeError, match=r"expected an image of Pillow or a tensor, got numpy.ndarr"
    ):
        F.resize(np.ones((4, 4)), 2)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("sizes", [((13, 17), (5, 7)), ((5, 7), (13, 17)), ((3, 60), (7, 2))])
@pytest.mark.parametrize("aligned", [False, True])
def test_antialiased_resampling_beside_torch(mode, sizes, aligned, torch, rng):
    x = rng.normal(size=(2, 3, *sizes[0]))
    options = {"mode": mode, "antialias": True, "align_corners": aligned}
    wanted = torch.nn.functional.interpolate(torch.from_numpy(x), sizes[1], **options)
    own = minigrad.from_numpy(x).requires_grad_()
    found = minigrad.nn.functional.interpolate(own, sizes[1], **options)
    np.testing.assert_allclose(found.detach().numpy(), wanted.numpy(), atol=1e-13)
    assert minigrad.autograd.gradcheck(
        lambda x: minigrad.nn.functional.interpolate(x, (2, 3), **options), own[:1, :1, :4, :5]
    )
    with pytest.raises(ValueError, match="restricted to bilinear and bicubic"):
        minigrad.nn.functional.interpolate(own, sizes[1], mode="area", antialias=True)


@pytest.mark.parametrize(
    "box", [(2, 3, 10, 11), (-2, -3, 10, 11), (20, 25, 10, 11), (-5, -5, 40, 50)]
)
def test_crops(box, image, pixels):
    top, left, height, width = box
    wide = np.pad(pixels, [(50, 50), (50, 50), (0, 0)])
    wanted = wide[top + 50 : top + 50 + height, left + 50 : left + 50 + width].transpose(2, 0, 1)
    equal(F.crop(image, *box), wanted)
    equal(F.crop(F.pil_to_tensor(image), *box), wanted)
    equal(F.resized_crop(image, *box, 8), F.resize(F.crop(image, *box), 8))


@pytest.mark.parametrize("size", [(11, 14), (22, 31), 7, (40, 50), (40, 7)])
def test_center_crop(size, image, pixels):
    """The centre, rounded to even where it lies between two pixels; black outside."""
    h, w = (size, size) if isinstance(size, int) else size
    lacking = [max(h - 23, 0), max(w - 31, 0)]
    array = np.pad(pixels, [(n // 2, (n + 1) // 2) for n in lacking] + [(0, 0)])
    top, left = round((array.shape[0] - h) / 2), round((array.shape[1] - w) / 2)
    wanted = array[top : top + h, left : left + w].transpose(2, 0, 1)
    equal(T.CenterCrop(size)(image), wanted)
    equal(T.CenterCrop(size)(F.pil_to_tensor(image)), wanted)


@pytest.mark.parametrize("padding", [3, (2, 4), (1, 2, 3, 4), (-1, 2, -3, 4)])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_pad(padding, mode, image, pixels):
    widths = [padding] * 4 if isinstance(padding, int) else (list(padding) * 2)[:4]
    left, top, right, bottom = widths
    inner = pixels[max(-top, 0) : 23 - max(-bottom, 0), max(-left, 0) : 31 - max(-right, 0)]
    borders = [(max(a, 0), max(b, 0)) for a, b in ((top, bottom), (left, right), (0, 0))]
    wanted = np.pad(inner, borders, mode).transpose(2, 0, 1)
    equal(F.pad(image, padding, padding_mode=mode), wanted)
    if min(widths) >= 0 or mode in ("constant", "symmetric"):
        equal(F.pad(F.pil_to_tensor(image), padding, padding_mode=mode), wanted)


def test_pad_with_a_colour(image, pixels):
    wanted = np.empty((3, 27, 35), np.uint8)
    wanted[:] = np.array([9, 8, 7]).reshape(3, 1, 1)
    wanted[:, 2:-2, 2:-2] = pixels.transpose(2, 0, 1)
    equal(T.Pad(2, (9, 8, 7))(image), wanted)
    equal(T.Pad(2, (9, 8, 7))(F.pil_to_tensor(image)), wanted)
    for wrong, text in (({"padding": (1, 2, 3)}, "not a 3 element"),
                        ({"padding": 1, "padding_mode": "wrap"}, "should be either constant"),
                        ({"padding": 1, "fill": (1, 2)}, "does not match")):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            F.pad(image, **wrong)


def test_flips_and_corners(image, pixels):
    tensor = F.pil_to_tensor(image)
    equal(F.hflip(image), planes(image)[:, :, ::-1])
    equal(F.hflip(tensor), planes(image)[:, :, ::-1])
    equal(F.vflip(image), planes(image)[:, ::-1])
    equal(F.vflip(tensor), planes(image)[:, ::-1])
    found = T.FiveCrop((5, 6))(image)
    x = planes(image)
    corners = x[:, :5, :6], x[:, :5, -6:], x[:, -5:, :6], x[:, -5:, -6:], x[:, 9:14, 12:18]
    for part, wanted in zip(found, corners, strict=True):
        equal(part, wanted)
    ten = T.TenCrop(4)(tensor)
    assert len(ten) == 10
    equal(ten[5], x[:, :4, ::-1][:, :, :4])
    with pytest.raises(ValueError, match="bigger than input size"):
        F.five_crop(image, 24)


@pytest.mark.parametrize("angle", [90, 180, -90, 33.3])
def test_rotations(angle, image):
    """Of right angles exactly; of others as Pillow does."""
    square = F.center_crop(image, 21)
    tensor = F.pil_to_tensor(square)
    wanted = square.rotate(angle)
    equal(F.rotate(square, angle), wanted)
    if angle % 90 == 0:
        equal(F.rotate(tensor, angle), np.rot90(planes(square), angle // 90, (1, 2)))
        equal(F.affine(tensor, -angle, (0, 0), 1.0, 0), planes(wanted))
        assert F.rotate(image, angle, expand=True).size == image.rotate(angle, expand=True).size
    else:
        share = (F.rotate(tensor, angle).numpy() != planes(wanted)).mean()
        assert share < 0.02  # where the nearest pixel is a matter of rounding
    filled = F.rotate(square, 45, fill=(1, 2, 3))
    assert planes(filled)[:, 0, 0].tolist() == [1, 2, 3]
    filled = F.rotate(tensor, 45, fill=[1, 2, 3])
    assert filled[:, 0, 0].tolist() == [1, 2, 3]
    with pytest.raises(NotImplementedError, match="expand=True is for images of Pillow"):
        F.rotate(tensor, 45, expand=True)


def test_affine_maps(image):
    """Moves by whole pixels, scaling by 3 around the centre of an odd size, and a shear by 45
    degrees, which moves each row by one pixel more."""
    tensor = F.pil_to_tensor(F.center_crop(image, 21))
    x = tensor.numpy()
    moved = np.zeros_like(x)
    moved[:, :-2, 3:] = x[:, 2:, :-3]
    equal(F.affine(tensor, 0, (3, -2), 1.0, 0), moved)
    equal(F.affine(F.to_pil_image(tensor), 0, (3, -2), 1.0, 0), moved)
    triple = x[:, 7:14, 7:14].repeat(3, 1).repeat(3, 2)
    equal(F.affine(tensor, 0, (0, 0), 3.0, 0), triple)
    sheared = np.zeros_like(x)
    for row in range(21):
        by = 10 - row
        place = slice(max(by, 0), 21 + min(by, 0))
        source = slice(max(-by, 0), 21 - max(by, 0))
        sheared[:, row, place] = x[:, row, source]
    equal(F.affine(tensor, 0, (0, 0), 1.0, 45), sheared)
    with pytest.raises(ValueError, match="scale should be positive"):
        F.affine(image, 0, (0, 0), 0, 0)


# ------------------------------------------------------------------------ values of pixels


def test_grey(image, pixels):
    equal(T.Grayscale()(image), image.convert("L"))
    assert F.to_grayscale(image, 3).mode == "RGB"
    luma = (pixels @ np.array([0.2989, 0.587, 0.114]))[None]
    found = F.rgb_to_grayscale(F.pil_to_tensor(image), 3)
    equal(found, np.floor(luma + 1e-6).repeat(3, 0), 1)
    floats = F.to_tensor(image)
    equal(F.rgb_to_grayscale(floats), luma / 255, 1e-6)
    with pytest.raises(ValueError, match="either 1 or 3"):
        F.rgb_to_grayscale(image, 2)
    with pytest.raises(TypeError, match=r"permitted channel values are \[1, 3\], but found 2"):
        F.rgb_to_grayscale(floats[:2])


@pytest.mark.parametrize("factor", [0, 0.4, 1, 1.8])
def test_brightness_contrast_saturation(factor, image, pixels):
    """Of floats by the formulas; of bytes within a step of them; of Pillow by ImageEnhance."""
    x = pixels.transpose(2, 0, 1) / 255
    luma = np.einsum("chw,c->hw", x, [0.2989, 0.587, 0.114])[None]
    for name, other in (("brightness", 0), ("contrast", luma.mean()), ("saturation", luma)):
        wanted = (factor * x + (1 - factor) * other).clip(0, 1)
        function = getattr(F, f"adjust_{name}")
        equal(function(F.to_tensor(image), factor), wanted, 1e-5)
        equal(function(F.pil_to_tensor(image), factor), 255 * wanted, 2)
        equal(function(image, factor), 255 * wanted, 2.5)
        with pytest.raises(ValueError, match="not non-negative"):
            function(image, -1)


@pytest.mark.parametrize("factor", [-0.5, -0.2, 0, 0.1, 0.5])
def test_hue(factor, image, pixels):
    """Against Python's colorsys."""

    def turned(pixel):
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        return colorsys.hsv_to_rgb((h + factor) % 1, s, v)

    part = pixels[:6, :5] / 255
    part[0] = part[0, :, :1]  # greys
    wanted = np.apply_along_axis(turned, 2, part).transpose(2, 0, 1)
    found = F.adjust_hue(F.to_tensor(part), factor)
    equal(found, wanted, 1e-6)
    equal(F.adjust_hue(F.to_tensor(part).float(), factor), wanted, 1e-5)
    step = 255 * 6 / 256  # Pillow has 256 hues: it rounds them, the factor, and the result
    equal(F.adjust_hue(Image.fromarray((part * 255).round().astype(np.uint8)), factor),
          255 * wanted, 3 * step)  # fmt: skip
    grey = image.convert("L")
    assert F.adjust_hue(grey, factor) is grey
    with pytest.raises(ValueError, match=r"hue_factor \(0.6\) is not in"):
        F.adjust_hue(image, 0.6)


def test_gamma_invert_blur_erase(image, pixels, torch):
    x = pixels.transpose(2, 0, 1) / 255
    equal(F.adjust_gamma(F.to_tensor(image), 2.2, 0.9), 0.9 * x**2.2, 1e-5)
    equal(F.adjust_gamma(image, 2.2, 0.9), 255 * 0.9 * x**2.2, 1)
    equal(F.invert(image), ImageOps.invert(image))
    equal(F.invert(F.pil_to_tensor(image)), 255 - planes(image))
    equal(F.invert(F.to_tensor(image)), 1 - x, 1e-6)
    gauss = np.exp(-0.5 * (np.arange(-2, 3) / 0.8) ** 2)
    gauss = torch.from_numpy(gauss / gauss.sum())
    padded = torch.nn.functional.pad(torch.from_numpy(x)[:, None], (2, 2, 2, 2), "reflect")
    wanted = torch.nn.functional.conv2d(padded, torch.outer(gauss, gauss)[None, None])[:, 0]
    equal(F.gaussian_blur(F.to_tensor(image), 5, 0.8), wanted.numpy(), 1e-6)
    equal(F.gaussian_blur(image, [5, 5], [0.8, 0.8]), 255 * wanted.numpy(), 1)
    with pytest.raises(ValueError, match="odd and positive"):
        F.gaussian_blur(image, 4)
    erased = F.erase(F.to_tensor(image), 2, 3, 4, 5, 0.5)
    wanted = x.copy()
    wanted[:, 2:6, 3:8] = 0.5
    equal(erased, wanted, 1e-6)


# ------------------------------------------------------------------------ random ones


RANDOM = {
    "crop": T.RandomCrop(9, padding=2),
    "crop if needed": T.RandomCrop((30, 40), pad_if_needed=True, padding_mode="reflect"),
    "resized crop": T.RandomResizedCrop(11),
    "flip": T.RandomHorizontalFlip(),
    "flip down": T.RandomVerticalFlip(),
    "rotation": T.RandomRotation(30, fill=3),
    "affine": T.RandomAffine(20, (0.2, 0.1), (0.7, 1.4), (-9, 9, -4, 4)),
    "jitter": T.ColorJitter(0.4, 0.4, 0.4, 0.2),
    "grey": T.RandomGrayscale(0.5),
    "invert": T.RandomInvert(),
    "blur": T.GaussianBlur(5),
    "apply": T.RandomApply([T.Grayscale(3)]),
    "choice": T.RandomChoice([T.Pad(1), T.CenterCrop(5), T.Grayscale()], p=[1, 2, 1]),
    "order": T.RandomOrder([T.Pad(1), T.Resize(5), T.RandomHorizontalFlip()]),
    "erasing": T.Compose([T.ToTensor(), T.RandomErasing(0.9, value="random")]),
}


@pytest.mark.parametrize("name", RANDOM)
def test_the_seed_decides(name, image):
    """Twenty results: the same with the same seed, and not all the same."""
    transform = RANDOM[name]

    def results(seed):
        minigrad.manual_seed(seed)
        found = [transform(image) for _ in range(20)]
        return [
            x.numpy().tobytes() if isinstance(x, minigrad.Tensor) else x.tobytes() for x in found
        ]

    first = results(3)
    assert first == results(3) != results(4) and len(set(first)) > 1
    if name != "erasing":
        tensor = F.pil_to_tensor(image)
        assert {type(transform(tensor)) for _ in range(3)} == {minigrad.Tensor}


def test_what_is_random_is_in_its_range(image):
    minigrad.manual_seed(0)
    places = [T.RandomCrop.get_params(image, (20, 30)) for _ in range(200)]
    assert {p[0] for p in places} == {0, 1, 2, 3} and {p[1] for p in places} == {0, 1}
    sizes = [T.RandomResizedCrop.get_params(image, (0.2, 0.5), (0.5, 2)) for _ in range(200)]
    shares = [h * w / (23 * 31) for _, _, h, w in sizes]
    assert min(shares) > 0.15 and max(shares) < 0.55 and max(shares) - min(shares) > 0.2
    assert T.RandomResizedCrop.get_params(image, (3, 4), (1, 1)) == (0, 4, 23, 23)
    flips = sum(T.RandomHorizontalFlip(0.25)(image) is not image for _ in range(400))
    assert 60 < flips < 140
    white = minigrad.ones(3, 40, 40)
    for _ in range(20):
        share = (T.RandomErasing(1, scale=(0.1, 0.3), value=0)(white) == 0).float().mean().item()
        assert 0.07 < share < 0.35
    found = T.RandomErasing(1, value=(0.1, 0.2, 0.3))(white).amin((1, 2)).tolist()
    assert found == pytest.approx([0.1, 0.2, 0.3])


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: T.ColorJitter(brightness=-1), ValueError, "brightness is a single number"),
        (lambda: T.ColorJitter(hue=0.7), ValueError, "hue values should be between"),
        (lambda: T.ColorJitter(contrast="1"), TypeError, "single number or a list/tuple"),
        (lambda: T.RandomRotation(-3), ValueError, "degrees is a single number"),
        (lambda: T.RandomRotation((1, 2, 3)), ValueError, "sequence of length 2"),
        (lambda: T.RandomAffine(1, translate=(2, 0)), ValueError, "between 0 and 1"),
        (lambda: T.RandomErasing(2), ValueError, "probability"),
        (lambda: T.RandomErasing(value="noise"), ValueError, "'random'"),
        (lambda: T.GaussianBlur(3, (2, 1)), ValueError, "sigma values"),
        (lambda: T.Lambda(3), TypeError, "callable, got 'int'"),
        (lambda: T.Resize("3"), TypeError, "int or sequence"),
        (lambda: T.Resize((1, 2, 3)), ValueError, "1 or 2 values"),
        (lambda: T.RandomCrop((1, 2, 3)), ValueError, "two dimensions"),
        (lambda: T.RandomCrop(9)(minigrad.ones(3, 5, 5)), ValueError, "larger than input image"),
    ],
)
def test_wrong_arguments(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_as_text():
    assert repr(T.Compose([T.Resize(3), T.ToTensor(), T.Normalize([0.5], [0.5])])) == (
        "Compose(\n    Resize(size=3, interpolation=bilinear, max_size=None, antialias=True)\n"
        "    ToTensor()\n    Normalize(mean=[0.5], std=[0.5])\n)"
    )
    with pytest.raises(AttributeError, match="did you mean 'RandomCrop'"):
        _ = T.RandomCropp


def test_names_of_v2(image, pixels):
    v2 = T.v2
    transform = v2.Compose([v2.ToImage(), v2.ToDtype(minigrad.float32, scale=True)])
    equal(transform(image), F.to_tensor(image).numpy())
    equal(transform(pixels), F.to_tensor(image).numpy())
    assert v2.ToImage()(image).dtype is minigrad.uint8 and v2.Resize is T.Resize
    assert v2.ToDtype(minigrad.float32)(v2.ToImage()(image)).max().item() == pixels.max()
    assert v2.ToDtype(minigrad.float32)(image) is image is v2.Identity()(image)
    with pytest.raises(TypeError, match="got list"):
        v2.ToImage()([1])
    with pytest.raises(AttributeError, match="did you mean 'ToImage'"):
        _ = v2.ToImag


class Squares(Dataset):
    """Images with a random crop; a sample is made in a worker process."""

    transform = T.Compose([T.RandomCrop(5), T.ToTensor(), T.Normalize(0.5, 0.25)])

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.transform(Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)))


def test_in_worker_processes():
    def epoch(seed):
        minigrad.manual_seed(seed)
        return minigrad.cat(list(DataLoader(Squares(), 2, num_workers=2)))

    first = epoch(1)
    assert minigrad.equal(first, epoch(1)) and not minigrad.equal(first, epoch(2))
    assert first.shape == (6, 3, 5, 5) and len({x.numpy().tobytes() for x in first}) > 2


def test_without_pillow():
    """Arrays and tensors need none; an image says what is missing."""
    program = """
import sys
sys.modules["PIL"] = None
import numpy as np
from minigrad.vision import transforms as T
x = T.Compose([T.ToTensor(), T.CenterCrop(3), T.Normalize(0, 2)])(np.ones((5, 6, 3), np.uint8))
print(*x.shape)
try:
    T.ToPILImage()(x)
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "3 3 3\nto_pil_image needs Pillow: pip install 'minigrad[vision]'\n", done
