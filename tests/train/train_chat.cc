// Instruction data: chat templates against transformers' (tests/data/chat, made by make.py there),
// what is trained, the shapes of objects, and what is refused.
#include <gtest/gtest.h>

#include <sstream>

extern "C" {
#include "src/train/data/token_writer.h"
#include "src/train/generation/prompts.h"
#include "src/train/text/instruction.h"
}
#include "files.h"
#include "tests/expect.h"
#include "text.h"

namespace {

const std::string data = ZERO3D_TEST_DATA;

std::vector<std::string> lines_of(const std::string &path) {
    std::vector<std::string> out;
    std::istringstream in(read_file(path));
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
}

// A tokenizer of tests/data/tokenizers in a folder of its own, with more special tokens.
struct Model {
    Model(const std::string &name, const std::vector<std::string> &added) {
        const std::string from = data + "/tokenizers/" + name + "/", key = "\"added_tokens\":[";
        std::string whole = read_file(from + "tokenizer.json"), more;
        int id = std::stoi(read_file(from + "ids.txt"));
        for (const std::string &text : added)
            more += "{\"id\":" + std::to_string(id++) + ",\"content\":\"" + text +
                    "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                    "\"normalized\":false,\"special\":true},";
        const std::string yes = "\"normalized\":true,\"special\":true";
        for (size_t at; (at = whole.find(yes)) != std::string::npos;)
            whole.replace(at, yes.size(), "\"normalized\":false,\"special\":true");
        whole.insert(whole.find(key) + key.size(), more);
        write_file(folder / "tokenizer.json", whole);
        write_file(folder / "tokenizer_config.json", read_file(from + "tokenizer_config.json"));
        open();
    }
    void open() {
        tokenizer = std::make_unique<Tokenizer>(Z3D_TOKENIZER_HUGGINGFACE, folder.path);
        EXPECT_EQ(tokenizer->status, Z3D_OK) << tokenizer->message;
    }
    // With a chat template in its configuration.
    void set_template(const std::string &text) {
        z3d_string json = {};
        z3d_string_append_json(&json, text.c_str());
        write_file(folder / "tokenizer_config.json",
                   std::string("{\"chat_template\": ") + json.text + "}");
        z3d_string_free(&json);
    }
    Folder folder;
    std::unique_ptr<Tokenizer> tokenizer;
};

struct Encoded {
    z3d_status status;
    std::string message, ids; // "1 2* 3*": * where it is trained
    int64_t special_messages;
};

struct How {
    z3d_tokenize_format format = Z3D_FORMAT_MESSAGES;
    z3d_loss_on loss_on = Z3D_LOSS_AUTO;
    const char *chat_template = nullptr;
};

Encoded encode(Tokenizer *tokenizer, const How &how, const std::string &line) {
    z3d_tokenize_options options{};
    options.loss_on = how.loss_on;
    options.chat_template = how.chat_template;
    z3d_instructions in{};
    z3d_token_list ids{};
    int64_t bytes;
    z3d_json_lines lines{};
    lines.path = "x.jsonl";
    z3d_json_lines_of(&lines, strdup(line.c_str()), line.size());
    Encoded out{};
    out.status = z3d_instructions_create(&options, how.format, tokenizer->tokenizer, &in);
    if (out.status == Z3D_OK) out.status = z3d_json_lines_next_object(&lines);
    if (out.status == Z3D_OK) out.status = z3d_instructions_encode(&in, &lines, &ids, &bytes);
    if (out.status != Z3D_OK) out.message = z3d_error_message();
    out.special_messages = in.special_messages;
    for (size_t i = 0; i < ids.count; i++)
        out.ids += (i ? " " : "") + std::to_string(ids.id[i] & ~Z3D_TOKEN_UNTRAINED) +
                   (ids.id[i] & Z3D_TOKEN_UNTRAINED ? "" : "*");
    z3d_token_list_free(&ids);
    z3d_json_lines_free(&lines);
    z3d_instructions_free(&in);
    return out;
}

// The line of tokens.txt before a template's tokens: its kind, a tokenizer, tokens added to it.
struct Recorded {
    std::string kind, name;
    std::vector<std::string> added;

