"""A cell of the damage matrix (`damage_matrix.py`): a copy of a data directory with one damage, and its outcome."""

import collections
import hashlib
import http.client
import os
import re
import shutil
import signal
import time

from damage_kinds import CATALOG, DAMAGES, KINDS, copied, deleted, existing, on_next_drive, raw
from harness import BRISK, NAS8, Server, configuration, killed_in_a_fold, larder, noise
from swift import SwiftClient

BUCKET = "/pantry"
COLD = {**BRISK, "migrate.pack_size": "1 MB", "intake.below": "64 KiB"}
WARM = {**COLD, "migrate.older_than": None, "workshop.regular": 1.0, "workshop.critical": 1.0}
STATES = ("killed", "stopped")
LARGE_BYTES = 70_000
# The end of the log is known this long after the last acknowledgement.
SETTLED_S = 1.5
RETRY_S = 3
# What must not be, the worst first, each with its word in the table.
VIOLATIONS = {
    "FORGED": "forged",
    "OLD": "older",
    "LOST": "lost",
    "NEEDLESS": "lost, though others have it",
    "UNSEEN": "unseen by verify",
    "503": "asked to wait",
    "MUTE": "no reason given",
    "VAGUE": "refused, no fix given",
    "SPOILED": "refused, and spoiled",
    "PANIC": "panic",
    "HANG": "hang",
    "DIED": "died",
}
# What may be, and what shows it.
SIGNS = {
    "refused": "refused",
    "recovery refused": "recover refused",
    "refused later": "then refused",
    "told": "500",
    "denied": "DENIED",
    "read-only": "read-only",
}
WAYS = "restore put move copy mount set run say recover replace write remove give correct fix serve expected"
FIX = re.compile(rf"\b({WAYS.replace(' ', '|')})\b")


# What clients know.


class Ledger:
    """What was acknowledged: for each key its bodies one after another, None where it was deleted."""

    def __init__(self, bodies=None):
        self.bodies = {key: list(found) for key, found in (bodies or {}).items()}

    def put(self, client, key, size):
        body = noise(size, f"{key} {len(self.bodies.get(key, ()))}")
        status, _, _ = client.ask("PUT", key, body)
        if status == 200:
            self.bodies.setdefault(key, []).append(body)
        return status

    def delete(self, client, key):
        status, _, _ = client.ask("DELETE", key)
        if status == 204:
            self.bodies[key].append(None)
        return status

    def said(self, key, body):
        """What an answer with that body is worth; None if it is right."""
        *older, now = self.bodies[key]
        if body == now:
            return None
        return "OLD" if now is None or body in older else "FORGED"


class Client:
    """Requests on one connection, each of them in one of a few ways of going wrong."""

    def __init__(self, server):
        self.signer, self.server, self.connection = SwiftClient(server), server, None

    def ask(self, method, key="", body=b"", query=""):
        """Status, headers and body; the status is 0 where there is no answer, or not all of it."""
        path = f"{BUCKET}/{key}" if key else BUCKET
        headers = self.signer.signed(method, path, query, {})
        for fresh in (False, True):
            if self.connection is None or fresh:
                self.connection = http.client.HTTPConnection(self.server.address, timeout=60)
            try:
                self.connection.request(method, f"{path}?{query}" if query else path, body=body, headers=headers)
                answer = self.connection.getresponse()
                return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read()
            except (http.client.IncompleteRead, http.client.RemoteDisconnected, ConnectionError):
                self.connection.close()
        return 0, {}, b""


# Directories that cells are copies of.


