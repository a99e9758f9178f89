// `zero3d data tokenize`: what becomes a document, what is left out, what is held out.
#include <gtest/gtest.h>

#include <sys/inotify.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <map>
#include <set>

extern "C" {
#include "src/train/data.h"
#include "src/train/text/text_files.h"
}
#include "files.h"
#include "text.h"

namespace {

struct Tokenized {
    z3d_status status;
    z3d_tokenize_result result;
    std::string message, summary;
};

class Tokenize : public ::testing::Test {
  protected:
    Tokenized run(const std::vector<std::string> &inputs, double fraction = 0,
                  z3d_tokenize_split split = Z3D_SPLIT_HASH, int64_t limit = 0) {
        std::vector<const char *> names;
        for (const std::string &i : inputs) names.push_back(i.c_str());
        train = out / "sub/train.bin", validation = out / "sub/val.bin";
        z3d_tokenize_options options{};
        options.inputs = names.data();
        options.count = static_cast<int>(names.size());
        options.output_train = train.c_str();
        options.output_validation = fraction > 0 ? validation.c_str() : nullptr;
        options.validation_fraction = fraction;
        options.limit_bytes = limit;
        options.split = split;
        options.json_key = json_key;
        options.skip_bad = skip_bad;
        options.format = format;
        options.loss_on = loss_on;
        options.chat_template = chat_template;
        options.tokenizer = tokenizer;
        options.progress = [](void *self, const z3d_tokenize_progress *p) {
            static_cast<Tokenize *>(self)->progress.push_back(*p);
        };
        options.context = this;
        progress.clear();
        Tokenized t;
        t.status = z3d_data_tokenize(&options, &t.result);
        t.message = t.status == Z3D_OK ? "" : z3d_error_message();
        if (t.status == Z3D_OK) {
            z3d_string summary = {};
            z3d_tokenize_summary(&options, &t.result, &summary);
            t.summary = summary.text;
            EXPECT_NE(t.summary.find(train), std::string::npos);
            z3d_string_free(&summary);
        }
        return t;
    }
    std::vector<int32_t> ids(const std::string &path) {
        z3d_token_file *file = nullptr;
        EXPECT_EQ(z3d_token_file_open(path.c_str(), &file), Z3D_OK) << z3d_error_message();
        std::vector<int32_t> all(static_cast<size_t>(file->tokens));
        EXPECT_EQ(
            z3d_token_file_read(file, 0, static_cast<int64_t>(all.size()), 1 << 20, all.data()),
            Z3D_OK);
        z3d_token_file_close(file);
        return all;
    }
    // Documents of a token file: its stretches between end-of-text tokens.
    std::vector<std::string> documents(const std::string &path) {
        std::vector<std::string> found(1);
        for (int32_t id : ids(path))
            if (id == 256)
                found.emplace_back();
            else
                found.back().push_back(static_cast<char>(id));
        EXPECT_EQ(found.back(), ""); // every document ends with the token
        found.pop_back();
        return found;
    }
    bool only_outputs_left(size_t count) {
        size_t found = 0;
        for (auto &entry : std::filesystem::directory_iterator(out / "sub")) {
            (void)entry;
            found++;
        }
        return found == count;
    }
    Folder in, out;
    std::string train, validation;
    const char *json_key = nullptr;
    bool skip_bad = false;
    z3d_tokenize_format format = Z3D_FORMAT_AUTO;
    z3d_loss_on loss_on = Z3D_LOSS_AUTO;
    const char *chat_template = nullptr;
    z3d_tokenizer *tokenizer = nullptr;
    std::vector<z3d_tokenize_progress> progress;
};

TEST_F(Tokenize, TakesTextAndLeavesOutTheRest) {
    write_file(in / "b.txt", "hello\n");
    write_file(in / "a/x.txt", "gr\xc3\xbc\xc3\x9f dich");
    write_file(in / "a/copy.txt", "hello\n");
    write_file(in / "a/latin1.txt", std::string(900, 'a') + std::string(90, '\xe4')); // 9 % faults
    write_file(in / "binary", std::string("ab\0cd", 5));
    write_file(in / "noise", std::string(50, 'a') + std::string(50, '\xff'));
    write_file(in / "empty", "");
    write_file(in / ".git/config", "hidden");
    write_file(in / "unreadable", "x");
    std::filesystem::create_symlink("..", in / "a/loop");
    std::filesystem::create_symlink("nowhere", in / "broken");
    ASSERT_EQ(mkfifo((in / "pipe").c_str(), 0600), 0);
    Tokenized t = run({in.path});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(t.result.skipped_duplicate, 1);
    EXPECT_EQ(t.result.skipped_binary, 1);
    EXPECT_EQ(t.result.skipped_encoding, 2);
    EXPECT_EQ(t.result.skipped_empty, 1);
    EXPECT_EQ(t.result.skipped_unreadable, 2);
    EXPECT_NE(t.summary.find("duplicate files: " + in / "b.txt" + "\n"), std::string::npos)
        << t.summary;
    EXPECT_EQ(t.result.files, 3);
    // In name order: a/copy.txt comes before b.txt, which is its copy.
    EXPECT_EQ(documents(train),
              (std::vector<std::string>{"hello\n", "gr\xc3\xbc\xc3\x9f dich", "x"}));
    EXPECT_EQ(t.result.train_tokens, 6 + 11 + 1 + 3);
    EXPECT_TRUE(only_outputs_left(1));
}

std::string paragraphs(int count) {
    std::string text;
    for (int i = 0; i < count; i++)
        text += "paragraph " + std::to_string(i) + "\n" + std::string(80, 'a' + i % 26) + "\n\n";
    return text;
}

// However long its text, its lines and its repetitions.
TEST_F(Tokenize, ATextFileIsOneDocumentWithEveryByteOnce) {
    std::string euros, poem;
    for (int i = 0; i < 400000; i++) // no line at all, more than is read at once
        euros += i % 7 ? "\xe2\x82\xac" : std::to_string(i);
    for (int i = 0; i < 40; i++) poem += std::string(1000, 'o') + "\n";
    const std::vector<std::string> texts = {
        paragraphs(20000), euros, poem, std::string(25890, 'x') + "\n", std::string(3000000, '\n')};
    for (size_t i = 0; i < texts.size(); i++) write_file(in / std::to_string(i), texts[i]);
    Tokenized t = run({in.path});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_TRUE(documents(train) == texts);
    EXPECT_EQ(t.result.documents, static_cast<int64_t>(texts.size()));
    EXPECT_EQ(t.result.duplicate_documents, 0);
}

// Of each tokenizer: the tokens of a text that is read in parts are those of the whole text.
TEST_F(Tokenize, PartsOfATextHaveTheTokensOfTheWhole) {
    const std::string lines[] = {"The quick brown fox.",
                                 "jumps over the lazy dog",
                                 "  indented, with 12345 numbers",
                                 "",
                                 "\tif (x == 3) return y;",
                                 "\xe3\x80\x80\xe6\xbc\xa2\xe5\xad\x97\xe3\x80\x82",
                                 "trailing space ",
                                 "I'm sure they'll say so.",
                                 "\xc2\xa0no-break",
                                 "caf\xc3\xa9 na\xc3\xafve"};
    std::string text;
    uint32_t state = 1;
    for (int i = 0; i < 4000; i++) {
        state = state * 1664525u + 1013904223u;
        text += lines[(state >> 16) % 10] + (state >> 30 ? "\n" : "\r\n");
    }
    write_file(in / "text", text);
    for (const char *family :
         {"deepseek", "gemma", "gpt2", "llama2", "llama3", "mistral", "qwen", "smollm"}) {
        SCOPED_TRACE(family);
        Tokenizer own(Z3D_TOKENIZER_HUGGINGFACE,
                      std::string(ZERO3D_TEST_DATA "/tokenizers/") + family);
        ASSERT_EQ(own.status, Z3D_OK) << own.message;
        tokenizer = own.tokenizer;
        Tokenized t = run({in / "text"}, 0.3);
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        EXPECT_GT(t.result.validation_tokens, 100);
        std::vector<int32_t> both = ids(train), tail = ids(validation);
        const bool begins = own.tokenizer->begin_of_text >= 0 &&
                            own.tokenizer->begin_of_text != own.tokenizer->end_of_text;
        EXPECT_EQ(both.back(), own.tokenizer->end_of_text);
        EXPECT_EQ(begins, both.front() == own.tokenizer->begin_of_text);
        both.pop_back(); // the cut ends a document there, and begins one here
        both.insert(both.end(), tail.begin() + begins, tail.end());
        z3d_token_list whole = {};
        ASSERT_EQ(z3d_tokenizer_part(own.tokenizer, text.data(), text.size(), true, true, &whole),
                  Z3D_OK);
        EXPECT_TRUE(both == std::vector<int32_t>(whole.id, whole.id + whole.count));
        z3d_token_list_free(&whole);
    }
}

// o200k's words may have a line's end and a slash: no part ends between them.
TEST_F(Tokenize, NoPartEndsWithinAWord) {
    write_file(in / "v/tokenizer.json",
               R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                    {"type": "Split", "behavior": "Isolated", "invert": false, "pattern":
                     {"Regex": " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\p{L}+|\\s+"}},
                    {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]},
                   "decoder": {"type": "ByteLevel"},
                   "added_tokens": [{"id": 6, "content": "</s>", "special": true}],
                   "model": {"type": "BPE", "vocab": {"a": 0, "!": 1, "\u010a": 2, "/": 3,
                     "!\u010a": 4, "!\u010a/": 5}, "merges": ["! \u010a", "!\u010a /"]}})");
    Tokenizer own(Z3D_TOKENIZER_HUGGINGFACE, in / "v");
    ASSERT_EQ(own.status, Z3D_OK) << own.message;
    tokenizer = own.tokenizer;
    std::string text;
    for (int i = 0; i < 6000; i++) text += i % 5 ? "a!\n/a" : "a!\n/a\n";
    write_file(in / "text", text);
    ASSERT_EQ(run({in / "text"}, 0.5).status, Z3D_OK);
    std::vector<int32_t> all = ids(train), tail = ids(validation);
    all.insert(all.end(), tail.begin(), tail.end());
    EXPECT_EQ(std::count(all.begin(), all.end(), 5), 6000);
}

