"""Turns conversations into a token file; compares zero3d with Python with `tokenizers` and the chat template in jinja2.

conversations.py PROGRAM FILE FOLDER [ROUNDS]: PROGRAM is zero3d; FILE has {"messages"} in each line; FOLDER has tokenizer.json and
tokenizer_config.json with a chat template. Python reads the lines, renders the template as transformers does, encodes batches of 1,000 texts on
all threads and writes the ids; zero3d also writes masks and borders, and leaves out repeated conversations. The two take turns. The least
wall-clock and the least processor seconds of all rounds count.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import jinja2.sandbox
import numpy
import tokenizers

program, path, folder = sys.argv[1:4]
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 3
tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
with open(os.path.join(folder, "tokenizer_config.json")) as config:
    template = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(json.load(config)["chat_template"])


def python(output):
    written = 0
    with open(path) as lines, open(output, "wb") as out:
        texts = []

        def flush():
            ids = [i for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False) for i in e.ids]
            numpy.array(ids, dtype=numpy.uint16).tofile(out)
            texts.clear()
            return len(ids)

        for line in lines:
            texts.append(template.render(messages=json.loads(line)["messages"], add_generation_prompt=False))
            if len(texts) == 1000:
                written += flush()
        return written + flush()


def zero3d(output):
    said = subprocess.run([program, "data", "tokenize", path, "--tokenizer", folder, "--output", output, "--force"],
                          check=True, capture_output=True, text=True)
    return said.stdout


def processor():
    return sum(resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


least = {}
with tempfile.TemporaryDirectory() as work:
    for _ in range(rounds):
        for way in (zero3d, python):
            wall, used = time.perf_counter(), processor()
            said = way(os.path.join(work, way.__name__ + ".bin"))
            seconds = (time.perf_counter() - wall, processor() - used)
            least[way] = tuple(map(min, least.get(way, seconds), seconds))
            print(way.__name__, "%.1f s, processor %.1f s" % seconds, said if way is python else "", flush=True)
print(said)
for k, kind in enumerate(("wall clock", "processor")):
    print(f"{kind}: zero3d {least[zero3d][k]:.1f} s, Python {least[python][k]:.1f} s, Python / zero3d {least[python][k] / least[zero3d][k]:.2f}")
