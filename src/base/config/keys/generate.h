/* Keys: generated text. src/base/config/keys.h says what a row is. */
#ifndef ZERO3D_BASE_CONFIG_KEYS_GENERATE_H
#define ZERO3D_BASE_CONFIG_KEYS_GENERATE_H

/* clang-format off */
#define Z3D_CONFIG_GENERATE_KEYS(X) \
    X(generate_prompt, "generate.prompt", \
      STRING, "", "", SUM, FREE, STAYS, \
      "text to continue at the end of the run; unset: no sample") \
    X(generate_prompts, "generate.prompts", \
      LIST, "", "texts", SUM, FREE, STANDARD, \
      "more texts to continue at the end of the run, at most 16") \
    X(generate_every, "generate.every", \
      INT, "0", "[0,1e12]", NONE, FREE, STANDARD, \
      "steps between samples: the run also continues the texts of generate.prompt and " \
      "generate.prompts after so many steps, and writes them to samples.jsonl in run.dir. This " \
      "changes no bit of the training. 0: only at the end") \
    X(generate_tokens, "generate.tokens", \
      INT, "200", "[1,1e6]", NONE, FREE, STAYS, \
      "number of tokens to generate; this and the next keys need generate.prompt or " \
      "generate.prompts") \
    X(generate_temperature, "generate.temperature", \
      FLOAT, "0.8", "[0,100]", NONE, FREE, STAYS, \
      "temperature of sampling; 0: always the most likely token") \
    X(generate_top_k, "generate.top_k", \
      INT, "40", "[0,16777216]", NONE, FREE, STAYS, \
      "sample from the k most likely tokens; 0: from all") \
    X(generate_top_p, "generate.top_p", \
      FLOAT, "1", "(0,1]", NONE, FREE, STAYS, \
      "nucleus sampling: of the tokens that top_k leaves, sample from the most likely ones " \
      "whose probabilities add up to p; 1: from all") \
    X(generate_repetition_penalty, "generate.repetition_penalty", \
      FLOAT, "1", "(0,100]", NONE, FREE, STAYS, \
      "divides positive logits of tokens that are in the text, and multiplies negative ones " \
      "(CTRL); 1: none") \
    X(generate_stop, "generate.stop", \
      LIST, "", "texts", NONE, FREE, STAYS, \
      "texts that end an answer, and are not part of it. A special token of the tokenizer is " \
      "compared as a token") \
    X(generate_ignore_eos, "generate.ignore_eos", \
      ENUM, "auto", "auto|true|false", NONE, FREE, STAYS, \
      "whether generation goes on after the end of a document. auto: yes, except for prompts of " \
      "a file (generate --prompts)") \
    X(generate_batch, "generate.batch", \
      INT, "auto", "[1,65536] auto", NONE, FREE, STAYS, \
      "number of a file's prompts that each model replica continues at a time. auto: as many as " \
      "fit in half of the free memory, at most 32") \
    X(generate_seed, "generate.seed", \
      INT, "1", "[0,9223372036854775807]", NONE, FREE, STAYS, \
      "seed of sampling")
/* clang-format on */

#endif
