"""pages.py SOURCE ZERO3D [PAGE...]: says what pages (Markdown; without PAGE, all of SOURCE) name that is not there, one line each: files,
anchors, keys of the configuration, commands and options of the program ZERO3D, targets of make, variables of the environment or of
cmake. It also says where a page names the program or the launcher by a path: pages write zero3d and zero3d-launch."""

import glob
import os
import re
import subprocess
import sys

FOLDERS = "src zero parallel tensor_parallel checkpoint docs scripts configs tests examples cmake bench .ci".split()
# Suffixes of files whose names look like keys: run.yaml, checkpoint.h5.
FILES = set("bin c cc h h5 json jsonl lock md safetensors sh yaml".split())
# Names that pages quote although they are not here, and why they may.
EXCEPTIONS = {
    "scheduler.params.warmup_max_lr": "DeepSpeed's key; in a pasted file it is compared with optimizer.params.lr",
    "model.generate": "a method of transformers",
    "flops_profiler.enabled": "a key of DeepSpeed's files that a conversion names",
    "configs/hardware/this-machine.yaml": "doctor --measure writes it",
}
# The program writes this page (cli_config compares them), with the keys of DeepSpeed that it accepts or refuses.
WRITTEN_BY_THE_PROGRAM = "docs/configuration.md"


def headings(path):
    """The anchors of a page, by GitHub's rules."""
    anchors, seen = set(), {}
    for line in re.sub(r"(?ms)^```.*?^```$", "", open(path).read()).splitlines():
        found = re.match(r"#+ +(.*?)[ #]*$", line)
        if found:
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", found.group(1)).lower()
            slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            seen[slug] = seen.get(slug, -1) + 1
            anchors.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
    return anchors


class Tree:
    """What is there."""

    def __init__(self, source, program):
        self.source, self.program, self.helps = source, program, {}
        keys = self.run("config", "--keys").split()
        parts = [key.split(".") for key in keys]
        self.keys = {".".join(p[a:b]) for p in parts for a in range(len(p)) for b in range(a + 1, len(p) + 1)}
        self.sections = {name for p in parts for name in p[:-1]}
        self.commands = re.findall(r"^  ([a-z]+)  ", self.run("--help"), re.M)
        self.targets = re.findall(r"^([a-z-]+):", open(f"{source}/Makefile").read(), re.M)
        self.pages = {os.path.basename(page) for page in pages(source)}
        self.variables = set()
        files = [f"{source}/CMakeLists.txt", f"{source}/Makefile"]
        for folder in FOLDERS:
            files += [f"{where}/{name}" for where, _, names in os.walk(f"{source}/{folder}") for name in names]
        for name in files:
            if not name.endswith((".md", ".png", ".svg", ".bin", ".safetensors", "/pages.sh")):
                with open(name, errors="replace") as file:
                    self.variables.update(re.findall(r"ZERO3D_[A-Z0-9_]+", file.read()))

    def run(self, *arguments):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, check=True).stdout

    def help(self, command):
        if command not in self.helps:
            self.helps[command] = self.run(command, "--help")
        return self.helps[command]

    def has_path(self, path):
        """Of paths with *, {a,b} and <placeholders>, whether something matches each."""
        found = re.search(r"\{([^}]*)\}", path)
        if found:
            return all(self.has_path(path.replace(found.group(), word, 1)) for word in found.group(1).split(","))
        return bool(glob.glob(f"{self.source}/" + re.sub(r"<[^>]*>", "*", path)))

    def has_key(self, key):
        if key in self.keys:
            return True
        pattern = re.compile(re.escape(key).replace(r"\*", r"[^.]+") + "$")
        return "*" in key and any(pattern.match(known) for known in self.keys)


