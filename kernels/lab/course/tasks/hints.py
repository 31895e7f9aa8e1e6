"""Hints of each exercise, one after the other: where to look, what to do, nearly the code."""

HINTS: dict[str, tuple[str, ...]] = {
    "add_ten": (
        "Which element is this thread's? cuda.grid(1) numbers the threads of all blocks.",
        "The grid has whole blocks, so there may be more threads than elements: those do nothing.",
        "i = cuda.grid(1); if i < x.size: out[i] = ...",
    ),
    "saxpy": (
        "As add_ten, with two arrays to read from. `a` is a number, not an array.",
        "if i < x.size: out[i] = a * x[i] + ...",
    ),
    "reverse": (
        "Where does the first element go, where the last? The two indices add up to n - 1.",
        "The guard is about i, as before: if i < x.size.",
        "out[x.size - 1 - i] = x[i]",
    ),
    "multiply_2d": (
        "cuda.grid(2) gives (x, y). x runs along a row, so it is the column.",
        "Both the row and the column need a guard.",
        "column, row = cuda.grid(2); if row < out.shape[0] and column < out.shape[1]: ...",
    ),
    "outer_sum": (
        "Each thread makes one element of out, from one element of each vector.",
        "Which vector has as many elements as out has rows?",
        "j, i = cuda.grid(2); out[i, j] = column[i] + row[j], with a guard for i and for j",
    ),
    "square_strided": (
        "There are 128 threads, however long x is: each takes many elements.",
        "Begin at the thread's number in the grid, and step by the number of threads in the grid.",
        "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)): ...",
    ),
    "split_points": (
        "One thread per point, which has three numbers.",
        "The order of the indices is turned around between points and out.",
        "for axis in range(3): out[axis, i] = points[i, axis]",
    ),
    "gather": (
        "How many threads have work: as many as out has elements, not as x has.",
        "out[i] = x[index[i]] behind a guard on out.size",
    ),
    "histogram": (
        "Two threads may find the same value at the same time. What becomes of one's +1?",
        "One operation must read, add and write so that none comes between.",
        "cuda.atomic.add(counts, x[i], 1)",
    ),
    "reverse_blocks": (
        "Make a tile of 64 floats in shared memory, which all threads of a block can access.",
        "Each thread stores one element in it and loads another thread's. What lies between?",
        "tile[t] = x[i]; cuda.syncthreads(); out[i] = tile[63 - t]",
    ),
    "stencil": (
        "A block of 64 threads needs 66 elements: its own and one more on either side.",
        "Thread t stores at tile[t + 1]; the first and the last thread store one more.",
        "Beyond the ends of x a thread stores 0. After the barrier: tile[t] + tile[t + 1] +"
        " tile[t + 2].",
    ),
    "transpose": (
        "Loads and stores both run along rows if a tile is turned around in shared memory.",
        "A block loads the tile at (blockIdx.y, blockIdx.x) and stores that at (blockIdx.x,"
        " blockIdx.y); threadIdx.x is the fast index both times.",
        "A tile of 32 x 33 elements puts the elements of a column into different banks.",
    ),
    "block_sum": (
        "Load 128 elements into shared memory, 0 beyond the end of x.",
        "In each step the first half of the threads adds the second half: 64, 32, ... 1.",
        "A barrier in each step, outside of the `if t < step`. Thread 0 stores tile[0].",
    ),
    "warp_sum": (
        "cuda.shfl_down_sync(0xffffffff, value, step) gives the value of the lane `step` higher.",
        "All lanes execute the shuffle: a lane without an element gives 0.",
        "for step in (16, 8, 4, 2, 1): value += shuffled; then lane 0 does cuda.atomic.add",
    ),
    "scan": (
        "In step s each element adds the one s places before it: s = 1, 2, 4, ...",
        "All reads of a step come before its writes: a barrier between.",
        "value = tile[t] + tile[t - step] if t >= step else tile[t]; barrier; tile[t] = value;"
        " barrier",
    ),
    "matmul": (
        "One thread, one element of out: a row of a times a column of b.",
        "column, row = cuda.grid(2), so that neighbouring threads read neighbouring elements of b.",
        "Add up in a variable that begins with np.float32(0); store it at the end.",
    ),
    "matmul_tiled": (
        "Go along k in steps of 16. In each step the block loads a tile of a and one of b.",
        "Each thread loads one element of either, 0 beyond the edges. Then a barrier.",
        "After the 16 products one more barrier, before the tiles are overwritten.",
    ),
    "relu": (
        "As add_ten, with max in the place of the sum.",
        "Write every element, also those that become 0.",
    ),
    "relu_backward": (
        "Where y is 0, the input was negative or 0: no gradient goes through.",
        "out[i] = g[i] if y[i] > 0 else np.float32(0)",
    ),
    "softmax": (
        "Three steps for each row: the maximum, the sum of exp(x - maximum), the quotients.",
        "A thread takes the elements t, t + 64, ... of the row; then a tree in shared memory.",
        "A barrier after the tree, before its memory is written again; a thread without elements"
        " gives -inf to the maximum and 0 to the sum.",
    ),
    "layer_norm": (
        "Two trees for each row: the mean, then the mean of the squared distances from it.",
        "Subtract the mean before you square: E[x^2] - E[x]^2 loses everything for large means.",
        "out = (x - mean) / math.sqrt(variance + np.float32(1e-5))",
    ),
    "cross_entropy": (
        "One thread per row: its maximum, then the sum of exp(logit - maximum).",
        "log(sum(exp(x))) = maximum + log(sum(exp(x - maximum)))",
    ),
    "linear_backward": (
        "out[o, i] is a sum over the rows of x and g.",
        "column, row = cuda.grid(2); total += g[k, row] * x[k, column]",
    ),
    "sgd": (
        "The new velocity is used for the step and stored.",
        "v = momentum * velocity[i] + g[i]; velocity[i] = v; p[i] -= lr * v",
    ),
    "embedding_backward": (
        "Several rows of g may go to one row of the table, at the same time.",
        "cuda.atomic.add(table, (index[row], column), g[row, column])",
    ),
    "conv2d": (
        "j, i, f = cuda.grid(3): one thread per element of out.",
        "Three loops: channels, rows and columns of the filter. Nothing reaches beyond x.",
        "total += x[c, i + p, j + q] * w[f, c, p, q]; guard i and j; z fits exactly",
    ),
    "matmul_registers": (
        "A thread has 16 sums in cuda.local.array((4, 4), ...), which become registers.",
        "For each of 8 steps of k: 4 elements of a's tile, 4 of b's, then 16 products.",
        "Rows ty + 8 * i and columns tx + 8 * j, i and j of 0 .. 3: neighbours in x stay"
        " neighbours in memory.",
    ),
    "softmax_online": (
        "Keep (top, total) for the elements seen so far: total = sum of exp(x - top).",
        "larger = max(top, value); total = total * exp(top - larger) + exp(value - larger)",
        "Two threads' pairs are merged the same way, by a tree. Begin with a large negative number,"
        " not -inf: -inf - -inf is nan.",
    ),
    "layer_norm_backward": (
        "Both averages come from one loop over the row: the sums of g and of g * xhat.",
        "Two trees in shared memory, one after the other (or side by side in two tiles).",
        "Barriers: before a tree reads, in each of its steps, before its tile is written again.",
    ),
    "attention": (
        "It is softmax_online for scores that are computed on the way, with 16 results per thread.",
        "Where the maximum grows, the sum and all 16 results are multiplied by exp(old - new).",
        "All 64 threads load tiles, also those without a query: no `return` before a barrier.",
    ),
    "gru_cell": (
        "One thread per element of h: it reads columns j, hidden + j and 2 * hidden + j.",
        "sigmoid(x) = 1 / (1 + exp(-x)), as a device function or written twice.",
        "r multiplies gh_n only: tanh(gx_n + r * gh_n).",
    ),
    "compact": (
        "cuda.ballot_sync(0xffffffff, condition) gives each lane the same 32 bits, one per lane.",
        "A lane's place is the number of bits below its own: cuda.popc(bits & ((1 << lane) - 1)).",
        "All lanes execute the ballot. Lanes from cuda.popc(bits) on store 0 at their own place.",
    ),
    "centre": (
        "First a sum per block, as in block_sum, over elements that are a grid apart.",
        "The other blocks' sums are complete after cuda.cg.this_grid().sync() (CUDA C:"
        " cooperative_groups::this_grid().sync()).",
        "Every thread comes to the barrier of the grid; then each adds up the four numbers.",
    ),
    "matmul_double_buffered": (
        "Tiles of shape (2, 16, 16); `now` is 0 or 1.",
        "Load pair 0. Then, for each tile: barrier, load the next pair into 1 - now, multiply now.",
        "The barrier says two things at once: the pair `now` is complete, and all have finished"
        " with the pair that is overwritten.",
    ),
    "float4_scale": (
        "((const float4*)x)[i] is one load of 16 bytes; the address is a multiple of 16.",
        "if (4 * i + 3 < n) four at once, else the elements from 4 * i to n one by one.",
        "float4 v = ((const float4*)x)[i]; v.x *= a; ...; ((float4*)out)[i] = v;",
    ),
    "half_dot": (
        "np.float32(x[row, j]) converts (CUDA C: __half2float).",
        "Convert both factors before the product; the tile in shared memory is float32 as well.",
        "The rest is block_sum, for a row that is longer than the block.",
    ),
    "wmma_matmul": (
        "Include mma.h. A warp has fragments: matrix_a, matrix_b and accumulator, each of 16 x 16"
        " x 16.",
        "fill_fragment(sum, 0); for each 16 of k: load_matrix_sync twice, mma_sync once.",
        "The leading dimension is the length of a row: k for a, n for b and out. At the end"
        " store_matrix_sync(..., mem_row_major).",
    ),
    "fix_barrier": (
        "Let the recorder say it: lab.profile(kernel, 1, 64, x, out) names two lines that race.",
        "A thread writes tile[t] while its neighbour may still read it.",
        "All threads must have read before one writes: one more barrier.",
    ),
    "fix_guard": (
        "How many elements has out? How many threads pass the guard?",
        "The thread of the last element of x has no x[i + 1].",
    ),
    "fix_histogram": (
        "Profile it: which line races with itself?",
        "`tile[x[i]] += 1` is a load, a sum and a store. Two threads may load the same number.",
        "cuda.atomic.add works on shared memory too.",
    ),
    "fix_stride": (
        "Write down where element (1, 0) of a 2 x 3 matrix lies.",
        "Row i begins after i rows of `columns` elements each.",
    ),
    "fix_divergence": (
        "Which threads come to the barrier in the last block?",
        "A barrier is for all threads of a block: it must not be inside of `if i < x.size`.",
        "Let a thread without an element put 0 into the tile, and take the rest out of the `if`.",
    ),
    "fix_uninitialised": (
        "What is in tile[t] if no thread wrote it?",
        "Every thread writes its element of the tile.",
        "Without an element it writes what changes no maximum: -inf, not 0.",
    ),
    "fix_banks": (
        "Lane t reads tile[t, j]: 32 addresses, 32 elements apart. Which banks are they in?",
        "bank = (row * width + column) % 32. For which width do 32 rows have 32 banks?",
        "A tile of (64, 33), or each thread begins at another column: (t + j) % 32.",
    ),
    "fix_mask": (
        "The mask names the lanes that take part. Which lanes execute the shuffle?",
        "All 32 do: 32 bits.",
    ),
    "fix_overflow": (
        "How large may one element be, and how large the sum of 64 of them?",
        "Which type has the sum? Which type has the tile that it is stored to?",
        "The tile must be int64 (long long).",
    ),
    "fix_half": (
        "What is np.float16(2048) + np.float16(1)?",
        "The elements may be float16; the sum may not.",
        "total = np.float32(0), and np.float32(x[i, j]) is added to it.",
    ),
}