TEST_F(Tokenize, HoldsOutDocumentsThatAreInNoOther) {
    for (int i = 0; i < 400; i++)
        write_file(in / ("f" + std::to_string(i)), "document " + std::to_string(i % 300));
    for (auto split : {Z3D_SPLIT_HASH, Z3D_SPLIT_TAIL}) {
        Tokenized t = run({in.path}, 0.2, split);
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        auto a = documents(train), b = documents(validation);
        EXPECT_EQ(a.size() + b.size(), 300u);
        EXPECT_EQ(t.result.skipped_duplicate, 100);
        EXPECT_NEAR(static_cast<double>(b.size()), 60, split == Z3D_SPLIT_TAIL ? 0 : 25);
        std::set<std::string> seen(a.begin(), a.end());
        for (const std::string &d : b) EXPECT_EQ(seen.count(d), 0u) << d;
        EXPECT_EQ(static_cast<size_t>(t.result.train_documents), a.size());
        EXPECT_EQ(static_cast<size_t>(t.result.validation_documents), b.size());
        EXPECT_TRUE(only_outputs_left(2));
    }
}

TEST_F(Tokenize, HashSplitDoesNotDependOnOrder) {
    for (int i = 0; i < 100; i++)
        write_file(in / ("f" + std::to_string(i)), "document " + std::to_string(i));
    ASSERT_EQ(run({in.path}, 0.3).status, Z3D_OK);
    auto first = documents(validation);
    Folder other;
    for (int i = 0; i < 100; i++)
        write_file(other / ("g" + std::to_string(99 - i)), "document " + std::to_string(i));
    ASSERT_EQ(run({other.path}, 0.3).status, Z3D_OK);
    auto second = documents(validation);
    EXPECT_EQ(std::set<std::string>(first.begin(), first.end()),
              std::set<std::string>(second.begin(), second.end()));
}

// One file, or files too unequal to give the share: the end of one, from a line on.
TEST_F(Tokenize, TheEndOfAFileIsHeldOutWhereWholeDocumentsCannotBe) {
    const std::string big = paragraphs(3000), small = "a short one\n";
    write_file(in / "a", big);
    for (bool two : {false, true})
        for (auto split : {Z3D_SPLIT_HASH, Z3D_SPLIT_TAIL}) {
            if (two) write_file(in / "b", small);
            Tokenized t = run({in.path}, 0.1, split);
            ASSERT_EQ(t.status, Z3D_OK) << t.message;
            auto a = documents(train), b = documents(validation);
            ASSERT_EQ(a.size(), 1u);
            ASSERT_EQ(b.size(), two ? 2u : 1u);
            EXPECT_TRUE(a[0] + b[0] == big);
            EXPECT_EQ(a[0].back(), '\n');
            EXPECT_NEAR(static_cast<double>(b[0].size()), 0.1 * big.size(), 0.01 * big.size());
            EXPECT_EQ(t.result.documents, two ? 2 : 1);
            EXPECT_EQ(t.result.train_documents, 1);
            EXPECT_EQ(t.result.validation_documents, two ? 2 : 1);
            EXPECT_EQ(std::string(t.result.cut_file), in / "a");
            EXPECT_NE(t.summary.find("the end of " + (in / "a")), std::string::npos) << t.summary;
        }
    // Documents of about the share stay whole.
    for (int i = 0; i < 9; i++) write_file(in / ("c" + std::to_string(i)), big + std::to_string(i));
    Tokenized t = run({in.path}, 0.1, Z3D_SPLIT_TAIL);
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(documents(validation), (std::vector<std::string>{big + "8"}));
    EXPECT_EQ(t.result.cut_file[0], 0);
}

// Whatever its lines begin and end with.
TEST_F(Tokenize, AnyTextWithLinesCanBeHeldOut) {
    for (const char *line : {"- a point of some words\n", "A paragraph of some words.\n\n",
                             "A line of some words.\r\n", "  one more\n"}) {
        std::string text;
        for (int i = 0; i < 400; i++) text += line;
        write_file(in / "a", text);
        Tokenized t = run({in / "a"}, 0.1);
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        auto a = documents(train), b = documents(validation);
        EXPECT_TRUE(a.size() == 1 && b.size() == 1 && a[0] + b[0] == text);
        EXPECT_NEAR(static_cast<double>(b[0].size()), 0.1 * text.size(), 0.05 * text.size());
    }
}

