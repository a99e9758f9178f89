// metrics.jsonl, TensorBoard event files, and what happens when the disk is full.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

extern "C" {
#include "src/train/report/console.h"
#include "src/train/report/metrics.h"
#include "src/train/report/tensorboard.h"
}
#include "files.h"

namespace {

TEST(Metrics, StepLineHasEveryFieldOfTheDesign) {
    z3d_step_record record{};
    record.result.step = 7;
    record.time = 1763895911.1234;
    record.result.loss = 2.3456789012345678;
    record.result.grad_norm = 0.1;
    record.lr = 6e-4f;
    record.result.loss_scale = 65536;
    record.tokens = record.result.targets = 4096;
    record.seconds = 0.5;
    record.model_tflops = 0.125;
    record.mfu = 0.5;
    record.hfu = NAN;
    record.result.exposed_transfer_seconds = 0.001953125;
    record.comm_bytes = 123;
    for (int i = 0; i < Z3D_CATEGORY_COUNT; i++) record.memory[i] = 100 + i;
    record.outside_memory = 4711;
    z3d_string line = {};
    z3d_metrics_step_line(&record, &line);
    EXPECT_STREQ(
        line.text,
        "{\"step\":7,\"loss\":2.345678901234568,"
        "\"lr\":0.000600000028,\"grad_norm\":0.1,\"tokens\":4096,"
        "\"total_tokens\":28672,\"seconds\":0.5,\"time\":1763895911.123,\"tokens_per_second\":8192,"
        "\"model_tflops\":0.125,\"mfu\":0.5,\"hfu\":null,\"exposed_comm_seconds\":0,"
        "\"exposed_transfer_seconds\":0.00195312,\"comm_bytes\":123,\"loss_scale\":65536,"
        "\"skipped\":false,"
        "\"memory\":{\"parameters\":100,\"gradients\":101,\"optimizer\":102,"
        "\"activations\":103,\"cache\":104,\"temporary\":105,\"communication\":106,"
        "\"outside\":4711}}\n");
    z3d_string_clear(&line);
    record.offloaded = true;
    record.result.exposed_disk_seconds = 0.25;
    record.result.host_step_seconds = 0.125;
    z3d_metrics_step_line(&record, &line);
    EXPECT_NE(strstr(line.text, "\"exposed_transfer_seconds\":0.00195312,"
                                "\"exposed_disk_seconds\":0.25,\"host_step_seconds\":0.125,"),
              nullptr)
        << line.text;
    EXPECT_EQ(strstr(line.text, "comms"), nullptr);
    z3d_string_clear(&line);
    record.logged[Z3D_COLLECTIVE_ALL_REDUCE] = record.logged[Z3D_COLLECTIVE_SEND] = true;
    record.logged[Z3D_COLLECTIVE_BROADCAST] = true;
    record.sent[Z3D_COLLECTIVE_ALL_REDUCE] = {100, 25};
    record.sent[Z3D_COLLECTIVE_ALL_GATHER] = {7, 7};
    record.sent[Z3D_COLLECTIVE_SEND] = {8, 8};
    z3d_metrics_step_line(&record, &line);
    EXPECT_NE(strstr(line.text,
                     "\"comm_bytes\":123,"
                     "\"comms\":{\"all_reduce\":{\"inside_node\":75,\"between_nodes\":25},"
                     "\"send\":{\"inside_node\":0,\"between_nodes\":8}},\"loss_scale\":65536"),
              nullptr)
        << line.text;
    z3d_string_free(&line);
}

// A run that goes on behind step 500 knows from its first steps how long the rest takes.
TEST(Console, TheTimeLeftBeginsWithTheRun) {
    FILE *file = tmpfile();
    ASSERT_NE(file, nullptr);
    z3d_console console{};
    console.out = file;
    console.steps = 1000;
    console.log_interval = 1;
    console.rate_unit = 1e9;
    for (int step : {501, 502, 503}) {
        z3d_step_record record{};
        record.result.step = step;
        record.tokens = 1;
        record.seconds = step == 501 ? 60 : 10; // the first is slower
        z3d_console_step(&console, &record);
    }
    rewind(file);
    char line[256];
    std::string last;
    while (fgets(line, sizeof line, file)) last = line;
    fclose(file);
    EXPECT_NE(last.find("1 h 23 min"), std::string::npos) << last; // 497 steps of 10 s
}

TEST(Metrics, LossReadsBackToTheBit) {
    for (double loss : {1.0 / 3, 2.302585092994046, 5e-324, 1.7976931348623157e308}) {
        z3d_step_record record{};
        record.result.loss = loss;
        z3d_string line = {};
        z3d_metrics_step_line(&record, &line);
        const char *at = strstr(line.text, "\"loss\":");
        ASSERT_NE(at, nullptr);
        EXPECT_EQ(strtod(at + 7, nullptr), loss) << line.text;
        z3d_string_free(&line);
    }
}

TEST(Metrics, SkippedStepsNameTheGroupAndNaNsAreNull) {
    z3d_step_record record{};
    record.result.loss = NAN;
    record.result.grad_norm = INFINITY;
    record.result.skipped = true;
    record.overflow_group = "block.\"3";
    z3d_string line = {};
    z3d_metrics_step_line(&record, &line);
    std::string text = line.text;
    EXPECT_NE(text.find("\"loss\":null"), std::string::npos);
    EXPECT_NE(text.find("\"grad_norm\":null"), std::string::npos);
    EXPECT_NE(text.find("\"skipped\":true,\"overflow_group\":\"block.\\\"3\""), std::string::npos);
    EXPECT_EQ(text.find("nan"), std::string::npos);
    z3d_string_free(&line);
    const double losses[] = {1.25, NAN};
    z3d_metrics_validation_line(9, 2.5, 1.5, losses, 1, 100, 0.25, &line);
    EXPECT_STREQ(line.text, "{\"step\":9,\"validation_loss\":1.5,\"validation_targets\":100,"
                            "\"seconds\":0.25,\"time\":2.500}\n");
    z3d_string_clear(&line);
    z3d_metrics_validation_line(9, 2.5, 1.5, losses, 2, 100, 0.25, &line);
    EXPECT_STREQ(line.text, "{\"step\":9,\"validation_loss\":1.5,\"validation_losses\":[1.25,null],"
                            "\"validation_targets\":100,\"seconds\":0.25,\"time\":2.500}\n");
    z3d_string_clear(&line);
    z3d_event_record event{};
    event.step = 9;
    event.event = "failure";
    event.time = 2.5;
    event.seconds = event.peak_tflops = NAN;
    event.detail = "a \"name\"";
    z3d_metrics_event_line(&event, &line);
    EXPECT_STREQ(line.text, "{\"step\":9,\"event\":\"failure\",\"time\":2.500,"
                            "\"detail\":\"a \\\"name\\\"\"}\n");
    z3d_string_free(&line);
}

TEST(LineFile, NoticesAFullDisk) {
    z3d_line_file file;
    ASSERT_EQ(z3d_line_file_open(&file, "/dev/full"), Z3D_OK);
    EXPECT_EQ(z3d_line_file_write(&file, "x\n", 2), Z3D_ERR_IO);
    EXPECT_STREQ(z3d_error_message(), "/dev/full: cannot write: No space left on device");
    z3d_line_file_close(&file);
}

TEST(LineFile, StartsAnewAndRefusesBadPlaces) {
    Folder folder;
    write_file(folder / "m", "old old old");
    z3d_line_file file;
    ASSERT_EQ(z3d_line_file_open(&file, (folder / "m").c_str()), Z3D_OK);
    ASSERT_EQ(z3d_line_file_write(&file, "new\n", 4), Z3D_OK);
    EXPECT_EQ(read_file(folder / "m"), "new\n"); // there at once, not at the end of the run
    EXPECT_EQ(z3d_line_file_close(&file), Z3D_OK);
    EXPECT_EQ(z3d_line_file_open(&file, (folder / "missing/m").c_str()), Z3D_ERR_IO);
    EXPECT_NE(std::string(z3d_error_message()).find("missing/m"), std::string::npos);
    z3d_line_file_close(&file);
}

TEST(WholeFile, ReplacesOrLeavesAlone) {
    Folder folder;
    ASSERT_EQ(z3d_write_whole_file((folder / "c").c_str(), "one", 3), Z3D_OK);
    ASSERT_EQ(z3d_write_whole_file((folder / "c").c_str(), "two", 3), Z3D_OK);
    EXPECT_EQ(read_file(folder / "c"), "two");
    EXPECT_FALSE(std::filesystem::exists(folder / "c.part"));
    EXPECT_EQ(z3d_write_whole_file((folder / "no/c").c_str(), "x", 1), Z3D_ERR_IO);
}

// ---- TensorBoard ----

TEST(Crc32c, KnownVectors) { // RFC 3720, appendix B.4
    EXPECT_EQ(z3d_crc32c("123456789", 9), 0xe3069283u);
    std::string zeros(32, '\0'), ones(32, '\xff'), up;
    for (int i = 0; i < 32; i++) up.push_back(static_cast<char>(i));
    EXPECT_EQ(z3d_crc32c(zeros.data(), 32), 0x8a9136aau);
    EXPECT_EQ(z3d_crc32c(ones.data(), 32), 0x62a8ab43u);
    EXPECT_EQ(z3d_crc32c(up.data(), 32), 0x46dd794eu);
    EXPECT_EQ(z3d_crc32c("", 0), 0u);
    EXPECT_EQ(z3d_crc32c_masked("", 0), 0xa282ead8u);
}

struct Event {
    double wall_time = 0;
    uint64_t step = 0;
    std::string version;
    std::vector<std::pair<std::string, float>> scalars;
};

// A reader of its own for protocol buffers: fields of one message.
struct Reader {
    const std::string &bytes;
    size_t at = 0;
    bool more() const {
        return at < bytes.size();
    }
    uint64_t varint() {
        uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            auto byte = static_cast<unsigned char>(bytes.at(at++));
            value |= uint64_t(byte & 0x7f) << shift;
            if (byte < 0x80) return value;
        }
    }
    template <typename T> T fixed() {
        T value;
        memcpy(&value, bytes.substr(at, sizeof value).data(), sizeof value);
        at += sizeof value;
        return value;
    }
    std::string text() {
        size_t length = varint();
        at += length;
        return bytes.substr(at - length, length);
    }
};

