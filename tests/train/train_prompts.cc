// Files of prompts and of answers, and what ends an answer.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/expect.h"

extern "C" {
#include "src/train/generation/prompts.h"
}

namespace {

class Prompts : public ::testing::Test {
  protected:
    z3d_tokenizer *tokenizer = nullptr;
    z3d_prompts prompts = {};
    const z3d_chat *chat = nullptr;
    const char *system = nullptr;
    int64_t positions = 8;
    void SetUp() override {
        ASSERT_Z3D(z3d_tokenizer_create(Z3D_TOKENIZER_BYTES, "", "", &tokenizer));
    }
    void TearDown() override {
        z3d_prompts_free(&prompts);
        z3d_tokenizer_destroy(tokenizer);
    }
    std::string path = "p.jsonl";
    z3d_status read(const std::string &text) {
        const z3d_prompt_style style = {tokenizer, chat, system, positions, 50, 3};
        char *copy = static_cast<char *>(malloc(text.size() + 1));
        memcpy(copy, text.data(), text.size());
        z3d_prompts_free(&prompts);
        return z3d_prompts_read(copy, text.size(), path.c_str(), &style, &prompts);
    }
    std::string refused(const std::string &text) {
        EXPECT_EQ(read(text), Z3D_ERR_DATA) << text;
        return z3d_error_message();
    }
    std::string line(int64_t prompt, const std::string &text, int64_t tokens, bool stopped) {
        z3d_string out = {};
        const z3d_answer answer = {text.data(), text.size(), tokens, stopped};
        z3d_prompts_answer_line(&prompts.prompt[prompt].head, &answer, &out);
        std::string copy(out.text, out.length);
        z3d_string_free(&out);
        return copy;
    }
};

TEST_F(Prompts, HaveDefaultsAndTheirOwn) {
    ASSERT_Z3D(read("\xef\xbb\xbf{\"prompt\": \"ab\"}\n\n  \r\n"
                    "{\"tokens\": 7, \"prompt\": \"\"}\n{\"prompt\": \"c\", \"seed\": 9}"));
    ASSERT_EQ(prompts.count, 3);
    const z3d_prompt *p = prompts.prompt;
    EXPECT_EQ(p[0].length, 2); // nothing is put before a text
    EXPECT_EQ(p[0].token[0], 'a');
    EXPECT_EQ(p[0].token[1], 'b');
    EXPECT_EQ(p[0].tokens, 50);
    EXPECT_EQ(p[0].seed, 3u);
    EXPECT_EQ(p[0].line, 0u);
    EXPECT_EQ(p[1].length, 1);
    EXPECT_EQ(p[1].token[0], tokenizer->end_of_text);
    EXPECT_EQ(p[1].tokens, 7);
    EXPECT_EQ(p[1].line, 3u); // blank lines count
    EXPECT_EQ(p[2].seed, 9u);
    EXPECT_EQ(p[2].line, 0u); // as a prompt that is alone
}

TEST_F(Prompts, AnswersKeepTheKeysOfTheirLine) {
    ASSERT_Z3D(
        read("{\"id\": -1.50e3, \"prompt\": \"a\\\"\\n\xc3\xa9\", \"text\": 1, \"tokens\": 2, "
             "\"finish\": [], \"seed\": 4, \"deep\": {\"l\": [null, true, false, {}], "
             "\"s\": \"\\u0001\"}}"));
    EXPECT_EQ(line(0, std::string("x\0\xff", 3), 2, false),
              "{\"prompt\": \"a\\\"\\n\xc3\xa9\", \"id\": -1.50e3, \"seed\": 4, \"deep\": {\"l\": "
              "[null, true, false, {}], \"s\": \"\\u0001\"}, \"text\": \"x\\u0000\xef\xbf\xbd\", "
              "\"tokens\": 2, \"finish\": \"length\"}\n");
    EXPECT_NE(line(0, "", 0, true).find("\"text\": \"\", \"tokens\": 0, \"finish\": \"stop\""),
              std::string::npos);
}

TEST_F(Prompts, SayEverythingThatIsWrongWithItsLine) {
    EXPECT_EQ(refused("{\"prompt\": 1}\n{\"prompt\": \"good\"}\n{\"a\": 1}\nno\n[]\n"
                      "{\"prompt\": \"\xff\"}\n{\"prompt\": \"\\u0000\"}\n"
                      "{\"prompt\": \"a\", \"tokens\": 0}\n{\"prompt\": \"a\", \"seed\": 1.5}\n"
                      "{\"prompt\": \"123456789\"}\n{\"prompt\": \"a\"}{\n"
                      "{\"prompt\": \"a\", \"id\": 1, \"prompt\": \"b\"}\n"),
              "p.jsonl:1: prompt: its value is not a string\n"
              "p.jsonl:3: prompt: this line has no such key; it has: a\n"
              "p.jsonl:4: byte 0: not a JSON value\n"
              "p.jsonl:5: prompt: expected a JSON object {...}\n"
              "p.jsonl:6: byte 12: a string that is not UTF-8\n"
              "p.jsonl:7: byte 18: a NUL character in a string\n"
              "p.jsonl:8: tokens: expected an integer from 1 to 1000000\n"
              "p.jsonl:9: seed: expected an integer from 0 to 9223372036854775807\n"
              "p.jsonl:10: the prompt has 9 tokens, but the model sees 8 (model.seq_length); "
              "shorten it\n"
              "p.jsonl:11: byte 15: text after the end\n"
              "p.jsonl:12: prompt: this line has the key twice");
    for (const char *empty : {"", "\n", " \n\r\n"})
        EXPECT_EQ(refused(empty),
                  "p.jsonl has no prompts: each line must be {\"prompt\": \"a text\"}");
    for (const char *plain : {"It was\n", "\xef\xbb\xbf\n It was"})
        EXPECT_EQ(refused(plain),
                  "p.jsonl: it has no JSON lines: each line must be {\"prompt\": \"a text\"}");
    std::string many;
    for (int i = 0; i < 1000; i++) many += "[]\n";
    const std::string said = refused(many);
    EXPECT_NE(said.find("p.jsonl:20: "), std::string::npos);
    EXPECT_EQ(said.find("p.jsonl:21: "), std::string::npos);
    EXPECT_NE(said.find("\n... and 980 more lines are wrong"), std::string::npos);
}

TEST_F(Prompts, ALongPathDoesNotHideTheLine) {
    path = std::string(600, 'p') + ".jsonl";
    EXPECT_NE(refused("\n{}").find(path + ":2: "), std::string::npos) << z3d_error_message();
}

TEST_F(Prompts, OfAChatAreMessages) {
    z3d_chat plain{};
    ASSERT_Z3D(z3d_chat_find("plain", tokenizer, &plain));
    chat = &plain, positions = 80;
    const auto shown = [&](int64_t i) {
        z3d_string text{};
        EXPECT_Z3D(z3d_tokenizer_decode(tokenizer, prompts.prompt[i].token,
                                        (size_t)prompts.prompt[i].length, true, &text));
        std::string copy(text.text, text.length);
        z3d_string_free(&text);
        return copy;
    };
    const std::string talk =
                          "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"from\": "
                          "\"gpt\", \"value\": \"b\"}, {\"role\": \"user\", \"content\": \"c\"}]",
                      last =
                          "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": "
                          "\"user\", \"content\": \"a\"}]}";
    ASSERT_Z3D(read("{\"prompt\": \"hi\"}\n" + talk + ", \"id\": 5}\n" + last));
    EXPECT_EQ(shown(0), "User: hi\nAssistant:");
    EXPECT_EQ(shown(1), "User: a\nAssistant: b\nUser: c\nAssistant:");
    EXPECT_EQ(shown(2), "s\nUser: a\nAssistant:");
    EXPECT_TRUE(prompts.prompt[0].begins);
    EXPECT_EQ(line(1, "d", 1, true),
              talk + ", \"id\": 5, \"text\": \"d\", \"tokens\": 1, \"finish\": \"stop\"}\n");
    system = "t";
    ASSERT_Z3D(read("{\"prompt\": \"hi\"}\n" + talk + "}\n" + last));
    EXPECT_EQ(shown(0), "t\nUser: hi\nAssistant:");
    EXPECT_EQ(shown(1), "t\nUser: a\nAssistant: b\nUser: c\nAssistant:");
    EXPECT_EQ(shown(2), "s\nUser: a\nAssistant:"); // the line's own
    EXPECT_EQ(
        refused(
            "{\"messages\": []}\n{\"messages\": [], \"prompt\": \"a\"}\n{\"messages\": [{\"role\": "
            "\"assistant\", \"content\": \"a\"}]}\n{\"messages\": [{\"role\": \"user\", "
            "\"content\": "
            "\"a\"}, {\"role\": \"assistant\", \"content\": \"a\"}]}\n{\"a\": 1}\n" +
            talk + ", \"tools\": [{}]}\n{\"prompt\": \"a\", \"functions\": \"f\"}"),
        "p.jsonl:1: \"messages\" is empty\n"
        "p.jsonl:2: this line has prompt and messages: give one\n"
        "p.jsonl:3: message 1 is the assistant's, expected the user's: user and "
        "assistant must be in turns, after at most one system message\n"
        "p.jsonl:4: the last message must be the user's: the assistant's answer is generated\n"
        "p.jsonl:5: prompt: this line has no such key; it has: a\n"
        "p.jsonl:6: \"tools\" is not supported: remove the key or the object\n"
        "p.jsonl:7: \"functions\" is not supported: remove the key or the object");
    chat = nullptr;
    EXPECT_EQ(refused(last), "p.jsonl:1: messages: conversations need --chat");
    z3d_chat_free(&plain);
}

class Stops : public Prompts {
  protected:
    z3d_stops stops = {};
    z3d_data_list list = {};
    std::vector<const char *> texts;
    void create(const std::vector<const char *> &wanted, bool end_of_text = false) {
        z3d_stops_release(&stops);
        texts = wanted;
        list = {static_cast<int>(texts.size()), texts.data(), nullptr};
        ASSERT_Z3D(z3d_stops_create(tokenizer, &list, end_of_text, nullptr, &stops));
    }
    void TearDown() override {
        z3d_stops_release(&stops);
        Prompts::TearDown();
    }
    // The text byte by byte: where it stops (-1: nowhere), with what is sure as a sum of pieces.
    int64_t stream(const std::string &text, std::string *pieces) {
        size_t told = 0, at;
        pieces->clear();
        for (size_t n = 1; n <= text.size(); n++) {
            if (z3d_stops_find(&stops, text.data(), n, n - 1, &at)) {
                EXPECT_LE(told, at); // nothing of the stop was told
                *pieces += text.substr(told, at - told);
                return static_cast<int64_t>(at);
            }
            const size_t sure = z3d_stops_sure(&stops, text.data(), n);
            EXPECT_LE(sure, n);
            if (sure > told) {
                const std::string piece = text.substr(told, sure - told);
                for (size_t i = 0; i < piece.size();) {
                    const size_t length = z3d_utf8_length(piece.data() + i, piece.size() - i);
                    EXPECT_GT(length, 0u) << "half a character";
                    i += length ? length : 1;
                }
                *pieces += piece;
                told = sure;
            }
        }
        *pieces += text.substr(told);
        return -1;
    }
};

TEST_F(Stops, AreFoundWhereTheyBeginFirst) {
    std::string pieces;
    create({"aab", "\n\n", "\xe2\x82\xac"});
    EXPECT_EQ(stream("xaaab", &pieces), 2); // behind a false start
    EXPECT_EQ(pieces, "xa");
    EXPECT_EQ(stream("aab", &pieces), 0);
    EXPECT_EQ(pieces, "");
    EXPECT_EQ(stream("a\n\xc3\xa9\xf0\x9f\x98\x80\n\nb", &pieces), 8);
    EXPECT_EQ(pieces, "a\n\xc3\xa9\xf0\x9f\x98\x80");
    EXPECT_EQ(stream("1 \xe2\x82\xac", &pieces), 2); // its character's first bytes are not told
    EXPECT_EQ(stream("aa\n", &pieces), -1);
    EXPECT_EQ(pieces, "aa\n");
    create({});
    EXPECT_EQ(stream("aab\n\n", &pieces), -1);
    EXPECT_EQ(pieces, "aab\n\n");
}

TEST_F(Stops, AreTokensWhereTheyHaveNoText) {
    create({"a"}, true);
    EXPECT_TRUE(z3d_stops_at_token(&stops, tokenizer->end_of_text));
    EXPECT_FALSE(z3d_stops_at_token(&stops, 'a')); // a string: its token may end with it
    create({"a"}, false);
    EXPECT_FALSE(z3d_stops_at_token(&stops, tokenizer->end_of_text));
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
