// GPT-2's tokenizer against others: tests/data/gpt2_tiny/encodings.txt was made by Hugging Face's
// `tokenizers` and by `tiktoken` with `regex` (tests/data/make-gpt2-fixture.py).
#include <gtest/gtest.h>

#include <sstream>

extern "C" {
#include "src/train/data.h"
#include "src/train/text/bpe.h"
}
#include "files.h"
#include "text.h"

namespace {

const std::string fixture = ZERO3D_TEST_DATA "/gpt2_tiny";

struct Gpt2Tokenizer : Tokenizer {
    explicit Gpt2Tokenizer(const std::string &vocab = fixture, const char *merges = nullptr)
        : Tokenizer(Z3D_TOKENIZER_GPT2, vocab, merges) {}
};

std::string without_marks(std::string text) {
    const std::string mark = "<|endoftext|>";
    for (size_t at; (at = text.find(mark)) != std::string::npos;) text.erase(at, mark.size());
    return text;
}

TEST(Gpt2, EncodesLikeOthersAndBack) {
    Gpt2Tokenizer t;
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(t.tokenizer->vocab_size, 557);
    EXPECT_EQ(t.tokenizer->end_of_text, 556);
    std::istringstream lines(read_file(fixture + "/encodings.txt"));
    int texts = 0, number = 0;
    for (std::string line; std::getline(lines, line); texts++) {
        std::istringstream in(line);
        std::string hex;
        in >> hex;
        std::vector<int32_t> wanted;
        for (int32_t id; in >> id;) wanted.push_back(id);
        std::string text = from_hex(hex);
        for (int time = 0; time < 2; time++) // the second one from what is remembered
            ASSERT_EQ(t.encode(text), wanted) << "line " << texts + 1 << ": " << text;
        EXPECT_EQ(t.decode(wanted), without_marks(text)) << "line " << texts + 1;
        number += static_cast<int>(wanted.size());
    }
    EXPECT_GT(texts, 70);
    EXPECT_GT(number, 2000);
}

// The words themselves, by `regex`: where one ends does not always show in the tokens.
TEST(Gpt2, WordsAreThoseOfThePattern) {
    std::istringstream lines(read_file(fixture + "/words.txt"));
    int words = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream in(line);
        std::vector<std::string> wanted, found;
        std::string text;
        for (std::string hex; in >> hex; text += wanted.back()) wanted.push_back(from_hex(hex));
        for (size_t at = 0; at < text.size(); at += found.back().size())
            found.push_back(text.substr(at, z3d_gpt2_word(&text[at], text.size() - at)));
        EXPECT_EQ(found, wanted) << text;
        words += static_cast<int>(wanted.size());
    }
    EXPECT_GT(words, 300);
}

TEST(Gpt2, LongWordsAndAnyBytesComeBack) {
    Gpt2Tokenizer t;
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    std::string text = random_bytes(200000);
    for (const std::string &s : {text, std::string(1 << 20, 'e'), std::string(100000, ' ')}) {
        std::vector<int32_t> ids = t.encode(s);
        EXPECT_TRUE(t.decode(ids) == s);
        EXPECT_LE(ids.size(), s.size());
    }
    z3d_string out = {};
    for (int32_t bad : {-1, 557})
        EXPECT_EQ(z3d_tokenizer_decode(t.tokenizer, &bad, 1, true, &out), Z3D_ERR_DATA);
    z3d_string_free(&out);
}

TEST(Gpt2, FilesAreFoundByFolderByFileAndByName) {
    Folder folder;
    std::string merges = folder / "other/m.txt";
    write_file(merges, read_file(fixture + "/merges.txt"));
    EXPECT_EQ(Gpt2Tokenizer(fixture + "/vocab.json").status, Z3D_OK);
    EXPECT_EQ(Gpt2Tokenizer(fixture + "/vocab.json", merges.c_str()).status, Z3D_OK);
    EXPECT_EQ(Gpt2Tokenizer(fixture, merges.c_str()).status, Z3D_OK);
    EXPECT_EQ(Gpt2Tokenizer("").status, Z3D_ERR_CONFIG);
    Gpt2Tokenizer none(folder.path);
    EXPECT_EQ(none.status, Z3D_ERR_IO);
    EXPECT_NE(none.message.find(folder / "tokenizer.json"), std::string::npos) << none.message;
}

