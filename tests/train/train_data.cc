// Token files of both formats, whole and broken; the dataset's samples and validation windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

extern "C" {
#include "src/train/data.h"
#include "src/train/data/token_writer.h"
}
#include "files.h"

namespace {

// Status and message of opening `path`.
z3d_status open_status(const std::string &path, std::string *message) {
    z3d_token_file *file = nullptr;
    z3d_status status = z3d_token_file_open(path.c_str(), &file);
    *message = status == Z3D_OK ? "" : z3d_error_message();
    EXPECT_EQ(file != nullptr, status == Z3D_OK);
    z3d_token_file_close(file);
    return status;
}

// Opening fails with `status` and a message that names the path and says all of `words`.
void expect_refused(const std::string &path, z3d_status status,
                    const std::vector<std::string> &words) {
    std::string message;
    EXPECT_EQ(open_status(path, &message), status) << message;
    for (const std::string &word : words)
        EXPECT_NE(message.find(word), std::string::npos) << "\"" << word << "\" in: " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
}

std::vector<int32_t> read_all(const std::string &path, int32_t vocab) {
    z3d_token_file *file;
    EXPECT_EQ(z3d_token_file_open(path.c_str(), &file), Z3D_OK) << z3d_error_message();
    std::vector<int32_t> out(static_cast<size_t>(file->tokens));
    EXPECT_EQ(z3d_token_file_read(file, 0, static_cast<int64_t>(out.size()), vocab, out.data()),
              Z3D_OK)
        << z3d_error_message();
    z3d_token_file_close(file);
    return out;
}

TEST(TokenFile, ReadsLlmcFiles) {
    Folder folder;
    write_file(folder / "a.bin", token_bytes(std::vector<uint16_t>{1, 2, 65535, 0}));
    EXPECT_EQ(read_all(folder / "a.bin", 65536), (std::vector<int32_t>{1, 2, 65535, 0}));
    write_file(folder / "b.bin", token_bytes(std::vector<uint32_t>{70000, 3}, 20240801, 7));
    EXPECT_EQ(read_all(folder / "b.bin", 100000), (std::vector<int32_t>{70000, 3}));
}

TEST(TokenFile, RefusesBrokenFiles) {
    Folder folder;
    std::string good = token_bytes(std::vector<uint16_t>{1, 2, 3, 4});
    auto with = [&](const std::string &name, const std::string &bytes) {
        write_file(folder / name, bytes);
        return folder / name;
    };
    auto patched = [&](size_t word, int32_t value) {
        std::string bytes = good;
        memcpy(bytes.data() + 4 * word, &value, 4);
        return bytes;
    };
    expect_refused(folder / "missing.bin", Z3D_ERR_IO, {"missing.bin", "No such file"});
    expect_refused(folder.path, Z3D_ERR_IO, {"is a folder"});
    expect_refused("/dev/null", Z3D_ERR_IO, {"device"});
    expect_refused(with("empty.bin", ""), Z3D_ERR_DATA, {"empty.bin", "empty"});
    expect_refused(with("text.bin", "once upon a time"), Z3D_ERR_DATA,
                   {"text.bin: this is a text, not a token file", "zero3d data tokenize"});
    expect_refused(with("short.bin", good.substr(0, 500)), Z3D_ERR_DATA, {"truncated", "500"});
    expect_refused(with("three.bin", good.substr(0, 3)), Z3D_ERR_DATA, {"three.bin"});
    expect_refused(with("cut.bin", good.substr(0, good.size() - 2)), Z3D_ERR_DATA,
                   {"truncated", "4 tokens", "1032", "1030"});
    expect_refused(with("odd.bin", good.substr(0, good.size() - 1)), Z3D_ERR_DATA,
                   {"truncated", "1031"});
    expect_refused(with("long.bin", good + "x"), Z3D_ERR_DATA, {"wrong size", "1033"});
    expect_refused(with("version.bin", patched(1, 9)), Z3D_ERR_DATA, {"version 9"});
    expect_refused(with("negative.bin", patched(2, -4)), Z3D_ERR_DATA, {"-4"});
    expect_refused(with("none.bin", token_bytes(std::vector<uint16_t>{})), Z3D_ERR_DATA,
                   {"no tokens"});
    std::string swapped = good; // the other byte order
    std::reverse(swapped.begin(), swapped.begin() + 4);
    expect_refused(with("swapped.bin", swapped), Z3D_ERR_DATA, {"magic"});
}

// Documents of ids; a negative one is not trained.
void write_documents(const std::string &path, const std::vector<std::vector<int32_t>> &documents) {
    z3d_token_writer writer{};
    ASSERT_EQ(z3d_token_writer_open(&writer, path.c_str(), 257), Z3D_OK) << z3d_error_message();
    ASSERT_EQ(z3d_token_writer_mask(&writer), Z3D_OK) << z3d_error_message();
    writer.digest = 7;
    for (std::vector<int32_t> ids : documents) {
        for (int32_t &id : ids) id = id < 0 ? -id | Z3D_TOKEN_UNTRAINED : id;
        ASSERT_EQ(z3d_token_writer_document(&writer), Z3D_OK);
        ASSERT_EQ(z3d_token_writer_append(&writer, ids.data(), ids.size()), Z3D_OK);
    }
    ASSERT_EQ(z3d_token_writer_finish(&writer), Z3D_OK) << z3d_error_message();
    ASSERT_EQ(z3d_token_writer_publish(&writer), Z3D_OK) << z3d_error_message();
    z3d_token_writer_discard(&writer);
}

TEST(TokenFile, KeepsAMaskAndTheBordersOfDocuments) {
    Folder folder;
    write_documents(folder / "a.bin", {{-1, -2, 3, 4, 256}, {5, 256}, {-6, -7, -8, 9, 256}});
    EXPECT_EQ(read_all(folder / "a.bin", 257),
              (std::vector<int32_t>{1, 2, 3, 4, 256, 5, 256, 6, 7, 8, 9, 256}));
    z3d_token_file *file;
    ASSERT_EQ(z3d_token_file_open((folder / "a.bin").c_str(), &file), Z3D_OK);
    ASSERT_EQ(file->documents, 3);
    EXPECT_EQ(z3d_token_file_document(file, 0), 0);
    EXPECT_EQ(z3d_token_file_document(file, 1), 5);
    EXPECT_EQ(z3d_token_file_document(file, 2), 7);
    EXPECT_EQ(z3d_token_file_document(file, 3), 12);
    EXPECT_NE(file->mask, nullptr);
    EXPECT_FALSE(z3d_token_file_trains(file, 7, 3));
    EXPECT_TRUE(z3d_token_file_trains(file, 7, 4));
    std::vector<int32_t> targets(12, 0);
    z3d_token_file_ignore(file, 0, 12, targets.data());
    EXPECT_EQ(targets, (std::vector<int32_t>{-1, -1, 0, 0, 0, 0, 0, -1, -1, -1, 0, 0}));
    z3d_token_file_close(file);
    write_documents(folder / "all.bin", {{1, 2}, {3}}); // all are trained: no mask
    EXPECT_EQ(std::filesystem::file_size(folder / "all.bin"), 1024u + 3 * 2 + 2 * 8);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path), {}), 2);
}

