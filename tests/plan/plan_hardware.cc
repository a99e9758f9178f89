// Hardware descriptions: the files here are read, absurd or missing numbers are refused with their
// place, and prices behave as the machine's numbers say.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

extern "C" {
#include "src/device/sim/hardware.h"
}

namespace {

const char *const complete = R"(name: box
device:
  name: chip
  kind: gpu
  memory_gib: 16
  peak_tflops: { fp16: 100, fp32: 10 }
  gemm_efficiency: 0.5
  memory_gb_per_s: 1000
  memory_efficiency: 1
  attention_efficiency: 0.5
node:
  devices: 4
  link_gb_per_s: 100
  network_gb_per_s: 10
  host_gb_per_s: 10
  host_memory_gib: 64
)";

z3d_status read(const std::string &text, z3d_hardware *out) {
    return z3d_hardware_read_text(text.data(), text.size(), "box.yaml", out);
}

std::string replaced(std::string text, const std::string &from, const std::string &to) {
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

void refused(const std::string &text, const std::string &word) {
    z3d_hardware hardware;
    EXPECT_EQ(read(text, &hardware), Z3D_ERR_CONFIG) << text;
    EXPECT_NE(std::string(z3d_error_message()).find(word), std::string::npos)
        << z3d_error_message();
}

z3d_event gemm(int64_t m, int64_t n, int64_t k) {
    z3d_event event{};
    event.kind = Z3D_EVENT_KERNEL;
    event.of = Z3D_KERNEL_gemm;
    event.dtype = Z3D_F16;
    event.m = m;
    event.n = n;
    event.k = k;
    event.flops = 2.0 * m * n * k;
    event.bytes = 2 * (m * k + n * k + m * n);
    return event;
}

TEST(Hardware, FilesOfThisRepository) {
    int files = 0;
    for (const auto &file : std::filesystem::directory_iterator(ZERO3D_CONFIGS "/hardware")) {
        z3d_hardware hardware, named;
        ASSERT_EQ(z3d_hardware_read(file.path().c_str(), &hardware), Z3D_OK) << z3d_error_message();
        EXPECT_GT(hardware.peak_fp16, 100) << file.path();
        EXPECT_GT(hardware.device_watts, 100) << file.path();
        EXPECT_EQ(hardware.price, 0) << "no price is shipped: " << file.path();
        // The same is in the program, by its name.
        ASSERT_EQ(z3d_hardware_read(file.path().stem().c_str(), &named), Z3D_OK)
            << z3d_error_message();
        EXPECT_STREQ(named.name, hardware.name);
        EXPECT_EQ(memcmp(named.estimates, hardware.estimates, sizeof named.estimates), 0);
        files++;
    }
    EXPECT_GE(files, 12);
    z3d_hardware v100;
    std::string folder = ZERO3D_CONFIGS;
    ASSERT_EQ(z3d_hardware_read((folder + "/hardware/dgx2-v100.yaml").c_str(), &v100), Z3D_OK);
    EXPECT_DOUBLE_EQ(v100.memory_gib, 31.75);
    ASSERT_EQ(z3d_hardware_adjust("paper-2019", &v100), Z3D_OK);
    EXPECT_GE(v100.overhead_gb, 2.6);
    EXPECT_LE(v100.overhead_gb, 4.1);
    EXPECT_GE(v100.network_efficiency, 0.36);
    EXPECT_LE(v100.network_efficiency, 0.50);
}

// "h100" is the machine of that name, or NVIDIA's own; a part of one name is that one; of several
// or none it is an error that lists them. A file comes before parts of names.
TEST(Hardware, MachinesByName) {
    z3d_hardware hardware;
    const std::pair<const char *, const char *> names[] = {
        {"dgx-h100", "DGX H100"},      {"h100", "DGX H100"},      {"a100", "DGX A100"},
        {"A100", "DGX A100"},          {"b200", "DGX B200"},      {"h200", "HGX H200"},
        {"azure", "Azure ND H100 v5"}, {"40gb", "DGX A100 320GB"}};
    for (const auto &[name, machine] : names) {
        ASSERT_EQ(z3d_hardware_read(name, &hardware), Z3D_OK) << z3d_error_message();
        EXPECT_EQ(std::string(hardware.name).rfind(std::string(machine) + ",", 0), 0u)
            << name << ": " << hardware.name;
    }
    for (const char *name : {"", "h1000", "100", "-"}) {
        EXPECT_EQ(z3d_hardware_read(name, &hardware), Z3D_ERR_USAGE) << name;
        EXPECT_NE(strstr(z3d_error_message(), "dgx-h100"), nullptr) << z3d_error_message();
    }
    std::ofstream("azure") << complete;
    ASSERT_EQ(z3d_hardware_read("azure", &hardware), Z3D_OK) << z3d_error_message();
    EXPECT_STREQ(hardware.name, "box");
    std::filesystem::remove("azure");
}

// Software says what it reaches, not what a machine is; a machine's own numbers stay where nobody
// names a software.
TEST(Hardware, SoftwareIsApart) {
    const std::string h100 = ZERO3D_CONFIGS "/hardware/dgx-h100.yaml";
    z3d_hardware hardware;
    int count = 0;
    for (; z3d_software_name(count); count++) {
        ASSERT_EQ(z3d_hardware_read_with(h100.c_str(), z3d_software_name(count), &hardware), Z3D_OK)
            << z3d_error_message();
        EXPECT_STRNE(hardware.software, "");
        EXPECT_FALSE(hardware.standard);
    }
    EXPECT_EQ(count, 5);
    ASSERT_EQ(z3d_hardware_read_with(h100.c_str(), nullptr, &hardware), Z3D_OK);
    EXPECT_STREQ(hardware.software, "Megatron-LM of 2025");
    EXPECT_TRUE(hardware.standard);
    EXPECT_DOUBLE_EQ(hardware.gemm_efficiency, 0.62);
    EXPECT_EQ(z3d_hardware_read_with(h100.c_str(), "megatron-1999", &hardware), Z3D_ERR_USAGE);
    EXPECT_NE(strstr(z3d_error_message(), "megatron-2021"), nullptr) << z3d_error_message();
    const std::string measured = "measured_us: { attention_forward fp16 8x8x8: 1 }\n";
    EXPECT_EQ(z3d_hardware_adjust_text(measured.data(), measured.size(), "here", &hardware),
              Z3D_ERR_CONFIG);
    strcpy(hardware.kind, "cpu");
    EXPECT_EQ(z3d_hardware_adjust("megatron-2021", &hardware), Z3D_ERR_USAGE);
    const std::string machines = "node: { devices: 4 }\n";
    EXPECT_EQ(z3d_hardware_adjust_text(machines.data(), machines.size(), "here", &hardware),
              Z3D_ERR_CONFIG);
    EXPECT_NE(strstr(z3d_error_message(), "node.devices: is no key of a software"), nullptr)
        << z3d_error_message();
}

// Software does not fuse attention on a device that cannot; the default, named, is the default.
TEST(Hardware, SoftwareKeepsWhatTheDeviceCannot) {
    const std::string v100 = ZERO3D_CONFIGS "/hardware/dgx2-v100.yaml";
    z3d_hardware standard, named;
    ASSERT_EQ(z3d_hardware_read_with(v100.c_str(), "torchtitan-2025", &named), Z3D_OK);
    EXPECT_EQ(named.attention_fused, 0);
    EXPECT_DOUBLE_EQ(named.launch_us, 5);
    std::ofstream("box.yaml") << replaced(complete, "  attention_efficiency",
                                          "  launch_us: 7\n  attention_efficiency");
    for (const char *path : {v100.c_str(), "./box.yaml"}) {
        ASSERT_EQ(z3d_hardware_read_with(path, nullptr, &standard), Z3D_OK) << z3d_error_message();
        ASSERT_EQ(z3d_hardware_read_with(path, Z3D_SOFTWARE_STANDARD, &named), Z3D_OK);
#define X(field, path, low, high, standard_value, meaning)                                         \
    EXPECT_DOUBLE_EQ(named.field, standard.field) << path;
        Z3D_HARDWARE_MAP(X)
#undef X
    }
    EXPECT_DOUBLE_EQ(named.launch_us, 7);
}

TEST(Hardware, NamesOfSoftwareComeBeforeFiles) {
    z3d_hardware hardware;
    for (const char *file : {"megatron-2021", "mine", "mine.yaml"})
        std::ofstream(file) << "software: { name: mine }\n";
    auto name = [&](const char *software) {
        EXPECT_EQ(read(complete, &hardware), Z3D_OK);
        return z3d_hardware_adjust(software, &hardware) == Z3D_OK ? hardware.software
                                                                  : z3d_error_message();
    };
    EXPECT_STREQ(name("megatron-2021"), "Megatron-LM of 2021");
    EXPECT_STREQ(name("./megatron-2021"), "mine");
    EXPECT_STREQ(name("mine.yaml"), "mine");
    EXPECT_NE(strstr(name("mine"), "a file has a slash"), nullptr);
}

// A section of docs/machines.md, without its heading.
std::string section_of_page(const std::string &heading) {
    std::ifstream file(ZERO3D_CONFIGS "/../docs/machines.md");
    const std::string page((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    const size_t begin = page.find("\n## " + heading + "\n");
    if (begin == std::string::npos) return "";
    const size_t table = page.find("\n|", begin) + 1, end = page.find("\n\n", table);
    return page.substr(table, end + 1 - table);
}

bool is_softwares(const std::string &path) {
    z3d_hardware hardware;
    const size_t dot = path.find('.');
    const std::string text = path.substr(0, dot) + ": { " + path.substr(dot + 1) + ": x }\n";
    EXPECT_EQ(read(complete, &hardware), Z3D_OK);
    EXPECT_EQ(z3d_hardware_adjust_text(text.data(), text.size(), "x", &hardware), Z3D_ERR_CONFIG);
    return !strstr(z3d_error_message(), "is no key of a software description");
}

// The page has all keys, with their ranges and meanings as they stand in the table.
TEST(Hardware, ThePageHasAllKeys) {
    const std::string head = "| key | range | without it | what |\n|-|-|-|-|\n";
    std::string machine = head, software = head;
    char row[400], without[32];
#define X(field, path, low, high, standard, meaning)                                               \
    snprintf(without, sizeof without, "%g", (double)(standard));                                   \
    snprintf(row, sizeof row, "| `%s` | %g to %g | %s | %s |\n", path, (double)(low),              \
             (double)(high), std::isnan((double)(standard)) ? "refused" : without, meaning);       \
    (is_softwares(path) ? software : machine) += row;
    Z3D_HARDWARE_MAP(X)
#undef X
    EXPECT_EQ(section_of_page("What a machine is"), machine);
    EXPECT_EQ(section_of_page("What software reaches"), software);
}

TEST(Hardware, EveryNumberIsRead) {
    z3d_hardware hardware;
    ASSERT_EQ(read(complete, &hardware), Z3D_OK) << z3d_error_message();
    EXPECT_STREQ(hardware.name, "box");
    EXPECT_DOUBLE_EQ(hardware.peak_fp32, 10);
    EXPECT_DOUBLE_EQ(hardware.devices, 4);
    EXPECT_DOUBLE_EQ(hardware.overlap, 1); // what a file leaves out has a standard
    EXPECT_EQ(hardware.disk_write, 0);
    z3d_string text{};
    z3d_hardware again;
    hardware.network_latency_us = 12.5;
    z3d_hardware_write(&hardware, "# written\n", &text);
    ASSERT_EQ(read(text.text, &again), Z3D_OK) << z3d_error_message() << "\n" << text.text;
    EXPECT_DOUBLE_EQ(again.network_latency_us, 12.5);
    EXPECT_DOUBLE_EQ(again.host_bandwidth, 10);
    EXPECT_STREQ(again.kind, "gpu");
    z3d_string_free(&text);
}

// A tag marks estimates; a calibration replaces them.
TEST(Hardware, EstimatesAreMarked) {
    std::string text = complete;
    z3d_hardware hardware, again;
    ASSERT_EQ(read(text, &hardware), Z3D_OK) << z3d_error_message();
    EXPECT_FALSE(z3d_hardware_estimates(&hardware, true, nullptr));
    for (const char *key : {"memory_gib: ", "gemm_efficiency: "})
        text.insert(text.find(key) + strlen(key), "!estimate ");
    ASSERT_EQ(read(text, &hardware), Z3D_OK) << z3d_error_message();
    z3d_string written{}, paths{};
    z3d_hardware_write(&hardware, "", &written);
    ASSERT_EQ(read(written.text, &again), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(memcmp(again.estimates, hardware.estimates, sizeof again.estimates), 0);
    EXPECT_TRUE(z3d_hardware_estimates(&again, true, &paths));
    EXPECT_STREQ(paths.text, "device.gemm_efficiency");
    const std::string calibration = "device: {gemm_efficiency: 0.5}\n";
    ASSERT_EQ(z3d_hardware_adjust_text(calibration.data(), calibration.size(), "here", &again),
              Z3D_OK);
    EXPECT_FALSE(z3d_hardware_estimates(&again, true, nullptr));
    EXPECT_TRUE(z3d_hardware_estimates(&again, false, nullptr));
    z3d_string_free(&written);
    z3d_string_free(&paths);
}

TEST(Hardware, Refused) {
    const std::string text = complete;
    refused(replaced(text, "  memory_gib: 16\n", ""), "device.memory_gib is missing");
    refused(replaced(text, "name: box\n", ""), "name is missing");
    refused(replaced(text, "gemm_efficiency: 0.5", "gemm_efficiency: 1.5"), "from 0.01 to 1");
    refused(replaced(text, "devices: 4", "devices: 0"), "box.yaml:12:12");
    refused(replaced(text, "devices: 4", "devices: 7.5"), "'7.5' is not a whole number");
    refused(replaced(text, "memory_gb_per_s: 1000", "memory_gb_per_s: -1"), "memory_gb_per_s");
    refused(replaced(text, "memory_gb_per_s: 1000", "memory_gb_per_s: nan"), "not a number");
    refused(replaced(text, "memory_gb_per_s: 1000", "memory_gb_per_s: [1]"), "one number");
    refused(replaced(text, "kind: gpu", "kind: tpu"), "gpu or cpu");
    for (const char *key : {"disk_write_gb_per_s", "disk_read_gb_per_s"})
        for (const char *value : {"-1", "1e6", "nan", "fast"})
            refused(replaced(text, "  devices: 4",
                             std::string("  devices: 4\n  ") + key + ": " + value),
                    std::string("node.") + key + ": '" + value +
                        "' is not a number from 0 to 100000");
    refused(text + "device:\n  name: twice\n", "twice");
    refused(text + "compared: { node_low: 1.2, node_high: 1.1 }\n",
            "box.yaml: compared.node_low above compared.node_high: 1.2 is more than 1.1");
    refused(text + "compared: { nodes_low: 1.2 }\n", "compared.nodes_low above");
    refused(text + "nodes: 3\n", "unknown key");
    refused("[1, 2]\n", "key: value");
    refused("", "key: value");
    refused("a: {b: {c: {d: {e: 1}}}}\n", "one number");
    refused(": :\n  -", "box.yaml");
    z3d_hardware hardware;
    EXPECT_NE(z3d_hardware_read("no-such-file.yaml", &hardware), Z3D_OK);
}

TEST(Hardware, Products) {
    z3d_hardware hardware;
    ASSERT_EQ(read(complete, &hardware), Z3D_OK);
    z3d_event large = gemm(8192, 8192, 8192);
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &large), large.flops / 50e12, 1e-9);
    hardware.gemm_half = 8192; // each of three dimensions halves the speed
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &large), 8 * large.flops / 50e12, 1e-9);
    hardware.gemm_half = 0;
    z3d_event thin = gemm(8192, 8192, 1); // memory-bound
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &thin), thin.bytes / 1e12, 1e-9);
    hardware.launch_us = 7;
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &thin), thin.bytes / 1e12 + 7e-6, 1e-9);
    large.dtype = Z3D_F32;
    hardware.launch_us = 0;
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &large), large.flops / 5e12, 1e-7);
}