class Page:
    def __init__(self, tree, path):
        self.tree, self.path, self.wrong = tree, path, []
        text = open(path).read()
        self.text = text
        # Code, as (its first character's place, its language, the code); blanked in prose, so that places stay.
        self.code = []
        prose = re.sub(r"(?ms)^( *)```([^\n]*)\n(.*?)^ *```$", lambda m: self.keep(m, 3, m.group(2)), text)
        prose = re.sub(r"(?s)(?<!`)(`+)(?!`)((?:(?!\n\n).)+?)(?<!`)\1(?!`)", lambda m: self.keep(m, 2, "span"), prose)
        self.links(prose)
        for place, language, code in self.code:
            self.paths(place, code)
            if not path.endswith(WRITTEN_BY_THE_PROGRAM):
                self.keys(place, code)
            self.names(place, code)
            if language == "span" or language.split(" ")[0] in ("sh", ""):
                self.commands(place, code, language)
        for found in re.finditer(r"ZERO3D_[A-Z0-9_]+\*?", text):
            name = found.group()
            known = tree.variables
            if not (any(k.startswith(name[:-1]) for k in known) if name.endswith("*") else name in known):
                self.say(found.start(), f"no source reads {name}")

    def keep(self, match, group, language):
        self.code.append((match.start(group), language, match.group(group)))
        return re.sub(r"[^\n]", " ", match.group())

    def say(self, place, what):
        self.wrong.append((self.text.count("\n", 0, place) + 1, what))

    def links(self, prose):
        for found in re.finditer(r"\]\(([^()\s]+)\)|^\[[^]]+\]: (\S+)", prose, re.M):
            target = found.group(1) or found.group(2)
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(self.path), file)) if file else self.path
            if not os.path.exists(path):
                self.say(found.start(), f"a link leads to {target}: no such file")
            elif anchor and anchor not in headings(path):
                self.say(found.start(), f"a link leads to {target}: that page has no such heading")

    def paths(self, place, code):
        for found in re.finditer(r"(?<![\w./$~*<>{}-])(?:" + "|".join(map(re.escape, FOLDERS)) + r")/[\w.*<>{},/+-]*", code):
            path = found.group().rstrip(".,")
            if path not in EXCEPTIONS and not self.tree.has_path(path):
                self.say(place + found.start(), f"there is no {path}")
        page = re.fullmatch(r"[\w-]+\.md", code)
        if page and page.group() not in self.tree.pages:
            self.say(place, f"there is no page {page.group()}")

    def key(self, place, key):
        if key.rsplit(".", 1)[-1] not in FILES and key not in EXCEPTIONS and not self.tree.has_key(key):
            self.say(place, f"the configuration has no key {key}")

    def keys(self, place, code):
        """section.key, section: { key: value } and, in YAML's block form, key under section."""
        sections = "|".join(sorted(self.tree.sections))
        for found in re.finditer(rf"(?<![\w./$~<-])(?:{sections})(?:\.[a-z0-9_*]+)+(?![\w(])", code):
            self.key(place + found.start(), found.group().rstrip("."))
        for begin in re.finditer(rf"(?<![\w.])\"?({sections})\"?: *\{{", code):
            open_maps, last = [], begin.group(1)
            for found in re.compile(r"[{}\[\]]|\"?(\w+)\"?:(?=\s)").finditer(code, begin.end() - 1):
                mark = found.group()
                if mark in "{[":
                    open_maps.append(last if mark == "{" else None)
                elif mark in "}]":
                    open_maps.pop()
                    if not open_maps:
                        break
                elif None not in open_maps:
                    last = found.group(1)
                    self.key(place + found.start(), ".".join([*open_maps, last]))
        under = []  # the sections that a line is in, as (indent, name)
        for found in re.finditer(r"^( *)(\w+):(.*)", code, re.M):
            indent, name, value = len(found.group(1)), found.group(2), found.group(3).split("#")[0].strip()
            while under and under[-1][0] >= indent:
                under.pop()
            if under:
                self.key(place + found.start(), ".".join([n for _, n in under] + [name]))
            if not value and (under or name in self.tree.sections):
                under.append((indent, name))

        # An override of any name, and top-level keys of YAML that has a section.
        for found in re.finditer(r"(?<![\w./$~<-])[a-z_]+(?:\.[a-z0-9_]+)+(?==)", code):
            self.key(place + found.start(), found.group())
        top = re.findall(r"^([a-z_]+):(?: |$)", code, re.M)
        if "\n" in code and any(name in self.tree.sections for name in top):
            for found in re.finditer(r"^([a-z_]+):(?: |$)", code, re.M):
                self.key(place + found.start(), found.group(1))

    def names(self, place, code):
        for found in re.finditer(r"build/bin/zero3d\b(?!-)|(?:scripts/launch|build/bin/zero3d-launch) -n", code):
            self.say(place + found.start(), f"{found.group()}: pages write zero3d and zero3d-launch -n")

    def commands(self, place, code, language):
        def blank(found):
            return re.sub(r"[^\n]", " ", found.group())

        code = re.sub(r"\\\n", "  ", code)
        if language == "span":
            code = code.replace("\n", " ")
        code = re.sub(r"(?m)(?<!\S)#.*$", blank, re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", blank, code))
        for found in re.finditer(r"(?<![\w-])make +(?:[A-Z0-9_]+=\S* +)*([a-z][a-z-]*)", code):
            if found.group(1) not in self.tree.targets:
                self.say(place + found.start(), f"there is no make {found.group(1)}")
        start = r"(?:^ *|[ (|;&]|/)zero3d +"
        if language == "span":  # `plan --fit 16GiB` too
            start = rf"(?:{start}|^(?=(?:{'|'.join(self.tree.commands)}) [^=]*--))"
        for found in re.finditer(start + r"([a-z]+)(?![\w:])([^|;&>\n]*)", code, re.M):
            command, words = found.group(1), found.group(2).split()
            if command not in self.tree.commands:
                self.say(place + found.start(), f"there is no zero3d {command}")
                continue
            text = self.tree.help(command)
            usage = re.findall(rf"zero3d {command} ([a-z]+(?:\|[a-z]+)*)(?![\w.])", text.split("\n\n")[0])
            second = "|".join(usage).split("|") if usage else []
            if second and words and re.fullmatch(r"[a-z]+", words[0]) and words[0] not in second:
                self.say(place + found.start(), f"there is no zero3d {command} {words[0]}")
            for before, word in zip([""] + words, words):
                option = re.match(r"--[a-z][\w-]*", word)
                if option and before != "--sbatch" and not re.search(rf"(?<![\w-])({option.group()})(?![\w-])", text + " --help"):
                    self.say(place + found.start(), f"zero3d {command} has no {option.group()}")


def pages(source):
    return [f"{source}/README.md", f"{source}/CONTRIBUTING.md", *sorted(glob.glob(f"{source}/docs/**/*.md", recursive=True))]


tree = Tree(sys.argv[1], sys.argv[2])
wrong = [
    f"{os.path.relpath(path, tree.source if path.startswith(tree.source) else '.')}:{line}: {what}"
    for path in sys.argv[3:] or pages(tree.source)
    for line, what in sorted(set(Page(tree, path).wrong))
]
print("\n".join(wrong))
sys.exit(bool(wrong))
