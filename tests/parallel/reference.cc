#include "tests/parallel/reference.h"

#include <algorithm>

uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

void put_value(z3d_dtype dtype, void *to, uint64_t random) {
    double sign = random & 1 ? -1 : 1;
    static const double scale[] = {0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8};
    double value = sign * (1 + double(random >> 40) / 0x1p24) * scale[random >> 8 & 7];
    float single = float(value);
    int32_t integer = int32_t(random >> 16);
    uint16_t half;
    switch (dtype) {
    case Z3D_F32:
        std::memcpy(to, &single, 4);
        break;
    case Z3D_F64:
        std::memcpy(to, &value, 8);
        break;
    case Z3D_I32:
        std::memcpy(to, &integer, 4);
        break;
    case Z3D_BF16:
        half = z3d_float_to_bf16(single), std::memcpy(to, &half, 2);
        break;
    case Z3D_F16:
        half = z3d_float_to_f16(single), std::memcpy(to, &half, 2);
        break;
    default:
        *static_cast<unsigned char *>(to) = (unsigned char)(random >> 20);
    }
}

void repeat(unsigned char *to, int64_t count, size_t size) {
    for (int64_t i = PERIOD; i < count; i += PERIOD)
        std::memcpy(to + size_t(i) * size, to, size_t(std::min(PERIOD, count - i)) * size);
}

Bytes make_input(z3d_dtype dtype, int64_t count, uint64_t seed, int member, int64_t first) {
    size_t size = z3d_dtype_size(dtype);
    Bytes bytes(size_t(count) * size);
    uint64_t start = mix(seed * 1000003 + uint64_t(member));
    for (int64_t i = 0; i < std::min(count, PERIOD); i++)
        put_value(dtype, &bytes[size_t(i) * size], mix(start + uint64_t((first + i) % PERIOD)));
    repeat(bytes.data(), count, size);
    return bytes;
}

void combine(z3d_dtype dtype, z3d_reduce_op op, void *to, const void *a, const void *b) {
    auto half = [&](float (*widen)(uint16_t), uint16_t (*narrow)(float)) {
        uint16_t x, y;
        std::memcpy(&x, a, 2);
        std::memcpy(&y, b, 2);
        float p = widen(x), q = widen(y);
        uint16_t out = narrow(op == Z3D_SUM ? p + q : larger(p, q));
        std::memcpy(to, &out, 2);
    };
    if (dtype == Z3D_BF16) return half(z3d_bf16_to_float, z3d_float_to_bf16);
    if (dtype == Z3D_F16) return half(z3d_f16_to_float, z3d_float_to_f16);
    if (dtype == Z3D_F32) {
        float out = combine_as<float>(op, a, b);
        std::memcpy(to, &out, 4);
    } else if (dtype == Z3D_F64) {
        double out = combine_as<double>(op, a, b);
        std::memcpy(to, &out, 8);
    } else if (op == Z3D_SUM) {
        uint32_t out = combine_as<uint32_t>(op, a, b); // wraps
        std::memcpy(to, &out, 4);
    } else {
        int32_t out = combine_as<int32_t>(op, a, b);
        std::memcpy(to, &out, 4);
    }
}

void reduce_element(z3d_dtype dtype, z3d_reduce_op op, const std::vector<Bytes> &inputs,
                    int64_t element, int first, void *to) {
    size_t size = z3d_dtype_size(dtype), at = size_t(element) * size;
    int members = int(inputs.size());
    std::memcpy(to, &inputs[size_t(first % members)][at], size);
    for (int k = 1; k < members; k++)
        combine(dtype, op, to, to, &inputs[size_t((first + k) % members)][at]);
}

void reduce_elements(z3d_dtype dtype, z3d_reduce_op op, const std::vector<Bytes> &inputs,
                     int64_t element, int64_t count, int first, unsigned char *to) {
    size_t size = z3d_dtype_size(dtype);
    for (int64_t k = 0; k < std::min(count, PERIOD); k++)
        reduce_element(dtype, op, inputs, element + k, first, to + size_t(k) * size);
    repeat(to, count, size);
}

Bytes reference_all_reduce(z3d_dtype dtype, z3d_reduce_op op, const std::vector<Bytes> &inputs) {
    size_t size = z3d_dtype_size(dtype);
    int64_t members = int64_t(inputs.size()), count = int64_t(inputs[0].size() / size);
    Bytes out(inputs[0].size());
    int64_t element = 0;
    for (int64_t row = 0; row < members; row++) {
        int64_t in_row = count / members + (row < count % members);
        int first = count * int64_t(size) <= 4096 ? 0 : int(row + 1);
        reduce_elements(dtype, op, inputs, element, in_row, first,
                        out.data() + size_t(element) * size);
        element += in_row;
    }
    return out;
}

static float round_through(z3d_dtype wire, float value) {
    return wire == Z3D_BF16 ? z3d_bf16_to_float(z3d_float_to_bf16(value))
                            : z3d_f16_to_float(z3d_float_to_f16(value));
}

static float float_at(const Bytes &bytes, int64_t element) {
    float value;
    std::memcpy(&value, &bytes[size_t(element) * 4], 4);
    return value;
}

void reduce_rounded(z3d_dtype wire, const std::vector<Bytes> &inputs, int64_t element,
                    int64_t count, int row, unsigned char *to) {
    const size_t members = inputs.size();
    for (int64_t i = 0; i < std::min(count, PERIOD); i++) {
        float sum = float_at(inputs[size_t(row)], element + i);
        for (size_t k = 1; k < members; k++)
            sum += round_through(wire, float_at(inputs[(size_t(row) + k) % members], element + i));
        std::memcpy(to + i * 4, &sum, 4);
    }
    repeat(to, count, 4);
}

Bytes reference_rounded_all_reduce(z3d_dtype wire, const std::vector<Bytes> &inputs) {
    const int64_t members = int64_t(inputs.size()), count = int64_t(inputs[0].size() / 4);
    Bytes out(inputs[0].size());
    if (members == 1) return inputs[0];
    int64_t first = 0;
    for (int64_t row = 0; row < members; row++) {
        int64_t in_row = count / members + (row < count % members);
        unsigned char *to = out.data() + first * 4;
        reduce_rounded(wire, inputs, first, in_row, int(row), to);
        for (int64_t i = 0; i < in_row; i++) {
            float rounded = round_through(wire, float_at(out, first + i));
            std::memcpy(to + i * 4, &rounded, 4);
        }
        first += in_row;
    }
    return out;
}