TEST(Hardware, AttentionThatIsNotFusedPaysForItsScores) {
    z3d_hardware hardware;
    ASSERT_EQ(read(complete, &hardware), Z3D_OK);
    z3d_event event{};
    event.of = Z3D_KERNEL_attention_forward;
    event.dtype = Z3D_F16;
    event.m = 16;
    event.n = 1024;
    event.k = 64;
    event.flops = 4.0 * 16 * 512 * 1025 * 64;
    double fused = z3d_hardware_kernel(&hardware, &event);
    hardware.attention_fused = 0;
    double scores = 16.0 * 1024 * 1024;
    double whole = 4 * scores * 64 / 50e12, traffic = 8 * scores * 2 / 1e12;
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &event), whole + traffic, 1e-9);
    EXPECT_GT(whole + traffic, fused);
    hardware.attention_unaligned = 0.25;
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &event), whole + traffic, 1e-9);
    event.k = 100; // no multiple of 8
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &event), 4 * whole * 100 / 64 + traffic, 1e-9);
}

// Whole squares of the causal half; an exponential a score; backward at its own speed.
TEST(Hardware, FusedAttentionBySequenceHeadAndPass) {
    z3d_hardware hardware;
    ASSERT_EQ(read(complete, &hardware), Z3D_OK);
    z3d_event event{};
    event.of = Z3D_KERNEL_attention_forward;
    event.dtype = Z3D_F16;
    event.m = 16;
    event.n = 1000;
    event.k = 128;
    event.flops = 4.0 * 16 * 500 * 1001 * 128;
    const double before = z3d_hardware_kernel(&hardware, &event);
    hardware.attention_head = 128; // for heads of 128 it is part of the efficiency
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &event), before, 1e-12);
    event.k = 64;
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &event), 1.5 * before, 1e-9);
    hardware.attention_tile = 128;
    const double squares = 1024.0 * (1024 + 128) / (1000.0 * 1001);
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &event), 1.5 * squares * before, 1e-9);
    hardware.attention_backward = 0.5;
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &event), 1.5 * squares * before, 1e-9);
    event.of = Z3D_KERNEL_attention_backward;
    EXPECT_NEAR(z3d_hardware_kernel(&hardware, &event), 3 * squares * before, 1e-9);
}

