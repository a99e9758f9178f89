// Tokenizers of tokenizer.json against Hugging Face's `tokenizers`: tests/data/tokenizers has one
// in the style of each family, texts, and the library's tokens of them (made by make.py there).
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

extern "C" {
#include "src/train/data.h"
#include "src/train/generation/stops.h"
}
#include "files.h"
#include "text.h"

namespace {

const std::string fixtures = ZERO3D_TEST_DATA "/tokenizers";

struct Json : Tokenizer {
    explicit Json(const std::string &path) : Tokenizer(Z3D_TOKENIZER_HUGGINGFACE, path) {}
};

std::vector<std::string> texts() {
    std::vector<std::string> out;
    std::istringstream lines(read_file(fixtures + "/texts.txt"));
    for (std::string line; std::getline(lines, line);) out.push_back(from_hex(line));
    return out;
}

class Family : public ::testing::TestWithParam<const char *> {
  protected:
    const std::string folder = fixtures + "/" + GetParam();
};

TEST_P(Family, EncodesAndDecodesLikeTheLibrary) {
    Json t(folder);
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    std::istringstream lines(read_file(folder + "/ids.txt"));
    int32_t size, begin, end;
    std::string line, back;
    std::getline(lines, line);
    std::istringstream(line) >> size >> begin >> end;
    EXPECT_EQ(t.tokenizer->vocab_size, size);
    EXPECT_EQ(t.tokenizer->begin_of_text, begin);
    EXPECT_EQ(t.tokenizer->end_of_text, end);
    int number = 0;
    for (const std::string &text : texts()) {
        ASSERT_TRUE(std::getline(lines, line));
        std::istringstream in(line);
        std::vector<int32_t> wanted;
        in >> back;
        for (int32_t id; in >> id;) wanted.push_back(id);
        number++;
        for (int time = 0; time < 2; time++) // the second one from what is remembered
            EXPECT_EQ(t.encode(text), wanted) << "line " << number << ": " << text;
        if (back != "?") {
            EXPECT_EQ(t.decode(wanted), back == "=" ? text : from_hex(back))
                << "line " << number << ": " << text;
        }
    }
    EXPECT_GT(number, 250);
}

// What follows a prompt is not a text's beginning, and tokens one by one give the same text.
TEST_P(Family, TokensOneByOneGiveTheSameText) {
    Json t(folder);
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    std::vector<int32_t> ids = t.encode("The quick brown fox, the lazy dog."), rest = ids;
    std::string whole = t.decode(ids), pieces = t.decode({ids[0]});
    rest.erase(rest.begin());
    for (int32_t id : rest) pieces += t.decode({id}, false);
    EXPECT_EQ(pieces, whole);
    EXPECT_EQ(t.decode({ids[0]}) + t.decode(rest, false), whole);
}

INSTANTIATE_TEST_SUITE_P(All, Family,
                         ::testing::Values("gpt2", "llama3", "qwen", "smollm", "llama2", "mistral",
                                           "gemma", "deepseek"),
                         [](const auto &info) { return info.param; });

// The library takes no such text: bytes that are no UTF-8 come back.
TEST(HuggingFace, AnyBytesComeBack) {
    std::string text = random_bytes(100000);
    for (const char *name : {"gpt2", "llama3", "llama2", "gemma"}) {
        Json t(fixtures + "/" + name);
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        for (const std::string &s :
             {text, std::string("a\xff z \xf0\x9f\x91"), std::string(100000, 'e'), std::string()})
            EXPECT_TRUE(t.decode(t.encode(s)) == s) << name << ": " << s.substr(0, 20);
    }
}

// Long texts are cut into words where the whole is one word by the file: the tokens are the same as
// those of its pieces.
TEST(HuggingFace, TheWholeTextIsOneWord) {
    Json t(fixtures + "/llama2");
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    std::string text;
    std::vector<int32_t> wanted;
    for (int i = 0; i < 20000; i++) {
        const std::string word = i % 3 ? "text" : "über";
        std::vector<int32_t> ids = t.encode(word);
        text += (i ? " " : "") + word;
        wanted.insert(wanted.end(), ids.begin(), ids.end());
    }
    EXPECT_EQ(t.encode(text), wanted);
}

// A file of the fixtures with `from` replaced by `to`.
class Changed : public ::testing::Test {
  protected:
    void change(const std::string &name, const std::string &from, const std::string &to) {
        std::string text = read_file(fixtures + "/" + name + "/tokenizer.json");
        size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos) << from;
        write_file(folder / "tokenizer.json", text.replace(at, from.size(), to));
    }
    void expect_refused(const std::string &name, const std::string &from, const std::string &to,
                        const std::string &what, z3d_status wanted = Z3D_ERR_UNSUPPORTED) {
        change(name, from, to);
        Json t(folder.path);
        EXPECT_EQ(t.status, wanted) << what;
        EXPECT_NE(t.message.find(what), std::string::npos) << t.message;
        EXPECT_NE(t.message.find("tokenizer.json:1: "), std::string::npos) << t.message;
    }
    Folder folder;
};

