#!/usr/bin/env python3
"""Checks of the tree as text, which no compiler makes. Each check is one test; the last line is the count.

`tidy.py --write` writes the files that a check compares with the tree: `strings.txt` of each crate."""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILE_LINES_MAX = 800
LINE_WIDTH_MAX = 120
FUNCTION_LINES_MAX = 70
PAGE_LINES_MAX = 400
SUMMARY = "docs/SUMMARY.md"
STRINGS = "strings.txt"
WORDS_MIN = 4
# Who may know whom; DESIGN's arrows. Tests may know one more: a catalog to fill, a rack to drive.
ARROWS = {
    "model": set(),
    "lineage": {"model"},
    "engine": {"model"},
    "disk": {"model", "lineage"},
    "catalog": {"model", "lineage"},
    "intake": {"model", "engine", "lineage"},
    "workshop": {"model", "disk", "catalog"},
    "sim": {"model", "engine"},
    "batch": set(),
    "s3": {"model", "catalog", "disk"},
    "server": {"model", "lineage", "engine", "disk", "catalog", "intake", "workshop", "batch", "s3"},
    "torture": {"model", "engine", "disk", "catalog", "intake", "workshop", "s3", "server"},
    "ceph": {"model", "engine", "disk"},
    "cli": {"model", "engine", "disk", "sim", "server", "torture", "ceph"},
}
TEXT = (".rs", ".toml", ".md", ".py", ".sh", ".c")
# Written so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(TO(?:DO)|FIX(?:ME)|XX(?:X))\b|\b(d(?:bg)|todo|unimplemented)!")
SECTION = re.compile(r"^\[((?:[\w.'()\" -]*\.)?(dev-|build-)?dependencies)\]\n(.*?)(?=^\[|\Z)", re.M | re.S)
MERGE_MARKS = re.compile(r"^(<{7} |={7}$|>{7} )")
CLOCKS = re.compile(r"\b(Instant|SystemTime)::now\b")
WALL_PATHS = re.compile(r"(?<![\w.])/(home|Users|work|root)/\w")
# Turns of phrase that a native speaker reads twice.
PHRASES = re.compile(
    r"^(What|Whether|Who|How (long|far|many|much|often))\b|\b([Ww]ho|[Ww]hat|[Ww]hich)ever\b"
    r"|\bof (which|whom|whose)\b|\b([Nn]o|[Ss]ome|[Aa]ny)body\b|\bfor good\b|\bso (many|long|much|often)\b"
    r"|\b(lies?|lay)\b|\b(go|goes|going|went) on\b|\banew\b|\bbehind (it|them|that|this|which|the last)\b"
    r"|\bmend(s|ed|ing)?\b|\b(is|are|was|be) (told|heard|begun)\b|\bgives? (it |that |them )?(back|free)\b"
    r"|\b(in vain|all the same|as ever|rid of)\b|\b(comes?|came|brought) to (its|an|their) end\b")
PHRASE_LIMITS = "tests/phrases.json"
# Comments, strings and character literals of Rust.
TOKEN = re.compile(
    r"//[^\n]*|/\*.*?\*/|b?r(?P<h>#*)\".*?\"(?P=h)|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\[^\n]{1,8}?|[^'\\\n])'", re.S)


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
    else:  # a tree without its history
        names = [os.path.relpath(os.path.join(folder, file), ROOT)
                 for folder, _, files in os.walk(ROOT) for file in files
                 if not {"target", ".git"} & set(os.path.relpath(folder, ROOT).split(os.sep))]
    return sorted({name for name in names if os.path.isfile(os.path.join(ROOT, name))})


FILES = tracked()


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def texts(*ends):
    extra = () if ends else ("test", ".ci/run")
    return [(name, read(name)) for name in FILES if name.endswith(ends or TEXT) or name in extra]


def rust():
    return texts(".rs")