// A product's GELU is a launch of its own, or writes its result from registers.
TEST(Hardware, EpiloguesThatProductsTakeIn) {
    z3d_tape *tape;
    z3d_device *device;
    z3d_device_config config{};
    ASSERT_EQ(z3d_tape_create(&tape), Z3D_OK);
    config.backend = "sim", config.tape = tape;
    ASSERT_EQ(z3d_device_create(&config, &device), Z3D_OK) << z3d_error_message();
    z3d_kernel kernel{};
    kernel.kind = Z3D_KERNEL_gemm;
    z3d_gemm &g = kernel.as.gemm;
    g.m = 1000, g.n = 4000, g.k = 1000, g.transpose_a = true, g.dtype = g.c_dtype = Z3D_F16;
    g.lda = 1000, g.ldb = g.ldc = 4000;
    char fake[6]; // the sim device looks at no memory
    g.a = fake, g.b = fake + 1, g.c = fake + 2;
    g.gelu = fake + 3, g.before_gelu = fake + 4, g.bias_gradient = fake + 5;
    ASSERT_EQ(z3d_launch(device, &kernel), Z3D_OK) << z3d_error_message();
    ASSERT_EQ(tape->count, 4);
    z3d_hardware hardware;
    ASSERT_EQ(read(complete, &hardware), Z3D_OK);
    hardware.launch_us = 5;
    auto price = [&](int i) {
        z3d_event event = z3d_tape_at(tape, i);
        return 1e6 * z3d_hardware_kernel(&hardware, &event);
    };
    const double matrix = 1000 * 4000 * 2 / 1e6; // microseconds at 1000 GB/s
    EXPECT_NEAR(price(1), 3 * matrix + 5, 0.01);
    EXPECT_NEAR(price(2), 2 * matrix + 5, 0.01);
    EXPECT_NEAR(price(3), 2 + 5, 0.01); // 1000 x 1000 of A
    double product = price(0);
    hardware.gemm_epilogues = 1;
    EXPECT_EQ(price(0), product);
    EXPECT_NEAR(price(1), matrix, 0.01); // gelu's input
    EXPECT_NEAR(price(2), matrix, 0.01); // its result
    EXPECT_NEAR(price(3), 2 + 5, 0.01);  // a bias gradient is a launch of its own
    z3d_device_destroy(device);
    z3d_tape_destroy(tape);
}

