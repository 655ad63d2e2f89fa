"""One byte flipped in every kind of file that docs/format/ draws. The server serves right bytes, or an error; or it
does not start, and names the file or what it holds. After the fix that it names, everything verifies."""

import json
import os
import random
import re
import shutil
import subprocess

from harness import BINARY, BRISK, SystemTest, killed_in_a_fold, larder, noise

COLD = {**BRISK, "migrate.pack_size": "1 MB", "intake.below": "512 KiB"}
WARM = {**COLD, "migrate.older_than": None, "workshop.regular": 1.0, "workshop.critical": 1.0}
# Flips in each file at random places, beside those near its first and its last byte.
FLIPS = 1


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x20]))


def under(data, *parts, match=""):
    """The files below a folder whose names fit."""
    found = []
    for folder, _, names in os.walk(os.path.join(data, *parts)):
        found += [os.path.join(folder, name) for name in sorted(names) if re.search(match, name)]
    return found


def largest(paths):
    return max(paths, key=os.path.getsize)


# Each kind of file: its name and which of them is damaged.
KINDS = {
    "identity": lambda data: os.path.join(data, "identity"),
    "credentials": lambda data: os.path.join(data, "credentials"),
    "larder.toml": lambda data: os.path.join(data, "larder.toml"),
    "rack.toml": lambda data: os.path.join(data, "rack.toml"),
    "catalog": lambda data: os.path.join(data, "catalog.db"),
    "catalog's write-ahead log": lambda data: os.path.join(data, "catalog.db-wal"),
    "staged file": lambda data: largest(under(data, "workshop", "staged", match="^s-")),
    "run mark": lambda data: under(data, "workshop", "staged", match="^run-")[0],
    "label of the intake": lambda data: under(data, "workshop", "intake", match="intake.pool$")[0],
    "log of the intake": lambda data: largest(under(data, "workshop", "intake", match=r"\.log$")),
    "shelf of the intake": lambda data: largest(under(data, "workshop", "intake", match=r"\.shelf$")),
    "snapshot of the journal": lambda data: largest(under(data, "workshop", "journal", match=r"\.snapshot$")),
    "segment of the journal": lambda data: largest(under(data, "workshop", "journal", match=r"\.journal$")),
    "label of a drive": lambda data: under(data, "drives", match="^larder.label$")[0],
    "stack": lambda data: largest(under(data, "drives", match=r"\.stack$")),
}