def is_test(name):
    parts = re.split(r"[/_.]", name)
    return not {"tests", "benches", "testing"}.isdisjoint(parts) or name.endswith("_tests.rs")


def blanked(text):
    """Rust with the insides of comments, strings and character literals blanked; lines stay where they are."""
    return TOKEN.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def production(text):
    """The lines of a file before its tests, blanked."""
    code = blanked(text)
    tests = re.search(r"^#\[cfg\(test\)\]\s*\nmod \w+ \{", code, re.M)
    return code[: tests.start()] if tests else code


def functions(code):
    """(line, name, lines) of each function of blanked `code`."""
    for found in re.finditer(r"\bfn (\w+)", code):
        depth, at = 0, found.end()
        while at < len(code) and (depth or code[at] not in "{;"):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(code[at], 0)
            at += 1
        if at >= len(code) or code[at] == ";":
            continue
        depth, end = 0, at
        while end < len(code):
            depth += {"{": 1, "}": -1}.get(code[end], 0)
            end += 1
            if depth == 0:
                break
        line = code.count("\n", 0, found.start()) + 1
        yield line, found.group(1), code.count("\n", found.start(), end) + 1


def every_rust_file_says_what_it_is_for():
    return [f"{name}: begin with a `//!` header" for name, text in rust() if not text.startswith("//!")]


def files_are_short():
    return [f"{name}: {lines} lines; split it by purpose"
            for name, text in rust() if (lines := text.count("\n")) > FILE_LINES_MAX]


def lines_are_short():
    return [f"{name}:{i}: {len(line)} characters; wrap at {LINE_WIDTH_MAX}"
            for name, text in texts(".rs", ".toml", ".py", ".sh") for i, line in enumerate(text.splitlines(), 1)
            if len(line) > LINE_WIDTH_MAX]


def merges_are_finished():
    return [f"{name}:{i}: a mark of an unfinished merge"
            for name, text in texts() for i, line in enumerate(text.splitlines(), 1) if MERGE_MARKS.search(line)]


def functions_are_short():
    return [f"{name}:{line}: `{function}` has {lines} lines; split it"
            for name, text in rust() if not is_test(name)
            for line, function, lines in functions(production(text)) if lines > FUNCTION_LINES_MAX]


def crates_know_only_whom_they_may():
    wrong = []
    for crate, allowed in ARROWS.items():
        text = read(f"{crate}/Cargo.toml")
        for section in SECTION.finditer(text):
            known = {line.split("=")[0].split(".")[0].strip() for line in section.group(3).splitlines() if "=" in line}
            known = (known & set(ARROWS)) - allowed - {crate}
            if section.group(2) == "dev-":
                # What is tried may be tried with more, except that server and sim never meet.
                known = {name for name in known if {name, crate} == {"server", "sim"}}
            wrong += [f"{crate}/Cargo.toml: [{section.group(1)}] must not know `{name}`" for name in sorted(known)]
    members = re.search(r"^members = \[(.*?)\]", read("Cargo.toml"), re.M | re.S).group(1)
    undrawn = set(re.findall(r'"(\w+)"', members)) ^ set(ARROWS)
    return wrong + [f"Cargo.toml: the arrows of `{name}` are not drawn in tests/tidy.py" for name in sorted(undrawn)]


def modules(crate):
    """The file of each module of a crate, by its path; tests left out."""
    found = {}
    for name in FILES:
        if name.startswith(f"{crate}/src/") and name.endswith(".rs") and not is_test(name):
            path = tuple(name[len(f"{crate}/src/"):-len(".rs")].split("/"))
            found[() if path in (("lib",), ("main",)) else path[:-1] if path[-1] == "mod" else path] = name
    return found