// Whether the kernel has a type at all.
template <class T> auto make_bf16(T *kernel) -> decltype((void)kernel->dtype, true) {
    kernel->dtype = Z3D_BF16;
    return true;
}
bool make_bf16(z3d_cast *kernel) {
    kernel->destination_dtype = Z3D_BF16;
    return true;
}
bool make_bf16(z3d_accumulate *kernel) {
    kernel->x_dtype = Z3D_BF16;
    return true;
}
bool make_bf16(...) {
    return false;
}

// A price goes by the type of what a kernel works on.
TEST(Hardware, EveryKernelsTypeIsOnTheTape) {
    z3d_tape *tape;
    int typed = 0;
    ASSERT_EQ(z3d_tape_create(&tape), Z3D_OK);
#define X(name, type)                                                                              \
    {                                                                                              \
        z3d_kernel kernel;                                                                         \
        memset(&kernel, 0, sizeof kernel);                                                         \
        kernel.kind = Z3D_KERNEL_##name;                                                           \
        bool has = make_bf16(&kernel.as.name);                                                     \
        ASSERT_EQ(z3d_tape_kernel(tape, &kernel, Z3D_SPACE_DEVICE, 0), Z3D_OK);                    \
        EXPECT_EQ(z3d_tape_at(tape, tape->count - 1).dtype, has ? Z3D_BF16 : Z3D_F32) << #name;    \
        typed += has;                                                                              \
    }
    Z3D_KERNEL_MAP(X)
#undef X
    EXPECT_GT(typed, 30);
    z3d_tape_destroy(tape);
}