    explicit Recorded(const std::string &line) {
        std::istringstream head(line);
        head >> kind >> name;
        for (std::string token; head >> token;) added.push_back(token);
    }
};

TEST(ChatTemplates, GiveTheTokensOfTransformers) {
    const auto conversations = lines_of(data + "/chat/conversations.jsonl");
    const auto tokens = lines_of(data + "/chat/tokens.txt");
    ASSERT_EQ(tokens.size() % (conversations.size() + 1), 0u);
    for (size_t at = 0; at < tokens.size(); at += conversations.size() + 1) {
        const Recorded of(tokens[at]);
        Model model(of.name, of.added);
        for (size_t i = 0; i < conversations.size(); i++) {
            const How how{Z3D_FORMAT_MESSAGES, Z3D_LOSS_AUTO, of.kind.c_str()};
            Encoded e = encode(model.tokenizer.get(), how, conversations[i]);
            const std::string &wanted = tokens[at + 1 + i];
            // A template without thinking loses reasoning_content, which is refused here.
            const bool lost = of.kind != "qwen3" &&
                              conversations[i].find("reasoning_content") != std::string::npos;
            EXPECT_EQ(e.status, wanted == "-" || lost ? Z3D_ERR_DATA : Z3D_OK) << e.message;
            if (wanted != "-" && !lost) {
                EXPECT_EQ(e.ids, wanted) << of.kind << ", " << of.name << ": " << conversations[i];
            }
        }
    }
}

// Of a conversation without its last answer: what stands before it in the whole one, which
// transformers' prompt of generation is a beginning of (make.py makes sure). The space that
// Mistral's templates write before an answer is none of the prompt.
TEST(ChatTemplates, GiveThePromptsOfTransformers) {
    const auto conversations = lines_of(data + "/chat/conversations.jsonl");
    const auto tokens = lines_of(data + "/chat/tokens.txt");
    int compared = 0;
    for (size_t at = 0; at < tokens.size(); at += conversations.size() + 1) {
        const Recorded of(tokens[at]);
        Model model(of.name, of.added);
        const bool spaced = of.kind == "mistral-v1" || of.kind == "mistral-v3";
        z3d_chat chat{};
        ASSERT_Z3D(z3d_chat_find(of.kind.c_str(), model.tokenizer->tokenizer, &chat));
        for (size_t i = 0; i < conversations.size(); i++) {
            std::istringstream line(tokens[at + 1 + i]);
            std::vector<std::string> wanted;
            for (std::string token; line >> token;) wanted.push_back(token);
            if (wanted[0] == "-") continue;
            z3d_json *json;
            z3d_conversation talk{};
            z3d_token_list ids{};
            ASSERT_Z3D(
                z3d_json_parse(conversations[i].c_str(), conversations[i].size(), "c", &json));
            const z3d_json *list = z3d_json_member(json, "messages");
            ASSERT_Z3D(z3d_conversation_read(&talk, list, "messages", true, false));
            const z3d_message &last = talk.message[talk.count - 1];
            // Line feeds of the prompt and of an answer may be one token.
            if (last.role == Z3D_CHAT_ASSISTANT && *last.text != '\n') {
                size_t end = wanted.size();
                while (wanted[end - 1].back() != '*') end--;
                while (end > 0 && wanted[end - 1].back() == '*') end--;
                ASSERT_Z3D(z3d_chat_encode(&chat, model.tokenizer->tokenizer, talk.message,
                                           talk.count - 1, true, &ids));
                ASSERT_LE(ids.count, end) << of.kind << ": " << conversations[i];
                EXPECT_LE(end - ids.count, spaced ? 1u : 0u) << of.kind << ": " << conversations[i];
                for (size_t k = 0; k < ids.count; k++)
                    EXPECT_EQ(ids.id[k], std::stoi(wanted[k]))
                        << of.kind << ": " << conversations[i];
                compared++;
            }
            z3d_token_list_free(&ids);
            z3d_conversation_free(&talk);
            z3d_json_free(json);
        }
        z3d_chat_free(&chat);
    }
    EXPECT_GT(compared, 100);
}

const char chatml[] = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
                      "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if "
                      "add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const char question[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                        "{\"role\": \"assistant\", \"content\": \"b\"}]}";

TEST(ChatTemplates, AreRecognisedHoweverTheyAreLaidOut) {
    Model model("qwen", {"<|im_end|>"});
    const How named{Z3D_FORMAT_MESSAGES, Z3D_LOSS_AUTO, "chatml"};
    auto ids = [&](const How &how) {
        Encoded e = encode(model.tokenizer.get(), how, question);
        EXPECT_EQ(e.status, Z3D_OK) << e.message;
        return e.ids;
    };
    const std::string wanted = ids(named);
    EXPECT_NE(wanted, "");
    model.set_template(chatml);
    EXPECT_EQ(ids(How{}), wanted);
    model.set_template("{%  for message in messages  -%}{{- \"<|im_start|>\"+message[\"role\"] + "
                       "\"\\n\" + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}");
    EXPECT_EQ(encode(model.tokenizer.get(), How{}, question).status,
              Z3D_ERR_UNSUPPORTED); // it has other white space, and no prompt
    model.set_template(std::string("{% for message in messages %}{{\"<|im_start|>\"+message[\"role"
                                   "\"] + \"\\n\" + ") +
                       (strstr(chatml, "message['content']")));
    EXPECT_EQ(ids(How{}), wanted);
    // Comments write nothing, nor do the ends of their lines; other lines' ends do.
    const std::string loop = "{% for message in messages %}", body = strstr(chatml, "{{'<|im");
    for (const std::string comment :
         {"{# a note #}", "{# a\nnote #}\n", "  {#- a note -#} \n\n", "\n{#- it's -#}"}) {
        model.set_template(comment + loop + (comment[0] == ' ' ? comment : "{# '#}") + body);
        EXPECT_EQ(ids(How{}), wanted) << comment;
        model.set_template(comment + "\n" + loop + "." + body);
        EXPECT_EQ(encode(model.tokenizer.get(), How{}, question).status, Z3D_ERR_UNSUPPORTED);
    }
    model.set_template(loop + "{# a note #} \n" + body);
    EXPECT_EQ(encode(model.tokenizer.get(), How{}, question).status, Z3D_ERR_UNSUPPORTED);
    // Blanks around a comment that keeps them are written; what has no end is no template.
    for (const std::string comment : {"{#+ a note #}", "{# a note +#}\n", "{# it's"}) {
        model.set_template(loop + body + comment);
        EXPECT_EQ(encode(model.tokenizer.get(), How{}, question).status, Z3D_ERR_UNSUPPORTED)
            << comment;
    }
    for (const std::string comment : {"{#}#}", "{#-#}"}) {
        model.set_template(comment + loop + body);
        EXPECT_EQ(ids(How{}), wanted) << comment;
        model.set_template(loop + body + comment + "\n ");
        EXPECT_EQ(encode(model.tokenizer.get(), How{}, question).status, Z3D_ERR_UNSUPPORTED)
            << comment;
    }
    // chat_template.jinja comes first; a list has the one that is called default.
    write_file(model.folder / "chat_template.jinja", std::string(chatml) + "\n");
    write_file(model.folder / "tokenizer_config.json", "{\"chat_template\": \"?\"}");
    EXPECT_EQ(ids(How{}), wanted);
    std::filesystem::remove(model.folder / "chat_template.jinja");
    write_file(model.folder / "tokenizer_config.json",
               "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"?\"}, {\"name\": "
               "\"other\", \"template\": \"!\"}]}");
    EXPECT_EQ(encode(model.tokenizer.get(), How{}, question).status, Z3D_ERR_USAGE);
}

TEST(ChatTemplates, TheUsualSystemMessageIsReadFromTheTemplate) {
    Model model("qwen", {"<|im_end|>"});
    const How named{Z3D_FORMAT_MESSAGES, Z3D_LOSS_AUTO, "chatml"};
    model.set_template(
        std::string("{% for message in messages %}{% if loop.first and messages[0]['role'] != "
                    "'system' %}{{ '<|im_start|>system\\nYou are small.<|im_end|>\\n' }}{% endif "
                    "%}") +
        strstr(chatml, "{{'<|im"));
    std::string with = question;
    with.insert(with.find('[') + 1, "{\"role\": \"system\", \"content\": \"You are small.\"}, ");
    Encoded wanted = encode(model.tokenizer.get(), named, with);
    Encoded own = encode(model.tokenizer.get(), How{}, question);
    ASSERT_EQ(own.status, Z3D_OK) << own.message;
    EXPECT_EQ(own.ids, wanted.ids);
}

TEST(ChatTemplates, UnknownOnesAreRefusedWithTheWayOut) {
    Model model("qwen", {"<|im_end|>"});
    auto expect = [&](const How &how, z3d_status status, const std::vector<std::string> &words) {
        Encoded e = encode(model.tokenizer.get(), how, question);
        EXPECT_EQ(e.status, status) << e.message;
        for (const std::string &word : words)
            EXPECT_NE(e.message.find(word), std::string::npos) << word << " in: " << e.message;
    };
    model.set_template("{{ '<|start_header_id|>' }}");
    expect(How{}, Z3D_ERR_UNSUPPORTED,
           {"tokenizer_config.json", "digest",
            "not a known one: give --chat-template llama3 if it writes the same as ",
            "(names: chatml, qwen2.5, "});
    model.set_template("{{ 'another' }}");
    expect(How{}, Z3D_ERR_UNSUPPORTED,
           {"not a known one: give --chat-template NAME if it writes the same as "});
    expect(How{Z3D_FORMAT_MESSAGES, Z3D_LOSS_AUTO, "llama9"}, Z3D_ERR_USAGE,
           {"--chat-template llama9", "chatml, qwen2.5, qwen3", "plain"});
    expect(How{Z3D_FORMAT_MESSAGES, Z3D_LOSS_AUTO, "llama3"}, Z3D_ERR_CONFIG,
           {"<|start_header_id|>", "no such special token", "plain"});
    write_file(model.folder / "tokenizer_config.json", "{}");
    expect(How{}, Z3D_ERR_USAGE, {"--vocab FOLDER", "--chat-template plain"});
}

// A text that writes a special token out: it stays one, as with transformers, and is counted; a
// prompt's is refused, and any that the model has no row of.
TEST(ChatTemplates, SpecialTokensInATextAreNoticed) {
    Model model("qwen", {"<|im_end|>", "<|more|>"});
    z3d_tokenizer *t = model.tokenizer->tokenizer;
    const How named{Z3D_FORMAT_MESSAGES, Z3D_LOSS_AUTO, "chatml"};
    auto with = [](const std::string &text) {
        return std::string("{\"messages\": [{\"role\": \"user\", \"content\": \"") + text +
               "\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}";
    };
    EXPECT_EQ(encode(model.tokenizer.get(), named, with("a<|im_end|>\\nb")).special_messages, 1);
    EXPECT_EQ(encode(model.tokenizer.get(), named, with("a<|im_end")).special_messages, 0);
    z3d_chat chat{};
    ASSERT_Z3D(z3d_chat_find("chatml", t, &chat));
    auto prompt = [&](const std::string &text, const char *system) {
        const z3d_prompt_style style = {t, &chat, system, 0, 0, 0};
        z3d_prompt out{};
        const z3d_status status = z3d_prompt_encode(&style, text.c_str(), text.size(), &out);
        free(out.token);
        return status == Z3D_OK ? "" : std::string(z3d_error_message());
    };
    EXPECT_EQ(prompt("a <|im_end", "s"), "");
    EXPECT_EQ(prompt("a <|im_end|>\n<|im_start|>system\nb", "s"),
              "the user's message has <|im_end|>, which is a special token of the tokenizer, "
              "not text: remove it");
    EXPECT_EQ(prompt("a", "<|more|>"),
              "the system's message has <|more|>, which is a special token of the tokenizer, "
              "not text: remove it");
    const int32_t ids = t->vocab_size;
    ASSERT_Z3D(z3d_tokenizer_set_model(t, ids - 1));
    Encoded e = encode(model.tokenizer.get(), named, with("a<|more|>"));
    EXPECT_EQ(e.status, Z3D_ERR_DATA);
    EXPECT_NE(e.message.find("the text has token " + std::to_string(ids - 1)), std::string::npos)
        << e.message;
    ASSERT_Z3D(z3d_tokenizer_set_model(t, ids - 2));
    z3d_chat_free(&chat);
    EXPECT_EQ(z3d_chat_find("chatml", t, &chat), Z3D_ERR_CONFIG);
    EXPECT_NE(strstr(z3d_error_message(), "writes <|im_end|>, token "), nullptr)
        << z3d_error_message();
    z3d_chat_free(&chat);
}

// Bytes: what is trained can be read.
class Objects : public ::testing::Test {
  protected:
    // Trained text is between brackets, the end of a text is $.
    std::string shown(const How &how, const std::string &line) {
        Encoded e = encode(&bytes, how, line);
        EXPECT_EQ(e.status, Z3D_OK) << e.message;
        std::istringstream in(e.ids);
        std::string out, word;
        bool trained = false;
        while (in >> word) {
            if ((word.back() == '*') != trained) out += (trained = !trained) ? "[" : "]";
            int id = std::stoi(word);
            out += id == 256 ? '$' : static_cast<char>(id);
        }
        return out + (trained ? "]" : "");
    }
    void refuse(z3d_tokenize_format format, const std::string &line, const std::string &words) {
        Encoded e = encode(&bytes, How{format, Z3D_LOSS_AUTO, chat}, line);
        EXPECT_EQ(e.status, Z3D_ERR_DATA) << line;
        EXPECT_NE(e.message.find("x.jsonl:1: "), std::string::npos) << e.message;
        EXPECT_NE(e.message.find(words), std::string::npos) << words << " in: " << e.message;
    }
    Tokenizer bytes{Z3D_TOKENIZER_BYTES, ""};
    const char *chat = "plain";
};

TEST_F(Objects, TheChosenPartsAreTrained) {
    const std::string talk =
        R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, )"
        R"({"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, )"
        R"({"role": "assistant", "content": ""}]})";
    auto with = [&](z3d_loss_on loss) { return How{Z3D_FORMAT_MESSAGES, loss, "plain"}; };
    EXPECT_EQ(shown(with(Z3D_LOSS_AUTO), talk),
              "S\nUser: a\nAssistant: [b$]\nUser: c\nAssistant: [$]\n");
    EXPECT_EQ(shown(with(Z3D_LOSS_COMPLETIONS), talk),
              "S\nUser: a\nAssistant: b$\nUser: c\nAssistant: [$]\n");
    EXPECT_EQ(shown(with(Z3D_LOSS_ALL), talk),
              "[S\nUser: a\nAssistant: b$\nUser: c\nAssistant: $\n]");
    const How pair{Z3D_FORMAT_PROMPT_COMPLETION, Z3D_LOSS_AUTO, nullptr};
    EXPECT_EQ(shown(pair, R"({"prompt": "1+1=", "completion": "2"})"), "1+1=[2$]");
    EXPECT_EQ(shown(pair, R"({"prompt": "", "completion": "2"})"), "[2$]");
    const How all{Z3D_FORMAT_PROMPT_COMPLETION, Z3D_LOSS_ALL, nullptr};
    EXPECT_EQ(shown(all, R"({"prompt": "1+1=", "completion": "2"})"), "[1+1=2$]");
    const How lists{Z3D_FORMAT_PROMPT_COMPLETION, Z3D_LOSS_AUTO, "plain"};
    const std::string both =
        R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, )"
        R"({"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})";
    EXPECT_EQ(shown(lists, both), "User: a\nAssistant: b$\nUser: c\nAssistant: [d$]\n");
    EXPECT_EQ(shown(How{Z3D_FORMAT_PROMPT_COMPLETION, Z3D_LOSS_ASSISTANT, "plain"}, both),
              "User: a\nAssistant: [b$]\nUser: c\nAssistant: [d$]\n");
}

