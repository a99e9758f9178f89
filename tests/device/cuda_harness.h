// CUDA kernels on the host (cuda_shim) against the cpu device. A kernel's operands are known from
// z3d_kernel_cost, so a test only fills in the struct: its buffers are copied to blocks that have
// exactly the operand's bytes (AddressSanitizer sees the rest), what the kernel does not read
// becomes NaN first, and afterwards every result is compared.
#ifndef ZERO3D_TESTS_DEVICE_CUDA_HARNESS_H
#define ZERO3D_TESTS_DEVICE_CUDA_HARNESS_H

#include "tests/device/kernels_harness.h"

#include "src/device/cuda/kernels/cuda_kernels.h"
#include "src/device/cuda/kernels/scratch.h"

void cuda_shim_descend(bool descend); // cuda_shim/cuda_runtime.h

// A result: where the original pointer is in the struct, its type, and how far it may be from the
// cpu's: `relative` of its size (in addition to one rounding of a 16-bit type) plus `absolute`.
struct Result {
    const void *pointer;
    z3d_dtype dtype;
    double relative, absolute;
};

// The struct with its own copies of all operands, `offset` bytes behind 16-byte alignment.
class Copies {
  public:
    Copies(const z3d_kernel &original, size_t offset) : kernel(original), offset_(offset) {
        z3d_cost cost;
        z3d_kernel_cost(&original, &cost);
        for (int i = 0; i < cost.num_operands; i++) add(cost.operands[i]);
        for (Block &block : blocks_) {
            block.bytes.reset(new unsigned char[offset + block.size]);
            if (block.read)
                std::memcpy(block.bytes.get() + offset, block.original, block.size);
            else
                std::memset(block.bytes.get() + offset, 0xff, block.size);
        }
        replace();
    }
    const unsigned char *at(const void *original) const {
        for (const Block &block : blocks_)
            if (block.original == original) return block.bytes.get() + offset_;
        return nullptr;
    }
    size_t size(const void *original) const {
        for (const Block &block : blocks_)
            if (block.original == original) return block.size;
        return 0;
    }
    // Of all operands, for comparing runs to the bit.
    Bytes bytes() const {
        Bytes all;
        for (const Block &block : blocks_)
            all.insert(all.end(), block.bytes.get() + offset_,
                       block.bytes.get() + offset_ + block.size);
        return all;
    }
    z3d_kernel kernel;

  private:
    struct Block {
        const void *original;
        size_t size;
        bool read;
        std::unique_ptr<unsigned char[]> bytes;
    };
    void add(const z3d_operand &operand) {
        for (Block &block : blocks_)
            if (block.original == operand.pointer) { // in place
                block.size = std::max(block.size, (size_t)operand.bytes);
                block.read |= operand.read;
                return;
            }
        blocks_.push_back({operand.pointer, (size_t)operand.bytes, operand.read, nullptr});
    }
    void replace() {
        const size_t words = sizeof kernel.as / sizeof(void *);
        void *word[sizeof kernel.as / sizeof(void *)];
        std::memcpy(word, &kernel.as, sizeof word);
        for (size_t i = 0; i < words; i++)
            for (const Block &block : blocks_)
                if ((uintptr_t)word[i] >= (uintptr_t)block.original &&
                    (uintptr_t)word[i] < (uintptr_t)block.original + block.size) {
                    word[i] = block.bytes.get() + offset_ +
                              ((uintptr_t)word[i] - (uintptr_t)block.original);
                    break;
                }
        std::memcpy(&kernel.as, word, sizeof word);
    }
    size_t offset_;
    std::vector<Block> blocks_;
};

inline double number_at(const unsigned char *bytes, z3d_dtype dtype, size_t i) {
    if (dtype == Z3D_F64) {
        double value;
        std::memcpy(&value, bytes + 8 * i, 8);
        return value;
    }
    if (dtype == Z3D_F32) {
        float value;
        std::memcpy(&value, bytes + 4 * i, 4);
        return (double)value;
    }
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, 2);
    return (double)(dtype == Z3D_BF16 ? z3d_bf16_to_float(bits) : z3d_f16_to_float(bits));
}