class FlippedBytes(SystemTest):
    def base(self):
        """A data directory whose server was killed, with a file of every kind, and what is in it."""
        server = self.rack("nas8", COLD)
        cold = {f"cold{n:02}": noise(150_000 + 977 * n, n) for n in range(12)}
        server.filled(cold)
        server.until_cold()
        server.until("the journal leads on", lambda status: status["journal"]["leads_on"])
        self.assertEqual(server.stop(), 0)
        self.configure(server.data, WARM)
        server = self.serve(server.data)
        client = server.client()
        # Enough small ones that the first log gives way to a shelf.
        warm = {f"small{n:03}": noise(400_000, n) for n in range(110)}
        warm |= {"large": noise(1_500_000, "large"), "tiny": b"tiny"}
        for key, body in warm.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        server.until("there is a shelf", lambda _: under(server.data, "workshop", "intake", match=r"\.shelf$"))
        client.put_object(Bucket="pantry", Key="last", Body=b"what was acknowledged last")
        server.kill()
        killed_in_a_fold(server.data)
        return server.data, {**cold, **warm, "last": b"what was acknowledged last"}

    def places(self, path, kind):
        size, chance = os.path.getsize(path), random.Random(kind)
        self.assertGreater(size, 0, path)
        if kind == "stack":
            # Header, a fragment, checksum page, footer.
            return [20, 4096 + chance.randrange(50_000), size - 8192 + 70, size - 4096 + 30]
        return sorted({1, size - 2, *(chance.randrange(size) for _ in range(FLIPS))} & set(range(size)))

    def starts(self, data):
        """The server on `data`, or what it says instead of starting."""
        try:
            return self.serve(data), None
        except AssertionError:
            said = larder("serve", "--data", data, "--port", 0)
            self.assertEqual(said.returncode, 1, said.stderr)
            return None, said.stderr.strip().splitlines()[-1]

    def answers(self, server, objects):
        """Which objects are answered as they were written; all others with an error, none with other bytes."""
        right = set()
        for key, body in objects.items():
            try:
                status, _, found = server.ask("GET", f"/pantry/{key}")
            except Exception:  # cut off in the middle
                continue
            if status == 200:
                self.assertTrue(found == body, f"{key}: wrong bytes")
                right.add(key)
            else:
                self.assertGreaterEqual(status, 400, key)
        return right

    def repaired(self, data, objects, right):
        """Once what is lost was written again, everything verifies, and all is there."""
        server = self.servers[-1]
        client = server.client()
        for key in set(objects) - right:
            client.put_object(Bucket="pantry", Key=key, Body=objects[key])
        self.verified(data, "--deep")
        self.assertEqual(server.stop(), 0)
        self.configure(data, COLD)
        server = self.serve(data)
        server.until_cold()
        if any("move workshop/intake away" in finding["mend"] for finding in self.verified(data)["findings"]):
            self.assertEqual(server.stop(), 0)
            shutil.rmtree(os.path.join(data, "workshop", "intake"))
            server = self.serve(data)
            server.until_asleep()
        found = self.verified(data, "--deep")
        self.assertEqual([finding["what"] for finding in found["findings"]], [])
        self.assertEqual(self.answers(server, objects), set(objects))
        self.assertEqual(server.stop(), 0)
        found = self.verified(data, "--deep")
        self.assertEqual([finding["what"] for finding in found["findings"]], [])

    def flipped(self, base, objects, kind, at):
        data = os.path.join(self.root, "case")
        shutil.rmtree(data, ignore_errors=True)
        subprocess.run(["cp", "-a", base, data], check=True)
        path = KINDS[kind](data)
        flip(path, at)
        server, refused = self.starts(data)
        if refused:
            # It names the damage; the fix is another copy of the file.
            name = os.path.basename(path).removesuffix("-wal")
            known = [name, kind.split(" of ")[-1], "catalog", "larder.toml"]
            self.assertTrue(any(word in refused for word in known), refused)
            place = re.search(r"toml:\d+:\d+: ", refused)
            self.assertTrue(place or re.search(r"restore|write|put", refused), refused)
            flip(path, at)
            server = self.serve(data)
            self.assertEqual(self.answers(server, objects), set(objects))
            self.assertEqual(server.stop(), 0)
            found = self.verified(data, "--deep")
            self.assertEqual([finding["what"] for finding in found["findings"]], [])
            return
        right = self.answers(server, objects)
        warned = " ".join(server.status()["warnings"])
        if "larder recover --replace" in warned:
            # Batches behind the damage do not follow on the catalog: the journal has those that are between.
            self.assertEqual(server.stop(), 0)
            recovered = larder("recover", "--replace", "--data", data)
            self.assertEqual(recovered.returncode, 0, recovered.stderr)
            server = self.serve(data)
            right = self.answers(server, objects)
        self.assertLessEqual(len(objects) - len(right), 1, "a byte costs one object at most")
        if kind == "label of a drive":
            self.assertIn("larder drive fail", json.dumps(self.verified(data, "--wake")["findings"]))
            self.assertEqual(larder("drive", "fail", "0", "--data", data).returncode, 0)
            server.until("it is rebuilt", lambda s: all(rebuild["left_bytes"] == 0 for rebuild in s["rebuilds"]))
        self.repaired(data, objects, right)

    def each(self, *kinds):
        base, objects = self.base()
        for kind in kinds:
            path = KINDS[kind](base)
            for at in self.places(path, kind):
                with self.subTest(kind=kind, at=at):
                    self.flipped(base, objects, kind, at)

    def test_files_of_the_data_directory(self):
        self.each("identity", "credentials", "larder.toml", "rack.toml")

    def test_the_catalog(self):
        self.each("catalog", "catalog's write-ahead log")

    def test_the_journal(self):
        self.each("snapshot of the journal", "segment of the journal")

    def test_files_of_the_workshop(self):
        self.each("staged file", "run mark", "label of the intake")

    def test_the_log_and_the_shelves_of_small_objects(self):
        self.each("log of the intake", "shelf of the intake")

    def test_files_of_drives(self):
        self.each("label of a drive", "stack")