// JSON lines are never cut: each is a sample.
TEST_F(Tokenize, JsonLinesStayWhole) {
    json_key = "text";
    std::string text;
    for (int i = 0; i < 2000; i++) text += "line " + std::to_string(i) + "\\n";
    write_file(in / "a.jsonl", "{\"text\": \"" + text + "\"}\n{\"text\": \"short\"}\n");
    Tokenized t = run({in / "a.jsonl"}, 0.1);
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(documents(train).size() + documents(validation).size(), 2u);
    EXPECT_EQ(t.result.cut_file[0], 0);
}

TEST_F(Tokenize, TwoDocumentsGiveOneToEachSide) {
    write_file(in / "a", "one");
    write_file(in / "b", "two");
    for (auto split : {Z3D_SPLIT_HASH, Z3D_SPLIT_TAIL})
        for (double fraction : {0.001, 0.999}) {
            Tokenized t = run({in.path}, fraction, split);
            ASSERT_EQ(t.status, Z3D_OK) << t.message;
            EXPECT_EQ(t.result.train_documents, 1);
            EXPECT_EQ(t.result.validation_documents, 1);
        }
}

TEST_F(Tokenize, JsonLinesAreOneDocumentEach) {
    const std::string big(100000, 'x'); // more than a document of a text file
    write_file(in / "sub/a.jsonl",
               "\xef\xbb\xbf{\"id\": 1, \"text\": \"one\\ntwo\\n\\n\\u00e4 \\ud83d\\ude00 "
               "\\\"{}\\\"\"}\r\n"
               "\n"
               "{\"text\": \"gr\xc3\xbc\xc3\x9f\", \"meta\": {\"text\": \"inner\"}}\n"
               "  \t\n"
               "{\"text\": \"\"}\n"
               "{\"text\": \"" +
                   big +
                   "\"}\n"
                   "{\"text\": \"gr\xc3\xbc\xc3\x9f\"}\n"
                   "{\"text\": \"no newline\"}");
    write_file(in / "sub/b.NDJSON", "{\"text\": \"b\"}");
    write_file(in / "sub/c.txt", "{\"text\": \"as it is\"}");
    json_key = "text";
    Tokenized t = run({in.path});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(documents(train),
              (std::vector<std::string>{"one\ntwo\n\n\xc3\xa4 \xf0\x9f\x98\x80 \"{}\"",
                                        "gr\xc3\xbc\xc3\x9f", big, "no newline", "b",
                                        "{\"text\": \"as it is\"}"}));
    EXPECT_EQ(t.result.files, 3);
    EXPECT_EQ(t.result.empty_documents, 1);
    EXPECT_EQ(t.result.duplicate_documents, 1);
    EXPECT_TRUE(only_outputs_left(1));
}

TEST_F(Tokenize, LinesLongerThanTheBufferAreWhole) {
    std::string lines;
    std::vector<std::string> wanted;
    for (size_t length : {1u << 20, 5u, (1u << 20) - 12, (3u << 20) + 1, 7u, 1u << 19, 1u << 19}) {
        wanted.push_back(std::string(length, 'a' + static_cast<char>(wanted.size())));
        lines += "{\"text\":\"" + wanted.back() + "\"}\n";
    }
    write_file(in / "a.jsonl", lines);
    json_key = "text";
    Tokenized t = run({in / "a.jsonl"});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_TRUE(documents(train) == wanted);
}

TEST_F(Tokenize, BadJsonLinesAreNamedAndLeaveNothing) {
    auto refused = [&](const std::string &line, const std::string &what) {
        write_file(in / "a.jsonl", "{\"text\": \"good\"}\n\n" + line + "\n{\"text\": \"good\"}\n");
        Tokenized t = run({in.path}, 0.5);
        EXPECT_EQ(t.status, Z3D_ERR_DATA) << line;
        EXPECT_NE(t.message.find("a.jsonl:3: " + what), std::string::npos) << t.message;
        EXPECT_TRUE(only_outputs_left(0));
    };
    json_key = "text";
    refused("{\"text\": \"a\"", "byte 12: ");
    refused("{\"text\": \"a\"} {}", "byte 14: ");
    refused("plain", "byte 0: ");
    refused("{\"text\": \"\\ud800\\u00g0\"}", "byte ");
    refused("{\"te\\u0000xt\": \"a\"}", "byte ");
    refused("{\"text\": \"\xff\"}", "it is not UTF-8; it looks like Latin-1");
    refused(std::string("{\"text\": \"a\0b\"}", 16), "byte ");
    refused("{\"body\": \"a\", \"id\": 1}",
            "--json-key text: this line has no such key; it has: body, id");
    refused("{}", "--json-key text: this line has no such key; it has none");
    refused("{\"a\":1,\"b\":1,\"c\":1,\"d\":1,\"e\":1,\"f\":1}",
            "--json-key text: this line has no such key; it has: a, b, c, d, e, ...");
    refused("{\"text\": 3}", "--json-key text: its value is not a string");
    refused("[\"text\"]", "--json-key text: expected a JSON object");
}

TEST_F(Tokenize, JsonLinesNeedTheirKeyAndTheKeyJsonLines) {
    write_file(in / "sub/a.jsonl", "{\"body\": \"x\"}\n");
    Tokenized t = run({in.path});
    EXPECT_EQ(t.status, Z3D_ERR_USAGE);
    EXPECT_NE(t.message.find("sub/a.jsonl has objects in JSON"), std::string::npos) << t.message;
    EXPECT_NE(t.message.find("(their keys: body); "), std::string::npos) << t.message;
    write_file(in / "b.txt", "text");
    json_key = "body";
    std::filesystem::remove_all(in / "sub");
    t = run({in.path});
    EXPECT_EQ(t.status, Z3D_ERR_USAGE);
    EXPECT_NE(t.message.find("there is no JSON in "), std::string::npos) << t.message;
    t = run({in / "b.txt"});
    EXPECT_NE(t.message.find("there is no JSON in "), std::string::npos) << t.message;
    EXPECT_TRUE(only_outputs_left(0));
}

// Megatron's my-corpus.json: a file that is named has JSON lines if there is a key. A text stays
// one.
TEST_F(Tokenize, ANamedFileHasJsonLinesWhateverItsName) {
    const std::string lines = "\n{\"text\": \"one\"}\n { \"text\": \"two\"}\n";
    for (const char *name : {"my-corpus.json", "corpus.txt", "corpus"}) {
        write_file(in / name, lines);
        json_key = "text";
        Tokenized t = run({in / name});
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        EXPECT_EQ(documents(train), (std::vector<std::string>{"one", "two"}));
        std::filesystem::remove(in / name);
    }
    write_file(in / "a.txt", "A text\nof lines.\n");
    write_file(in / "b.jsonl", lines);
    skip_bad = true;
    Tokenized t = run({in / "a.txt", in / "b.jsonl"});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(documents(train), (std::vector<std::string>{"A text\nof lines.\n", "one", "two"}));
    EXPECT_EQ(t.result.bad_documents, 0);
}