// What is said of a vocab.json or merges.txt that `from` was replaced in by `to` (all of it when
// `from` is empty).
class Hostile : public ::testing::Test {
  protected:
    void expect_refused(const std::string &name, const std::string &from, const std::string &to,
                        const std::string &what) {
        for (const char *file : {"vocab.json", "merges.txt"})
            write_file(folder / file, read_file(fixture + "/" + file));
        std::string text = read_file(folder / name);
        size_t at = from.empty() ? 0 : text.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        text.replace(at, from.empty() ? text.size() : from.size(), to);
        write_file(folder / name, text);
        Gpt2Tokenizer t(folder.path);
        EXPECT_EQ(t.status, Z3D_ERR_DATA);
        EXPECT_NE(t.message.find((folder / name) + what), std::string::npos) << t.message;
    }
    Folder folder;
};

TEST_F(Hostile, VocabIsRefusedWithItsLine) {
    expect_refused("vocab.json", "", "", ":1: byte 0: the text ends");
    expect_refused("vocab.json", "", "[1]", ":1: not a vocabulary");
    expect_refused("vocab.json", "\"%\": 4", "\n\"%\": -4", ":2: a token without an id");
    expect_refused("vocab.json", "\"%\": 4", "\n\n\"%\": 557",
                   ":3: the token with id 557 is too large");
    expect_refused("vocab.json", "\"%\": 4", "\"%\": 1e2", ":1: a token without an id");
    expect_refused("vocab.json", "\"%\": 4", "\"%\": \"4\"", ":1: a token without an id");
    expect_refused("vocab.json", "\"%\": 4", "\"%\": 5", ":1: the token with id 5 is not the only");
    expect_refused("vocab.json", "\"%\": 4", "\"#\": 4",
                   ":1: the token with id 4 has the same text");
    expect_refused("vocab.json", "\"%\": 4", "\"\": 4", ":1: the token with id 4 has a character");
    expect_refused("vocab.json", "\"%\": 4", "\"\\u65e5\": 4", ":1: the token with id 4 has a");
    expect_refused("vocab.json", "\"%\": 4", "\"\\u0144\": 4", ":1: the token with id 4 has a");
    expect_refused("vocab.json", "\"%\": 4", "\"%%\": 4", ": no token for byte 37");
    expect_refused("vocab.json", "<|endoftext|>", "<|end|>", ": no token <|endoftext|>");
    expect_refused("vocab.json", "\"%\": 4", "\"%: 4", ":1: byte ");
}

TEST_F(Hostile, MergesAreRefusedWithTheirLine) {
    std::string text = read_file(fixture + "/merges.txt");
    std::string first = text.substr(14, text.find('\n', 14) - 14);
    expect_refused("merges.txt", first, "ab", ":2: expected two tokens");
    expect_refused("merges.txt", first, "zqj a", ":2: its first token is not");
    expect_refused("merges.txt", first, "a zqj", ":2: its second token is not");
    expect_refused("merges.txt", first, "a ", ":2: its second token is not");
    expect_refused("merges.txt", first, " a", ":2: its first token is not");
    expect_refused("merges.txt", first, "a b c", ":2: its second token is not");
    expect_refused("merges.txt", first, "~ ~", ":2: the merged token is not");
    expect_refused("merges.txt", first, "a \xc4", ":2: its second token is not");
    expect_refused("merges.txt", first, "a \xff", ":2: its second token is not");
    expect_refused("merges.txt", first, first + "\n" + first, ":3: the same two tokens");
    expect_refused("merges.txt", "", std::string("a\0b", 3), ":1: expected two tokens");
    // Cut off at the end of a line: nothing is wrong with what is left. A few tokens may be
    // special.
    size_t half = text.find('\n', text.size() / 2) + 1,
           last = text.rfind('\n', text.size() - 2) + 1;
    expect_refused("merges.txt", text.substr(half), "", ": 1");
    expect_refused("merges.txt", "", "#version: 0.2\n", ": 300 of the 557 tokens");
    write_file(folder / "merges.txt", text.substr(0, last));
    EXPECT_EQ(Gpt2Tokenizer(folder.path).status, Z3D_OK);
}

TEST_F(Hostile, WindowsLinesAndNoVersionAreFine) {
    std::string merges = read_file(fixture + "/merges.txt"), windows;
    for (char c : merges.substr(merges.find('\n') + 1))
        windows += c == '\n' ? "\r\n" : std::string(1, c);
    write_file(folder / "vocab.json", read_file(fixture + "/vocab.json"));
    write_file(folder / "merges.txt", windows);
    Gpt2Tokenizer t(folder.path), plain;
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(t.encode(merges), plain.encode(merges));
}