TEST_F(Changed, AnotherKindIsRefusedByName) {
    expect_refused("gpt2", "\"type\":\"BPE\"", "\"type\":\"Unigram\"",
                   "\"model\" of type Unigram is not supported; only BPE is");
    expect_refused("gpt2", "\"type\":\"BPE\"", "\"type\":\"WordPiece\"",
                   "\"model\" of type WordPiece is not supported; only BPE is");
    expect_refused("gpt2", "\"dropout\":null", "\"dropout\":0.1", "\"dropout\" is not supported");
    expect_refused("gpt2", "\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"",
                   "\"end_of_word_suffix\" is not supported; it must be null");
    expect_refused("gpt2", "\"normalizer\":null", "\"normalizer\":{\"type\":\"Lowercase\"}",
                   "\"normalizer\" of type Lowercase is not supported: NFC, NFD");
    expect_refused("gpt2", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"",
                   "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"",
                   "\"pre_tokenizer\" of type WhitespaceSplit is not supported: ByteLevel, Split");
    expect_refused("gpt2", "\"post_processor\":{\"type\":\"ByteLevel\"",
                   "\"post_processor\":{\"type\":\"RobertaProcessing\"",
                   "\"post_processor\" of type RobertaProcessing is not supported");
    expect_refused("gpt2", "\"decoder\":{\"type\":\"ByteLevel\"",
                   "\"decoder\":{\"type\":\"WordPiece\"",
                   "\"decoder\" of type WordPiece is not supported");
    expect_refused("gpt2", "\"single_word\":false", "\"single_word\":true",
                   "added token <|endoftext|>: \"single_word\" is not supported");
    expect_refused("llama3", "\"single\":[",
                   "\"single\":[{\"SpecialToken\":{\"id\":\"<|begin_of_text|>\"}},",
                   "it may add one token before a text, and one after it");
    expect_refused("llama3", "\"behavior\":\"Isolated\"", "\"behavior\":\"Contiguous\"",
                   "its behavior must be Isolated, Removed or MergedWithPrevious");
    expect_refused("smollm", "{\"type\":\"Digits\",\"individual_digits\":true}",
                   "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
                   "ByteLevel must be the last stage");
    expect_refused("llama2", "\"stop\":0", "\"stop\":1", "only one space at the beginning");
    expect_refused("llama2", "\"pattern\":{\"String\"", "\"pattern\":{\"Regex\"",
                   "its pattern must be {\"String\": text}");
    expect_refused("mistral", "\"replacement\":\"▁\"", "\"replacement\":\"_\"",
                   "its replacement must be U+2581");
}

TEST_F(Changed, AddedTokensAreAList) {
    for (const char *other : {"{\"a\":1}", "\"a\"", "0", "false"})
        expect_refused("gpt2", "\"added_tokens\":[", // what was the list has another name
                       std::string("\"added_tokens\":") + other + ",\"before\":[",
                       "\"added_tokens\" is not supported; it must be a list");
    change("llama3", "\"added_tokens\":[", "\"added_tokens\":null,\"before\":[");
    Json none(folder.path);
    EXPECT_EQ(none.message.find("added_tokens"), std::string::npos) << none.message;
}

TEST_F(Changed, OfTwoKeysTheLastCounts) {
    change("gpt2", "\"model\":", "\"model\":{\"type\":\"Unigram\"},\"model\":");
    Json t(folder.path);
    EXPECT_EQ(t.status, Z3D_OK) << t.message;
    change("gpt2", "\"dropout\":null", "\"dropout\":null,\"dropout\":0.1");
    Json last(folder.path);
    EXPECT_EQ(last.status, Z3D_ERR_UNSUPPORTED);
}