TEST(TokenFile, RefusesABrokenMaskAndBrokenDocuments) {
    Folder folder;
    write_documents(folder / "a.bin", {{-1, -2, 3, 4, 256}, {5, 256}});
    const std::string good = read_file(folder / "a.bin");
    auto expect = [&](size_t byte, int32_t value, const std::vector<std::string> &words) {
        std::string bytes = good;
        memcpy(bytes.data() + byte, &value, 4);
        write_file(folder / "b.bin", bytes);
        expect_refused(folder / "b.bin", Z3D_ERR_DATA, words);
    };
    const size_t flags = 4 * 12, documents = 4 * 13, borders = 1024 + 7 * 2 + 1;
    ASSERT_EQ(good.size(), borders + 2 * 8);
    expect(flags, 2, {"wrong size", "7 tokens and their documents", "1054", "1055"});
    expect(flags, 1, {"2 documents of 7 tokens"});
    expect(flags, 7, {"flags 0x7"});
    expect(documents, 8, {"8 documents of 7 tokens"});
    expect(documents, 0, {"0 documents of 7 tokens"});
    expect(documents + 4, 1 << 30, {"documents of 7 tokens"});
    expect(documents, 3, {"truncated", "their mask and documents"});
    expect(borders, 1, {"document 0 begins at token 1"});
    expect(borders + 8, 0, {"document 1 begins at token 0"});
    expect(borders + 8, 7, {"document 1 begins at token 7 of 7"});
    expect(borders + 12, -1, {"document 1 begins"});
    write_file(folder / "b.bin", good.substr(0, good.size() - 1));
    expect_refused(folder / "b.bin", Z3D_ERR_DATA, {"truncated"});
}

TEST(TokenFile, NamedPipeDoesNotHang) {
    Folder folder;
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    expect_refused(folder / "pipe", Z3D_ERR_IO, {"pipe"});
}