// Without a key it is not read as text in silence.
TEST_F(Tokenize, JsonUnderAnotherNameIsRefusedOrNoticed) {
    auto refused = [&](const std::string &path, const std::string &name) {
        Tokenized t = run({path});
        EXPECT_EQ(t.status, Z3D_ERR_USAGE) << path;
        EXPECT_NE(t.message.find(name + " has objects in JSON of no known format"),
                  std::string::npos)
            << t.message;
        EXPECT_TRUE(only_outputs_left(0));
    };
    auto read = [&](const std::string &path, const std::string &warning) {
        ::testing::internal::CaptureStderr();
        Tokenized t = run({path});
        std::string said = ::testing::internal::GetCapturedStderr();
        EXPECT_EQ(t.status, Z3D_OK) << t.message;
        EXPECT_NE(said.find(warning), std::string::npos) << said;
        EXPECT_EQ(said.empty(), warning.empty()) << said;
        std::filesystem::remove(train);
    };
    write_file(in / "sub/a.json", "{\"id\": 1, \"body\": \"one\"}\n{\"body\": \"two\"}\n");
    write_file(in / "sub/b.txt", "\xef\xbb\xbf\n{\"body\": \"three\"}");
    write_file(in / "sub/c.json", "[\n  {\n    \"instruction\": \"one\"}]\n");
    for (const char *name : {"sub/a.json", "sub/b.txt", "sub/c.json"}) refused(in / name, name);
    refused(in / "sub", "sub/a.json"); // nothing else is in the folder
    write_file(in / "sub/z.txt", "a text\n");
    refused(in / "sub", "sub/a.json"); // also beside texts
    std::filesystem::remove(in / "sub/a.json");
    write_file(in / "sub/c.json", "{\n  \"name\": \"a package\"\n}\n");
    read(in / "sub", "b.txt (and 1 other file): this is JSON, but was read as plain text");
    // A text that only begins like JSON.
    for (const char *text : {"{\"text\": \"one\"}\nis a line of JSON.\n", "[1] Smith: \"One\".\n",
                             "[1, 2, 3, 4] and more\n", "[a](b)\n", "[\n", "{{ \"x\" }}\n"}) {
        write_file(in / "c.txt", text);
        read(in / "c.txt", "");
    }
}

// Whatever its shape, raw JSON that is named needs a key; the message has those that are there.
TEST_F(Tokenize, RawJsonOfAnyShapeIsRefused) {
    const std::string big(1200000, 'x');
    write_file(in / "a.txt", "a text\n");
    auto refused = [&](const char *name, const std::string &text, const std::string &what) {
        write_file(in / name, text);
        Tokenized t = run({in / "a.txt", in / name});
        EXPECT_EQ(t.status, Z3D_ERR_USAGE) << text.substr(0, 80);
        EXPECT_NE(t.message.find(what), std::string::npos) << t.message;
        EXPECT_NE(t.message.find(in / name), std::string::npos) << t.message;
        std::filesystem::remove(in / name);
    };
    const std::string none = "no array element that is an object with a text";
    refused("p.json", "{\n \"body\": \"one\"\n}\n", none);
    refused("p.json", "Only words.\n", none);
    refused("p", "{\n \"body\": \"one\"\n}\n", none);
    refused("n.json", "[1, 2]\n", none);
    refused("n", "[1, 2]\n", none);
    refused("l", "[[{\"body\": \"a\"}]]", none);
    refused("e", "[{}, {\"body\": \"a\"}]", "(their keys: body)");
    refused("z", "[null, {\"id\": 1, \"body\": \"a\"}]", "(their keys: id, body); ");
    refused("o", "{\"n\": 1, \"body\": \"" + big + big + "\"}", "(their keys: n, body)");
    refused("j", "{\"body\": \"" + big + "\"}\n{\"body\": \"b\"}\n", "(their keys: body)");
    refused("b", "{\"body\": \"a\"}\n{\"body\": b}\n", "(their keys: body)"); // a mistake later
    refused("c", "[{\"body\": \"a\"}\n{\"body\": \"b\"}]\n", "(their keys: body)");
    write_file(in / "s", "[\"body\", \"more\", \"");
    Tokenized t = run({in / "s"});
    EXPECT_EQ(t.status, Z3D_ERR_DATA);
    EXPECT_NE(t.message.find("s:1: the file ends within element 3"), std::string::npos)
        << t.message;
}

// Alpaca's and ShareGPT's files.
TEST_F(Tokenize, AnArrayOfObjectsIsReadAsLinesAre) {
    const std::string big(2 << 20, 'x');
    write_file(in / "sub/a.json",
               "\xef\xbb\xbf \n[\n  {\"text\": \"one, ]}\\\"\", \"n\": [1, {}]},\n"
               "{\n\"text\":\n\"" +
                   big + "\"}\n, {\"text\": \"\"},{\"text\": \"two\"}\n]\n\n");
    write_file(in / "sub/b.json", "{\n \"name\": \"a package\"\n}\n");
    json_key = "text";
    Tokenized t = run({in / "sub/a.json"});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_TRUE(documents(train) == (std::vector<std::string>{"one, ]}\"", big, "two"}));
    EXPECT_EQ(t.result.empty_documents, 1);
    t = run({in / "sub"}); // by its content, in a folder
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(t.result.documents, 4);
    write_file(in / "empty.json", " [ ] ");
    EXPECT_EQ(run({in / "empty.json"}).status, Z3D_ERR_DATA);
    auto refused = [&](const std::string &text, const std::string &what) {
        write_file(in / "bad.json", "[{\"text\": \"good\"}" + text);
        t = run({in / "bad.json"});
        EXPECT_EQ(t.status, Z3D_ERR_DATA) << text;
        EXPECT_NE(t.message.find("bad.json:" + what), std::string::npos) << t.message;
    };
    refused(",\n\n{\"body\": 1}]",
            "3 (element 2): --json-key text: this element has no such key; it has: body");
    refused(",\n[3]]", "2 (element 2): --json-key text: expected a JSON object");
    refused(",\n]", "2: byte 0: ");
    refused("\n{\"text\": \"b\"}]", "2: expected ',' or ']' after element 1");
    refused(",\n{\"text\": \"b", "2: the file ends within element 2");
    refused("\n", "2: expected ',' or ']'");
    refused("]\n{\"text\": \"b\"}", "2: text follows the array's end");
    refused(",\n}]", "2: byte 0: ");
    EXPECT_EQ(t.message.find("element 2: "), 0u) << t.message;
}

TEST_F(Tokenize, AKeyMayNameATextInAnotherObject) {
    write_file(in / "a.jsonl",
               "{\"data\": {\"text\": \"one\", \"more\": {\"text\": \"deep\"}}, \"id\": 1}\n"
               "{\"data.text\": \"two\"}\n");
    json_key = "data.text";
    Tokenized t = run({in / "a.jsonl"});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(documents(train), (std::vector<std::string>{"one", "two"}));
    json_key = "text";
    t = run({in / "a.jsonl"});
    EXPECT_NE(t.message.find("this line has no such key; it has: data.text, data.more, id"),
              std::string::npos)
        << t.message;
    write_file(in / "a.jsonl", "{\"data\": {\"text\": \"one\", \"more\": {\"text\": \"deep\"}}}\n");
    json_key = "data.more.text";
    ASSERT_EQ(run({in / "a.jsonl"}).status, Z3D_OK);
    EXPECT_EQ(documents(train), (std::vector<std::string>{"deep"}));
}