class Bases:
    """`killed` and `stopped`, and two earlier moments of that directory: `mid` of the last run, `early` of another."""

    def __init__(self, root, pool=False):
        self.root, self.pool = root, pool
        self.work = os.path.join(root, "pool" if pool else "rack")
        os.mkdir(self.work)
        self.data, self.ledger, self.server = os.path.join(self.work, "data"), Ledger(), None
        try:
            self._make()
            self.keys = self.server.access_key, self.server.secret_key
        finally:
            if self.server:
                self.server.kill()

    def at(self, moment):
        return os.path.join(self.work, moment)

    def _start(self, settings):
        with open(os.path.join(self.data, "larder.toml"), "w", encoding="utf-8") as config:
            config.write(configuration(settings))
        self.server = Server(self.data, "serve")
        self.client = Client(self.server)

    def _copied(self, moment):
        """A copy as of a `kill -9` now."""
        self.server.process.send_signal(signal.SIGSTOP)
        copied(self.data, self.at(moment))
        self.server.process.send_signal(signal.SIGCONT)

    def _put(self, prefix, count, size=1_500):
        for n in range(count):
            assert self.ledger.put(self.client, f"{prefix}{n}", size + 97 * n) == 200

    def _delete(self, prefix, numbers):
        for n in numbers:
            assert self.ledger.delete(self.client, f"{prefix}{n}") == 204

    def _make(self):
        made = larder("init", "--rack", self._rack(), "--data", self.data)
        assert made.returncode == 0, made.stderr
        self._start(COLD)
        assert self.client.ask("PUT")[0] == 200
        if not self.pool:
            self._migrated()
        self._restarted()
        self._staged()
        self._copied("early")
        # What was in the log becomes a shelf.
        self.server.kill()
        self._start(WARM)
        self._changed()
        self._restarted()
        assert self.client.ask("GET", "small0" if self.pool else "cold0")[0] == 200
        self._put("before", 5)
        time.sleep(0.3)
        self._copied("mid")
        self._changed_last()
        time.sleep(SETTLED_S)
        self._copied("killed")
        killed_in_a_fold(self.at("killed"))
        assert self.server.stop() == 0
        copied(self.data, self.at("stopped"))

    def _rack(self):
        if not self.pool:
            return NAS8
        rack = os.path.join(self.work, "pooled.toml")
        with open(NAS8, encoding="utf-8") as nas8, open(rack, "w", encoding="utf-8") as described:
            described.write(nas8.read().replace("[drive]\n", "[[pool]]\n" * 6 + "[drive]\n"))
        return rack

    def _restarted(self):
        assert self.server.stop() == 0
        self._start(WARM)

    def _migrated(self):
        """In the rack: some stay, some are overwritten, some deleted."""
        self._put("cold", 6, 20_000)
        self._put("cold-over", 2, 20_000)
        self._put("cold-gone", 2, 20_000)
        self.server.until_cold()
        self.server.until("the journal leads on", lambda status: status["journal"]["leads_on"])

    def _staged(self):
        self._put("small", 20)
        self._put("large", 2, LARGE_BYTES)
        for fate in ("over", "late-over", "gone", "late-gone"):
            self._put(fate, 3)
            self._put(f"large-{fate}", 1, LARGE_BYTES)

    def _changed(self):
        self._put("more", 10)
        self._put("over", 3, 2_500)
        self._put("large-over", 1, LARGE_BYTES + 1)
        self._delete("gone", range(3))
        self._delete("large-gone", range(1))

    def _changed_last(self):
        self._put("late-over", 3, 2_500)
        self._put("large-late-over", 1, LARGE_BYTES + 1)
        self._delete("late-gone", range(3))
        self._delete("large-late-gone", range(1))
        if not self.pool:
            self._put("cold-over", 2, 2_500)
            self._delete("cold-gone", range(2))
        self._put("large-last", 1, LARGE_BYTES)
        self._put("last", 20)


# Cells.


class Trial(Server):
    """A server that may refuse to start: then `refused` is its last line."""

    def __init__(self, data, keys):
        self.keys, self.refused, self.hangs = keys, None, False
        super().__init__(data, "serve")

    def _until_ready(self):
        end = time.monotonic() + 60
        while not self.said().endswith("ready\n"):
            if self.process.poll() is not None:
                self.refused = (self.log().strip().splitlines() or [""])[-1]
                return
            if time.monotonic() > end:
                self.hangs = True
                return
            time.sleep(0.01)
        self.access_key, self.secret_key = self.keys
        self.endpoint = next(word for word in self.said().replace("=", " ").split() if word.startswith("http"))
        self.address = self.endpoint.split("://")[1].rstrip("/")


def answered(client, ledger, key):
    """What GET and HEAD say of a key: None if both are right, else the worst word, with the answer."""
    status, _, body = client.ask("GET", key)
    word = None
    if status == 200:
        word = ledger.said(key, body)
    elif status == 404:
        word = None if ledger.bodies[key][-1] is None else "LOST"
    elif status == 503:
        word = "503"
    elif status >= 500 or status == 0:
        word = "500" if status == 0 or reason(body) else "MUTE"
    else:
        word = "DENIED"
    shown = f"GET {key}: {status} {reason(body) if status >= 400 else ''}"
    status, headers, _ = client.ask("HEAD", key)
    now = ledger.bodies[key][-1]
    etag = headers.get("etag", "").strip('"')
    if status == 200 and (now is None or etag != hashlib.md5(now).hexdigest()):
        return "OLD", f"HEAD {key}: {etag}"
    if status == 404 and now is not None:
        return "LOST", f"HEAD {key}: {status}"
    return word, shown


