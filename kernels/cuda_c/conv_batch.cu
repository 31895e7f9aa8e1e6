// Convolution as one matrix product over the positions of all images, whose operands are found
// through tables.
//
// Element (i, k) of the left operand is left[rows[i] + terms[k]], element (k, j) of the right one
// right[right_terms[k] + j], and the result (i, j) goes to out[places[i] + j * column]. So the left
// operand is read where it lies, and the result goes where it belongs; the right operand, whose
// columns are neighbours, is transposed. With other tables the same kernel computes
//
//   forward          i an output position of any image, k (channel, kh, kw); right w
//   backward-data    i a position of x, k (output channel, kh, kw) of the taps that reach it; left g,
//                    right w; the s * s kinds of positions of a stride s each have taps of their own
//   backward-weight  i (channel, kh, kw), k an output position; left x, right g
//
// So a product has pieces, rows that have the same terms; where only some windows read padding, they
// can be pieces, too. Where windows are two strides wide, rows and terms may stand for pairs, which
// three products with other operands compute: the later ones add to what lies in out.

// What the blocks of a blockIdx.z compute: their rows and terms, the first of their columns, and
// where their results begin in out.
struct Entry {
    unsigned row, row_end, term, term_end, column, out;
};

// One block, (BX, BY) threads: BY * RM rows x BX * RN columns, RM x RN results a thread.
// blockIdx.z = (entry, group). rows and places one for each row; terms and right_terms one for each
// term; n columns, `column` apart in out; the `_group`s are the distances between groups. ADDS: what
// lies in out plus `sign` times the product goes to the place `shift` from it.
template <class T, class U, class A, int BX, int BY, int RM, int RN, int TK, bool BIAS, bool ADDS>
__global__ void __launch_bounds__(BX * BY)
batch_gemm(const A* left, const T* right, const T* bias, U* out, const unsigned* rows,
           const unsigned* places, const unsigned* terms, const unsigned* right_terms,
           const Entry* entries, int groups, int n,
           long long left_group, long long right_group, long long out_group,
           long long column, int sign, long long shift) {
    constexpr int TM = BY * RM, TN = BX * RN;
    __shared__ A left_tile[TK][TM + 1];
    __shared__ A right_tile[TK][TN];
    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * BX + tx;
    const Entry& entry = entries[blockIdx.z / groups];
    const int row0 = entry.row + blockIdx.y * TM, m = entry.row_end, group = blockIdx.z % groups;
    const int col0 = entry.column + blockIdx.x * TN;
    const int first = entry.term, k = entry.term_end - first;
    left += group * left_group;
    right += group * right_group;
    A sum[RN][RM] = {};
    for (int k0 = 0; k0 < k; k0 += TK) {
        for (int e = t; e < TK * TM; e += BX * BY) {
            const int i = e / TK, kk = e % TK;
            const bool inside = row0 + i < m && k0 + kk < k;
            left_tile[kk][i] =
                inside ? left[(long long)rows[row0 + i] + terms[first + k0 + kk]] : A(0);
        }
        for (int e = t; e < TK * TN; e += BX * BY) {
            const int j = e % TN, kk = e / TN;
            const bool inside = col0 + j < n && k0 + kk < k;
            right_tile[kk][j] = inside ? A(right[right_terms[first + k0 + kk] + col0 + j]) : A(0);
        }
        __syncthreads();
        #pragma unroll 1
        for (int kk = 0; kk < TK; ++kk) {
            #pragma unroll
            for (int j = 0; j < RN; ++j) {
                const A value = right_tile[kk][j * BX + tx];
                #pragma unroll
                for (int i = 0; i < RM; ++i) sum[j][i] += left_tile[kk][ty * RM + i] * value;
            }
        }
        __syncthreads();
    }
    out += entry.out + group * out_group;
    #pragma unroll
    for (int j = 0; j < RN; ++j) {
        const int col = col0 + j * BX + tx;
        if (col >= n) continue;
        const A more = BIAS ? A(bias[group * n + col]) : A(0);
        #pragma unroll
        for (int i = 0; i < RM; ++i) {
            const int row = row0 + ty * RM + i;
            if (row >= m) continue;
            U* at = out + places[row] + col * column;
            if (ADDS) at[shift] = U(A(*at) + A(sign) * sum[j][i]);
            else *at = U(sum[j][i] + more);
        }
    }
}
