"""Bytes that are whole by every checksum of the media and are not the object's: nobody is given them as the object."""

import glob
import os
import struct

import decoder
from harness import BRISK, FILES, STAYING, SystemTest, noise


def staged_files(server):
    return sorted(glob.glob(os.path.join(server.data, "workshop", "staged", "s-*")))


def forge_staged(path, body):
    """Puts `body` in the place of what is staged there, as long as that, with all checksums of the file right."""
    slot = int(os.path.basename(path)[2:], 16)
    with open(path, "rb") as file:
        data = bytearray(file.read())
    old, footer = decoder.staged(bytes(data), slot)
    assert len(old) == len(body)
    data[: len(body)] = body
    pieces = [body[at : at + (1 << 20)] for at in range(0, len(body), 1 << 20)]
    identity = [struct.pack("<QQQ", slot, footer["nonce"], number) for number in range(len(pieces))]
    sums = b"".join(struct.pack("<I", decoder.crc32c(whose, piece)) for whose, piece in zip(identity, pieces))
    data[footer["bytes_max"] : footer["bytes_max"] + len(sums)] = sums
    data[-68:-64] = struct.pack("<I", decoder.crc32c(sums))
    data[-4:] = struct.pack("<I", decoder.crc32c(data[-128:-4]))
    assert decoder.staged(bytes(data), slot)[0] == body
    with open(path, "r+b") as file:
        file.write(data)


def forge_fragment(path, change):
    """Changes fragment 0 of a stack, with all checksums of the stack right."""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    stack = decoder.Stack(bytes(data))
    assert stack.stripes <= decoder.RUN, "one page"
    start, length = stack.place(0)
    data[start : start + length] = change(bytes(data[start : start + length]))
    page = len(data) - 2 * decoder.BLOCK
    identity = stack.identity + struct.pack("<QB", 0, stack.index)
    data[page + 64 : page + 68] = struct.pack("<I", decoder.crc32c(identity, data[start : start + length]))
    data[page + 4092 : page + 4096] = struct.pack("<I", decoder.crc32c(data[page : page + 4092]))
    assert decoder.Stack(bytes(data)).fragment(0) is not None
    with open(path, "r+b") as file:
        file.write(data)


class OwnChecksum(SystemTest):
    def cut_off(self, server, path, right):
        """A GET of all of it does not come to its end; what came of it is said to be no object."""
        try:
            status, _, body = server.ask("GET", path)
        except Exception:  # cut off in the middle
            return
        self.assertGreaterEqual(status, 500, "an answer that looks whole")
        self.assertNotIn(right, body)

    def warned(self, server, path):
        self.warns(server, "wrong_bytes")
        self.assertIn("THE BYTES OF AN OBJECT ARE NOT THOSE THAT IT WAS ACKNOWLEDGED WITH", server.log())
        self.assertIn(path, server.log())

    def test_another_objects_bytes_in_the_workshop_are_not_served_as_a_whole(self):
        server = self.rack("nas8", {**STAYING, **FILES})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        bodies = [noise(3_000_000, "a"), noise(500, "b")]
        for number, body in enumerate(bodies):
            client.put_object(Bucket="pantry", Key=f"k{number}", Body=body)
        client.put_object(Bucket="pantry", Key="right", Body=b"right")
        self.assertEqual(server.stop(), 0)
        for path, body in zip(staged_files(server), bodies):
            forge_staged(path, noise(len(body), "forged"))
        server = self.serve(server.data)
        for number, body in enumerate(bodies):
            self.cut_off(server, f"/pantry/k{number}", body)
        self.warned(server, "s3://pantry/k1")
        self.reads(server.client(), "pantry", {"right": b"right"})

    def test_another_objects_bytes_are_not_packed(self):
        server = self.rack("nas8", {**STAYING, **FILES})
        client = server.client()
        client.create_bucket(Bucket="pantry")
        objects = {f"k{number}": noise(20_000, number) for number in range(5)}
        for key, body in objects.items():
            client.put_object(Bucket="pantry", Key=key, Body=body)
        self.assertEqual(server.stop(), 0)
        forge_staged(staged_files(server)[2], noise(20_000, "forged"))
        self.configure(server.data, BRISK)
        server = self.serve(server.data)
        server.until("all but it are in the rack", lambda s: s["workshop"]["staged_count"] == 1 and
                     s["workshop"]["migrations_under_way"] == 0)
        self.assertIn('key="k2" reason="its bytes do not have its own checksum"', server.log())
        del objects["k2"]
        self.reads(server.client(), "pantry", objects)

    def test_bytes_in_the_rack_that_are_not_the_objects_are_not_served_as_a_whole(self):
        server = self.rack("nas8", BRISK)
        client = server.client()
        client.create_bucket(Bucket="pantry")
        body = noise(400_000, "a")
        client.put_object(Bucket="pantry", Key="k", Body=body)
        parts = [noise(5 << 20, "part"), noise(70_003, "rest")]
        named, algorithm = {"Bucket": "pantry", "Key": "composite"}, {"ChecksumAlgorithm": "SHA256"}
        upload = client.create_multipart_upload(**named, **algorithm, ChecksumType="COMPOSITE")["UploadId"]
        done = []
        for number, part in enumerate(parts, 1):
            put = client.upload_part(**named, **algorithm, UploadId=upload, PartNumber=number, Body=part)
            done.append({"PartNumber": number, "ETag": put["ETag"], "ChecksumSHA256": put["ChecksumSHA256"]})
        client.complete_multipart_upload(**named, UploadId=upload, MultipartUpload={"Parts": done})
        server.until_cold()
        self.reads(client, "pantry", {"k": body, "composite": b"".join(parts)})
        self.assertEqual(server.stop(), 0)
        data = [path for path in server.stacks() if os.path.basename(path).endswith(".000.stack")]
        for path in data:
            forge_fragment(path, lambda piece: bytes(byte ^ 1 for byte in piece[:9]) + piece[9:])
        server = self.serve(server.data)
        self.cut_off(server, "/pantry/k" if len(data) > 1 else "/pantry/composite", body)
        self.cut_off(server, "/pantry/composite", parts[1])
        # Where all of a blob is read, its own checksum shows it as well, and before a byte is sent.
        self.assertRegex(server.log(), "DATA LOST|THE BYTES OF AN OBJECT ARE NOT THOSE")
        range_of = server.ask("GET", "/pantry/composite", headers={"range": "bytes=5242880-5242889"})
        self.assertEqual((range_of[0], range_of[2]), (206, parts[1][:10]))