TEST(TokenFile, NamesTokensBeyondTheVocabulary) {
    Folder folder;
    std::vector<uint16_t> tokens(5000, 7);
    tokens[4321] = 300;
    write_file(folder / "a.bin", token_bytes(tokens));
    z3d_token_file *file;
    ASSERT_EQ(z3d_token_file_open((folder / "a.bin").c_str(), &file), Z3D_OK);
    std::vector<int32_t> out(5000);
    EXPECT_EQ(z3d_token_file_read(file, 0, 4321, 300, out.data()), Z3D_OK);
    EXPECT_EQ(z3d_token_file_read(file, 0, 5000, 301, out.data()), Z3D_OK);
    ASSERT_EQ(z3d_token_file_read(file, 1000, 4000, 300, out.data()), Z3D_ERR_DATA);
    std::string message = z3d_error_message();
    EXPECT_NE(message.find("a.bin: token 4321 is 300"), std::string::npos) << message;
    EXPECT_NE(message.find("ids 0 to 299"), std::string::npos) << message;
    // Outside the file is our bug, not a crash.
    EXPECT_EQ(z3d_token_file_read(file, 4999, 2, 301, out.data()), Z3D_ERR_INTERNAL);
    z3d_token_file_close(file);
}

TEST(TokenFile, LargeUnsignedAndNegativeValuesAreRefused) {
    Folder folder;
    write_file(folder / "u.bin", token_bytes(std::vector<uint32_t>{1, 4294967295u}, 20240801, 7));
    z3d_token_file *file;
    ASSERT_EQ(z3d_token_file_open((folder / "u.bin").c_str(), &file), Z3D_OK);
    int32_t out[2];
    EXPECT_EQ(z3d_token_file_read(file, 0, 2, 257, out), Z3D_ERR_DATA);
    EXPECT_NE(std::string(z3d_error_message()).find("token 1 is 4294967295"), std::string::npos)
        << z3d_error_message();
    z3d_token_file_close(file);
}

TEST(TokenFile, NoticesThatAFileBecameShorter) {
    Folder folder;
    write_file(folder / "a.bin", token_bytes(std::vector<uint16_t>(100000, 1)));
    z3d_token_file *file;
    ASSERT_EQ(z3d_token_file_open((folder / "a.bin").c_str(), &file), Z3D_OK);
    std::vector<int32_t> out(100000);
    ASSERT_EQ(truncate((folder / "a.bin").c_str(), 2000), 0);
    EXPECT_EQ(z3d_token_file_read(file, 0, 100000, 257, out.data()), Z3D_ERR_IO);
    z3d_token_file_close(file);
}

// ---- Megatron-LM's pairs ----

struct Megatron {
    std::vector<int32_t> lengths;
    std::vector<int64_t> pointers, documents;
    uint8_t code = 8; // uint16
    std::string index() const {
        std::string out("MMIDIDX\0\0", 9);
        put(out, uint64_t(1));
        put(out, code);
        put(out, uint64_t(lengths.size()));
        put(out, uint64_t(documents.size()));
        for (int32_t l : lengths) put(out, l);
        for (int64_t p : pointers) put(out, p);
        for (int64_t d : documents) put(out, d);
        return out;
    }
};

template <typename T> std::string raw(const std::vector<T> &tokens) {
    std::string out;
    for (T t : tokens) put(out, t);
    return out;
}

TEST(Megatron, ReadsAPairByAnyOfItsNames) {
    Folder folder;
    Megatron m{{3, 2, 1}, {0, 6, 10}, {0, 2, 3}};
    write_file(folder / "x.idx", m.index());
    write_file(folder / "x.bin", raw(std::vector<uint16_t>{5, 6, 7, 8, 9, 10}));
    std::vector<int32_t> tokens{5, 6, 7, 8, 9, 10};
    for (const char *name : {"x.idx", "x.bin", "x"}) EXPECT_EQ(read_all(folder / name, 11), tokens);
}