def reason(body):
    """The message of an error, if it says more than that there was one."""
    found = re.search(r"<Message>(.*?)</Message>", body.decode(errors="replace"), re.S)
    said = found.group(1) if found else ""
    return "" if re.match(r"We encountered an internal error", said) else said


def judged(server, ledger, before=()):
    """`{key: (word, what was answered)}` of all that is not right; what was not `before` either is not waited for."""
    client = Client(server)
    found = {key: answered(client, ledger, key) for key in ledger.bodies}
    later = [key for key, (word, _) in found.items() if word == "503" and key not in before]
    if later:
        time.sleep(RETRY_S)
        found |= {key: answered(client, ledger, key) for key in later}
    return {key: said for key, said in found.items() if said[0]} | listed(client, ledger, found)


def listed(client, ledger, found):
    """As `judged`, of the list; what could not be read may be left out."""
    status, _, body = client.ask("GET", query="list-type=2")
    if status != 200:
        return {"LIST": ({403: "DENIED", 404: "LOST", 503: "503"}.get(status, "500"), f"LIST: {status}")}
    contents = re.findall(r"<Contents>.*?</Contents>", body.decode(), re.S)
    entries = dict([re.search(part, one).group(1) for part in (r"<Key>(.*?)<", r"\b([0-9a-f]{32})\b")]
                   for one in contents)
    wrong = {}
    for key, etag in entries.items():
        now = ledger.bodies[key][-1]
        if now is None or etag != hashlib.md5(now).hexdigest():
            wrong[key] = ("OLD", f"LIST {key}: {etag}")
    for key, bodies in ledger.bodies.items():
        if bodies[-1] is not None and key not in entries and not found[key][0]:
            wrong[key] = ("LOST", f"LIST without {key}")
    return wrong


