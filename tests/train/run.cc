#include "tests/train/run.h"

std::vector<uint16_t> some_tokens(size_t count, unsigned seed) {
    std::vector<uint16_t> tokens(count);
    uint32_t state = seed;
    for (size_t i = 1; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        uint16_t last = tokens[i - 1];
        tokens[i] =
            (state >> 24) < 200 ? uint16_t((last * 5 + 3) % 251) : uint16_t(state >> 16 & 255);
    }
    return tokens;
}

Outcome train(const SharedFolder &folder, const std::string &more, bool verbose) {
    z3d_config *config = nullptr;
    EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
    std::string base = "model.num_layers=1\nmodel.hidden_size=16\nmodel.num_attention_heads=2\n"
                       "model.seq_length=16\nmodel.vocab_size=257\ntrain_batch_size=8\n"
                       "train_micro_batch_size_per_gpu=1\noptimizer.params.lr=1e-2\n"
                       "training.steps=6\ntraining.log_interval=2\ntraining.threads=1\n"
                       "training.peak_tflops=0.1\ncheckpoint.interval=0\n"
                       "training.watchdog_timeout=60\n";
    std::string type = "fp32"; // the method is given, not measured: results depend on it
    for (const char *other : {"bf16", "fp16"})
        if (more.find(other + std::string(".enabled=true")) != std::string::npos) type = other;
    base += "training.gemm." + type + "=sgemm\n";
    base += "data.train=" + folder / "train.bin" + "\nrun.dir=" + folder / "run" + "\n";
    std::istringstream lines(base + more);
    for (std::string line; std::getline(lines, line);)
        if (!line.empty()) {
            EXPECT_EQ(z3d_config_override(config, line.c_str()), Z3D_OK)
                << line << ": " << z3d_error_message();
        }
    ::testing::internal::CaptureStdout();
    Outcome outcome;
    z3d_train_options options = {};
    bool unfinished;
    options.verbose = verbose;
    outcome.status = z3d_train_part(world, config, &options, &unfinished);
    outcome.said = ::testing::internal::GetCapturedStdout();
    if (outcome.status != Z3D_OK) outcome.message = z3d_error_message();
    outcome.recompute_activation = config->activation_checkpointing_recompute_activation;
    z3d_config_destroy(config);
    SharedFolder::barrier();
    return outcome;
}

std::vector<std::string> metrics(const SharedFolder &folder, const std::string &run) {
    std::istringstream in(read_file(folder / (run + "/metrics.jsonl")));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

std::string field(const std::string &line, const std::string &name) {
    size_t at = line.find("\"" + name + "\":");
    if (at == std::string::npos) return "";
    at += name.size() + 3;
    return line.substr(at, line.find_first_of(",}", at) - at);
}

std::vector<double> series(const std::vector<std::string> &lines, const std::string &name) {
    std::vector<double> out;
    for (const std::string &line : lines)
        if (!field(line, name).empty()) out.push_back(std::stod(field(line, name)));
    return out;
}