TEST_F(Changed, BadFilesAreRefusedWithTheirLine) {
    const z3d_status data = Z3D_ERR_DATA;
    expect_refused("llama3", "(?i:", "(?i:(", "the pattern of \"pre_tokenizer\" Split: ", data);
    expect_refused("llama3", "\"merges\":[\"", "\"merges\":[\"ab\",\"", "a merge that is neither",
                   data);
    expect_refused("gpt2", "\"merges\":[[", "\"merges\":[[\"a\"],[", "a merge that is neither",
                   data);
    expect_refused("gpt2", "\"merges\":[[", "\"merges\":[[\"a\",\"日\"],[",
                   "its second token is not in the vocabulary", data);
    expect_refused("gpt2", "\"id\":516", "\"id\":-1", "an added token has no \"id\"", data);
    expect_refused("gpt2", "\"id\":516", "\"id\":3",
                   "the token with id 3 is added, but is another token", data);
    expect_refused("gpt2", "\"id\":516", "\"id\":16777216", "is too large", data);
    expect_refused("gpt2", "\"%\":4", "\"%\":5", "is not the only token with this id", data);
    expect_refused("gpt2", "\"%\":4", "\"%\":\"4\"", "a token without an id", data);
    expect_refused("llama2", "\"unk_token\":\"<unk>\"", "\"unk_token\":\"<no>\"",
                   "\"unk_token\" is not in the vocabulary", data);
}

TEST_F(Changed, IdsMayHaveHoles) {
    change("gpt2", "\"id\":516", "\"id\":600");
    Json t(folder.path);
    ASSERT_EQ(t.status, Z3D_OK) << t.message;
    EXPECT_EQ(t.tokenizer->vocab_size, 601);
    EXPECT_EQ(t.tokenizer->end_of_text, 600);
    EXPECT_EQ(t.decode({550}), "");
}

// Which tokens begin and end a text, by each file that may say so.
class Ends : public Changed {
  protected:
    void expect(int32_t begin, int32_t end) {
        Json t(folder.path);
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        EXPECT_EQ(t.tokenizer->begin_of_text, begin);
        EXPECT_EQ(t.tokenizer->end_of_text, end);
    }
    void config(const std::string &name, const std::string &text) {
        write_file(folder / name, text);
    }
};

TEST_F(Ends, AreFoundInTheFilesBeside) {
    change("llama3", "}", "}"); // <|begin_of_text|> 521, <|endoftext|> 522, <|im_start|> 523
    expect(521, 522);
    config("config.json", "{\"eos_token_id\": 523}");
    expect(521, 523);
    config("generation_config.json", "{\"eos_token_id\": [522, 523]}");
    expect(521, 522);
    config("tokenizer_config.json", "{\"eos_token\": {\"content\": \"<|im_start|>\"}}");
    expect(521, 523);
    config("tokenizer_config.json", "{\"eos_token\": \"<|im_start|>\", \"add_bos_token\": false}");
    expect(521, 523);
}

std::vector<int32_t> document(z3d_tokenizer *t, const std::string &text, bool prompt = false) {
    z3d_token_list list = {};
    EXPECT_EQ(prompt ? z3d_tokenizer_prompt(t, text.data(), text.size(), &list)
                     : z3d_tokenizer_part(t, text.data(), text.size(), true, true, &list),
              Z3D_OK)
        << z3d_error_message();
    std::vector<int32_t> ids(list.id, list.id + list.count);
    z3d_token_list_free(&list);
    return ids;
}

