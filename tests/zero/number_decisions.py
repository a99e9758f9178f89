#!/usr/bin/python3
"""number_decisions.py FOLDER SOURCE...: writes to FOLDER each C source with its decisions numbered, and decisions.c, their list.

A decision is a condition, an operand of && and ||, and a comparison: `a < b` becomes z3d_decide(7, z3d_decide_bound(8) ? a <= b : a < b), so that
a test can invert number 7, or move its bound by number 8 (tests/zero/zero_decisions.cc)."""
import os
import re
import sys

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|\w+|->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\S', re.S)
ASSIGN = {'=', '+=', '-=', '*=', '/=', '%=', '&=', '|=', '^=', '<<=', '>>='}
BOUND = {'<': '<=', '<=': '<', '>': '>=', '>=': '>'}
PAIRS = {'(': ')', '[': ']', '{': '}'}
decisions = []


class Source:
    def __init__(self, path):
        self.path, self.text = path, open(path).read()
        found = [m for m in TOKEN.finditer(self.text) if not m.group().startswith(('/*', '//'))]
        self.token = [m.group() for m in found]
        self.at = [m.start() for m in found]
        self.end = {}
        stack = []
        for i, t in enumerate(self.token):
            if t in PAIRS:
                stack.append(i)
            elif t in PAIRS.values():
                self.end[stack.pop()] = i

    def number(self, i, j, how):
        line = self.text.count('\n', 0, self.at[i]) + 1
        words = ' '.join(self.token[i:j]).replace('"', "'").replace('\\', '')
        decisions.append(f'{os.path.basename(self.path)}:{line}: {how}: {words}')
        return len(decisions) - 1

    def outside(self, i, j):
        """Positions of the tokens that lie in no brackets."""
        while i < j:
            yield i
            i = self.end[i] + 1 if i in self.end else i + 1

    def find(self, i, j, what, last=False):
        found = [k for k in self.outside(i, j) if self.token[k] in what]
        return (found[-1] if last else found[0]) if found else -1

    def decide(self, i, j):
        """An expression that is a decision."""
        if self.find(i, j, {'?', ','}) < 0 and (self.token[i] == '!' or self.find(i, j, set(BOUND) | {'==', '!='}) >= 0):
            if self.find(i, j, {'&&', '||'}) < 0:
                return self.expression(i, j)  # a comparison: numbered there
        return f'z3d_decide({self.number(i, j, "inverted")}, {self.expression(i, j)})'

    def expression(self, i, j):
        if i >= j:
            return ''
        if self.token[i] == 'return':
            return 'return ' + self.expression(i + 1, j)
        for what in ({','}, ASSIGN):
            k = self.find(i, j, what)
            if k >= 0:
                return f'{self.expression(i, k)} {self.token[k]} {self.expression(k + 1, j)}'
        k = self.find(i, j, {'?'})
        if k >= 0:
            depth, colon = 1, k
            while depth > 0:
                colon = self.find(colon + 1, j, {'?', ':'})
                depth += 1 if self.token[colon] == '?' else -1
            return f'{self.decide(i, k)} ? {self.expression(k + 1, colon)} : {self.expression(colon + 1, j)}'
        for what in ('||', '&&'):
            k = self.find(i, j, {what}, last=True)
            if k >= 0:
                return f'({self.decide(i, k)} {what} {self.decide(k + 1, j)})'
        for what in ({'==', '!='}, set(BOUND)):
            k = self.find(i, j, what, last=True)
            if k < 0:
                continue
            left, right, sign = self.expression(i, k), self.expression(k + 1, j), self.token[k]
            inner = f'{left} {sign} {right}'
            number = self.number(i, j, 'inverted')
            if sign in BOUND:
                inner = f'z3d_decide_bound({self.number(i, j, "bound moved")}) ? {left} {BOUND[sign]} {right} : {inner}'
            return f'z3d_decide({number}, {inner})'
        if self.token[i] == '!':
            return f'z3d_decide({self.number(i, j, "inverted")}, !{self.expression(i + 1, j)})'
        out, k = [], i
        while k < j:
            out.append(self.token[k])
            if k in self.end:
                out += [self.expression(k + 1, self.end[k]), self.token[self.end[k]]]
                k = self.end[k]
            k += 1
        return ' '.join(out)

    def block(self, i, j):
        """Statements."""
        out = []
        while i < j:
            t = self.token[i]
            if t in ('if', 'while', 'for', 'switch'):
                begin, end = i + 2, self.end[i + 1]
                first = self.find(begin, end, {';'}) + 1 if t == 'for' else begin
                last = self.find(first, end, {';'}) if t == 'for' else end
                choice = self.decide(first, last) if t != 'switch' and first < last else self.expression(first, last)
                out.append(f'{t} ({self.expression(begin, first)} {choice} {self.expression(last, end)})')
                i = end + 1
            elif t == '{':
                out += ['{', self.block(i + 1, self.end[i]), '}']
                i = self.end[i] + 1
            elif t in ('else', 'do', ';'):
                out.append(t)
                i += 1
            else:
                end = self.find(i, j, {';', ':'} if t in ('case', 'default') or self.token[i + 1] == ':' else {';'})
                plain = t in ('static', 'case', 'default', 'enum')
                out.append((' '.join(self.token[i:end]) if plain else self.expression(i, end)) + self.token[end])
                i = end + 1
        return '\n'.join(out)

    def rewritten(self):
        """All of the source, with the bodies of its functions rewritten."""
        out, done = [], 0
        for i in self.outside(0, len(self.token)):
            if self.token[i] == '{' and self.token[i - 1] == ')':
                out += [self.text[done:self.at[i] + 1], self.block(i + 1, self.end[i])]
                done = self.at[self.end[i]]
        return ''.join(out) + self.text[done:]


folder = sys.argv[1]
for path in sys.argv[2:]:
    with open(os.path.join(folder, os.path.basename(path)), 'w') as out:
        out.write('#include "tests/zero/decisions.h"\n' + Source(path).rewritten())
with open(os.path.join(folder, 'decisions.c'), 'w') as out:
    out.write('#include "tests/zero/decisions.h"\n\nconst char *const z3d_decision_names[] = {\n')
    out.writelines(f'    "{name}",\n' for name in decisions)
    out.write(f'}};\nconst int z3d_decision_count = {len(decisions)};\n')
