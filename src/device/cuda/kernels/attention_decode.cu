// Attention of a few rows to a cache. There are fewer rows than multiprocessors, so the keys of
// each row are cut into chunks, by the cache's capacity. A second kernel adds the chunks in order.
#include "src/device/cuda/kernels/attention.cuh"

namespace {

constexpr int DECODE_THREADS = 128, DECODE_BLOCKS = 6; // on a multiprocessor
constexpr int TOGETHER = 4;                            // keys whose loads are in flight

// The results of parts of the keys, a line of head_dim + 2 each: the values' sum, with weights
// relative to the largest score; this score; the weights' sum.
struct lines {
    const float *at;
    int count, head_dim;
    __device__ float maximum() const {
        float largest = -INFINITY;
        for (int i = 0; i < count; i++)
            largest = fmaxf(largest, at[(int64_t)i * (head_dim + 2) + head_dim]);
        return largest;
    }
    __device__ float sum(int column, float largest) const {
        float sum = 0.0f;
        for (int i = 0; i < count; i++) {
            const float *line = at + (int64_t)i * (head_dim + 2);
            if (line[head_dim + 1] > 0.0f || line[head_dim + 1] != line[head_dim + 1])
                sum += line[column] * power_of_two(line[head_dim] - largest);
        }
        return sum;
    }
};

// A block has a row of a head and a chunk of keys. LANES lanes share a key, with 8 columns each.
template <int LANES, class T>
__global__ void __launch_bounds__(DECODE_THREADS, DECODE_BLOCKS)
    decode_kernel(z3d_attention_forward in, float *partials, attention_shape shape, int chunks,
                  int chunk_keys) {
    constexpr int SLOTS = DECODE_THREADS / LANES;
    float *shared = shared_memory<float>(); // [SLOTS][head_dim + 2]
    const int64_t row = blockIdx.x / chunks, query_row = row % shape.seq;
    const head_place place = place_of(shape, row / shape.seq);
    const int chunk = (int)blockIdx.x % chunks * chunk_keys,
              position = place.start + (int)query_row;
    int begin = first_key_of(shape, place, position), end = chunk + chunk_keys;
    if (begin < chunk) begin = chunk;
    if (end > place.keys) end = place.keys;
    if (end > position + 1) end = position + 1;
    const int slot = (int)threadIdx.x / LANES, column = (int)threadIdx.x % LANES * WIDE;
    const bool inside = column < shape.head_dim;
    float query[WIDE] = {0}, result[WIDE] = {0};
    if (inside) load<T>(query, in.q, place.q + query_row * shape.q_stride + column);
    float maximum = -INFINITY, sum = 0.0f;
    for (int first = begin + slot; first - slot < end; first += SLOTS * TOGETHER) {
        float scores[TOGETHER], largest = maximum;
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int key = first + i * SLOTS;
            float loaded[WIDE] = {0}, dot = 0.0f;
            if (inside && key < end)
                load<T>(loaded, in.k, place.kv + key * shape.kv_stride + column);
#pragma unroll
            for (int j = 0; j < WIDE; j++) dot += query[j] * loaded[j];
#pragma unroll
            for (int lane = LANES / 2; lane > 0; lane /= 2)
                dot += __shfl_xor_sync(ALL_LANES, dot, lane);
            scores[i] = key < end ? dot * (shape.scale * LOG2_E) : -INFINITY;
            largest = fmaxf(largest, scores[i]);
        }
        const float relative = largest > -INFINITY ? largest : 0.0f;
        const float correction = power_of_two(maximum - relative);
        maximum = largest;
        sum *= correction;
#pragma unroll
        for (int j = 0; j < WIDE; j++) result[j] *= correction;
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int key = first + i * SLOTS;
            const float weight = power_of_two(scores[i] - relative);
            float loaded[WIDE] = {0};
            if (inside && key < end)
                load<T>(loaded, in.v, place.kv + key * shape.kv_stride + column);
            sum += weight;
#pragma unroll
            for (int j = 0; j < WIDE; j++) result[j] += weight * loaded[j];
        }
    }
    float *line = shared + slot * (shape.head_dim + 2);
    for (int j = 0; j < WIDE && inside; j++) line[column + j] = result[j];
    if (column == 0) {
        line[shape.head_dim] = maximum;
        line[shape.head_dim + 1] = sum;
    }
    __syncthreads();
    const lines slots = {shared, SLOTS, shape.head_dim};
    const float largest = slots.maximum();
    float *to = partials + (int64_t)blockIdx.x * (shape.head_dim + 2);
    for (int i = (int)threadIdx.x; i < shape.head_dim + 2; i += DECODE_THREADS)
        to[i] = i == shape.head_dim ? largest : slots.sum(i, largest);
}

template <class T>
__global__ void __launch_bounds__(DECODE_THREADS)
    combine_kernel(z3d_attention_forward in, const float *partials, attention_shape shape,
                   int chunks) {
    const int64_t row = blockIdx.x, query_row = row % shape.seq;
    const head_place place = place_of(shape, row / shape.seq);
    const lines parts = {partials + row * chunks * (shape.head_dim + 2), chunks, shape.head_dim};
    const float largest = parts.maximum(), sum = parts.sum(shape.head_dim + 1, largest);
    T *to = static_cast<T *>(in.out) + place.out + query_row * place.out_stride;
    for (int i = (int)threadIdx.x; i < shape.head_dim; i += DECODE_THREADS)
        narrow(parts.sum(i, largest) / sum, to + i);
    if (threadIdx.x == 0 && in.log_sum_exp) in.log_sum_exp[row] = largest / LOG2_E + logf(sum);
}

template <int LANES, class T>
z3d_status launch_decode(const z3d_cuda_lane *lane, const z3d_attention_forward *kernel) {
    const int64_t rows = kernel->batch * kernel->heads * kernel->seq;
    const int64_t chunks = z3d_cuda_decode_chunks(kernel->capacity);
    const attention_shape shape = attention_shape_of(kernel, false);
    float *partials = static_cast<float *>(lane->scratch);
    Z3D_TRY(launch(lane, "attention_forward", rows * chunks, dim3(DECODE_THREADS),
                   DECODE_THREADS / LANES * (kernel->head_dim + 2) * sizeof(float),
                   decode_kernel<LANES, T>, *kernel, partials, shape, (int)chunks,
                   (int)divide_up(kernel->capacity, chunks)));
    return launch(lane, "attention_forward", rows, dim3(DECODE_THREADS), 0, combine_kernel<T>,
                  *kernel, partials, shape, (int)chunks);
}

} // namespace

z3d_status z3d_cuda_decode_attention(const z3d_cuda_lane *lane,
                                     const z3d_attention_forward *kernel) {
    Z3D_TRY(check_scratch("attention_forward", lane, z3d_cuda_decode_scratch(kernel)));
    return with_type("attention_forward", kernel->dtype, [&](auto type) {
        using T = decltype(type);
        if (kernel->head_dim <= 64) return launch_decode<8, T>(lane, kernel);
        if (kernel->head_dim <= 128) return launch_decode<16, T>(lane, kernel);
        return launch_decode<32, T>(lane, kernel);
    });
}