// The post-processor decides. AutoTokenizer of transformers 5.24 gives these ids of "The" with
// PreTrainedTokenizerFast, LlamaTokenizer, GPT2Tokenizer and Qwen2Tokenizer alike.
TEST_F(Ends, ThePostProcessorDecidesWhatBeginsAText) {
    const char *none = "\"post_processor\": null, \"unused\"";
    for (bool pattern : {true, false})
        for (const char *add : {"", ", \"add_bos_token\": true", ", \"add_bos_token\": false"}) {
            change("llama3", "\"post_processor\"", pattern ? "\"post_processor\"" : none);
            config("tokenizer_config.json", std::string("{\"bos_token\": \"<|begin_of_text|>\", "
                                                        "\"eos_token\": \"<|endoftext|>\"") +
                                                add + "}");
            ::testing::internal::CaptureStderr();
            Json t(folder.path);
            EXPECT_EQ(z3d_tokenizer_set_special(t.tokenizer, Z3D_SPECIAL_AUTO), Z3D_OK);
            std::string said = ::testing::internal::GetCapturedStderr();
            ASSERT_EQ(t.status, Z3D_OK) << t.message;
            EXPECT_EQ(document(t.tokenizer, "The", true), pattern
                                                              ? (std::vector<int32_t>{521, 361, 68})
                                                              : (std::vector<int32_t>{361, 68}))
                << add;
            const bool contradicts =
                *add && pattern != (std::string(add).find("true") != std::string::npos);
            EXPECT_EQ(said.find("the post_processor decides") != std::string::npos, contradicts)
                << said;
        }
}

TEST_F(Ends, AnOptionChoosesThemAndNoneIsDoubled) {
    change("llama3", "}", "}");
    config("tokenizer_config.json",
           "{\"bos_token\": \"<|begin_of_text|>\", \"eos_token\": \"<|endoftext|>\"}");
    using Ids = std::vector<int32_t>;
    const std::string chat = "<|begin_of_text|>The<|endoftext|>";
    Json named(folder.path);
    z3d_string name = {};
    z3d_tokenizer_name_token(named.tokenizer, 523, &name);
    EXPECT_STREQ(name.text, "<|im_start|>"); // as generation prints the end of a text
    z3d_string_free(&name);
    const struct {
        z3d_special special;
        Ids plain, chat;
    } cases[] = {{Z3D_SPECIAL_AUTO, {521, 361, 68, 522}, {521, 361, 68, 522}},
                 {Z3D_SPECIAL_NONE, {361, 68}, {521, 361, 68, 522}},
                 {Z3D_SPECIAL_BOS, {521, 361, 68}, {521, 361, 68, 522}},
                 {Z3D_SPECIAL_EOS, {361, 68, 522}, {521, 361, 68, 522}},
                 {Z3D_SPECIAL_BOTH, {521, 361, 68, 522}, {521, 361, 68, 522}}};
    for (const auto &c : cases) {
        Json t(folder.path);
        ASSERT_EQ(z3d_tokenizer_set_special(t.tokenizer, c.special), Z3D_OK);
        EXPECT_EQ(document(t.tokenizer, "The"), c.plain) << c.special;
        EXPECT_EQ(document(t.tokenizer, chat), c.chat) << c.special;
    }
    // A template's end is the document's: once, also before a file's last newline.
    change("llama3", "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}]",
           "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
           "{\"SpecialToken\":{\"id\":\"<|endoftext|>\",\"type_id\":0}}]");
    Json ends(folder.path);
    ASSERT_EQ(ends.status, Z3D_OK) << ends.message;
    EXPECT_EQ(document(ends.tokenizer, "The"), (Ids{521, 361, 68, 522}));
    EXPECT_EQ(document(ends.tokenizer, "The", true), (Ids{521, 361, 68})); // to go on from
    Ids lined = document(ends.tokenizer, chat + " \n");
    EXPECT_EQ(std::count(lined.begin(), lined.end(), 522), 1);
    lined = document(ends.tokenizer, chat + " x\n");
    EXPECT_EQ(std::count(lined.begin(), lined.end(), 522), 2);
    config("tokenizer_config.json", "{\"eos_token\": \"<|im_start|>\"}");
    EXPECT_NE(Json(folder.path).message.find("make them the same"), std::string::npos);
    change("gpt2", "}", "}"); // one token for both: it is put there only where that is asked for
    config("tokenizer_config.json",
           "{\"bos_token\": \"<|endoftext|>\", \"eos_token\": \"<|endoftext|>\"}");
    Json same(folder.path);
    const Ids plain = same.encode("The");
    Ids both = plain;
    both.insert(both.begin(), 516), both.push_back(516);
    EXPECT_EQ(z3d_tokenizer_set_special(same.tokenizer, Z3D_SPECIAL_BOTH), Z3D_OK);
    EXPECT_EQ(document(same.tokenizer, "The"), both);
    config("tokenizer_config.json", "{\"eos_token\": \"<|endoftext|>\"}");
    Json unknown(folder.path);
    EXPECT_EQ(z3d_tokenizer_set_special(unknown.tokenizer, Z3D_SPECIAL_BOS), Z3D_ERR_CONFIG);
    EXPECT_NE(std::string(z3d_error_message()).find("no token that begins a text"),
              std::string::npos);
}