TEST_F(Objects, AlpacasAndShareGPTsShapesAreRead) {
    const How own{Z3D_FORMAT_ALPACA, Z3D_LOSS_AUTO, nullptr},
        chatty{Z3D_FORMAT_ALPACA, Z3D_LOSS_AUTO, "plain"};
    const std::string with = R"({"instruction": "Add.", "input": "1 2", "output": "3"})";
    EXPECT_EQ(shown(own, with),
              "Below is an instruction that describes a task, paired with an input that provides "
              "further context. Write a response that appropriately completes the request.\n\n"
              "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n[3$]");
    EXPECT_EQ(shown(own, R"({"instruction": "Hi", "input": "", "output": "3"})"),
              "Below is an instruction that describes a task. Write a response that appropriately "
              "completes the request.\n\n### Instruction:\nHi\n\n### Response:\n[3$]");
    EXPECT_EQ(shown(chatty, with), "User: Add.\n1 2\nAssistant: [3$]\n");
    EXPECT_EQ(shown(How{Z3D_FORMAT_SHAREGPT, Z3D_LOSS_AUTO, "plain"},
                    R"({"id": 1, "conversations": [{"from": "human", "value": "a"}, )"
                    R"({"from": "gpt", "value": "b"}]})"),
              "User: a\nAssistant: [b$]\n");
}