def paths_used(code):
    """Every path that blanked `code` names and that may lead to a module of its crate."""
    def branches(tree):
        parts, depth, part = [], 0, ""
        for letter in tree:
            depth += {"{": 1, "}": -1}.get(letter, 0)
            if letter == "," and depth == 0:
                parts, part = parts + [part], ""
            else:
                part += letter
        return [part for part in parts + [part] if part]

    def expanded(tree):
        grouped = re.fullmatch(r"(.*?)\{(.*)\}", tree)
        if not grouped:
            return [tree]
        return [grouped.group(1) + rest for branch in branches(grouped.group(2)) for rest in expanded(branch)]

    # A re-export is an address, not a dependency.
    used = [path for tree in re.findall(r"(?<!pub )(?<!\) )\buse\s+([^;]+);", code)
            for path in expanded(re.sub(r"\s+as\s+\w+|\s", "", tree))]
    return used + re.findall(r"(?<![\w:])\w+(?:::\w+)+", re.sub(r"\buse\s+[^;]+;", "", code))


def module_arrows(crate):
    """Which modules each module of a crate knows. The root only lists them."""
    known = modules(crate)
    arrows = {}
    for path, name in known.items():
        arrows[path] = set()
        for used in paths_used(production(read(name))) if path else ():
            first, *rest = used.split("::")
            base = path
            if first == "crate":
                base = ()
            elif first in ("super", "self"):
                while first in ("super", "self"):
                    base = base[:-1] if first == "super" else base
                    first, *rest = rest or [""]
                rest = [first, *rest]
            else:
                rest = [first, *rest]
            while rest and (*base, rest[0]) in known:
                base = (*base, rest.pop(0))
            if base in known and base not in ((), path):
                arrows[path].add(base)
    return arrows


def circles(arrows):
    """The sets of modules each of which leads to all others of its set."""
    def reached(start):
        seen, todo = set(), [start]
        while todo:
            for target in arrows[todo.pop()] - seen:
                seen.add(target)
                todo.append(target)
        return seen

    reach = {module: reached(module) for module in arrows}
    return {tuple(sorted({module} | {other for other in reach[module] if module in reach[other]}))
            for module in arrows if module in reach[module]}


def modules_form_no_circles():
    return [f"{crate}/src: a circle: {', '.join('::'.join(module) for module in circle)}"
            for crate in ARROWS for circle in sorted(circles(module_arrows(crate)))]


def every_module_has_a_line():
    wrong = []
    for crate in ARROWS:
        listed = re.findall(r"^ *- `([\w/]+)`: \S", read(f"{crate}/README.md"), re.M)
        there = ["/".join(path) for path in modules(crate) if path]
        wrong += [f"{crate}/README.md: `{module}` has no line" for module in sorted(set(there) - set(listed))]
        wrong += [f"{crate}/README.md: `{module}` is not there" for module in sorted(set(listed) - set(there))]
    return wrong


def no_module_shadows_a_crate():
    return [f"{name}: `{path[-1]}` is a crate" for crate in ARROWS for path, name in modules(crate).items()
            if path and path[-1] in ARROWS and path[-1] != crate]


def pure_crates_need_no_operating_system():
    return [f"{crate}/src/lib.rs: begin with `#![no_std]`"
            for crate in ("model", "lineage", "engine") if "#![no_std]" not in read(f"{crate}/src/lib.rs")]


def only_disk_is_unsafe():
    return [f"{name}: `unsafe` belongs in disk" for name, text in rust()
            if not name.startswith("disk/") and re.search(r"\bunsafe\b", blanked(text))]


def only_the_clock_reads_a_clock():
    return [f"{name}: ask `disk::clock`, or take time as an argument" for name, text in rust()
            if not is_test(name) and name != "disk/src/clock.rs" and CLOCKS.search(production(text))]


def nothing_is_left_unfinished():
    return [f"{name}:{i}: finish it, or file an issue" for name, text in texts()
            for i, line in enumerate(text.splitlines(), 1) if UNFINISHED.search(line)]


def no_path_of_a_machine_is_written_down():
    return [f"{name}:{i}: names a path of one machine" for name, text in texts()
            for i, line in enumerate(text.splitlines(), 1) if WALL_PATHS.search(line)]