TEST(Megatron, ReadsEveryIntegerTypeAndModes) {
    Folder folder;
    auto check = [&](uint8_t code, int size, const std::string &bytes) {
        Megatron m{{2, 1}, {0, 2 * size}, {0, 2}};
        m.code = code;
        write_file(folder / "x.idx", m.index());
        write_file(folder / "x.bin", bytes);
        EXPECT_EQ(read_all(folder / "x", 100), (std::vector<int32_t>{1, 99, 3})) << int(code);
    };
    check(1, 1, raw(std::vector<uint8_t>{1, 99, 3}));
    check(2, 1, raw(std::vector<int8_t>{1, 99, 3}));
    check(3, 2, raw(std::vector<int16_t>{1, 99, 3}));
    check(4, 4, raw(std::vector<int32_t>{1, 99, 3}));
    check(5, 8, raw(std::vector<int64_t>{1, 99, 3}));
    check(8, 2, raw(std::vector<uint16_t>{1, 99, 3}));
    Megatron m{{2, 1}, {0, 4}, {0, 2}};
    write_file(folder / "x.idx", m.index() + std::string(2, '\0')); // a mode byte a sequence
    write_file(folder / "x.bin", raw(std::vector<uint16_t>{1, 99, 3}));
    EXPECT_EQ(read_all(folder / "x", 100), (std::vector<int32_t>{1, 99, 3}));
}

