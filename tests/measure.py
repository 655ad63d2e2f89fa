#!/usr/bin/env python3
"""Measures the tree, crate by crate: lines, functions, assertions, parameters, circles, names of types used twice."""

import collections
import re

import tidy

PARAMETERS_MAX = 5


def closed(code, at):
    """Where the bracket that opens at `at` closes."""
    depth = 0
    for end in range(at, len(code)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(code[end], 0)
        if depth == 0:
            return end
    return len(code)


def assertions(code):
    """The spans of `code` that are assertions."""
    calls = re.finditer(r"\b(?:debug_)?assert(?:_eq|_ne)?!\s*\(", code)
    return [(found.start(), closed(code, found.end() - 1) + len(");")) for found in calls]


def without(code, spans):
    for start, end in reversed(spans):
        code = code[:start] + code[end:]
    return code


def parameters(code):
    """How many parameters each function takes, `self` among them."""
    for found in re.finditer(r"\bfn \w+(?:<[^(]*>)?\s*\(", code):
        inner, depth, count = code[found.end():closed(code, found.end() - 1)], 0, 0
        for at, letter in enumerate(inner.rstrip(" \n,")):
            depth += {"(": 1, "[": 1, "<": 1, ")": -1, "]": -1}.get(letter, 0)
            depth -= letter == ">" and inner[at - 1] != "-"
            count += letter == "," and depth == 0
        yield count + bool(inner.strip())


def main():
    crates, types = collections.defaultdict(collections.Counter), collections.defaultdict(list)
    for name, text in tidy.rust():
        count, code = crates[name.split("/")[0]], tidy.production(text)
        count["lines"] += text.count("\n")
        if tidy.is_test(name):
            continue
        found = assertions(code)
        count["production"] += sum(bool(line.strip()) for line in without(code, found).splitlines())
        count["assertions"] += len(found)
        count["functions"] += sum(1 for _ in tidy.functions(code))
        count["parameters"] += sum(taken > PARAMETERS_MAX for taken in parameters(code))
        for kind in re.findall(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union) (\w+)", code, re.M):
            types[kind].append(name)
    crates["all"] = sum((count for name, count in sorted(crates.items())), collections.Counter())
    print(f"{'crate':10}{'lines':>8}{'production':>12}{'functions':>11}{'assertions':>12}{'each':>6}{'over 5':>8}")
    for name, count in crates.items():
        each = count["assertions"] / max(1, count["functions"])
        print(f"{name:10}{count['lines']:8}{count['production']:12}{count['functions']:11}{count['assertions']:12}"
              f"{each:6.2f}{count['parameters']:8}")
    twice = [files for files in types.values() if len(files) > 1]
    print(f"{len(twice)} names of types are used twice or more, for {sum(map(len, twice))} types")
    print(f"{sum(len(tidy.circles(tidy.module_arrows(crate))) for crate in tidy.ARROWS)} circles of modules")


if __name__ == "__main__":
    main()