TEST_F(Tokenize, LinesWithoutATextMayBeSkipped) {
    const std::string lines = "{\"text\": \"one\"}\n{\"text\": null}\n{\"body\": \"b\"}\n"
                              "{\"text\": 3}\nbroken\n{\"text\": \"two\"}\n";
    write_file(in / "a.jsonl", lines);
    json_key = "text";
    Tokenized t = run({in / "a.jsonl"});
    EXPECT_EQ(t.status, Z3D_ERR_DATA);
    EXPECT_NE(t.message.find("a.jsonl:2: --json-key text: its value is null"), std::string::npos)
        << t.message;
    skip_bad = true;
    t = run({in / "a.jsonl"});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(documents(train), (std::vector<std::string>{"one", "two"}));
    EXPECT_EQ(t.result.bad_documents, 4);
    const std::string name = in / "a.jsonl";
    EXPECT_NE(t.summary.find("  without a text: " + name + ":2, " + name + ":3, " + name + ":4, " +
                             name + ":5\n"),
              std::string::npos)
        << t.summary;
    write_file(in / "b.json", "[{\"text\": null}, {\"text\": \"three\"}]");
    t = run({in / "b.json"});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(documents(train), (std::vector<std::string>{"three"}));
    EXPECT_NE(t.summary.find("b.json:1 (element 1)\n"), std::string::npos) << t.summary;
    write_file(in / "b.json", "[{\"text\": null}, {\"text\": ");
    EXPECT_EQ(run({in / "b.json"}).status, Z3D_ERR_DATA);
    json_key = "wrong"; // not one line is left
    t = run({in / "a.jsonl"});
    EXPECT_EQ(t.status, Z3D_ERR_DATA);
    EXPECT_NE(t.message.find("6 lines and elements without a text"), std::string::npos)
        << t.message;
}

std::string gzip(const std::string &text) {
    std::string out(text.size() + 1024, '\0');
    z_stream z = {};
    EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(text.data()));
    z.avail_in = static_cast<uInt>(text.size());
    z.next_out = reinterpret_cast<Bytef *>(&out[0]);
    z.avail_out = static_cast<uInt>(out.size());
    EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.resize(z.total_out);
    deflateEnd(&z);
    return out;
}

std::string zstd(const std::string &text) {
    std::string out(ZSTD_compressBound(text.size()), '\0');
    out.resize(ZSTD_compress(&out[0], out.size(), text.data(), text.size(), 3));
    return out;
}

// So what is examined is what is read, also if another file takes the name meanwhile.
TEST_F(Tokenize, AFileInAFolderIsOpenedOnce) {
    const std::string lines = "{\"text\": \"a line\"}\n";
    write_file(in / "a.txt", "hello\n");
    write_file(in / "b.txt.gz", gzip("packed\n"));
    write_file(in / "c.jsonl", lines);
    json_key = "text";
    const uint32_t kinds = IN_OPEN | IN_ACCESS | IN_CLOSE; // equal ones in a row become one
    const int notices = inotify_init1(IN_NONBLOCK);
    ASSERT_GE(notices, 0);
    ASSERT_GE(inotify_add_watch(notices, in.path.c_str(), kinds), 0);
    Tokenized t = run({in.path});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(documents(train), (std::vector<std::string>{"hello\n", "packed\n", "a line"}));
    std::map<std::string, int> opened;
    alignas(inotify_event) char events[1 << 14];
    const ssize_t bytes = read(notices, events, sizeof events);
    for (ssize_t at = 0; at < bytes;) {
        const auto *event = reinterpret_cast<const inotify_event *>(events + at);
        if (event->len > 0 && (event->mask & IN_OPEN)) opened[event->name]++;
        at += static_cast<ssize_t>(sizeof *event + event->len);
    }
    close(notices);
    EXPECT_EQ(opened, (std::map<std::string, int>{{"a.txt", 1}, {"b.txt.gz", 1}, {"c.jsonl", 1}}));
}

// In several stretches too, as `cat a.gz b.gz` makes them.
TEST_F(Tokenize, PackedFilesAreUnpacked) {
    std::string text = paragraphs(20000), noise = random_bytes(300000), lines;
    for (char &c : noise) c = static_cast<char>('a' + (c & 15));
    lines = "{\"text\": \"" + noise + "\"}\n{\"text\": \"two\"}\n";
    for (auto pack : {gzip, zstd}) {
        write_file(in / "text.packed", pack(text.substr(0, 1000)) + pack(text.substr(1000)));
        json_key = nullptr;
        Tokenized t = run({in / "text.packed"});
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        EXPECT_TRUE(documents(train) == (std::vector<std::string>{text}));
        EXPECT_EQ(progress.back().bytes, progress.back().total_bytes);
        const std::string name = in / (pack == gzip ? "lines/a.jsonl.gz" : "lines/a.JSONL.zst");
        std::filesystem::remove_all(in / "lines");
        write_file(name, pack(lines));
        t = run({in / "lines"});
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        json_key = "text";
        t = run({in / "lines"});
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        EXPECT_TRUE(documents(train) == (std::vector<std::string>{noise, "two"}));
        std::string cut = pack(lines), bad = cut;
        cut.resize(cut.size() / 2);
        write_file(name, cut);
        t = run({in / "lines"});
        EXPECT_EQ(t.status, Z3D_ERR_DATA);
        EXPECT_NE(t.message.find("data is not whole"), std::string::npos) << t.message;
        for (size_t i = bad.size() / 2; i < bad.size() / 2 + 100; i++) bad[i] ^= 0x55;
        write_file(name, bad);
        EXPECT_TRUE(run({in / "lines"}).status == Z3D_ERR_DATA || pack == zstd); // no checksum
    }
}

// What other programs put around and between: tar's zeros, a frame to skip, a window beyond 128
// MiB.
TEST_F(Tokenize, RareFormsOfPackedFilesAreRead) {
    const std::string text = "a text that is packed\n", skipped("\x5f\x2a\x4d\x18\3\0\0\0abc", 11);
    const std::string zeros(70000, '\0');
    std::string wide("\x28\xb5\x2f\xfd\0\x90", 6); // 2^28 bytes
    wide += std::string{static_cast<char>(text.size() << 3 | 1), 0, 0} + text;
    for (const std::string &packed :
         {gzip(text) + zeros, gzip(text.substr(0, 5)) + "\0" + zeros + gzip(text.substr(5)),
          skipped + zstd(text), zstd(text) + skipped, wide}) {
        write_file(in / "a", packed);
        Tokenized t = run({in / "a"});
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        EXPECT_EQ(documents(train), (std::vector<std::string>{text}));
    }
}