z3d_event kernel(z3d_kernel_kind of, int64_t bytes) {
    z3d_event event{};
    event.of = of;
    event.dtype = Z3D_F32;
    event.bytes = bytes;
    return event;
}

TEST(Hardware, MeasuredSizesAreMet) {
    z3d_hardware hardware;
    ASSERT_EQ(read(std::string(complete) + "measured_us:\n  adamw plain fp32 1000: 4\n"
                                           "  adamw plain fp32 8000: 16\n"
                                           "  gemm nt fp16 64x64x64: 20\n"
                                           "  gemm nt fp16 64x64x512: 120\n"
                                           "  gemm nt fp16 512x64x64: 120\n"
                                           "  gemm nt fp16 64x512x64: 120\n",
                   &hardware),
              Z3D_OK)
        << z3d_error_message();
    auto price = [&](const z3d_event &event) {
        return 1e6 * z3d_hardware_kernel(&hardware, &event);
    };
    EXPECT_NEAR(price(kernel(Z3D_KERNEL_adamw, 1000)), 4, 0.02);
    EXPECT_NEAR(price(kernel(Z3D_KERNEL_adamw, 8000)), 16, 0.1);
    // Three octaves, four times the time: the power law between, as usual beyond.
    EXPECT_NEAR(price(kernel(Z3D_KERNEL_adamw, 2828)), 8, 0.3);
    EXPECT_NEAR(price(kernel(Z3D_KERNEL_adamw, 80000)), 160, 2);
    EXPECT_NEAR(price(kernel(Z3D_KERNEL_adamw, 100)), 0.4, 0.02);
    z3d_event small = gemm(64, 64, 64), large = gemm(512, 512, 512);
    small.form = large.form = 1;
    EXPECT_NEAR(price(small), 20, 0.2);
    EXPECT_NEAR(price(large), 20 * 6 * 6 * 6,
                20 * 6 * 6); // 512 times the work at 216 times the time
    // Nothing like it was measured: the roofline.
    EXPECT_NEAR(price(kernel(Z3D_KERNEL_fill, 1000000)), 1, 1e-6);
    small.form = 0;
    EXPECT_LT(price(small), 1);
    small.m = 0;
    EXPECT_GE(price(small), 0);
    z3d_string text{};
    z3d_hardware again;
    z3d_hardware_write(&hardware, "", &text);
    ASSERT_EQ(read(text.text, &again), Z3D_OK) << z3d_error_message() << "\n" << text.text;
    EXPECT_EQ(again.measured.count, 6);
    EXPECT_EQ(again.measured.sample[5].size[1], 512);
    EXPECT_DOUBLE_EQ(again.measured.sample[1].seconds, 16e-6);
    z3d_string_free(&text);
}