// tokenizer.json, with the same vocabulary and merges: as `tokenizers` 0.13 writes it (merges as
// "left right", the end in the vocabulary) and as 0.20 does (pairs, the end only added).
class OneFile : public ::testing::Test {
  protected:
    void SetUp() override {
        std::string vocab = read_file(fixture + "/vocab.json"), lines, pairs;
        std::istringstream in(read_file(fixture + "/merges.txt"));
        std::string line;
        std::getline(in, line);
        while (std::getline(in, line)) {
            std::string text;
            for (char c : line)
                text += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
            size_t space = text.find(' ');
            lines += (lines.empty() ? "\"" : ",\n\"") + text + "\"";
            pairs += (pairs.empty() ? "[\"" : ",\n[\"") + text.substr(0, space) + "\",\"" +
                     text.substr(space + 1) + "\"]";
        }
        const std::string end = ", \"<|endoftext|>\": 556";
        std::string without = vocab;
        ASSERT_NE(without.find(end), std::string::npos);
        without.erase(without.find(end), end.size());
        old_kind = head +
                   "\"model\": {\"dropout\": null, \"unk_token\": null, "
                   "\"continuing_subword_prefix\": \"\", \"end_of_word_suffix\": \"\", "
                   "\"fuse_unk\": false, \"vocab\": " +
                   vocab + ", \"merges\": [" + lines + "]}}";
        new_kind = head +
                   "\"model\": {\"type\": \"BPE\", \"byte_fallback\": false, "
                   "\"ignore_merges\": false, \"vocab\": " +
                   without + ", \"merges\": [" + pairs + "]}}";
    }
    const std::string head =
        "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
        "\"added_tokens\": [{\"id\": 556, \"content\": \"<|endoftext|>\", \"single_word\": false, "
        "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}],\n"
        "\"normalizer\": null,\n"
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true},\n"
        "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
        "\"trim_offsets\": false},\n"
        "\"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": "
        "true},\n";
    std::string old_kind, new_kind;
    Folder folder;
};

TEST_F(OneFile, IsTheTokenizerOfTheTwo) {
    Gpt2Tokenizer two;
    for (const std::string &text : {old_kind, new_kind}) {
        write_file(folder / "tokenizer.json", text);
        Gpt2Tokenizer by_folder(folder.path), by_name(folder / "tokenizer.json");
        ASSERT_EQ(by_folder.status, Z3D_OK) << by_folder.message;
        ASSERT_EQ(by_name.status, Z3D_OK) << by_name.message;
        EXPECT_EQ(by_name.tokenizer->vocab_size, 557);
        EXPECT_EQ(by_name.tokenizer->end_of_text, 556);
        std::istringstream lines(read_file(fixture + "/encodings.txt"));
        for (std::string line, hex; std::getline(lines, line);) {
            std::istringstream(line) >> hex;
            EXPECT_EQ(by_folder.encode(from_hex(hex)), two.encode(from_hex(hex))) << line;
        }
        Gpt2Tokenizer both(folder / "tokenizer.json", (fixture + "/merges.txt").c_str());
        EXPECT_EQ(both.status, Z3D_ERR_CONFIG);
        EXPECT_NE(both.message.find("has its own merges"), std::string::npos) << both.message;
    }
}

TEST_F(OneFile, EndsTextsWithGpt2sToken) {
    std::string text = new_kind;
    text.replace(text.find("<|endoftext|>"), 13, "</s>");
    write_file(folder / "tokenizer.json", text);
    Gpt2Tokenizer t(folder.path);
    EXPECT_EQ(t.status, Z3D_ERR_DATA);
    EXPECT_NE(t.message.find("set data.tokenizer to huggingface"), std::string::npos) << t.message;
}

TEST(Gpt2, TokenFilesHoldItsTokens) {
    Folder folder;
    std::string input = folder / "text", output = folder / "train.bin";
    const std::string text = "It's a text.\n\nGr\xc3\xb6\xc3\x9f"
                             "e<|endoftext|>two";
    write_file(input, text);
    Gpt2Tokenizer t;
    const char *name = input.c_str();
    z3d_tokenize_options options{};
    options.inputs = &name, options.count = 1;
    options.output_train = output.c_str(), options.tokenizer = t.tokenizer;
    z3d_tokenize_result result;
    ASSERT_EQ(z3d_data_tokenize(&options, &result), Z3D_OK) << z3d_error_message();
    std::vector<int32_t> wanted = t.encode(text);
    wanted.push_back(556);
    EXPECT_EQ(result.vocab_size, 557);
    std::vector<uint16_t> narrow(wanted.begin(), wanted.end());
    const std::string tokens = token_bytes(narrow).substr(1024); // behind them borders
    EXPECT_TRUE(read_file(output).substr(1024, tokens.size()) == tokens);
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