inline void expect_result(const Result &result, const Copies &got, const Copies &want) {
    const size_t step = z3d_dtype_size(result.dtype);
    const double rounding = result.dtype == Z3D_BF16  ? 0x1p-7
                            : result.dtype == Z3D_F16 ? 0x1p-10
                                                      : 0.0;
    const double smallest = result.dtype == Z3D_F16 ? 0x1p-24 : 0.0;
    const unsigned char *a = got.at(result.pointer), *b = want.at(result.pointer);
    ASSERT_TRUE(a != nullptr || got.size(result.pointer) == 0);
    for (size_t i = 0; i < got.size(result.pointer) / step; i++) {
        const double x = number_at(a, result.dtype, i), y = number_at(b, result.dtype, i);
        if (x == y || (std::isnan(x) && std::isnan(y))) continue;
        const bool exact = result.relative == 0 && result.absolute == 0;
        const double bound =
            exact ? 0 : (rounding + result.relative) * std::fabs(y) + smallest + result.absolute;
        ASSERT_LE(std::fabs(x - y), bound)
            << "element " << i << ", " << z3d_dtype_name(result.dtype) << ": cuda " << x << ", cpu "
            << y;
    }
}

using Launch = std::function<z3d_status(const z3d_cuda_lane *, const z3d_kernel *)>;

// With exactly the scratch that is promised, full of NaN.
inline z3d_status launch_cuda(const Launch &launch, const z3d_kernel &kernel) {
    const int64_t bytes = z3d_cuda_kernel_scratch(&kernel);
    std::unique_ptr<unsigned char[]> scratch(new unsigned char[(size_t)bytes]);
    std::memset(scratch.get(), 0xff, (size_t)bytes);
    const z3d_cuda_lane lane = {nullptr, scratch.get(), bytes};
    return launch(&lane, &kernel);
}

// Runs the kernel on the cpu, and as CUDA with and without 16-byte alignment, threads in both
// orders: which must give the same bits.
inline void compare(const z3d_kernel &kernel, const Launch &launch,
                    const std::vector<Result> &results,
                    const std::vector<size_t> &offsets = {0, 8}) {
    Device cpu("generic", 1);
    Copies want(kernel, 0);
    ASSERT_EQ(launch_with_scratch(cpu, want.kernel), Z3D_OK) << z3d_error_message();
    for (size_t offset : offsets) {
        Bytes first;
        for (bool descend : {false, true}) {
            SCOPED_TRACE(std::string(z3d_kernel_name(kernel.kind)) + ", offset " +
                         std::to_string(offset) + (descend ? ", descending" : ""));
            Copies got(kernel, offset);
            cuda_shim_descend(descend);
            ASSERT_EQ(launch_cuda(launch, got.kernel), Z3D_OK) << z3d_error_message();
            for (const Result &result : results) expect_result(result, got, want);
            if (testing::Test::HasFatalFailure()) return;
            if (!descend)
                first = got.bytes();
            else
                ASSERT_TRUE(first == got.bytes()) << "results depend on the order of threads";
        }
    }
}

// COMPARE(name, results, k.x = ..., ...)
#define COMPARE(name, results, ...)                                                                \
    do {                                                                                           \
        z3d_kernel kernel;                                                                         \
        std::memset(&kernel, 0, sizeof kernel);                                                    \
        kernel.kind = Z3D_KERNEL_##name;                                                           \
        z3d_##name &k = kernel.as.name;                                                            \
        __VA_ARGS__;                                                                               \
        const std::vector<Result> compared = results;                                              \
        compare(                                                                                   \
            kernel,                                                                                \
            [](const z3d_cuda_lane *lane, const z3d_kernel *launched) {                            \
                return z3d_cuda_##name(lane, &launched->as.name);                                  \
            },                                                                                     \
            compared);                                                                             \
        if (testing::Test::HasFatalFailure()) return;                                              \
    } while (0)

// Commas in a macro's argument.
template <class... R> std::vector<Result> results(R... r) {
    return {r...};
}

#endif