// What is named and is no text is an error that says what to do.
TEST_F(Tokenize, OtherEncodingsAreToldApart) {
    auto refused = [&](const std::string &content, const std::string &what) {
        write_file(in / "a.txt", content);
        Tokenized t = run({in / "a.txt"});
        EXPECT_EQ(t.status, Z3D_ERR_DATA);
        EXPECT_NE(t.message.find("a.txt: it is not " + what), std::string::npos) << t.message;
        return t.message;
    };
    const std::string words = "Stra\xdf"
                              "e und B\xe4ume, viele W\xf6rter. ";
    std::string message = refused(words, "UTF-8; it looks like Latin-1");
    EXPECT_NE(message.find("`iconv -f WINDOWS-1252 -t UTF-8 " + in / "a.txt" + " > "),
              std::string::npos)
        << message;
    std::string little = "\xff\xfe", big;
    for (char c : std::string("plain words\n")) little += c, little += '\0', big += '\0', big += c;
    refused(little, "UTF-8; it looks like UTF-16LE: convert it with `iconv -f UTF-16LE");
    refused(big, "UTF-8; it looks like UTF-16BE: convert it with `iconv -f UTF-16BE");
    json_key = "text";
    refused(little, "UTF-8; it looks like UTF-16LE");
    json_key = nullptr;
    refused(std::string("\xff\xfe\0\0a\0\0\0", 8), "UTF-8; it looks like UTF-32LE: convert it");
    refused(std::string("\0\0\xfe\xff\0\0\0a", 8), "UTF-8; it looks like UTF-32BE: convert it");
    refused(std::string("MZ\0\1\2\3", 6), "text");
    write_file(in / "b.txt", std::string(30000, 'a') + "\xe4"); // an accident
    EXPECT_EQ(run({in / "b.txt"}).status, Z3D_OK);
    ::testing::internal::CaptureStderr(); // in a folder: left out, counted, the first one told
    Tokenized t = run({in.path});
    EXPECT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(t.result.skipped_binary, 1);
    write_file(in / "c.txt", words);
    t = run({in.path});
    EXPECT_EQ(t.result.skipped_encoding, 1);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("c.txt: it is not UTF-8"),
              std::string::npos);
}

// As Python's errors="replace" and Hugging Face do.
TEST_F(Tokenize, HalfSurrogatesAndNulsDoNotEndTheWork) {
    write_file(in / "a.jsonl", "{\"text\": \"a\\ud800b\", \"\\udfff\": 1}\n"
                               "{\"text\": \"\\ud83d\\ud83d\\ude00\\ud800\\n\"}\n"
                               "{\"text\": \"a\\u0000c\"}\n"
                               "{\"text\": \"a\\u0000d\"}\n");
    json_key = "text";
    Tokenized t = run({in.path});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(documents(train),
              (std::vector<std::string>{"a\xef\xbf\xbd"
                                        "b",
                                        "\xef\xbf\xbd\xf0\x9f\x98\x80\xef\xbf\xbd\n",
                                        std::string("a\0c", 3), std::string("a\0d", 3)}));
    EXPECT_EQ(t.result.repairs.surrogates, 4);
    EXPECT_EQ(t.result.repairs.nuls, 2);
}

TEST_F(Tokenize, SaysWhyThereIsNoText) {
    json_key = "text";
    write_file(in / "n.jsonl", "{\"text\": \"\"}\n");
    Tokenized t = run({in / "n.jsonl"});
    EXPECT_EQ(t.status, Z3D_ERR_DATA);
    EXPECT_EQ(t.message, "no text found in " + in / "n.jsonl" + ": 1 empty document");
    json_key = nullptr;
    write_file(in / "sub/binary", std::string("\0", 1));
    t = run({in / "sub"});
    EXPECT_EQ(t.message, "no text found in " + in / "sub" + ": 1 file that is not text");
}

TEST_F(Tokenize, TellsHowFarItIs) {
    std::string lines;
    for (int i = 0; i < 150000; i++)
        lines += "{\"text\": \"" + std::string(60, 'a') + std::to_string(i) + "\"}\n";
    write_file(in / "a.jsonl", lines);
    write_file(in / "b.txt", paragraphs(1000));
    json_key = "text";
    Tokenized t = run({in.path});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    ASSERT_GT(progress.size(), 3u);
    for (size_t i = 1; i < progress.size(); i++) {
        EXPECT_GE(progress[i].bytes, progress[i - 1].bytes);
        EXPECT_GE(progress[i].tokens, progress[i - 1].tokens);
        EXPECT_EQ(progress[i].total_bytes,
                  static_cast<int64_t>(lines.size() + paragraphs(1000).size()));
    }
    EXPECT_EQ(progress.back().bytes, progress.back().total_bytes);
    EXPECT_EQ(progress.back().tokens, t.result.train_tokens);
    const z3d_tokenize_progress some = {1500000000, 6000000000, 400000000, 60};
    z3d_string line = {};
    z3d_tokenize_progress_line(&some, &line);
    EXPECT_STREQ(line.text, "1.50 GB of 6.00 GB (25 %), 25.0 MB/s, 400 M tokens");
    z3d_string_free(&line);
}

TEST_F(Tokenize, StopsAtTheLimit) {
    write_file(in / "a", paragraphs(1000));
    write_file(in / "b", paragraphs(1001));
    Tokenized t = run({in.path}, 0, Z3D_SPLIT_HASH, 12345);
    ASSERT_EQ(t.status, Z3D_OK);
    EXPECT_TRUE(t.result.limited);
    EXPECT_EQ(t.result.bytes, 12345);
    std::string joined;
    for (const std::string &d : documents(train)) joined += d;
    EXPECT_EQ(joined, paragraphs(1000).substr(0, 12345));
    std::string umlauts;
    for (int i = 0; i < 1000; i++) umlauts += "\xc3\xa9";
    write_file(in / "c", umlauts); // ends behind a character
    ASSERT_EQ(run({in / "c"}, 0, Z3D_SPLIT_HASH, 101).status, Z3D_OK);
    EXPECT_EQ(documents(train), (std::vector<std::string>{umlauts.substr(0, 100)}));
}

// A word on how far the split is from what was asked for.
TEST_F(Tokenize, SaysWhatShareIsHeldOut) {
    json_key = "text";
    write_file(in / "a.jsonl",
               "{\"text\": \"" + std::string(996, 'a') + "\"}\n{\"text\": \"b\"}\n");
    Tokenized t = run({in / "a.jsonl"}, 0.1, Z3D_SPLIT_TAIL);
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_NE(t.summary.find("  1 of 2 documents, 0.2 % of the tokens; 10 % were requested\n"),
              std::string::npos)
        << t.summary;
    json_key = nullptr;
    const std::string big = paragraphs(300);
    for (const char *name : {"a", "b", "c"})
        write_file(in / ("sub/" + std::string(name)), big + name);
    t = run({in / "sub"}, 0.1, Z3D_SPLIT_TAIL);
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_NE(t.summary.find("  1 of 3 documents, 33.3 % of the tokens; 10 % were requested\n"),
              std::string::npos)
        << t.summary;
    EXPECT_NE(t.summary.find("3 documents, each with its end token\n"), std::string::npos);
    t = run({in / "sub"}, 0.33, Z3D_SPLIT_TAIL);
    EXPECT_EQ(t.summary.find("requested"), std::string::npos) << t.summary;
    for (const char *name : {"sub/d", "sub/e"})
        write_file(in / name, std::string("small\n") + name);
    t = run({in / "sub"}, 0.1, Z3D_SPLIT_TAIL); // two small files, and the end of the third
    EXPECT_NE(t.summary.find("the end of " + in / "sub/c" + " and the 2 documents after it: "),
              std::string::npos)
        << t.summary;
}