Event parse_event(const std::string &bytes) {
    Event event;
    for (Reader r{bytes}; r.more();) {
        uint64_t key = r.varint();
        if (key == (1 << 3 | 1)) {
            event.wall_time = r.fixed<double>();
        } else if (key == (2 << 3 | 0)) {
            event.step = r.varint();
        } else if (key == (3 << 3 | 2)) {
            event.version = r.text();
        } else {
            EXPECT_EQ(key, uint64_t(5 << 3 | 2));
            std::string summary = r.text();
            for (Reader s{summary}; s.more();) {
                EXPECT_EQ(s.varint(), uint64_t(1 << 3 | 2));
                std::string value = s.text();
                Reader v{value};
                EXPECT_EQ(v.varint(), uint64_t(1 << 3 | 2));
                std::string tag = v.text();
                EXPECT_EQ(v.varint(), uint64_t(2 << 3 | 5));
                event.scalars.emplace_back(tag, v.fixed<float>());
                EXPECT_FALSE(v.more());
            }
        }
    }
    return event;
}

std::vector<Event> parse_file(const std::string &bytes) {
    std::vector<Event> events;
    for (Reader r{bytes}; r.more();) {
        std::string head = bytes.substr(r.at, 8);
        auto length = r.fixed<uint64_t>();
        EXPECT_EQ(r.fixed<uint32_t>(), z3d_crc32c_masked(head.data(), 8));
        std::string data = bytes.substr(r.at, length);
        EXPECT_EQ(data.size(), length);
        r.at += length;
        EXPECT_EQ(r.fixed<uint32_t>(), z3d_crc32c_masked(data.data(), data.size()));
        events.push_back(parse_event(data));
    }
    return events;
}