def no_binary_has_planted_bugs():
    """The bugs of `model::sabotage` are features of `model` and `torture`, of which nobody asks for them."""
    wrong = []
    for name, text in texts("Cargo.toml"):
        lines = [line for line in text.splitlines() if "sabotage" in line.split("#")[0]]
        allowed = {"model/Cargo.toml": ["sabotage = []"],
                   "torture/Cargo.toml": ['sabotage = ["model/sabotage"]', 'name = "sabotage"',
                                          'required-features = ["sabotage"]']}.get(name, [])
        wrong += [f"{name}: `{line}` plants bugs" for line in lines if line not in allowed]
    if "assert!(!model::sabotage::BUILT_IN" not in read("cli/src/main.rs"):
        wrong.append("cli/src/main.rs: refuse to be built with bugs (`model::sabotage::BUILT_IN`)")
    return wrong


def every_rack_is_shipped():
    shipped = "".join(text for name, text in rust() if name.startswith("model/src/text"))
    return [f"{name}: list it in SHIPPED (model/src/text.rs)" for name in FILES
            if re.fullmatch(r"racks/[^/]+\.toml", name) and f'{name}"' not in shipped]


def prose(text):
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def anchors(text):
    """The anchors of a page's headings."""
    found, times = [], {}
    for heading in re.findall(r"^#+ (.*)", prose(text), flags=re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.append(f"{anchor}-{times[anchor]}" if anchor in times else anchor)
        times[anchor] = times.get(anchor, 0) + 1
    return found


def every_link_leads_somewhere():
    wrong = []
    for name, text in texts(".md"):
        for link in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            there = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if not os.path.exists(os.path.join(ROOT, there)):
                wrong.append(f"{name}: {link} does not exist")
            elif anchor and there.endswith(".md") and anchor not in anchors(read(there)):
                wrong.append(f"{name}: {link}: the page has no such heading")
    return wrong


def the_summary_lists_every_page():
    listed = re.findall(r"\]\(([^)\s]+)\)", read(SUMMARY))
    pages = [name for name in FILES if name.startswith("docs/") and name.endswith(".md") and name != SUMMARY]
    wrong = [f"{name}: list it in {SUMMARY}" for name in pages if name.removeprefix("docs/") not in listed]
    return wrong + [f"{SUMMARY}: {name} is listed twice" for name in {*listed} if listed.count(name) > 1]


def pages_are_short():
    wrong = []
    for name, text in texts(".md"):
        if (lines := text.count("\n")) > PAGE_LINES_MAX:
            wrong.append(f"{name}: {lines} lines; a page has at most {PAGE_LINES_MAX}")
        if name != SUMMARY:
            wrong += [f"{name}: {len(line)} characters in a line; wrap at {LINE_WIDTH_MAX}: {line[:40]}"
                      for line in prose(text).splitlines() if len(line) > LINE_WIDTH_MAX and not line.startswith("|")]
    return wrong


def phrases():
    """The lines with a phrase to avoid: comments by crate, and `pages`."""
    found = {}
    for name, text in rust():
        for i, line in enumerate(text.splitlines(), 1):
            comment = re.match(r"\s*//[/!]?\s?(.*)", line)
            if comment and PHRASES.search(comment.group(1)):
                found.setdefault(name.split("/")[0], []).append(f"{name}:{i}")
    for name, text in texts(".md"):
        if name == SUMMARY:  # it repeats titles
            continue
        lines = enumerate(text.splitlines(), 1)
        found.setdefault("pages", []).extend(f"{name}:{i}" for i, line in lines if PHRASES.search(line))
    return found


def spans(code, macros):
    """The spans of the calls of these macros and functions in blanked `code`."""
    found = []
    for call in re.finditer(macros + r"!?\(", code):
        depth, end = 1, call.end()
        while end < len(code) and depth:
            depth += {"(": 1, ")": -1}.get(code[end], 0)
            end += 1
        found.append((call.start(), end))
    return found


def sentences(name, text):
    """The literals of at least WORDS_MIN words of a file before its tests, without the messages of assertions; and the
    help texts of a file of arguments."""
    code = production(text)
    internal = spans(code, r"\b(?:debug_)?assert(?:_eq|_ne)?|\bexpect|\bunreachable|\bpanic")
    literals = [(token.start(), re.sub(r'^b?r?#*"|"#*$', "", token.group()))
                for token in TOKEN.finditer(text[:len(code)]) if re.match(r'b?r?#*"', token.group())]
    found = [literal for literal in literals if not any(begin <= literal[0] < end for begin, end in internal)]
    if name.endswith("args.rs"):
        found += [(help.start(), help.group(1)) for help in re.finditer(r"^ *///[ ]?(.*)$", text[:len(code)], re.M)]
    joined = (re.sub(r"\\\n\s*", "", literal) for _, literal in sorted(found))
    return [literal for literal in joined if len(literal.split()) >= WORDS_MIN and re.search("[a-z]{2}", literal)]


def strings():
    """`{file: text}` of the files that list the user-visible strings of each crate."""
    listed = {}
    for name, text in rust():
        if not is_test(name) and "/src/" in name:
            crate, path = name.split("/", 1)
            listed.setdefault(f"{crate}/{STRINGS}", []).extend(f"{path}: {said}" for said in sentences(name, text))
    return {name: "\n".join(lines) + "\n" for name, lines in listed.items() if lines}


def every_string_is_listed():
    """One file for each crate has all that its users may read, so that it can be reviewed in one go."""
    listed = strings()
    wrong = [f"{name}: no string of its crate is visible; remove it" for name in FILES
             if name.endswith(f"/{STRINGS}") and name not in listed]
    return wrong + [f"{name}: is outdated; `python3 tests/tidy.py --write` writes it again" for name, text in
                    listed.items() if name not in FILES or read(name) != text]


def prose_gets_plainer():
    """The number of such lines of each room only falls: `tests/phrases.json` has it."""
    limits, wrong = json.loads(read(PHRASE_LIMITS)), []
    found = phrases()
    for room in sorted({*limits, *found}):
        places, limit = found.get(room, []), limits.get(room, 0)
        if len(places) > limit:
            wrong.append(f"{room}: {len(places)} lines of prose have phrases to avoid, and may be {limit}; see PHRASES")
            wrong += [f"    {place}" for place in places[:20]]
        elif len(places) < limit:
            wrong.append(f"{room}: {len(places)} lines of prose have phrases to avoid: write that to {PHRASE_LIMITS}")
    return wrong


CHECKS = [
    every_rust_file_says_what_it_is_for,
    files_are_short,
    lines_are_short,
    merges_are_finished,
    functions_are_short,
    crates_know_only_whom_they_may,
    modules_form_no_circles,
    every_module_has_a_line,
    no_module_shadows_a_crate,
    pure_crates_need_no_operating_system,
    only_disk_is_unsafe,
    only_the_clock_reads_a_clock,
    nothing_is_left_unfinished,
    no_path_of_a_machine_is_written_down,
    no_binary_has_planted_bugs,
    every_rack_is_shipped,
    every_link_leads_somewhere,
    the_summary_lists_every_page,
    pages_are_short,
    every_string_is_listed,
    prose_gets_plainer,
]


def main():
    if "--write" in sys.argv[1:]:
        for name, text in strings().items():
            with open(os.path.join(ROOT, name), "w", encoding="utf-8") as file:
                file.write(text)
        return 0
    failed = 0
    for check in CHECKS:
        wrong = check()
        failed += bool(wrong)
        print(f"{'failed' if wrong else 'passed'}  {check.__name__}")
        for line in wrong:
            print(f"        {line}")
    print(f"tidy: {len(CHECKS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