// The only copy of a text is not written over.
TEST_F(Tokenize, AnOutputIsNoInputAndNoOtherFile) {
    const std::string text = "only copy\n";
    write_file(in / "a.txt", text);
    std::string name = in / "a.txt", other = in / "./a.txt", fresh = in / "o.bin";
    const char *inputs[] = {name.c_str()};
    z3d_tokenize_options options{};
    z3d_tokenize_result result;
    options.inputs = inputs;
    options.count = 1;
    auto refused = [&](const std::string &what) {
        EXPECT_EQ(z3d_data_tokenize(&options, &result), Z3D_ERR_USAGE);
        EXPECT_NE(std::string(z3d_error_message()).find(what), std::string::npos)
            << z3d_error_message();
        EXPECT_EQ(read_file(name), text);
    };
    options.output_train = other.c_str();
    refused("a.txt is an input");
    options.output_train = fresh.c_str();
    write_file(fresh, "no tokens");
    refused("o.bin exists and is no token file");
    EXPECT_EQ(read_file(fresh), "no tokens");
    options.force = true;
    EXPECT_EQ(z3d_data_tokenize(&options, &result), Z3D_OK) << z3d_error_message();
    options.output_train = other.c_str();
    refused("a.txt is an input");
    options.output_train = "/dev/null";
    refused("/dev/null is no regular file");
    options.output_train = fresh.c_str();
    const std::string index = fresh.substr(0, fresh.size() - 3) + "idx";
    write_file(index, "");
    refused("o.bin: " + index + " is beside it, so it would be read as a file of Megatron-LM");
    std::filesystem::remove(index);
    options.force = false;
    write_file(fresh, "");
    EXPECT_EQ(z3d_data_tokenize(&options, &result), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(z3d_data_tokenize(&options, &result), Z3D_OK) << z3d_error_message();
    options.output_validation = name.c_str();
    options.validation_fraction = 0.5;
    refused("a.txt is an input");
    std::string same = in / "./o.bin";
    options.output_validation = same.c_str();
    refused("cannot be both the training and the validation file");
    std::filesystem::remove(fresh);
    refused("cannot be both the training and the validation file");
}

TEST_F(Tokenize, RefusesWhatCannotWork) {
    write_file(in / "a", "text");
    write_file(in / "binary", std::string(10, '\0'));
    EXPECT_EQ(run({}).status, Z3D_ERR_USAGE);
    EXPECT_EQ(run({in / "missing"}).status, Z3D_ERR_IO);
    EXPECT_EQ(run({in / "a", in / "missing"}).status, Z3D_ERR_IO);
    EXPECT_EQ(run({"/dev/zero"}).status, Z3D_ERR_USAGE);
    EXPECT_EQ(run({""}).status, Z3D_ERR_USAGE);
    Tokenized t = run({in / "binary"});
    EXPECT_EQ(t.status, Z3D_ERR_DATA);
    EXPECT_NE(t.message.find("it is not text"), std::string::npos) << t.message;
    t = run({in / "a"}, 0.5);
    EXPECT_EQ(t.status, Z3D_ERR_DATA); // one document cannot be split
    EXPECT_EQ(run({in / "a"}, 1.5).status, Z3D_ERR_USAGE);
    EXPECT_EQ(run({in / "a"}, 0, Z3D_SPLIT_HASH, -1).status, Z3D_ERR_USAGE);
    EXPECT_TRUE(only_outputs_left(0)); // nothing half made
}

TEST_F(Tokenize, FailureLeavesTheOldFilesAlone) {
    write_file(in / "a", "text");
    ASSERT_EQ(run({in / "a"}).status, Z3D_OK);
    std::string before = read_file(train);
    EXPECT_NE(run({in / "missing"}).status, Z3D_OK);
    EXPECT_EQ(read_file(train), before);
}

TEST_F(Tokenize, UnwritableOutputAndFullDisk) {
    write_file(in / "a", "text");
    std::string input = in / "a", blocked = in / "a/train.bin"; // below a file
    const char *inputs[] = {input.c_str()};
    z3d_tokenize_options options{};
    z3d_tokenize_result result;
    options.inputs = inputs;
    options.count = 1;
    options.output_train = blocked.c_str();
    EXPECT_EQ(z3d_data_tokenize(&options, &result), Z3D_ERR_IO);
    std::string same = out / "x.bin";
    options.output_train = options.output_validation = same.c_str();
    options.validation_fraction = 0.5;
    EXPECT_EQ(z3d_data_tokenize(&options, &result), Z3D_ERR_USAGE);
}

TEST(Utf8, Faults) {
    auto faults = [](const std::string &s, size_t *rest) {
        return z3d_utf8_faults(reinterpret_cast<const unsigned char *>(s.data()), s.size(), rest);
    };
    size_t rest;
    EXPECT_EQ(faults("abc \xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80", &rest), 0);
    EXPECT_EQ(rest, 0u);
    EXPECT_EQ(faults("\xff\xfe", &rest), 2);
    EXPECT_EQ(faults("\xc0\xaf", &rest), 2);         // overlong
    EXPECT_EQ(faults("\xed\xa0\x80", &rest), 3);     // surrogate
    EXPECT_EQ(faults("\xf4\x90\x80\x80", &rest), 4); // beyond U+10FFFF
    EXPECT_EQ(faults("a\xe2\x82", &rest), 0);
    EXPECT_EQ(rest, 2u);
}

TEST(Utf8, PrintableTextHasNoControls) {
    z3d_string out = {};
    std::string raw("ok\n\t\x1b[2J\xff\xc2\x9b \xc3\xbc\xe2\x82", 16);
    z3d_text_printable(raw.data(), raw.size(), &out);
    EXPECT_EQ(std::string(out.text, out.length),
              "ok\n\t?[2J\xef\xbf\xbd? \xc3\xbc\xef\xbf\xbd\xef\xbf\xbd");
    z3d_string_free(&out);
}

TEST(Bytes, RoundTrip) {
    z3d_tokenizer *tokenizer;
    ASSERT_EQ(z3d_tokenizer_create(Z3D_TOKENIZER_BYTES, nullptr, "", &tokenizer), Z3D_OK);
    std::string text;
    for (int i = 0; i < 256; i++) text.push_back(static_cast<char>(i));
    z3d_token_list ids = {};
    ASSERT_EQ(z3d_tokenizer_encode(tokenizer, text.data(), text.size(), true, &ids), Z3D_OK);
    ASSERT_EQ(ids.count, 256u);
    z3d_string out = {};
    ASSERT_EQ(z3d_tokenizer_decode(tokenizer, ids.id, ids.count, true, &out), Z3D_OK);
    z3d_token_list_free(&ids);
    EXPECT_EQ(std::string(out.text, out.length), text);
    for (int32_t bad : {-1, 257})
        EXPECT_EQ(z3d_tokenizer_decode(tokenizer, &bad, 1, true, &out), Z3D_ERR_DATA);
    z3d_string_free(&out);
    z3d_tokenizer_destroy(tokenizer);
    EXPECT_EQ(z3d_tokenizer_create(Z3D_TOKENIZER_BYTES, "vocab.json", nullptr, &tokenizer),
              Z3D_ERR_CONFIG);
}

// ---- instruction data ----

class Instructions : public Tokenize {
  protected:
    // Trained tokens are between brackets, documents between lines; $ ends a text.
    std::string shown(const std::string &path) {
        z3d_token_file *file = nullptr;
        EXPECT_EQ(z3d_token_file_open(path.c_str(), &file), Z3D_OK) << z3d_error_message();
        std::vector<int32_t> all = ids(path);
        std::string out;
        int64_t document = 0;
        bool trained = false;
        for (size_t i = 0; i < all.size(); i++) {
            const bool begins = z3d_token_file_document(file, document) == static_cast<int64_t>(i);
            const bool on = z3d_token_file_trains(file, static_cast<int64_t>(i), 1);
            if (trained && (begins || !on)) out += "]", trained = false;
            if (begins && document++ > 0) out += "|";
            if (on && !trained) out += "[", trained = true;
            out += all[i] == 256 ? '$' : static_cast<char>(all[i]);
        }
        EXPECT_EQ(file->documents, document);
        z3d_token_file_close(file);
        return out + (trained ? "]" : "");
    }
};

TEST_F(Instructions, AreRecognisedByTheirKeys) {
    auto read = [&](const char *name, const std::string &text, const std::string &wanted,
                    const std::string &said) {
        write_file(in / name, text);
        Tokenized t = run({in / name});
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        EXPECT_EQ(shown(train), wanted);
        EXPECT_NE(t.summary.find("format     " + said), std::string::npos) << t.summary;
    };
    read("t.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n", "[one$]|[two$]",
         "text, by the keys of the first object");
    read("p.jsonl",
         "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"c\", \"completion\": \"d\"}\n",
         "a[b$]|c[d$]", "prompt-completion, by the keys of the first object");
    read("alpaca.txt", "[{\"instruction\": \"a\", \"input\": \"\", \"output\": \"c\"}]",
         "Below is an instruction that describes a task. Write a response that appropriately "
         "completes the request.\n\n### Instruction:\na\n\n### Response:\n[c$]",
         "alpaca, by the keys");
    chat_template = "plain";
    read("m.jsonl",
         "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
         "\"content\": \"b\"}]}\n",
         "User: a\nAssistant: [b$]\n",
         "messages, by the keys of the first object; chat template plain\ntrained    2 of 22 "
         "tokens: "
         "the assistant's messages\n");
    read("s.json.gz",
         gzip("[{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"from\": \"gpt\", "
              "\"value\": \"b\"}]}]"),
         "User: a\nAssistant: [b$]\n", "sharegpt");
}

TEST_F(Instructions, AreHeldOutWithTheirMask) {
    std::string lines;
    for (int i = 0; i < 40; i++)
        lines +=
            "{\"prompt\": \"question " + std::to_string(i) + "\", \"completion\": \"answer\"}\n";
    write_file(in / "a.jsonl", lines + lines);
    Tokenized t = run({in / "a.jsonl"}, 0.2);
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(t.result.duplicate_documents, 40);
    EXPECT_EQ(t.result.train_documents + t.result.validation_documents, 40);
    const std::string both = shown(train) + "|" + shown(validation);
    for (int i = 0; i < 40; i++)
        EXPECT_NE(both.find("question " + std::to_string(i) + "[answer$]"), std::string::npos) << i;
    EXPECT_TRUE(only_outputs_left(2));
}

TEST_F(Instructions, BadLinesAreRefusedOrLeftOut) {
    const std::string good = "{\"prompt\": \"a\", \"completion\": \"b\"}\n";
    write_file(in / "a.jsonl", good + "{\"prompt\": \"a\", \"completion\": \"\"}\nbroken\n" +
                                   "{\"prompt\": \"c\", \"completion\": \"d\"}\n");
    Tokenized t = run({in / "a.jsonl"});
    EXPECT_EQ(t.status, Z3D_ERR_DATA);
    EXPECT_NE(t.message.find("a.jsonl:2: \"completion\" is empty"), std::string::npos) << t.message;
    skip_bad = true;
    t = run({in / "a.jsonl"});
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(shown(train), "a[b$]|c[d$]");
    EXPECT_NE(t.summary.find("2 lines and elements that are wrong"), std::string::npos);
    EXPECT_NE(t.summary.find("wrong: " + in / "a.jsonl:2, " + in / "a.jsonl:3\n"),
              std::string::npos)
        << t.summary;
    write_file(in / "b.jsonl", "{\"prompt\": \"a\", \"completion\": \"\"}\n");
    t = run({in / "b.jsonl"});
    EXPECT_EQ(t.status, Z3D_ERR_DATA);
    EXPECT_NE(t.message.find("1 line or element that is wrong"), std::string::npos) << t.message;
}

TEST_F(Instructions, FilesOfOtherFormatsAreRefused) {
    const auto tokenize = [&](const std::string &second) {
        write_file(in / "b.jsonl", second);
        return run({in / "a.jsonl", in / "b.jsonl"});
    };
    write_file(in / "a.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    for (bool skip : {false, true}) {
        skip_bad = skip;
        Tokenized t = tokenize("{\"instruction\": \"c\", \"output\": \"d\"}\n");
        EXPECT_EQ(t.status, Z3D_ERR_USAGE);
        EXPECT_NE(t.message.find("b.jsonl: its objects are of the format alpaca, those of " +
                                 in / "a.jsonl of prompt-completion: make a token file of each"),
                  std::string::npos)
            << t.message;
        t = tokenize("{\"question\": \"c\"}\n");
        EXPECT_EQ(t.status, Z3D_ERR_USAGE);
        EXPECT_NE(t.message.find("b.jsonl has objects in JSON of no known format"),
                  std::string::npos)
            << t.message;
    }
    // One that has both formats' keys, broken ones, and none at all.
    Tokenized t =
        tokenize("{\"text\": \"e\", \"messages\": [], \"prompt\": \"c\", \"completion\": \"d\"}\n");
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(shown(train), "a[b$]|c[d$]");
    t = tokenize("broken\n\n");
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(t.result.bad_documents, 1);
    t = tokenize("");
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    format = Z3D_FORMAT_PROMPT_COMPLETION;
    t = tokenize("{\"instruction\": \"c\", \"output\": \"d\"}\n");
    ASSERT_EQ(t.status, Z3D_OK) << t.message; // what was asked for
    EXPECT_EQ(t.result.bad_documents, 1);
}

TEST_F(Instructions, OptionsThatDoNotFitAreRefused) {
    auto refused = [&](const char *name, const std::string &text, z3d_status status,
                       const std::string &what) {
        write_file(in / name, text);
        Tokenized t = run({in / name});
        EXPECT_EQ(t.status, status) << t.message;
        EXPECT_NE(t.message.find(what), std::string::npos) << t.message;
    };
    loss_on = Z3D_LOSS_ASSISTANT;
    refused("a.txt", "a text", Z3D_ERR_USAGE, "--loss-on is for conversations");
    loss_on = Z3D_LOSS_AUTO, chat_template = "plain";
    refused("a.jsonl", "{\"text\": \"a\"}", Z3D_ERR_USAGE, "--chat-template is for conversations");
    refused("p.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}", Z3D_ERR_USAGE,
            "--chat-template plain is for lists of messages");
    chat_template = nullptr, format = Z3D_FORMAT_MESSAGES;
    std::filesystem::create_directory(in / "texts");
    write_file(in / "texts/a.txt", "a text");
    Tokenized t = run({in / "texts"});
    EXPECT_EQ(t.status, Z3D_ERR_USAGE);
    EXPECT_NE(t.message.find("--format messages: there is no JSON in "), std::string::npos);
    refused("m.jsonl", "{\"messages\": []}", Z3D_ERR_USAGE, "--chat-template plain");
    chat_template = "plain";
    refused(
        "k.jsonl", "{\"prompt\": \"a\", \"id\": 1}", Z3D_ERR_DATA,
        "k.jsonl:1: --format messages: messages: this line has no such key; it has: prompt, id");
    format = Z3D_FORMAT_AUTO, chat_template = nullptr;
    refused("a.parquet", std::string("PAR1\0\0\0", 7), Z3D_ERR_DATA, "pandas.read_parquet('");
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
