"""A missing file of the manifest stops the start, or its objects are answered with an error."""

import glob
import os

from harness import STAYING, SystemTest, larder, noise, refusal


class Manifest(SystemTest):
    def test_a_shelf_that_is_missing_is_refused_or_accepted_and_counts_again_once_it_is_back(self):
        server = self.rack("nas8", STAYING)
        old = {f"old/{number}": noise(3_000, number) for number in range(4)}
        server.filled(old)
        self.assertEqual(server.stop(), 0)
        # The log becomes a shelf.
        server = self.serve(server.data)
        new = {f"new/{number}": noise(3_000, number) for number in range(4)}
        for key, body in new.items():
            server.client().put_object(Bucket="pantry", Key=key, Body=body)
        self.assertEqual(server.stop(), 0)
        [shelf] = glob.glob(os.path.join(server.data, "workshop", "intake", "*.shelf"))
        os.rename(shelf, os.path.join(self.root, "away"))
        said = refusal(larder("serve", "--data", server.data, "--port", 0, timeout=20))
        self.assertIn(f"the pool lacks {os.path.basename(shelf)}", said)
        self.assertIn("accept_older_catalog", said)
        # Once accepted, it is known to be lost.
        for settings in ({**STAYING, "accept_older_catalog": True}, STAYING):
            self.configure(server.data, settings)
            server = self.serve(server.data)
            self.warns(server, "pool_lost")
            client = server.client(retries={"total_max_attempts": 1})
            self.reads(client, "pantry", new)
            for key in old:
                self.fails(500, "InternalError", client.get_object, Bucket="pantry", Key=key)
            server.kill()
        os.rename(os.path.join(self.root, "away"), shelf)
        server = self.serve(server.data)
        self.is_calm(server, "pool_lost")
        self.reads(server.client(), "pantry", {**old, **new})