// A tokenizer with one token more than the model: told once, only a text with it is refused.
TEST_F(Ends, OneTokenMoreThanTheModelHas) {
    change("llama3", "}", "}");
    Json t(folder.path);
    const int32_t size = t.tokenizer->vocab_size, last = size - 1;
    ::testing::internal::CaptureStderr();
    ASSERT_EQ(z3d_tokenizer_set_model(t.tokenizer, last), Z3D_OK);
    EXPECT_NE(
        ::testing::internal::GetCapturedStderr().find("a text with one of the last 1 is refused"),
        std::string::npos);
    EXPECT_EQ(document(t.tokenizer, "The", true), (std::vector<int32_t>{521, 361, 68}));
    const std::string text = "<|im_start|>";
    z3d_token_list list = {};
    ASSERT_EQ(t.encode(text).back(), last);
    EXPECT_EQ(z3d_tokenizer_prompt(t.tokenizer, text.data(), text.size(), &list), Z3D_ERR_DATA);
    EXPECT_NE(std::string(z3d_error_message()).find("but the model has ids 0 to"),
              std::string::npos);
    z3d_token_list_free(&list);
    EXPECT_EQ(z3d_tokenizer_set_model(t.tokenizer, size - 2), Z3D_ERR_CONFIG); // its end of text
    change("gpt2", "}", "}");
    EXPECT_EQ(z3d_tokenizer_set_model(Json(folder.path).tokenizer, 100), Z3D_ERR_CONFIG);
}

// All that generation_config.json names, also where another one ends documents.
TEST_F(Ends, OfAGeneratedTextAreSeveral) {
    auto expect_stops = [this](const std::vector<int32_t> &wanted) {
        Json t(folder.path);
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        const z3d_data_list none = {};
        z3d_stops stops, unended;
        ASSERT_EQ(z3d_stops_create(t.tokenizer, &none, true, nullptr, &stops), Z3D_OK);
        ASSERT_EQ(z3d_stops_create(t.tokenizer, &none, false, nullptr, &unended), Z3D_OK);
        for (int32_t id = 0; id < t.tokenizer->vocab_size; id++) {
            const bool ends = std::find(wanted.begin(), wanted.end(), id) != wanted.end();
            EXPECT_EQ(z3d_stops_at_token(&stops, id), ends) << id;
            EXPECT_FALSE(z3d_stops_at_token(&unended, id)) << id;
        }
        z3d_stops_release(&stops);
        z3d_stops_release(&unended);
    };
    change("llama3", "}", "}");
    expect_stops({522});
    config("config.json", "{\"eos_token_id\": [521, 523]}");
    expect_stops({521, 523});
    config("generation_config.json", "{\"eos_token_id\": [522, 523, 99999]}");
    expect_stops({522, 523});
    config("tokenizer_config.json", "{\"eos_token\": \"<|begin_of_text|>\"}");
    expect(521, 521);
    expect_stops({521, 522, 523});
    config("generation_config.json", "{\"eos_token_id\": 522}");
    expect_stops({521, 522});
}

TEST_F(Ends, ThatAreMissingAreAskedFor) {
    change("gpt2", "<|endoftext|>", "<end>");
    Json none(folder.path);
    EXPECT_EQ(none.status, Z3D_ERR_DATA);
    EXPECT_NE(none.message.find("no token that ends a text: expected \"eos_token\""),
              std::string::npos)
        << none.message;
    config("config.json", "{\"eos_token_id\": 517}");
    Json large(folder.path);
    EXPECT_EQ(large.status, Z3D_ERR_DATA);
    EXPECT_NE(large.message.find("eos_token_id is 517"), std::string::npos) << large.message;
}