TEST(Megatron, FollowsItsPointers) {
    Folder folder;
    Megatron m{{2, 0, 3, 1}, {6, 0, 0, 12}, {0, 4}};
    write_file(folder / "x.idx", m.index());
    write_file(folder / "x.bin", raw(std::vector<uint16_t>{1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(read_all(folder / "x", 10), (std::vector<int32_t>{4, 5, 1, 2, 3, 7}));
    z3d_token_file *file;
    ASSERT_EQ(z3d_token_file_open((folder / "x.idx").c_str(), &file), Z3D_OK);
    int32_t out[6];
    ASSERT_EQ(z3d_token_file_read(file, 1, 3, 10, out), Z3D_OK);
    EXPECT_EQ(std::vector<int32_t>(out, out + 3), (std::vector<int32_t>{5, 1, 2}));
    // A value is named by its place in the stream.
    EXPECT_EQ(z3d_token_file_read(file, 0, 6, 7, out), Z3D_ERR_DATA);
    EXPECT_NE(std::string(z3d_error_message()).find("token 5 is 7"), std::string::npos)
        << z3d_error_message();
    z3d_token_file_close(file);
}

TEST(Megatron, NegativeTokensAreRefused) {
    Folder folder;
    Megatron m{{2}, {0}, {0, 1}};
    m.code = 5;
    write_file(folder / "x.idx", m.index());
    write_file(folder / "x.bin", raw(std::vector<int64_t>{4, -9}));
    z3d_token_file *file;
    ASSERT_EQ(z3d_token_file_open((folder / "x").c_str(), &file), Z3D_OK);
    int32_t out[2];
    EXPECT_EQ(z3d_token_file_read(file, 0, 2, 10, out), Z3D_ERR_DATA);
    EXPECT_NE(std::string(z3d_error_message()).find("token 1 is -9"), std::string::npos);
    z3d_token_file_close(file);
}

TEST(Megatron, RefusesBrokenPairs) {
    Folder folder;
    Megatron good{{3, 2}, {0, 6}, {0, 2}};
    std::string data = raw(std::vector<uint16_t>{1, 2, 3, 4, 5});
    auto refuse = [&](const std::string &index, const std::string &bin,
                      const std::vector<std::string> &words) {
        write_file(folder / "x.idx", index);
        write_file(folder / "x.bin", bin);
        expect_refused(folder / "x", Z3D_ERR_DATA, words);
    };
    std::string index = good.index();
    refuse("", data, {"x.idx", "empty"});
    refuse("hello", data, {"MMIDIDX"});
    refuse(index.substr(0, 20), data, {"truncated"});
    refuse(index.substr(0, index.size() - 1), data, {"truncated"});
    refuse(index + "x", data, {"wrong size"});
    refuse(index, data.substr(0, 8), {"x.bin", "truncated", "sequence 1"});
    refuse(index, data + "xx", {"x.bin", "wrong size"});
    refuse(index, "", {"x.bin", "truncated"});
    Megatron m = good;
    m.code = 6;
    refuse(m.index(), data, {"type code 6"});
    m = good, m.lengths[1] = -2;
    refuse(m.index(), data, {"sequence 1", "-2"});
    m = good, m.pointers[1] = 5;
    refuse(m.index(), data, {"sequence 1", "byte 5"});
    m = good, m.pointers[1] = INT64_MAX - 1;
    refuse(m.index(), data, {"sequence 1"});
    m = good, m.pointers[1] = -2;
    refuse(m.index(), data, {"sequence 1"});
    m = good, m.documents = {0, 3};
    refuse(m.index(), data, {"document 1"});
    std::string huge = index; // 2^62 sequences
    uint64_t count = uint64_t(1) << 62;
    memcpy(huge.data() + 18, &count, 8);
    refuse(huge, data, {"truncated"});
    count = ~uint64_t(0);
    memcpy(huge.data() + 18, &count, 8);
    refuse(huge, data, {"truncated"});
    refuse(Megatron{{}, {}, {0}}.index(), "", {"no tokens"});
    std::filesystem::remove(folder / "x.bin");
    expect_refused(folder / "x.idx", Z3D_ERR_IO, {"x.bin"});
}

// ---- samples ----

struct Data {
    explicit Data(const std::vector<std::string> &paths, int64_t seq = 4, uint64_t seed = 1,
                  std::vector<double> weights = {}, int32_t vocab = 65536, bool whole = true,
                  bool documents = false, z3d_too_long too_long = Z3D_TOO_LONG_TRUNCATE)
        : weight(std::move(weights)) {
        weight.resize(paths.size(), 1.0);
        for (const std::string &p : paths) path.push_back(p.c_str());
        z3d_data_list list{static_cast<int>(path.size()), path.data(), weight.data()};
        z3d_dataset_config config{&list, seq, vocab, seed, whole, documents, too_long};
        status = z3d_dataset_open(&config, &dataset);
    }
    ~Data() {
        z3d_dataset_close(dataset);
    }
    std::vector<const char *> path;
    std::vector<double> weight;
    z3d_dataset *dataset = nullptr;
    z3d_status status;
};

std::vector<uint16_t> counting(size_t count) {
    std::vector<uint16_t> tokens(count);
    std::iota(tokens.begin(), tokens.end(), uint16_t(0));
    return tokens;
}

TEST(Dataset, SamplesAreWindowsAndTargetsFollowThem) {
    Folder folder;
    write_file(folder / "a.bin", token_bytes(counting(4 * 25 + 3)));
    Data data({folder / "a.bin"});
    ASSERT_EQ(data.status, Z3D_OK) << z3d_error_message();
    std::map<int32_t, int> first;
    for (int64_t k = 0; k < 50; k++) { // two epochs of 25 windows
        int32_t tokens[4], targets[4];
        ASSERT_EQ(z3d_dataset_read(data.dataset, k, tokens, targets, nullptr), Z3D_OK);
        EXPECT_EQ(tokens[0] % 4, 0);
        for (int i = 0; i < 4; i++) {
            EXPECT_EQ(tokens[i], tokens[0] + i);
            EXPECT_EQ(targets[i], tokens[i] + 1);
        }
        first[tokens[0]]++;
        if (k == 24) {
            EXPECT_EQ(first.size(), 25u); // each window once an epoch
        }
    }
    for (auto &[window, times] : first) EXPECT_EQ(times, 2) << window;
}

std::vector<std::pair<int, int64_t>> order(z3d_dataset *dataset, int64_t begin, int64_t end) {
    std::vector<std::pair<int, int64_t>> out;
    for (int64_t k = begin; k < end; k++) {
        z3d_sample_place place;
        z3d_dataset_locate(dataset, k, &place);
        out.emplace_back(place.file, place.window);
    }
    return out;
}

TEST(Dataset, OrderDependsOnSeedAndEpochOnly) {
    Folder folder;
    write_file(folder / "a.bin", token_bytes(counting(4 * 200 + 1)));
    write_file(folder / "b.bin", token_bytes(counting(4 * 200 + 1)));
    Data one({folder / "a.bin"}, 4, 5), same({folder / "b.bin"}, 4, 5),
        other({folder / "a.bin"}, 4, 6);
    auto first = order(one.dataset, 0, 200);
    EXPECT_EQ(first, order(same.dataset, 0, 200)); // where the file lies does not matter
    EXPECT_NE(first, order(other.dataset, 0, 200));
    EXPECT_NE(first, order(one.dataset, 200, 400)); // the next epoch is another order
    auto sorted = first;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_NE(first, sorted);
    // Any stretch gives what the whole gave: a position is all of the state.
    auto middle = order(one.dataset, 37, 91);
    EXPECT_TRUE(std::equal(middle.begin(), middle.end(), first.begin() + 37));
    // Two equal files of one blend are not walked in the same order.
    Data two({folder / "a.bin", folder / "b.bin"}, 4, 5);
    std::vector<int64_t> walk[2];
    for (auto &[file, window] : order(two.dataset, 0, 400)) walk[file].push_back(window);
    EXPECT_EQ(walk[0].size(), 200u);
    EXPECT_EQ(walk[1].size(), 200u);
    EXPECT_NE(walk[0], walk[1]);
}

TEST(Dataset, BlendsByWeight) {
    Folder folder;
    write_file(folder / "a.bin", token_bytes(counting(4 * 10 + 1)));
    write_file(folder / "b.bin", token_bytes(counting(4 * 1000 + 1)));
    Data data({folder / "a.bin", folder / "b.bin"}, 4, 1, {3, 1});
    ASSERT_EQ(data.status, Z3D_OK);
    int count[2] = {};
    std::map<int64_t, int> a;
    for (auto &[file, window] : order(data.dataset, 0, 400)) {
        count[file]++;
        if (file == 0) a[window]++;
    }
    EXPECT_EQ(count[0], 300);
    EXPECT_EQ(count[1], 100);
    EXPECT_EQ(a.size(), 10u);
    for (auto &[window, times] : a) EXPECT_EQ(times, 30); // 30 whole epochs
}

TEST(Dataset, RefusesTooFewTokens) {
    Folder folder;
    write_file(folder / "a.bin", token_bytes(counting(4)));
    Data data({folder / "a.bin"});
    EXPECT_EQ(data.status, Z3D_ERR_DATA);
    EXPECT_EQ(data.dataset, nullptr);
    EXPECT_NE(std::string(z3d_error_message()).find("4 tokens"), std::string::npos)
        << z3d_error_message();
    Data none({});
    EXPECT_EQ(none.status, Z3D_ERR_CONFIG);
    Data missing({folder / "a.bin", folder / "missing"});
    EXPECT_NE(missing.status, Z3D_OK);
}

TEST(Dataset, ChecksAllTokensInParts) {
    Folder folder;
    std::vector<uint16_t> tokens(300000, 1);
    tokens[299999] = 400;
    write_file(folder / "a.bin", token_bytes(std::vector<uint16_t>(10, 1)));
    write_file(folder / "b.bin", token_bytes(tokens));
    for (int parts : {1, 2, 3, 7, 64}) {
        Data data({folder / "a.bin", folder / "b.bin"}, 4, 1, {}, 400);
        int refused = 0;
        int32_t largest = -1;
        for (int part = 0; part < parts; part++) {
            z3d_status status = z3d_dataset_check(data.dataset, part, parts, &largest);
            if (status == Z3D_OK) continue;
            refused++;
            EXPECT_EQ(status, Z3D_ERR_DATA);
            std::string message = z3d_error_message();
            EXPECT_NE(message.find("b.bin: token 299999 is 400"), std::string::npos) << message;
        }
        EXPECT_EQ(refused, 1) << parts;
    }
}

TEST(Dataset, ValidationWindowsCoverEveryTargetOnce) {
    Folder folder;
    write_file(folder / "a.bin", token_bytes(counting(11)));
    write_file(folder / "b.bin", token_bytes(counting(5)));
    Data data({folder / "a.bin", folder / "b.bin"}, 4, 1, {}, 65536, false);
    ASSERT_EQ(data.status, Z3D_OK);
    ASSERT_EQ(z3d_dataset_windows(data.dataset), 3 + 1);
    std::multiset<int32_t> seen;
    int64_t counted = 0;
    for (int64_t w = -1; w < 6; w++) {
        int32_t tokens[4], targets[4];
        ASSERT_EQ(z3d_dataset_window(data.dataset, w, tokens, targets, nullptr), Z3D_OK);
        const auto valid = std::count_if(targets, targets + 4, [](int32_t t) { return t >= 0; });
        for (int i = 0; i < 4; i++) {
            if (i < valid) {
                EXPECT_EQ(targets[i], tokens[i] + 1);
            } else {
                EXPECT_EQ(targets[i], -1);
                EXPECT_EQ(tokens[i], 0);
            }
            if (targets[i] >= 0) seen.insert(targets[i]);
        }
        counted += valid;
        if (w < 0 || w > 3) {
            EXPECT_EQ(valid, 0);
        }
    }
    EXPECT_EQ(counted, 10 + 4);
    EXPECT_EQ(seen, (std::multiset<int32_t>{1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 10}));
}

// ---- samples of documents ----

// Lengths that repeat, each token with a number of its own.
std::vector<std::vector<int32_t>> many_documents() {
    std::vector<std::vector<int32_t>> documents;
    int32_t next = 1;
    for (int i = 0; i < 200; i++) {
        documents.emplace_back(static_cast<size_t>(2 + i * i % 31));
        for (int32_t &id : documents.back()) id = next++;
    }
    return documents;
}

struct Sample {
    std::vector<int32_t> tokens, targets, positions;
};

Sample sample_of(const Data &data, int64_t index, size_t seq) {
    Sample s{std::vector<int32_t>(seq), std::vector<int32_t>(seq), std::vector<int32_t>(seq)};
    EXPECT_EQ(z3d_dataset_read(data.dataset, index, s.tokens.data(), s.targets.data(),
                               s.positions.data()),
              Z3D_OK)
        << z3d_error_message();
    return s;
}

TEST(Documents, EachIsWholeOnceAnEpoch) {
    const size_t seq = 64;
    Folder folder;
    auto documents = many_documents();
    write_documents(folder / "a.bin", documents);
    Data data({folder / "a.bin"}, seq, 1, {}, 65536, true, true);
    ASSERT_EQ(data.status, Z3D_OK) << z3d_error_message();
    z3d_packing_facts facts = z3d_dataset_packing(data.dataset);
    int64_t tokens = 0;
    for (auto &d : documents) tokens += static_cast<int64_t>(d.size());
    EXPECT_EQ(facts.documents, 200);
    EXPECT_EQ(facts.tokens, tokens);
    EXPECT_LE(facts.samples, tokens / 64 + 2); // best fit leaves hardly any room
    std::vector<std::vector<int32_t>> orders;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        std::vector<std::vector<int32_t>> found;
        for (int64_t k = 0; k < facts.samples; k++) {
            Sample s = sample_of(data, epoch * facts.samples + k, seq);
            orders.push_back(s.tokens);
            for (size_t i = 0; i < seq; i++) {
                const bool begins = s.positions[i] == 0;
                ASSERT_TRUE(begins || s.positions[i] == s.positions[i - 1] + 1);
                if (s.tokens[i] == 0) { // the rest: one document, nothing to predict
                    EXPECT_EQ(s.targets[i], -1);
                    continue;
                }
                if (begins) found.emplace_back();
                found.back().push_back(s.tokens[i]);
                const bool ends = i + 1 == seq || s.positions[i + 1] == 0;
                EXPECT_EQ(s.targets[i], ends ? -1 : s.tokens[i] + 1);
            }
        }
        std::sort(found.begin(), found.end());
        EXPECT_EQ(found, documents);
    }
    const auto second = orders.begin() + static_cast<std::ptrdiff_t>(facts.samples);
    EXPECT_FALSE(std::equal(orders.begin(), second, second));
    std::sort(orders.begin(), second);
    std::sort(second, orders.end());
    EXPECT_FALSE(std::equal(orders.begin(), second, second)); // other neighbours, too
    // A position is all of the state, and no sample depends on those before it.
    Data again({folder / "a.bin"}, seq, 1, {}, 65536, true, true);
    EXPECT_EQ(sample_of(again, facts.samples + 3, seq).tokens,
              sample_of(data, facts.samples + 3, seq).tokens);
    Data other({folder / "a.bin"}, seq, 2, {}, 65536, true, true);
    EXPECT_NE(sample_of(other, 0, seq).tokens, sample_of(data, 0, seq).tokens);
}

TEST(Documents, AreTruncatedDroppedOrSplit) {
    Folder folder;
    write_documents(folder / "a.bin", {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {-10, -11}, {12, 13}});
    auto open = [&](z3d_too_long too_long) {
        return Data({folder / "a.bin"}, 4, 1, {}, 65536, true, true, too_long);
    };
    auto all = [&](const Data &data) {
        std::vector<std::vector<int32_t>> rows;
        for (int64_t k = 0; k < z3d_dataset_windows(data.dataset); k++) {
            Sample s = sample_of(data, k, 4);
            rows.push_back(s.tokens);
            rows.back().insert(rows.back().end(), s.targets.begin(), s.targets.end());
        }
        std::sort(rows.begin(), rows.end());
        return rows;
    };
    using Rows = std::vector<std::vector<int32_t>>;
    Data truncated = open(Z3D_TOO_LONG_TRUNCATE), dropped = open(Z3D_TOO_LONG_DROP),
         split = open(Z3D_TOO_LONG_SPLIT);
    EXPECT_EQ(all(truncated), (Rows{{1, 2, 3, 4, 2, 3, 4, -1}, {12, 13, 0, 0, 13, -1, -1, -1}}));
    EXPECT_EQ(all(dropped), (Rows{{12, 13, 0, 0, 13, -1, -1, -1}}));
    // Parts go on: their last token predicts the next one. A part of one token predicts nothing.
    EXPECT_EQ(
        all(split),
        (Rows{{1, 2, 3, 4, 2, 3, 4, 5}, {5, 6, 7, 8, 6, 7, 8, 9}, {12, 13, 0, 0, 13, -1, -1, -1}}));
    z3d_packing_facts facts = z3d_dataset_packing(split.dataset);
    EXPECT_EQ(facts.too_long, 1);
    EXPECT_EQ(facts.untrained, 1);
    EXPECT_EQ(facts.untrained_parts, 1); // of the split one
    int32_t tokens[4], targets[4], positions[4];
    ASSERT_EQ(z3d_dataset_window(dropped.dataset, 0, tokens, targets, positions), Z3D_OK);
    EXPECT_EQ(std::count(targets, targets + 4, -1), 3);
    EXPECT_EQ(std::vector<int32_t>(positions, positions + 4), (std::vector<int32_t>{0, 1, 0, 1}));
    ASSERT_EQ(z3d_dataset_window(dropped.dataset, 1, tokens, targets, positions), Z3D_OK);
    EXPECT_EQ(std::count(targets, targets + 4, -1), 4);
}

TEST(Documents, MaskedTargetsAreIgnoredInWindowsToo) {
    Folder folder;
    write_documents(folder / "a.bin", {{-1, -2, 3, 4, 256}, {-5, 6, 256}});
    Data windows({folder / "a.bin"}, 7);
    Sample s = sample_of(windows, 0, 7);
    EXPECT_EQ(s.tokens, (std::vector<int32_t>{1, 2, 3, 4, 256, 5, 6}));
    EXPECT_EQ(s.targets, (std::vector<int32_t>{-1, 3, 4, 256, -1, 6, 256}));
    EXPECT_EQ(s.positions, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6}));
    Data documents({folder / "a.bin"}, 9, 1, {}, 65536, true, true);
    s = sample_of(documents, 0, 9);
    EXPECT_EQ(s.tokens, (std::vector<int32_t>{1, 2, 3, 4, 256, 5, 6, 256, 0}));
    EXPECT_EQ(s.targets, (std::vector<int32_t>{-1, 3, 4, 256, -1, 6, 256, -1, -1}));
    EXPECT_EQ(s.positions, (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2, 0}));
}

