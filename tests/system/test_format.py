"""The bytes on the media, read by a decoder that was written from docs/format/ alone."""

import base64
import glob
import hashlib
import os
import random
import re
import time
import zlib

import decoder
from harness import BRISK, FILES, STAYING, SystemTest, noise

KINDS = {1: "ChecksumCRC32", 2: "ChecksumCRC32C", 3: "ChecksumCRC64NVME", 4: "ChecksumSHA1", 5: "ChecksumSHA256"}


def contents(path):
    with open(path, "rb") as file:
        return file.read()


class Format(SystemTest):
    def filled(self, in_parts=True):
        """A server with objects of every kind in the rack, and what they are: `{key: bytes}`."""
        server = self.rack("pelican-mini", {**BRISK, "migrate.pack_size": "1 MB"})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = {
            "empty": b"",
            "one": b"1",
            "größe/ключ": noise(5000, "name"),
            "block": noise(1 << 20, "block"),
            "stripes": noise(1_900_001, "stripes"),
            **{f"small/{i:03}": noise(100 + 37 * i, i) for i in range(40)},
        }
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        client.put_object(
            Bucket="pantry", Key="said", Body=b"said", ContentType="text/x-said", CacheControl="no-store",
            Metadata={"colour": "blue"}, Tagging="a=1&b=2", ChecksumAlgorithm="SHA256",
        )
        objects["said"] = b"said"
        self.assertEqual(server.ask("PUT", "/pantry/bare", body=b"bare")[0], 200)
        objects["bare"] = b"bare"
        parts = [noise(5 << 20, "part"), noise(70_003, "rest")]
        kind_of = {"FULL_OBJECT": "CRC32", "COMPOSITE": "SHA256"}
        for key, kind in (("whole", "FULL_OBJECT"), ("composite", "COMPOSITE")) if in_parts else ():
            named = {"Bucket": "pantry", "Key": key}
            algorithm = {"ChecksumAlgorithm": kind_of[kind]}
            upload = client.create_multipart_upload(**named, **algorithm, ChecksumType=kind)["UploadId"]
            done = []
            for number, body in enumerate(parts, 1):
                put = client.upload_part(**named, **algorithm, UploadId=upload, PartNumber=number, Body=body)
                sum_of = f"Checksum{kind_of[kind]}"
                done.append({"PartNumber": number, "ETag": put["ETag"], sum_of: put[sum_of]})
            client.complete_multipart_upload(**named, UploadId=upload, MultipartUpload={"Parts": done})
            objects[key] = b"".join(parts)
        server.until_cold()
        return server, objects

    def blobs(self, server):
        """Every blob's stacks that can be decoded, by name of the blob."""
        found = {}
        for path in server.stacks():
            number, nonce, index = decoder.stack_name(os.path.basename(path))
            stack = decoder.Stack(contents(path))
            self.assertEqual((stack.number, stack.nonce, stack.index), (number, nonce, index))
            self.assertNotEqual(nonce, 0)
            drive = int(os.path.basename(os.path.dirname(path)))
            self.assertEqual(stack.drives[index], drive)
            found.setdefault((number, nonce), []).append(stack)
        return found

    def test_a_decoder_written_from_the_documentation_gets_every_byte_back(self):
        server, objects = self.filled()
        client = server.client()
        heads = {key: client.head_object(Bucket="pantry", Key=key, ChecksumMode="ENABLED") for key in objects}
        self.assertEqual(server.stop(), 0)

        labels = [decoder.label(contents(path)) for path in
                  sorted(glob.glob(os.path.join(server.data, "drives", "*", "larder.label")))]
        self.assertEqual([label["drive"] for label in labels], list(range(96)))
        self.assertEqual(len({label["uuid"] for label in labels}), 96, "each drive is itself")
        self.assertEqual({(label["rack"], label["rack_name"], label["device"]) for label in labels},
                         {(labels[0]["rack"], "pelican-mini", (0, ""))})

        rng, found = random.Random(10), {}
        for stacks in self.blobs(server).values():
            k, total = stacks[0].k, stacks[0].k + stacks[0].r
            self.assertEqual(len(stacks), total)
            self.assertEqual({stack.rack for stack in stacks}, {labels[0]["rack"]})
            for member in decoder.members(decoder.payload(rng.sample(stacks, k))):
                self.assertEqual((member["bucket"], member["owner"]), ("pantry", "root"))
                self.assertNotIn(member["key"], found)
                found[member["key"]] = member
        self.assertEqual(sorted(found), sorted(objects))
        for key, body in objects.items():
            self.assertTrue(found[key]["data"] == body, key)
            self.like(found[key], heads[key])
        self.assertEqual((found["bare"]["headers"], found["bare"]["tags"]), ([], []), "nothing that was not sent")
        said = found["said"]
        self.assertEqual(dict(said["headers"]), {"content-type": "text/x-said", "cache-control": "no-store"})
        self.assertEqual((said["metadata"], said["tags"]), ([("colour", "blue")], [("a", "1"), ("b", "2")]))
        self.assertEqual(found["composite"]["checksums"][0][1].count("-"), 1)
        for key in ("whole", "composite"):
            at = 0
            for length, (md5, kind, raw) in zip(found[key]["part_lengths"], found[key]["parts"], strict=True):
                part = objects[key][at : at + length]
                self.assertEqual(hashlib.md5(part).digest(), md5)
                crc, sha = (1, zlib.crc32(part).to_bytes(4, "big")), (5, hashlib.sha256(part).digest())
                self.assertEqual((kind, raw), crc if key == "whole" else sha)
                at += length
        self.assertEqual((found["one"]["part_lengths"], found["one"]["parts"]), ([], []))

    def like(self, member, head):
        """An entry says what S3 says."""
        self.assertEqual(f'"{member["etag"]}"', head["ETag"])
        self.assertEqual(member["modified_ms"] // 1000, int(head["LastModified"].timestamp()))
        for kind, spelling in member["checksums"]:
            self.assertEqual(head[KINDS[kind]], spelling)

    def test_damage_within_what_the_code_bears_costs_the_decoder_nothing(self):
        server, _ = self.filled(in_parts=False)
        self.assertEqual(server.stop(), 0)
        stacks = next(stacks for stacks in self.blobs(server).values() if stacks[0].stripes > 3)
        whole = decoder.payload(stacks)
        rotten = []
        for stack in stacks:
            data = bytearray(stack.data)
            if stack.index == 0:
                data[decoder.BLOCK + 17] ^= 4  # a fragment
            if stack.index == 1:
                data[-2 * decoder.BLOCK + 80] ^= 1  # the last page: its run is lost, which is all there is here
            rotten.append(decoder.Stack(bytes(data)))
        self.assertIsNone(rotten[0].fragment(0))
        self.assertEqual(set(rotten[1].sums), {None})
        self.assertTrue(decoder.payload(rotten) == whole)
        swapped = bytearray(stacks[0].data)
        start, length = stacks[0].place(0)
        other, _ = stacks[0].place(1)
        swapped[start : start + length] = swapped[other : other + length]
        self.assertIsNone(decoder.Stack(bytes(swapped)).fragment(0), "a fragment in the wrong place is bad")
        crossed = bytes(stacks[0].data[: -decoder.BLOCK]) + bytes(stacks[1].data[-decoder.BLOCK :])
        with self.assertRaises(decoder.Broken):
            decoder.Stack(crossed)

    def test_staged_files_are_read_as_well(self):
        server = self.rack("nas8", {**STAYING, **FILES})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = {"a": noise(10, "a"), "b/ö": noise((2 << 20) + 5, "b"), "c": b""}
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        self.assertEqual(server.stop(), 0)
        [mark] = glob.glob(os.path.join(server.data, "workshop", "staged", "run-*"))
        found = {}
        for path in glob.glob(os.path.join(server.data, "workshop", "staged", "s-*")):
            slot = int(re.fullmatch(r"s-([0-9a-f]{16})", os.path.basename(path))[1], 16)
            data, footer = decoder.staged(contents(path), slot)
            self.assertEqual((f"run-{footer['run']:016x}", footer["part"]), (os.path.basename(mark), 0))
            found[footer["key_hash"]] = data
        names = {key: decoder.crc64(b"pantry\0" + key.encode()) for key in objects}
        self.assertEqual(len({base64.b64encode(name.to_bytes(8, "big")) for name in names.values()}), 3)
        self.assertEqual(found, {names[key]: body for key, body in objects.items()})

    def test_shelves_of_every_version_are_read_as_well(self):
        corpus = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "intake", "corpus")
        values = [bytes([i]) * (20 * i if i % 4 else 9000) for i in range(10)]
        keys = [b"object %d" % i + (100 + i).to_bytes(8, "big") for i in range(10)]
        expected = {key: (1, 1000 - i, b"entry", values[i]) for i, key in enumerate(keys)}
        for version in (1, 2, 3):
            shelf = decoder.Shelf(contents(os.path.join(corpus, f"shelf.v{version}")))
            self.assertEqual((shelf.version, shelf.levels), (version, 1))
            self.assertEqual(shelf.records, expected)
            self.assertEqual((shelf.masks, shelf.lost), ([(5, b"a", b"b")], []))
            self.assertEqual(shelf.superseded, [(8).to_bytes(8, "little") + (9).to_bytes(8, "little")])

    def test_the_manifest_names_the_files_of_a_pool_and_says_how_long_they_are(self):
        server = self.rack("nas8", STAYING)
        client = server.filled({f"small/{number}": noise(3000, number) for number in range(20)})
        killed = self.named(server, "kill")
        [(log, file)] = killed.items()
        self.assertEqual((file["state"], file["grows"], file["keys"]), ("live", True, None))
        self.assertGreater(file["bytes"], 20 * 3000)
        self.assertLessEqual(file["bytes"], os.path.getsize(log))
        server = self.serve(server.data)
        server.client().put_object(Bucket="pantry", Key="more", Body=noise(3000, "more"))
        stopped = self.named(server, "stop")
        [shelf] = [file for path, file in stopped.items() if path.endswith(".shelf")]
        self.assertEqual((shelf["last"], shelf["keys"][0]), (file["last"], b"c"), "what the log had is a shelf")
        self.assertTrue(all(file["state"] == "live" and not file["grows"] for file in stopped.values()), stopped)
        last = max(stopped.values(), key=lambda file: file["last"])
        self.assertGreater(last["last"], file["last"])
        least, greatest = last["keys"]
        self.assertTrue(least <= b"npantry\0\xffmore\0\1" < greatest or last["keys"] is None, last)

    def named(self, server, end):
        """The files that the manifest names when the server has ended, by their paths; they are what there is."""
        time.sleep(1.5)
        getattr(server, end)()
        slots = [decoder.manifest(contents(path)) for path in glob.glob(f"{server.data}/manifest/*.manifest-[01]")]
        self.assertEqual(len(slots), 2)
        newest = max(slots, key=lambda slot: slot["generation"])
        intake = os.path.join(server.data, "workshop", "intake")
        there = [path for kind in ("log", "shelf") for path in glob.glob(f"{intake}/*.{kind}")]
        named = {os.path.join(intake, name): file for name, file in newest["files"].items()}
        gone = {path for path in set(named) - set(there) if named[path]["state"] == "dead"}
        self.assertTrue(end == "kill" or not gone, gone)
        self.assertEqual(set(named) - gone, set(there))
        return named
