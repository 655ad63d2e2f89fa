"""What Larder makes is for its owner alone: users' objects and secret keys lie there."""

import glob
import os
import re
import shutil
import stat
import subprocess

from harness import BINARY, BRISK, LABEL, NAS8, OWNER, SystemTest, larder, noise

SETTINGS = {**BRISK, "migrate.pack_size": "300 kB", "journal.ride_after": "0 s", "journal.wake_after": "0 s"}
OPEN = ("sh", "-c", 'umask 0; exec "$@"', "sh")


class Modes(SystemTest):
    def pooled(self):
        """A description of nas8 with a pool of two drives outside of the data directory, and one of its own."""
        shown = larder("plan", "nas8", "--toml")
        text = shown.stdout if shown.returncode == 0 else ""
        if not text:
            with open(os.path.join(os.path.dirname(__file__), "../../racks/nas8.toml"), encoding="utf-8") as shipped:
                text = shipped.read()
        pool = "".join(f'[[pool]]\npath = "{os.path.join(self.root, name)}"\n' for name in ("one", "two"))
        path = os.path.join(self.root, "pooled.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("[drive]\n", pool + "[[pool]]\n[drive]\n"))
        for name in ("one", "two"):
            os.mkdir(os.path.join(self.root, name))
        return path

    def made_openly(self):
        """A data directory that is made, and one that is served, where the umask takes no right away."""
        data = os.path.join(self.root, "data")
        subprocess.run([*OPEN, BINARY, "init", "--rack", self.pooled(), "--data", data], check=True, timeout=60)
        self.configure(data, SETTINGS)
        return data

    def walked(self, *roots):
        """What others may use, with its mode."""
        found = {}
        for root in roots:
            for folder, folders, files in os.walk(root):
                for path in [folder] + [os.path.join(folder, name) for name in folders + files]:
                    mode = os.lstat(path)
                    if not stat.S_ISLNK(mode.st_mode) and mode.st_mode & 0o077:
                        found[path] = oct(stat.S_IMODE(mode.st_mode))
        return found

    def on_drives_outside(self):
        """A data directory for a rack like nas8 whose drives are outside of it, and the directories of these."""
        drives = [os.path.join(self.root, f"drive-{n}") for n in range(8)]
        path, paths = os.path.join(self.root, "outside.toml"), iter(drives)
        with open(NAS8, encoding="utf-8") as nas8, open(path, "w", encoding="utf-8") as rack:
            rack.write(re.sub(r"\[\[drives\]\]", lambda found: f'{found[0]}\npath = "{next(paths)}"', nas8.read()))
        for drive in drives:
            os.mkdir(drive)
        return self.made(path, **SETTINGS), drives

    def within_reach(self, root):
        """The files below `root` that others can open, if they can reach `root`."""
        found = set()
        for folder, folders, files in os.walk(root):
            if os.stat(folder).st_mode & 0o011:
                paths = [os.path.join(folder, name) for name in files]
                found.update(path for path in paths if os.lstat(path).st_mode & 0o066)
            else:
                folders.clear()
        return found

    def mark(self, drive):
        with open(os.path.join(drive, OWNER), "rb") as mark:
            return mark.read()

    def used(self, server):
        client = server.filled({f"{n:02}": noise(100 + 30_000 * (n % 3), n) for n in range(12)})
        upload = client.create_multipart_upload(Bucket="pantry", Key="parts")["UploadId"]
        client.upload_part(Bucket="pantry", Key="parts", UploadId=upload, PartNumber=1, Body=noise(9_000, 7))
        server.until_cold()
        client.get_object(Bucket="pantry", Key="02")["Body"].read()
        server.until_asleep()

    def test_everything_is_made_for_the_owner_alone_whatever_the_umask_is(self):
        data = self.made_openly()
        places = [data] + [os.path.join(self.root, name) for name in ("one", "two")]
        server = self.serve(data, within=OPEN)
        self.used(server)
        self.assertEqual(self.walked(*places), {})
        copy = os.path.join(self.root, "copy")
        self.assertEqual(larder("catalog", "backup", copy, "--data", data).returncode, 0)
        self.assertEqual(self.walked(copy), {})
        server.stop()
        for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
            if os.path.exists(os.path.join(data, name)):
                os.remove(os.path.join(data, name))
        shutil.rmtree(os.path.join(data, "workshop"))
        subprocess.run([*OPEN, BINARY, "recover", "--data", data], check=True, capture_output=True, timeout=120)
        self.assertEqual(self.walked(*places), {})

    def test_what_an_older_version_left_open_is_closed_at_the_start_and_drives_when_they_are_mounted(self):
        server = self.serve(self.made_openly())
        data = server.data
        places = [data] + [os.path.join(self.root, name) for name in ("one", "two")]
        self.used(server)
        server.stop()
        for place in places:
            for folder, folders, files in os.walk(place):
                os.chmod(folder, 0o755)
                for name in files:
                    if not name.endswith(".stack") and not name.startswith("s-"):
                        os.chmod(os.path.join(folder, name), 0o644)
        server = self.serve(data)
        still = self.walked(*places)
        drives = os.path.join(data, "drives") + os.sep
        self.assertEqual([path for path in still if not path.startswith(drives)], [])
        self.assertTrue(still, "a start touches no drive")
        marks = {path: self.mark(path) for path in glob.glob(f"{data}/drives/*")}
        client = server.client(retries={"total_max_attempts": 20, "mode": "standard"})
        for n in range(12):
            client.get_object(Bucket="pantry", Key=f"{n:02}")["Body"].read()
        server.until_asleep()
        open_drives = {path.removesuffix(os.sep + LABEL) for path in still if path.endswith(LABEL)}
        mounted = {path for path in open_drives if self.mark(path) != marks[path]}
        self.assertGreaterEqual(len(mounted), 3, "a group was awake")
        for path in mounted:
            self.assertFalse({path, os.path.join(path, LABEL)} & set(self.walked(path)))

    def test_stacks_and_staged_files_that_were_left_open_are_out_of_reach_in_closed_directories(self):
        data, drives = self.on_drives_outside()
        server = self.serve(data)
        self.used(server)
        server.stop()
        staged = os.path.join(data, "workshop", "staged")
        for place in [data, *drives]:
            for folder, _, files in os.walk(place):
                os.chmod(folder, 0o755)
                for name in files:
                    os.chmod(os.path.join(folder, name), 0o644)
        self.assertTrue(any("/s-" in path for path in self.within_reach(staged)), "the part of an upload")
        self.assertTrue(all(self.within_reach(drive) for drive in drives))
        server = self.serve(data)
        self.assertEqual(self.within_reach(data) | self.within_reach(staged), set())
        self.assertTrue(all(self.within_reach(drive) for drive in drives), "a start touches no drive")
        marks = {drive: self.mark(drive) for drive in drives}
        client = server.client(retries={"total_max_attempts": 20, "mode": "standard"})
        for n in range(12):
            client.get_object(Bucket="pantry", Key=f"{n:02}")["Body"].read()
        server.until_asleep()
        mounted = [drive for drive in drives if self.mark(drive) != marks[drive]]
        self.assertGreaterEqual(len(mounted), 3, "a group was awake")
        self.assertTrue(any(name.endswith(".stack") for drive in mounted for name in os.listdir(drive)))
        self.assertEqual([path for drive in mounted for path in self.within_reach(drive)], [])