TEST(Documents, OfMegatronLMsPairsAreThoseOfItsIndex) {
    Folder folder;
    // Sequences in another order in the .bin; documents of two, none, one and one of them.
    Megatron m{{3, 2, 1, 3}, {6, 0, 4, 12}, {0, 2, 2, 3, 4}};
    write_file(folder / "x.idx", m.index());
    write_file(folder / "x.bin", raw(std::vector<uint16_t>{8, 9, 10, 5, 6, 7, 11, 12, 13}));
    Data data({folder / "x"}, 8, 1, {}, 65536, true, true);
    ASSERT_EQ(data.status, Z3D_OK) << z3d_error_message();
    z3d_packing_facts facts = z3d_dataset_packing(data.dataset);
    EXPECT_EQ(facts.documents, 3);
    EXPECT_EQ(facts.untrained, 1); // of one token
    Sample s = sample_of(data, 0, 8);
    EXPECT_EQ(s.tokens, (std::vector<int32_t>{5, 6, 7, 8, 9, 11, 12, 13}));
    EXPECT_EQ(s.targets, (std::vector<int32_t>{6, 7, 8, 9, -1, 12, 13, -1}));
    EXPECT_EQ(s.positions, (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 1, 2}));
    m.documents = {1, 4}; // whose is the first one?
    write_file(folder / "x.idx", m.index());
    EXPECT_EQ(Data({folder / "x"}, 8, 1, {}, 65536, true, true).status, Z3D_ERR_DATA);
    EXPECT_NE(std::string(z3d_error_message()).find("document 0 begins at token 3"),
              std::string::npos)
        << z3d_error_message();
}

TEST(Documents, AreRefusedWhereNothingIsKnownOrLeft) {
    Folder folder;
    write_file(folder / "a.bin", token_bytes(counting(100)));
    Data unknown({folder / "a.bin"}, 4, 1, {}, 65536, true, true);
    EXPECT_EQ(unknown.status, Z3D_ERR_DATA);
    std::string message = z3d_error_message();
    EXPECT_NE(message.find("a.bin: it does not say where its documents begin"), std::string::npos)
        << message;
    write_documents(folder / "b.bin", {{1, 2, 3, 4, 5}, {-6, -7}});
    Data nothing({folder / "b.bin"}, 4, 1, {}, 65536, true, true, Z3D_TOO_LONG_DROP);
    EXPECT_EQ(nothing.status, Z3D_ERR_DATA);
    message = z3d_error_message();
    EXPECT_NE(message.find("of 2 documents 1 have more than model.seq_length (4) tokens, and 1"),
              std::string::npos)
        << message;
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