class Cell:
    """One damage to a copy of a directory, and what comes of it: `words` in order of gravity, and `shown`."""

    WHOLE = "kept"

    def __init__(self, bases, row, damage, state):
        self.bases, self.row, self.damage, self.state = bases, row, damage, state
        self.kind, self.place = KINDS[row.partition(", ")[0]], row.partition(", ")[2]
        self.data = os.path.join(bases.work, "cell")
        self.counts, self.flags, self.shown, self.seconds = collections.Counter(), [], [], 0.0
        self.logged, self.repaired = [], False

    def run(self):
        """Gives itself, or None where there is no such cell."""
        began = time.monotonic()
        copied(self.bases.at(self.state), self.data)
        path = self.kind.find(self.data)
        if path is None or self._damaged(path) == "none":
            return None
        self.path = path
        try:
            self._served()
            self.repaired = self._is_as_it_was()
        finally:
            shutil.rmtree(self.data, ignore_errors=True)
        self.seconds = time.monotonic() - began
        return self

    def _is_as_it_was(self):
        """The damaged file has the bytes again that it had before."""
        if self.kind.folder or self.damage == "duplicated" or not os.path.isfile(self.path):
            return False
        return raw(self.path) == raw(self._undamaged(self.path))

    def _undamaged(self, path):
        return os.path.join(self.bases.at(self.state), os.path.relpath(path, self.data))

    def _damaged(self, path):
        if self.kind.folder:
            return DAMAGES[self.damage](path, 0, self)
        if os.path.getsize(path) == 0:
            return "none"
        return DAMAGES[self.damage](path, self.kind.places(path)[self.place], self)

    def started(self):
        for end in (".log", ".out"):
            if os.path.exists(self.data + end):
                os.remove(self.data + end)
        server = Trial(self.data, self.bases.keys)
        if server.hangs:
            self.flags.append("HANG")
        return server

    def ended(self, server, kill):
        if server.process.poll() is not None and not server.refused:
            self.flags.append("DIED")
        elif kill or server.hangs:
            server.kill()
        elif not server.refused and server.stop() != 0:
            self.flags.append("DIED")
        lines = server.log().splitlines()
        self.logged += [line for line in lines if " WARN " in line or " ERROR " in line]
        if "panicked at" in server.log():
            self.flags.append("PANIC")
            self.shown.append(next(line for line in lines if "panicked at" in line))

    def _served(self):
        server = self.started()
        if server.refused is not None:
            self.ended(server, False)
            return self._refused(server.refused)
        ledger, worst = Ledger(self.bases.ledger.bodies), {}
        try:
            if not server.hangs:
                worst = judged(server, ledger)
                self._written(Client(server), ledger)
        finally:
            self.ended(server, self.state == "killed")
        server = self.started()
        if server.refused is not None:
            self.flags.append("then refused")
            self.shown.append(server.refused)
        try:
            if server.refused is None and not server.hangs:
                for key, found in judged(server, ledger, worst).items():
                    worst[key] = min(worst.get(key, found), found, key=lambda one: gravity(one[0]))
        finally:
            self.ended(server, True)
        self._counted(worst)

    def _counted(self, worst):
        for word, shown in worst.values():
            word = "NEEDLESS" if word == "500" and self.kind.spared else word
            self.counts[word] += 1
            if self.counts[word] <= 2:
                self.shown.append(shown)
        if any(word != "DENIED" for word, _ in worst.values()):
            self._verified()

    def _verified(self):
        """What is lost is no secret to `larder verify`."""
        said = larder("verify", "--deep", "--data", self.data, timeout=120)
        if said.returncode == 0:
            self.flags.append("UNSEEN")
        self.shown.append(f"verify {said.returncode}: {' ~ '.join((said.stdout + said.stderr).split(chr(10)))[:300]}")

    def _written(self, client, ledger):
        """Clients go on: a new object, one overwritten, one deleted."""
        done = [ledger.put(client, "after", 1_000), ledger.put(client, "small1", 1_100)]
        done += [ledger.delete(client, "small2")]
        for key, status in zip(("after", "small1", "small2"), done, strict=True):
            if status not in (200, 204):
                # Nobody knows which it is.
                ledger.bodies.pop(key, None)
        if any(status >= 500 or status == 0 for status in done):
            self.flags.append("read-only")

    def _refused(self, said):
        self.flags.append("refused")
        self.shown.append(said)
        names = {os.path.basename(self.path), self.row.partition(", ")[0], *self.kind.words}
        if not any(name in said for name in names) or not FIX.search(said.lower()):
            self.flags.append("VAGUE")
        # With the file as it was, nothing else is needed.
        if self.damage == "duplicated":
            deleted(self.kind.twin(self.path), None, None)
            if self.kind.twin is on_next_drive:
                self._restored(self.kind.twin(self.path))
        self._restored(self.path)
        server = self.started()
        try:
            found = {"start": server.refused} if server.refused else judged(server, self.bases.ledger)
        finally:
            self.ended(server, True)
        if found:
            self.flags.append("SPOILED")
            self.shown += [str(one) for one in found.items()][:2]

    def _restored(self, path):
        if os.path.exists(path):
            deleted(path, None, None)
        copied(self._undamaged(path), path)

    def words(self):
        counted = [f"{word} {self.counts[word]}" for word in sorted(self.counts, key=gravity)]
        return ", ".join([*self.flags, *counted]) or "whole"

    def violations(self):
        return {*self.flags, *self.counts} & set(VIOLATIONS)

    def outcome(self):
        """One word for the table."""
        bad = self.violations()
        if bad:
            return f"**{VIOLATIONS[min(bad, key=gravity)]}**"
        for word, sign in SIGNS.items():
            if sign in self.flags or sign in self.counts:
                return word
        return "repaired" if self.repaired else self.WHOLE


def gravity(word):
    return list(VIOLATIONS).index(word) if word in VIOLATIONS else len(VIOLATIONS)


class Recovery(Cell):
    """A catalog that is made again by `larder recover`, from what the workshop and the drives have."""

    WHOLE = "rebuilt"

    HOW = {
        "lost": (True, [()]),
        "lost, recovered twice": (True, [(), ("--replace",)]),
        "whole": (False, [("--replace",)]),
        "whole, recovered twice": (False, [("--replace",), ("--replace",)]),
    }

    def __init__(self, bases, row, damage, state):
        super().__init__(bases, "catalog.db", damage, state)
        self.row = row

    def _damaged(self, path):
        lost, turns = self.HOW[self.damage]
        for name in CATALOG if lost else ():
            if os.path.exists(os.path.join(self.data, name)):
                os.remove(os.path.join(self.data, name))
        for words in turns:
            said = larder("recover", "--data", self.data, *words)
            if said.returncode != 0:
                self.flags.append("recover refused")
                self.shown.append(said.stderr.strip())
