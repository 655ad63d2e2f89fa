"""Data that is lost: whoever asks for it learns so from the answer, an operator by name, and all else can be read."""

import http.client
import json
import os
import stat

from harness import BRISK, STAYING, SystemTest, larder, noise

MIB = 1 << 20


def rot(paths, at, length=300_000):
    """Overwrites bytes of these files."""
    for path in paths:
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(b"\xa5" * length)


class Lost(SystemTest):
    def packed(self, objects):
        """A server on nas8 (2 + 1) with these objects in one blob, all asleep, and nothing of them in the spool."""
        server = self.rack("nas8", STAYING)
        client = server.filled(objects)
        self.assertEqual(server.stop(), 0)
        # All are old enough by now, and move together.
        self.configure(server.data, BRISK)
        server = self.serve(server.data)
        server.until_cold()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(len({os.path.basename(path).split(".")[0] for path in server.stacks()}), 1, "one blob")
        return server

    def is_lost(self, server, key):
        status, _, body = server.ask("GET", f"/pantry/{key}")
        self.assertEqual((status, b"<Code>InternalError</Code>" in body), (500, True), body[:300])
        self.assertIn(b"The data of this object is lost", body)

    def test_the_catalog_is_for_its_owner_alone(self):
        server = self.rack("nas8", STAYING)
        larder("user", "add", "ann", "--data", server.data)

        def modes():
            found = {name: os.path.join(server.data, name) for name in os.listdir(server.data)}
            return {name: oct(stat.S_IMODE(os.stat(path).st_mode)) for name, path in found.items()
                    if name.startswith("catalog.db") or name == "credentials"}

        made = modes()
        self.assertEqual(sorted(made), ["catalog.db", "catalog.db-shm", "catalog.db-wal", "catalog.db.lock",
                                        "credentials"])
        self.assertEqual(set(made.values()), {"0o600"}, made)
        server.kill()
        for name in modes():
            os.chmod(os.path.join(server.data, name), 0o644)
        server = self.serve(server.data)
        self.assertEqual(set(modes().values()), {"0o600"}, "what an older Larder has left is repaired")
        self.assertIn("others could read", server.log())

    def test_of_a_damaged_blob_only_what_cannot_be_read_is_lost(self):
        objects = {"a": noise(5 * MIB, 1), "b": noise(10 * MIB, 2), "c": noise(5 * MIB, 3)}
        server = self.packed(objects)
        rot(server.stacks()[:2], 5_600_000)
        report = self.verified(server.data, "--deep")
        lost = [finding for finding in report["findings"] if finding["kind"] == "object-lost"]
        self.assertEqual(([finding["object"] for finding in lost], report["rack"]["lost_objects"]),
                         (["s3://pantry/b"], 1))
        [blob] = [finding["what"] for finding in report["findings"] if finding["kind"] == "blob-lost"]
        self.assertIn("1 object in it: s3://pantry/b; 2 can still be read", blob)
        server = self.serve(server.data)
        self.is_lost(server, "b")
        self.reads(server.client(), "pantry", {"a": objects["a"], "c": objects["c"]})
        part = server.client().get_object(Bucket="pantry", Key="b", Range="bytes=0-999999")["Body"].read()
        self.assertEqual(part, objects["b"][:1_000_000])
        place = server.explain("pantry", "b")["place"]
        damaged = [int(os.path.basename(os.path.dirname(path))) for path in server.stacks()[:2]]
        self.assertEqual((place["state"], place["wait_min_s"], place["recalled"]), ("lost", None, False))
        self.assertLessEqual(set(damaged), {stack["drive"] for stack in place["unusable"]})
        self.assertEqual({stack["why"] for stack in place["unusable"]}, {"damaged"})
        shown = larder("explain", "s3://pantry/b", "--data", server.data).stdout
        self.assertRegex(shown, r"state +LOST: stacks on drives .* damaged, .*put the object again from another copy")
        self.assertIn("waiting does not help", shown)
        self.assertEqual(server.explain("pantry", "a")["place"]["state"], "readable")
        self.is_lost(server, "b")

    def test_a_loss_beyond_the_beginning_is_known_from_the_second_read_on(self):
        server = self.packed({"k": noise(60 * MIB, 1)})
        rot(server.stacks()[:2], 25 * MIB)
        server = self.serve(server.data)
        try:
            status, _, body = server.ask("GET", "/pantry/k")
            self.assertEqual(status, 500, body[:300])
        except http.client.IncompleteRead as cut:
            self.assertGreaterEqual(len(cut.partial), 32 * MIB, "as far as it had been seen")
        self.is_lost(server, "k")
        self.assertEqual(server.explain("pantry", "k")["place"]["state"], "lost")

    def test_every_lost_object_is_named_where_all_are_wanted(self):
        keys = [f"small{number:02}" for number in range(12)]
        server = self.packed({key: noise(10_000, key) for key in keys})
        for path in server.stacks()[:2]:
            os.truncate(path, os.path.getsize(path) - 4096)
        names = [f"s3://pantry/{key}" for key in keys]
        for words in ([], ["--deep"]):
            report = self.verified(server.data, *words)
            lost = [finding["object"] for finding in report["findings"] if finding["kind"] == "object-lost"]
            self.assertEqual((sorted(lost), report["rack"]["lost_objects"]), (names, 12))
            self.assertEqual(report["finding_count"], len(report["findings"]))
        shown = larder("verify", "--deep", "--data", server.data)
        self.assertEqual((shown.returncode, sum(name in shown.stdout for name in names)), (1, 5))
        self.assertIn("and 7 more (--all names them)", shown.stdout)
        self.assertRegex(shown.stdout, r"stack [0-9a-f.-]+stack on drive d\d+: ")
        shown = larder("verify", "--deep", "--all", "--data", server.data)
        self.assertEqual((shown.returncode, sum(name in shown.stdout for name in names)), (1, 12))
        server = self.serve(server.data)
        for key in keys[:2]:
            self.is_lost(server, key)

    def test_too_few_drives_are_said_before_anything_is_sent(self):
        body = noise(3 * MIB, 1)
        server = self.packed({"k": body})
        server = self.serve(server.data)
        self.reads(server.client(), "pantry", {"k": body})
        drives = [drive["drive"] for drive in server.explain("pantry", "k")["place"]["drives"]]
        self.assertEqual(server.stop(), 0)
        # Without a server nothing is rebuilt between the two.
        for drive in drives[:2]:
            output = larder("drive", "fail", drive, "--force", "--data", server.data, "--json")
            self.assertEqual(json.loads(output.stdout)["state"], "failed")
        server = self.serve(server.data)
        place = server.explain("pantry", "k")["place"]
        self.assertEqual(([stack["why"] for stack in place["unusable"]], place["state"]), (["failed"] * 2, "lost"))
        self.is_lost(server, "k")
        shown = larder("explain", "s3://pantry/k", "--data", server.data).stdout
        self.assertIn("failed, and the code can replace 1 stack; put the object again from another copy", shown)
