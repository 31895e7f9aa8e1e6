"""Black-Scholes prices and Greeks: array expressions, a fused function, kernels of both kinds.

python black_scholes.py --options 100000
"""

import argparse
import math

import cupy as cp
import numpy as np
from numba import cuda

A1, A2, A3, A4, A5 = 0.31938153, -0.356563782, 1.781477937, -1.821255978, 1.330274429
RSQRT2PI = 0.39894228040143267793994605993438


@cuda.jit(device=True)
def cnd(d):
    k = 1.0 / (1.0 + 0.2316419 * math.fabs(d))
    value = RSQRT2PI * math.exp(-0.5 * d * d) * (k * (A1 + k * (A2 + k * (A3 + k * (A4 + k * A5)))))
    if d > 0:
        value = 1.0 - value
    return value


@cuda.jit
def price_options(call, put, stock, strike, years, rate, volatility):
    i = cuda.grid(1)
    if i >= stock.shape[0]:
        return
    root = math.sqrt(years[i])
    d1 = (math.log(stock[i] / strike[i]) + (rate + 0.5 * volatility**2) * years[i]) / (
        volatility * root
    )
    d2 = d1 - volatility * root
    cnd1, cnd2 = cnd(d1), cnd(d2)
    discounted = math.exp(-rate * years[i]) * strike[i]
    call[i] = stock[i] * cnd1 - discounted * cnd2
    put[i] = discounted * (1.0 - cnd2) - stock[i] * (1.0 - cnd1)


greeks = cp.ElementwiseKernel(
    "float64 s, float64 x, float64 t, float64 r, float64 v",
    "float64 delta, float64 gamma, float64 vega",
    """
    double root = sqrt(t);
    double d1 = (log(s / x) + (r + 0.5 * v * v) * t) / (v * root);
    double density = density_of(d1);
    delta = normcdf(d1);
    gamma = density / (s * v * root);
    vega = s * density * root;
    """,
    "greeks",
    preamble="""
    __device__ double density_of(double d) {
        return 0.39894228040143267794 * exp(-0.5 * d * d);
    }
    """,
)


@cp.fuse(kernel_name="d1_d2")
def d1_d2(stock, strike, years, rate, volatility):
    root = cp.sqrt(years)
    d1 = (cp.log(stock / strike) + (rate + 0.5 * volatility**2) * years) / (volatility * root)
    return d1, d1 - volatility * root


def array_prices(stock, strike, years, rate, volatility):
    from cupyx.scipy.special import ndtr

    d1, d2 = d1_d2(stock, strike, years, rate, volatility)
    discounted = strike * cp.exp(-rate * years)
    call = stock * ndtr(d1) - discounted * ndtr(d2)
    return call, call - stock + discounted


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--options", type=int, default=20000)
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--volatility", type=float, default=0.3)
    args = parser.parse_args(argv)
    n, rate, volatility = args.options, args.rate, args.volatility
    rng = np.random.default_rng(2)
    stock, strike, years = (rng.uniform(a, b, n) for a, b in ((5, 30), (1, 100), (0.25, 10)))

    stream = cuda.stream()
    d_stock, d_strike, d_years = (cuda.to_device(v, stream) for v in (stock, strike, years))
    d_call = cuda.device_array_like(d_stock, stream)
    d_put = cuda.device_array(n, dtype=np.float64, stream=stream)
    threads = 256
    blocks = (n + threads - 1) // threads
    start, end = cuda.event(), cuda.event()
    start.record(stream)
    price_options[blocks, threads, stream](
        d_call, d_put, d_stock, d_strike, d_years, rate, volatility
    )
    end.record(stream)
    end.synchronize()
    print(f"kernel: {cuda.event_elapsed_time(start, end):.3f} ms")
    call = d_call.copy_to_host(stream=stream)
    put = d_put.copy_to_host(stream=stream)
    stream.synchronize()

    arrays = [cp.asarray(v) for v in (stock, strike, years)]
    call2, put2 = array_prices(*arrays, rate, volatility)
    delta, gamma, vega = greeks(*arrays, rate, volatility)
    print(f"largest difference of the two: {float(cp.abs(call2 - cp.asarray(call)).max()):.2e}")
    return {
        "stock": stock,
        "strike": strike,
        "years": years,
        "call": call,
        "put": put,
        "call2": call2.get(),
        "put2": put2.get(),
        "delta": delta.get(),
        "gamma": gamma.get(),
        "vega": vega.get(),
    }


if __name__ == "__main__":
    main()
