"""A decoder of what lies on the media, written from docs/format/ alone.

Labels, stripe stacks with erasure decoding from any k of them, packs, staged files, shelves, manifests. It shares no
code with Larder and is slow on purpose; tests hold Larder against it.
"""

import struct

BLOCK = 4096
RUN = 960


class Broken(Exception):
    """Bytes are not what docs/format/ says."""


def need(holds, what):
    if not holds:
        raise Broken(what)


# --- Checksums -------------------------------------------------------------------------------------------------------


def _table(polynomial):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (polynomial if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _table(0x82F63B78)
_CRC64 = _table(0x9A6C9329AC4BC9B5)


def crc32c(*pieces):
    crc = 0xFFFFFFFF
    for piece in pieces:
        for byte in piece:
            crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc64(*pieces):
    crc = 0xFFFFFFFFFFFFFFFF
    for piece in pieces:
        for byte in piece:
            crc = crc >> 8 ^ _CRC64[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFFFFFFFFFF


assert (crc32c(b"123456789"), crc64(b"123456789")) == (0xE3069283, 0xAE8B14860A799888)

# --- Fields ----------------------------------------------------------------------------------------------------------


class Fields:
    """Takes fields off the front of bytes."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, count):
        need(self.at + count <= len(self.data), "the bytes end too early")
        self.at += count
        return bytes(self.data[self.at - count : self.at])

    def number(self, count):
        return int.from_bytes(self.take(count), "little")

    def zeros(self, end):
        need(not any(self.take(end - self.at)), f"the bytes up to {end} are zero")

    def text(self):
        return self.take(self.number(4)).decode("utf-8")

    def key(self):
        return self.take(self.number(2))

    def pairs(self):
        return [(self.text(), self.text()) for _ in range(self.number(4))]


def block(data, magic, versions=(2,)):
    need(len(data) == BLOCK and data[:8] == magic, f"a block {magic.decode()}")
    need(int.from_bytes(data[4092:], "little") == crc32c(data[:4092]), f"the checksum of {magic.decode()}")
    fields = Fields(data[:4092], 8)
    need(fields.number(4) in versions, f"the version of {magic.decode()}")
    return fields


# --- Labels ----------------------------------------------------------------------------------------------------------


def label(data):
    fields = block(data, b"LARDLABL")
    found = {"drive": fields.number(4), "rack": fields.take(16), "uuid": fields.take(16)}
    found["labelled_ms"] = fields.number(8)
    kind, device_bytes, name_bytes = fields.number(1), fields.number(1), fields.number(1)
    need((kind == 0) == (device_bytes == 0) and kind <= 2 and device_bytes <= 63, "the device")
    need(1 <= name_bytes <= 63, "the name")
    fields.zeros(64)
    found["device"] = (kind, fields.take(device_bytes).decode())
    fields.zeros(128)
    found["rack_name"] = fields.take(name_bytes).decode()
    fields.zeros(4092)
    return found


# --- The field of 256 elements ---------------------------------------------------------------------------------------

_EXP, _LOG = [0] * 512, [0] * 256
_value = 1
for _power in range(255):
    _EXP[_power] = _EXP[_power + 255] = _value
    _LOG[_value] = _power
    _value = _value << 1 ^ (0x11D if _value & 0x80 else 0)


def times(a, b):
    return _EXP[_LOG[a] + _LOG[b]] if a and b else 0


def inverse(a):
    return _EXP[255 - _LOG[a]]


_TIMES = {}


def scaled(data, factor):
    """Each byte of `data` times `factor`."""
    if factor not in _TIMES:
        _TIMES[factor] = bytes(times(factor, byte) for byte in range(256))
    return data.translate(_TIMES[factor])


def added(a, b):
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


def row(k, stack):
    """What fragment `stack` is of the data fragments."""
    if stack < k:
        return [int(i == stack) for i in range(k)]
    return [inverse(stack ^ i) for i in range(k)]


def data_fragments(k, fragments):
    """The k data fragments, from any k of all: `{stack: bytes}`."""
    chosen = sorted(fragments)[:k]
    need(len(chosen) == k, "k good fragments")
    if chosen == list(range(k)):
        return [fragments[stack] for stack in chosen]
    matrix = [row(k, stack) for stack in chosen]
    right = [fragments[stack] for stack in chosen]
    for column in range(k):
        pivot = next(r for r in range(column, k) if matrix[r][column])
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        right[column], right[pivot] = right[pivot], right[column]
        factor = inverse(matrix[column][column])
        matrix[column] = [times(factor, value) for value in matrix[column]]
        right[column] = scaled(right[column], factor)
        for other in range(k):
            factor = matrix[other][column]
            if other != column and factor:
                matrix[other] = [a ^ times(factor, b) for a, b in zip(matrix[other], matrix[column])]
                right[other] = added(right[other], scaled(right[column], factor))
    return right


# --- Stripe stacks ---------------------------------------------------------------------------------------------------


def stack_name(name):
    """Number, nonce and index of a stack's file name."""
    blob, index, suffix = name.split(".")
    number, nonce = blob.split("-")
    need(name == f"{int(number, 16):016x}-{int(nonce, 16):016x}.{int(index):03}.stack", f"the name {name}")
    return int(number, 16), int(nonce, 16), int(index)


class Stack:
    """A complete stack, with the fragments of it that match their checksums."""

    def __init__(self, data):
        header = data[:BLOCK]
        self.data, self.header_crc = data, header[4092:]
        fields = block(header, b"LARDSTCK")
        self.index, self.k, self.r = fields.number(1), fields.number(1), fields.number(1)
        fields.zeros(16)
        self.identity = fields.take(32)
        self.rack, self.number = self.identity[:16], int.from_bytes(self.identity[16:24], "little")
        self.nonce = int.from_bytes(self.identity[24:], "little")
        self.payload_bytes, self.stripes, self.fragment_bytes = fields.number(8), fields.number(8), fields.number(4)
        self.group, self.rack_class = fields.number(4), fields.number(4)
        fields.zeros(80)
        self.sequence, self.written_ms, self.run = fields.number(8), fields.number(8), fields.number(8)
        self.drives = [fields.number(4) for _ in range(self.k + self.r)]
        fields.zeros(4092)
        need(self.stripes == -(-self.payload_bytes // (self.k * self.fragment_bytes)), "the number of stripes")
        rest = self.payload_bytes - (self.stripes - 1) * self.k * self.fragment_bytes
        self.last_bytes = -(-(-(-rest // self.k)) // BLOCK) * BLOCK
        runs = -(-self.stripes // RUN)
        length = 2 * BLOCK + (self.stripes - 1) * self.fragment_bytes + self.last_bytes + BLOCK * runs
        need(len(data) == length, "the length of a stack")
        self._footer(data[-BLOCK:])
        self.sums = [None] * self.stripes
        for run in range(runs):
            self._page(run)

    def _footer(self, data):
        fields = block(data, b"LARDFOOT")
        need([fields.number(1) for _ in range(3)] == [self.index, self.k, self.r], "index and code of the footer")
        fields.zeros(16)
        need(fields.take(32) == self.identity, "the footer's blob")
        need(fields.number(8) == self.payload_bytes, "the footer's length")
        self.payload_crc = fields.number(8)
        need(fields.number(4) == self.fragment_bytes, "the footer's fragment length")
        need(fields.take(4) == self.header_crc, "the footer names its header")
        fields.zeros(4092)

    def place(self, stripe):
        start = BLOCK + stripe * self.fragment_bytes + BLOCK * (stripe // RUN)
        return start, self.last_bytes if stripe == self.stripes - 1 else self.fragment_bytes

    def _page(self, run):
        """The checksums of a run; none of them if its page is bad."""
        first, end = run * RUN, min((run + 1) * RUN, self.stripes)
        at = sum(self.place(end - 1))
        try:
            fields = block(self.data[at : at + BLOCK], b"LARDSUMS")
            need(fields.number(1) == self.index, "the page's index")
            fields.zeros(16)
            need(fields.take(32) == self.identity, "the page's blob")
            need(fields.number(8) == first and fields.number(4) == end - first, "the page's run")
            need(fields.take(4) == self.header_crc, "the page names its header")
            self.sums[first:end] = [fields.number(4) for _ in range(first, end)]
            fields.zeros(4092)
        except Broken:
            self.sums[first:end] = [None] * (end - first)

    def fragment(self, stripe):
        """The bytes, or None if they are not what was written."""
        start, length = self.place(stripe)
        found = self.data[start : start + length]
        identity = self.identity + struct.pack("<QB", stripe, self.index)
        return found if self.sums[stripe] == crc32c(identity, found) else None


def payload(stacks):
    """The payload of a blob, from any k of its stacks."""
    first = stacks[0]
    need(len({(stack.identity, stack.payload_crc) for stack in stacks}) == 1, "stacks of one blob")
    out = bytearray()
    for stripe in range(first.stripes):
        found = {}
        for stack in stacks:
            if len(found) < first.k:
                piece = stack.fragment(stripe)
                if piece is not None:
                    found[stack.index] = piece
        left = first.payload_bytes - len(out)
        out += b"".join(data_fragments(first.k, found))[:left]
    need(len(out) == first.payload_bytes and crc64(out) == first.payload_crc, "the payload's checksum")
    return bytes(out)


# --- Packs -----------------------------------------------------------------------------------------------------------

_RAW_BYTES = {1: 4, 2: 4, 3: 8, 4: 20, 5: 32}


def members(data):
    """The members of the pack that a payload is: dictionaries, with their bytes."""
    fields = Fields(data[-64:])
    need(fields.take(8) == b"larder-p" and fields.number(4) == 3, "the footer of a pack")
    count, index_offset, index_bytes, index_crc = (fields.number(size) for size in (4, 8, 8, 8))
    fields.zeros(60)
    need(fields.number(4) == crc32c(data[-64:-4]), "the checksum of a pack's footer")
    need(index_offset + index_bytes + 64 == len(data), "the lengths of a pack")
    index = data[index_offset : index_offset + index_bytes]
    need(crc64(index) == index_crc, "the checksum of an index")
    fields = Fields(index)
    need(fields.take(8) == b"larder-i" and fields.number(4) == 3 and fields.number(4) == count, "an index")
    found = [_entry(fields.take(fields.number(4))) for _ in range(count)]
    at = 0
    for member in found:
        need(member["offset"] == at, "members lie without gaps")
        at += member["bytes"]
        member["data"] = data[member["offset"] : at]
        need(fields.number(8) == crc64(member["data"]), "the checksum of a member")
    need(at == index_offset and fields.at == len(index), "members and index fill the pack")
    return found


def _entry(data):
    fields = Fields(data)
    names = ("version", "sequence", "offset", "bytes", "created_ms", "modified_ms", "bucket_created_ms", "until_ms")
    found = {name: fields.number(8) for name in names}
    flags, found["retention"], acl = fields.number(1), fields.number(1), fields.number(1)
    need(flags < 4 and found["retention"] < 3 and acl < 2 and fields.number(1) == 0, "flags, retention, ACL")
    found["delete_marker"], found["legal_hold"] = bool(flags & 1), bool(flags & 2)
    found["acl"] = ("private", "public-read")[acl]
    for name in ("bucket", "owner", "key", "etag", "storage_class"):
        found[name] = fields.text()
    for name in ("headers", "metadata", "tags"):
        found[name] = fields.pairs()
    found["checksums"] = [(fields.number(1), fields.text()) for _ in range(fields.number(4))]
    runs = [(fields.number(4), fields.number(8)) for _ in range(fields.number(4))]
    found["part_lengths"] = [length for count, length in runs for _ in range(count)]
    need(not runs or sum(found["part_lengths"]) == found["bytes"], "the lengths of parts")
    found["parts"] = []
    count = fields.number(4)
    if count:
        need(count == len(found["part_lengths"]), "the number of digests of parts")
        kind = fields.number(1)
        found["parts"] = [(fields.take(16), kind, fields.take(_RAW_BYTES[kind])) for _ in range(count)]
    need(fields.at == len(data), "an entry has its length")
    return found


# --- Staged files ----------------------------------------------------------------------------------------------------


def staged(data, slot):
    """The data of a staged file, and what its footer says."""
    tail = data[-128:]
    fields = Fields(tail)
    need(fields.take(8) == b"larder-s" and fields.number(4) == 2, "the footer of a staged file")
    need(fields.number(4) == 1 << 20, "the length of blocks")
    names = (("slot", 8), ("nonce", 8), ("bytes", 8), ("bytes_max", 8), ("version", 8), ("part", 4), ("table_crc", 4))
    found = {name: fields.number(size) for name, size in (*names, ("key_hash", 8), ("run", 8), ("sequence", 8))}
    fields.zeros(124)
    need(fields.number(4) == crc32c(tail[:124]), "the checksum of a staged file's footer")
    need(found["slot"] == slot and found["bytes"] <= found["bytes_max"], "slot and length")
    table = found["bytes_max"]
    need(len(data) == table + 4 * -(-found["bytes_max"] // (1 << 20)) + 128, "the length of a staged file")
    count = -(-found["bytes"] // (1 << 20))
    sums = data[table : table + 4 * count]
    need(crc32c(sums) == found["table_crc"], "the checksum of the table")
    for number, expected in enumerate(struct.unpack(f"<{count}I", sums)):
        piece = data[number << 20 : min((number + 1) << 20, found["bytes"])]
        identity = struct.pack("<QQQ", slot, found["nonce"], number)
        need(crc32c(identity, piece) == expected, f"block {number} of a staged file")
    return data[: found["bytes"]], found


# --- Shelves ---------------------------------------------------------------------------------------------------------


class Shelf:
    """A whole shelf of any version: `records` is `{key: (kind, number, entry, value)}`, read from the root down."""

    def __init__(self, data):
        self.data = data
        header = block(data[:BLOCK], b"LARDSHLF", (1,))
        self.identity = header.take(48)
        header.zeros(4092)
        nonce, count = struct.unpack("<QQ", self.identity[32:])
        self.stamp = nonce ^ ((count << 32 | count >> 32) & (1 << 64) - 1)
        self.version = int.from_bytes(data[-BLOCK:][8:12], "little")
        self.footer(data[-BLOCK:])
        begin, length = self.tail_at
        tail = data[begin : begin + length]
        need(crc32c(tail) == self.tail_crc, "the checksum of the tail")
        self.tail(Fields(tail))
        self.edges(begin + length, tail)
        self.records = {}
        if self.root[1]:
            self.node(*self.root, self.levels)
        need(len(self.records) == self.count, "the number of records")
        need(list(self.records) == sorted(self.records), "the order of keys")
        numbers = [number for _, number, _, _ in self.records.values()] or [0]
        need((min(numbers), max(numbers)) == self.numbers, "the smallest and the largest number")
        ends = [int.from_bytes(key[-8:], "big") for key in self.records if len(key) >= 8]
        need(self.version == 1 or (min(ends, default=2**64 - 1), max(ends, default=0)) == self.trailers, "the trailers")
        least, last = min(self.records, default=b""), max(self.records, default=b"")
        need((least, last) == self.keys, "the first and the last key")

    def footer(self, data):
        fields = block(data, b"LARDSHFT", (1, 2, 3))
        need(fields.take(48) == self.identity, "the identity in the footer")
        self.levels = fields.number(8)
        self.root, self.tail_at = [(fields.number(8), fields.number(8)) for _ in range(2)]
        self.tail_crc, self.count = fields.number(8), fields.number(8)
        self.numbers = fields.number(8), fields.number(8)
        self.trailers = (fields.number(8), fields.number(8)) if self.version > 1 else None
        fields.zeros(4092)

    def tail(self, fields):
        self.masks = [(fields.number(8), fields.key(), fields.key()) for _ in range(fields.number(4))]
        self.superseded = [fields.take(16) for _ in range(fields.number(4))]
        self.keys = fields.key(), fields.key()
        count = fields.number(4) if self.version > 2 else 0
        self.lost = [(fields.number(8), fields.key(), fields.key()) for _ in range(count)]
        need(len(fields.data) % 8 == 0 and len(fields.data) - fields.at < 8, "the length of the tail")
        fields.zeros(len(fields.data))

    def edges(self, end, tail):
        """What lies behind the first tail, which ends at `end`."""
        footer, up = self.data[-BLOCK:], lambda number: -(-number // BLOCK) * BLOCK
        expected = footer
        if self.version > 2:
            first = bytes(up(end) - end) + footer
            expected = first + tail + bytes(up(len(tail)) - len(tail)) + footer
        need(self.data[end:] == expected, "tail and footer, once or twice, and zeros between them")

    def node(self, at, length, level):
        if level == 0:
            return self.leaf(at, at + length)
        fields = Fields(self.data[at : at + length])
        need(fields.take(4) == b"LNOD" and fields.number(4) == level, "an inner node")
        need(fields.number(8) == self.stamp, "the stamp of an inner node")
        count, body, body_crc = fields.number(4), fields.number(4), fields.number(4)
        need(fields.number(4) == crc32c(fields.data[:28]), "the checksum of an inner node's head")
        need(body_crc == crc32c(fields.data[32 : 32 + body]), "the checksum of an inner node's body")
        children = [(fields.number(8), fields.number(4), fields.key()) for _ in range(count)]
        need(fields.at == 32 + body, "the bytes of an inner node's body")
        fields.zeros(length)
        for offset, bytes_of_child, first in children:
            need(offset < at, "a child lies before its parent")
            before = len(self.records)
            self.node(offset, bytes_of_child, level - 1)
            need(list(self.records)[before] == first, "the first key of a child")

    def leaf(self, at, end):
        while at < end:
            head = Fields(self.data[at : at + 56])
            need(head.take(4) == b"LREC", "a record")
            kind, zero, key_bytes, entry_bytes, value_bytes, number, stamp, durable = struct.unpack(
                "<BBHIIQQQ", head.take(36)
            )
            described, value_crc, gap, crc = struct.unpack("<IIII", head.take(16))
            need(crc == crc32c(head.data[:52]), "the checksum of a head")
            need(kind in (1, 2) and (zero, durable, gap) == (0, 0, 0) and stamp == self.stamp, "the fields of a head")
            body = Fields(self.data, at + 56)
            key, entry, value = body.take(key_bytes), body.take(entry_bytes), body.take(value_bytes)
            need((described, value_crc) == (crc32c(key, entry), crc32c(value)), "the checksums of a record")
            at = -(-body.at // 8) * 8
            body.zeros(at)
            self.records[key] = kind, number, entry, value
        need(at == end, "a leaf ends with a record")


# --- Manifests -------------------------------------------------------------------------------------------------------


def manifest(data):
    """A slot: the generation, the runs, the unknown drives, and the files by their names."""
    front = Fields(data)
    need(front.take(8) == b"LARDMNFT", "a manifest")
    version = front.number(4)
    need(version in (1, 2, 3), "the version of a manifest")
    length = front.number(4)
    need(16 < length <= len(data), "the length of a manifest")
    sealed = int.from_bytes(data[length - 4 : length], "little")
    need(sealed == crc32c(data[: length - 4]), "the checksum of a manifest")
    fields = Fields(data[: length - 4], 16)
    found = {"pool": fields.number(16), "generation": fields.number(8)}
    runs, unknown, files = (fields.number(4) for _ in range(3))
    rotations = fields.number(4) if version > 1 else 0
    found["runs"] = [fields.number(8) for _ in range(runs)]
    found["unknown"] = [(fields.number(16), fields.number(8)) for _ in range(unknown)]
    found["had"] = [fields.number(8) for _ in range(rotations)]
    found["lagging"] = [fields.number(1) for _ in range(rotations if version > 2 else 0)]
    need(all(lags <= 1 for lags in found["lagging"]), "the rotations of a manifest")
    found["files"] = dict(_named(fields) for _ in range(files))
    need(fields.at == length - 4, "the end of a manifest")
    return found


def _named(fields):
    kind, state, is_whole, has_keys = (fields.number(1) for _ in range(4))
    need(kind <= 1 and state <= 4 and is_whole <= 1 and has_keys <= 1, "the fields of a file")
    file = {"state": ("live", "retained", "replaced", "lost", "dead")[state], "grows": not is_whole}
    file["drive"], nonce, count = fields.number(16), fields.number(8), fields.number(8)
    file["bytes"], file["last"] = fields.number(8), fields.number(8)
    file["keys"] = (fields.key(), fields.key()) if has_keys else None
    return f"{nonce:016x}-{count:016x}.{('log', 'shelf')[kind]}", file