TEST(TensorBoard, FileReadsBack) {
    Folder folder;
    write_file(folder / "events.out.tfevents.1700000000.zero3d", "of the run that is resumed");
    z3d_tensorboard board;
    ASSERT_EQ(z3d_tensorboard_open(&board, folder.path.c_str(), 1700000000.25), Z3D_OK);
    z3d_scalar one[] = {{"train/loss", 2.5}, {"train/grad_norm", NAN}, {"speed/x", 1e-3}};
    ASSERT_EQ(z3d_tensorboard_write(&board, 1700000001.5, 300, one, 3), Z3D_OK);
    z3d_scalar two[] = {{"validation/loss", -1}};
    ASSERT_EQ(z3d_tensorboard_write(&board, 1700000002, int64_t(1) << 40, two, 1), Z3D_OK);
    ASSERT_EQ(z3d_tensorboard_close(&board), Z3D_OK);
    EXPECT_EQ(read_file(folder / "events.out.tfevents.1700000000.zero3d"),
              "of the run that is resumed");
    auto events = parse_file(read_file(folder / "events.out.tfevents.1700000001.zero3d"));
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0].version, "brain.Event:2");
    EXPECT_EQ(events[0].wall_time, 1700000000.25);
    EXPECT_EQ(events[1].step, 300u);
    EXPECT_EQ(events[1].wall_time, 1700000001.5);
    EXPECT_EQ(events[1].scalars, (std::vector<std::pair<std::string, float>>{{"train/loss", 2.5f},
                                                                             {"speed/x", 1e-3f}}));
    EXPECT_EQ(events[2].step, uint64_t(1) << 40);
    ASSERT_EQ(events[2].scalars.size(), 1u);
    EXPECT_EQ(events[2].scalars[0].second, -1.0f);
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