// A folder is taken as an import takes it.
TEST_P(Family, AFolderSaysWhichTokenizerItHas) {
    Json wanted(folder);
    ASSERT_EQ(wanted.status, Z3D_OK) << wanted.message;
    z3d_tokenizer *found = nullptr;
    ASSERT_EQ(z3d_tokenizer_of_folder(folder.c_str(), nullptr, &found), Z3D_OK);
    EXPECT_EQ(found->digest, wanted.tokenizer->digest);
    EXPECT_EQ(found->begin_of_text, wanted.tokenizer->begin_of_text);
    z3d_tokenizer_destroy(found);
    Folder imported;
    write_file(imported / "config.yaml", "model: {vocab_size: 600}\ndata: {tokenizer: huggingface, "
                                         "vocab: \"" +
                                             folder + "\", special: none}\n");
    ASSERT_EQ(z3d_tokenizer_of_folder(imported.path.c_str(), nullptr, &found), Z3D_OK)
        << z3d_error_message();
    EXPECT_EQ(found->digest, wanted.tokenizer->digest);
    EXPECT_EQ(found->begin_of_text, -1);
    z3d_tokenizer_destroy(found);
    const z3d_special automatic = Z3D_SPECIAL_AUTO; // goes before the folder's
    ASSERT_EQ(z3d_tokenizer_of_folder(imported.path.c_str(), &automatic, &found), Z3D_OK);
    EXPECT_EQ(found->begin_of_text, wanted.tokenizer->begin_of_text);
    z3d_tokenizer_destroy(found);
}

TEST_F(Changed, AFolderOfGpt2IsOfItsKind) {
    change("gpt2", "}", "}");
    z3d_tokenizer *found = nullptr;
    for (const char *kind : {"llama", "gpt2"}) {
        write_file(folder / "config.json", std::string("{\"model_type\": \"") + kind + "\"}");
        ASSERT_EQ(z3d_tokenizer_of_folder(folder.path.c_str(), nullptr, &found), Z3D_OK);
        EXPECT_STREQ(found->name, strcmp(kind, "gpt2") == 0 ? "gpt2" : "huggingface");
        z3d_tokenizer_destroy(found);
    }
    Folder empty;
    EXPECT_EQ(z3d_tokenizer_of_folder(empty.path.c_str(), nullptr, &found), Z3D_ERR_DATA);
    EXPECT_EQ(found, nullptr);
}

TEST(HuggingFace, OtherFilesAreRefused) {
    Folder folder;
    Json none(folder.path), empty("");
    EXPECT_EQ(none.status, Z3D_ERR_IO);
    EXPECT_NE(none.message.find(folder / "tokenizer.json"), std::string::npos) << none.message;
    EXPECT_EQ(empty.status, Z3D_ERR_CONFIG);
    Json pair(ZERO3D_TEST_DATA "/gpt2_tiny");
    EXPECT_EQ(pair.status, Z3D_ERR_DATA);
    EXPECT_NE(pair.message.find("set data.tokenizer to gpt2"), std::string::npos) << pair.message;
    Tokenizer merges(Z3D_TOKENIZER_HUGGINGFACE, fixtures + "/gpt2", "merges.txt");
    EXPECT_EQ(merges.status, Z3D_ERR_CONFIG);
}

// What a model continues, as transformers' generate: what the post-processor puts before it, and a
// new text where there is no prompt.
TEST(HuggingFace, PromptsFollowWhatBeginsAText) {
    auto prompt = [](Tokenizer &t, const std::string &text) {
        z3d_token_list list = {};
        EXPECT_EQ(z3d_tokenizer_prompt(t.tokenizer, text.data(), text.size(), &list), Z3D_OK);
        std::vector<int32_t> ids(list.id, list.id + list.count);
        z3d_token_list_free(&list);
        return ids;
    };
    Json with(fixtures + "/llama3"), without(fixtures + "/qwen");
    std::vector<int32_t> wanted = with.encode("The");
    wanted.insert(wanted.begin(), with.tokenizer->begin_of_text);
    EXPECT_EQ(prompt(with, "The"), wanted);
    EXPECT_EQ(prompt(without, "The"), without.encode("The"));
    EXPECT_EQ(prompt(with, ""), std::vector<int32_t>{with.tokenizer->begin_of_text});
    EXPECT_EQ(prompt(without, ""), std::vector<int32_t>{without.tokenizer->end_of_text});
    Tokenizer gpt2(Z3D_TOKENIZER_GPT2, fixtures + "/gpt2");
    EXPECT_EQ(prompt(gpt2, "The"), gpt2.encode("The"));
    EXPECT_EQ(prompt(gpt2, ""), std::vector<int32_t>{gpt2.tokenizer->end_of_text});
}