TEST(Hardware, MeasuredSizesThatMakeNoSense) {
    const std::string text = std::string(complete) + "measured_us:\n  ";
    refused(text + "adamw plain fp32 0: 4\n", "not a measured size");
    refused(text + "adamw plain fp32 1x2: 4\n", "not a measured size");
    refused(text + "adamw plain fp32 8bytes: 4\n", "not a measured size");
    refused(text + "adamw plain fp33 1: 4\n", "not a measured size");
    refused(text + "adamw fast fp32 1: 4\n", "not a measured size");
    refused(text + "rprop plain fp32 1: 4\n", "not a measured size");
    refused(text + "gemm nt fp32 1x2x3x4: 4\n", "not a measured size");
    refused(text + "gemm nt fp32 1x2xnan: 4\n", "not a measured size");
    refused(text + "adamw plain fp32 8: 0\n", "microseconds");
    refused(text + "adamw plain fp32 8: nan\n", "microseconds");
    std::string many = text;
    for (int i = 0; i < 1025; i++)
        many += "gemm nt fp32 " + std::to_string(1 << (i % 10)) + "x" +
                std::to_string(1 << (i / 10 % 10)) + "x" + std::to_string(1 << (i / 100)) +
                ": 1\n  ";
    refused(many + "adamw plain fp32 8: 1\n", "at most 1024");
}