TEST_F(Objects, WhatAnObjectSaysIsReadOrRefused) {
    const std::string user = R"({"role": "user", "content": "a"}, )";
    auto talk = [&](const std::string &more, const std::string &beside = "") {
        return R"({"messages": [)" + user + R"({"role": "assistant", "content": "b"}, )" + user +
               R"({"role": "assistant", "content": "c")" + more + "}]" + beside + "}";
    };
    const How messages{Z3D_FORMAT_MESSAGES, Z3D_LOSS_AUTO, "plain"};
    EXPECT_EQ(shown(messages, talk(R"(, "weight": 0)", R"(, "tools": [], "functions": null)")),
              "User: a\nAssistant: [b$]\nUser: a\nAssistant: c$\n");
    EXPECT_EQ(shown(messages, talk(R"(, "weight": 1, "reasoning_content": "")")),
              shown(messages, talk("")));
    const auto M = Z3D_FORMAT_MESSAGES, P = Z3D_FORMAT_PROMPT_COMPLETION, A = Z3D_FORMAT_ALPACA;
    refuse(M, talk(R"(, "weight": 0.5)"), "message 4: \"weight\": expected 0");
    refuse(M, talk(R"(, "reasoning_content": "t")"), "message 4: \"reasoning_content\" is not");
    refuse(M, talk("", R"(, "tools": [{}])"), "\"tools\" is not supported");
    refuse(M, talk("", R"(, "functions": [{}])"), "\"functions\" is not supported");
    const std::string more = R"({"instruction": "a", "output": "b", "system": "S")";
    EXPECT_EQ(shown(How{A, Z3D_LOSS_AUTO, "plain"}, more + "}"), "S\nUser: a\nAssistant: [b$]\n");
    refuse(A, more + R"(, "history": [["c", "d"]]})", "\"history\" is not supported");
    EXPECT_EQ(shown(How{Z3D_FORMAT_SHAREGPT, Z3D_LOSS_AUTO, "plain"},
                    R"({"system": "S", "conversations": [{"from": "human", "value": "a"}, )"
                    R"({"from": "gpt", "value": "b"}]})"),
              "S\nUser: a\nAssistant: [b$]\n");
    refuse(
        P,
        R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],)"
        R"( "completion": [{"role": "user", "content": "c"}]})",
        "\"completion\" has no answer of the assistant that is trained");
    chat = nullptr;
    refuse(A, more + "}", "\"system\" is not supported");
}