// A document begins with its first token where that is not what ends the one before it.
TEST(HuggingFace, DocumentsHaveWhatBeginsAndEndsThem) {
    Folder folder;
    std::string input = folder / "text", output = folder / "train.bin";
    write_file(input, "The text.");
    for (const char *name : {"llama3", "qwen"}) {
        Json t(fixtures + "/" + name);
        ASSERT_EQ(t.status, Z3D_OK) << t.message;
        const char *path = input.c_str();
        z3d_tokenize_options options{};
        options.inputs = &path, options.count = 1;
        options.output_train = output.c_str(), options.tokenizer = t.tokenizer;
        z3d_tokenize_result result;
        ASSERT_EQ(z3d_data_tokenize(&options, &result), Z3D_OK) << z3d_error_message();
        std::vector<int32_t> wanted = t.encode("The text.");
        if (t.tokenizer->begin_of_text >= 0)
            wanted.insert(wanted.begin(), t.tokenizer->begin_of_text);
        wanted.push_back(t.tokenizer->end_of_text);
        std::vector<uint16_t> narrow(wanted.begin(), wanted.end());
        EXPECT_TRUE(read_file(output).substr(1024, 2 * narrow.size()) ==
                    token_bytes(narrow).substr(1024))
            << name;
    }
}

// A token file knows which tokenizer made it: ids of another one would train silently.
TEST(HuggingFace, TokenFilesKnowTheirTokenizer) {
    Folder folder;
    const std::string input = folder / "text", output = folder / "train.bin";
    write_file(input, "The text, which is a little longer.");
    const char *path = input.c_str();
    z3d_tokenize_options options{};
    options.inputs = &path, options.count = 1, options.output_train = output.c_str();
    auto check = [&](std::vector<std::string> assignments) {
        z3d_config *config;
        z3d_dataset *dataset;
        EXPECT_EQ(z3d_config_create(&config), Z3D_OK);
        assignments.push_back("data.train=" + output);
        for (const std::string &a : assignments)
            EXPECT_EQ(z3d_config_override(config, a.c_str()), Z3D_OK) << a;
        z3d_dataset_config data{};
        data.files = &config->data_train, data.seq_length = 4, data.vocab_size = 1 << 20;
        EXPECT_EQ(z3d_dataset_open(&data, &dataset), Z3D_OK) << z3d_error_message();
        z3d_status status = z3d_dataset_check_tokenizer(dataset, config);
        z3d_dataset_close(dataset);
        z3d_config_destroy(config);
        return status;
    };
    z3d_tokenize_result result;
    const std::string gpt2 = "data.tokenizer=gpt2", vocab = "data.vocab=";
    ASSERT_EQ(z3d_data_tokenize(&options, &result), Z3D_OK) << z3d_error_message(); // bytes
    EXPECT_EQ(check({"model.vocab_size=257"}), Z3D_OK);
    EXPECT_EQ(check({"model.vocab_size=50304"}), Z3D_OK);
    EXPECT_EQ(check({gpt2, vocab + ZERO3D_TEST_DATA "/gpt2_tiny"}), Z3D_ERR_CONFIG);
    const std::string message = z3d_error_message();
    EXPECT_NE(message.find("train.bin: another tokenizer made this file (257 ids, digest "),
              std::string::npos)
        << message;
    EXPECT_EQ(check({gpt2, vocab + folder.path + "/missing"}), Z3D_OK); // unknown here
    Tokenizer other(Z3D_TOKENIZER_GPT2, fixtures + "/gpt2");
    options.tokenizer = other.tokenizer;
    ASSERT_EQ(z3d_data_tokenize(&options, &result), Z3D_OK) << z3d_error_message();
    EXPECT_EQ(check({gpt2, vocab + fixtures + "/gpt2"}), Z3D_OK);
    EXPECT_EQ(check({"data.tokenizer=huggingface", vocab + fixtures + "/gpt2"}), Z3D_OK);
    EXPECT_EQ(check({"data.tokenizer=huggingface", vocab + fixtures + "/qwen"}), Z3D_ERR_CONFIG);
    EXPECT_EQ(check({"model.vocab_size=300"}), Z3D_ERR_CONFIG); // a model of bytes
    EXPECT_EQ(check({"model.vocab_size=50304"}), Z3D_OK);       // nobody says which
    write_file(output, token_bytes(std::vector<uint16_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(check({"model.vocab_size=257"}), Z3D_OK); // another program's
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