TEST(Hardware, RanksShareCores) {
    z3d_hardware hardware;
    ASSERT_EQ(read(complete, &hardware), Z3D_OK);
    EXPECT_EQ(z3d_hardware_crowding(&hardware, 64), 1); // a gpu each
    hardware.cores = 8;
    hardware.threads = 4;
    EXPECT_EQ(z3d_hardware_crowding(&hardware, 2), 1);
    EXPECT_EQ(z3d_hardware_crowding(&hardware, 3), 1.5);
    EXPECT_EQ(z3d_hardware_crowding(&hardware, 64), 2); // 4 a node
}

TEST(Hardware, CopiesShareTheirLink) {
    z3d_hardware hardware;
    ASSERT_EQ(read(complete, &hardware), Z3D_OK);
    z3d_event copy{};
    copy.to = Z3D_SPACE_HOST;
    copy.bytes = 1000000000;
    EXPECT_NEAR(z3d_hardware_copy(&hardware, &copy, 2), 0.1, 1e-12);
    hardware.host_sharing = 2;
    hardware.host_efficiency = 0.5;
    EXPECT_NEAR(z3d_hardware_copy(&hardware, &copy, 64), 0.4, 1e-12);
    EXPECT_NEAR(z3d_hardware_copy(&hardware, &copy, 2), 0.4, 1e-12);
    EXPECT_NEAR(z3d_hardware_copy(&hardware, &copy, 1), 0.2, 1e-12); // alone on its link
}

// The disk and the host's cores are the node's: its ranks share them.
TEST(Hardware, RanksShareDiskAndHost) {
    z3d_hardware hardware;
    ASSERT_EQ(read(complete, &hardware), Z3D_OK);
    hardware.devices = 8;
    hardware.nvme_read = 20;
    hardware.nvme_write = 10;
    hardware.host_optimizer = 100;
    z3d_event read_disk{}, write_disk{}, step{};
    read_disk.bytes = write_disk.bytes = step.bytes = 1000000000;
    read_disk.from = write_disk.to = Z3D_SPACE_DISK;
    read_disk.to = write_disk.from = step.to = Z3D_SPACE_HOST;
    for (int ranks : {1, 2, 8, 64}) {
        const double node = std::min(ranks, 8);
        EXPECT_NEAR(z3d_hardware_copy(&hardware, &read_disk, ranks), node / 20, 1e-12);
        EXPECT_NEAR(z3d_hardware_copy(&hardware, &write_disk, ranks), node / 10, 1e-12);
        EXPECT_NEAR(z3d_hardware_host_kernel(&hardware, &step, ranks), node / 100, 1e-12);
    }
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
