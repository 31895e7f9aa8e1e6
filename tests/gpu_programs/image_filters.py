"""Image filters: a box blur with a tile in shared memory, a bilateral filter, edges, a histogram.

python image_filters.py --height 480 --width 640
"""

import argparse
import math

import cupy as cp
import numpy as np
from cupyx.scipy import ndimage
from numba import cuda, float32

TILE = 16
RADIUS = 2
WIDE = TILE + 2 * RADIUS


@cuda.jit
def box_blur(image, out):
    tile = cuda.shared.array((WIDE, WIDE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    x = cuda.blockIdx.x * TILE + tx
    y = cuda.blockIdx.y * TILE + ty
    height, width = image.shape
    # each thread loads several elements of the tile and its halo
    for j in range(ty, WIDE, TILE):
        for i in range(tx, WIDE, TILE):
            row = min(max(cuda.blockIdx.y * TILE + j - RADIUS, 0), height - 1)
            column = min(max(cuda.blockIdx.x * TILE + i - RADIUS, 0), width - 1)
            tile[j, i] = image[row, column]
    cuda.syncthreads()
    if x < width and y < height:
        total = float32(0)
        for j in range(2 * RADIUS + 1):
            for i in range(2 * RADIUS + 1):
                total += tile[ty + j, tx + i]
        out[y, x] = total / ((2 * RADIUS + 1) ** 2)


@cuda.jit(fastmath=True)
def bilateral(image, out, sigma_space, sigma_range):
    x, y = cuda.grid(2)
    height, width = image.shape
    if x >= width or y >= height:
        return
    center = image[y, x]
    weights = float32(0)
    total = float32(0)
    for dy in range(-RADIUS, RADIUS + 1):
        for dx in range(-RADIUS, RADIUS + 1):
            row, column = y + dy, x + dx
            if 0 <= row < height and 0 <= column < width:
                value = image[row, column]
                space = (dx * dx + dy * dy) / (2 * sigma_space * sigma_space)
                difference = (value - center) ** 2 / (2 * sigma_range * sigma_range)
                weight = math.exp(-space - difference)
                weights += weight
                total += weight * value
    out[y, x] = total / weights


@cuda.jit
def histogram(image, bins):
    local = cuda.shared.array(64, dtype=np.int32)
    t = cuda.threadIdx.x
    if t < 64:
        local[t] = 0
    cuda.syncthreads()
    start = cuda.grid(1)
    stride = cuda.gridsize(1)
    for i in range(start, image.size, stride):
        cuda.atomic.add(local, min(int(image[i] * 64), 63), 1)
    cuda.syncthreads()
    if t < 64:
        cuda.atomic.add(bins, t, local[t])


def edges(image):
    gx = ndimage.sobel(image, axis=1, mode="nearest")
    gy = ndimage.sobel(image, axis=0, mode="nearest")
    magnitude = cp.hypot(gx, gy)
    return magnitude / magnitude.max()


def make_image(height, width):
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:height, :width]
    image = 0.5 + 0.3 * np.sin(x / 9.0) * np.cos(y / 13.0)
    image[height // 4 : height // 2, width // 4 : width // 2] += 0.3
    return np.clip(image + 0.05 * rng.standard_normal(image.shape), 0, 1).astype(np.float32)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--height", type=int, default=90)
    parser.add_argument("--width", type=int, default=121)
    args = parser.parse_args(argv)
    host = make_image(args.height, args.width)
    image = cp.asarray(host)
    blurred, smooth = cp.empty_like(image), cp.empty_like(image)
    block = (TILE, TILE)
    grid = (math.ceil(args.width / TILE), math.ceil(args.height / TILE))
    box_blur[grid, block](image, blurred)
    bilateral[grid, block](image, smooth, np.float32(1.5), np.float32(0.2))
    bins = cp.zeros(64, dtype=cp.int32)
    histogram[8, 128](image.ravel(), bins)
    cuda.synchronize()
    strong = edges(ndimage.gaussian_filter(image, 1.0)) > 0.5
    labels, count = ndimage.label(strong)
    print(f"{int(strong.sum())} pixels on edges in {count} pieces")
    return {
        "image": host,
        "blurred": blurred.get(),
        "smooth": smooth.get(),
        "bins": bins.get(),
        "strong": cp.asnumpy(strong),
        "labels": labels.get(),
    }


if __name__ == "__main__":
    main()