TEST_F(Objects, BadOnesAreRefusedWithTheirPlace) {
    const auto M = Z3D_FORMAT_MESSAGES, P = Z3D_FORMAT_PROMPT_COMPLETION, A = Z3D_FORMAT_ALPACA;
    refuse(M, R"({"messages": [])", "byte");
    refuse(M, R"([1])", "expected a JSON object");
    refuse(M, R"({"prompt": "a", "text": 1})",
           "--format messages: messages: this line has no such key; it has: prompt, text");
    refuse(M, R"({"messages": "hello"})", "\"messages\" is no list of messages");
    refuse(M, R"({"messages": []})", "\"messages\" is empty");
    refuse(M, R"({"messages": ["a"]})", "message 1: expected an object");
    refuse(M, R"({"messages": [{"content": "a"}]})", "message 1: \"role\" is missing");
    refuse(M, R"({"messages": [{"role": "tool", "content": "a"}]})",
           "message 1: role \"tool\": expected system, user or assistant");
    refuse(M, R"({"messages": [{"role": "user"}]})", "message 1: \"content\" is missing");
    refuse(M, R"({"messages": [{"role": "user", "content": null}]})", "is null");
    refuse(M, R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "is a list");
    refuse(M,
           R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]})",
           "message 2 is the user's, expected the assistant's");
    refuse(M, R"({"messages": [{"role": "assistant", "content": "a"}]})",
           "message 1 is the assistant's, expected the user's");
    refuse(M, R"({"messages": [{"role": "system", "content": "a"}]})", "no answer");
    refuse(M, R"({"messages": [{"role": "user", "content": "a"}]})", "no answer");
    refuse(
        M,
        R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", )"
        R"("tool_calls": [1]}]})",
        "message 2: \"tool_calls\"");
    refuse(P, R"({"prompt": [{"role": "user", "content": "a"}], "completion": "b"})",
           "\"completion\" is no list of messages");
    chat = nullptr;
    refuse(P, R"({"prompt": "a", "completion": ""})", "\"completion\" is empty");
    refuse(P, R"({"prompt": 1, "completion": "a"})", "\"prompt\" is not a text");
    refuse(P, R"({"prompt": "a"})", "completion: this line has no such key; it has: prompt");
    refuse(A, R"({"instruction": "a", "output": ""})", "\"output\" is empty");
    refuse(A, R"({"instruction": "a", "input": 5, "output": "b"})", "\"input\" is not a text");
}

} // namespace

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
