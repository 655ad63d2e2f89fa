"""TLS: stock clients over https, a certificate that is replaced while connections are open, and one that is broken."""

import http.client
import os
import shutil
import signal
import ssl
import subprocess
import unittest

import boto3
import botocore.config
import botocore.exceptions
from harness import STAYING, SystemTest, aws, larder, noise, refusal


@unittest.skipUnless(shutil.which("openssl"), "openssl, which makes the certificates, is not here")
class Tls(SystemTest):
    def certificate(self, name, kind=("ec", "-pkeyopt", "ec_paramgen_curve:P-256")):
        """The paths of a new certificate for 127.0.0.1, signed by itself, and of its key."""
        paths = [os.path.join(self.root, f"{name}.{end}") for end in ("pem", "key")]
        command = ["openssl", "req", "-x509", "-newkey", *kind, "-nodes", "-keyout", paths[1], "-out", paths[0],
                   "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        return paths

    def uses(self, data, certificate, key):
        """Puts these into the place of those that the server reads, each at once, as an ACME client does."""
        for source, name in [(certificate, "server.pem"), (key, "server.key")]:
            shutil.copy(source, os.path.join(data, "new"))
            os.chmod(os.path.join(data, "new"), 0o640)
            os.replace(os.path.join(data, "new"), os.path.join(data, name))

    def secured(self, certificate):
        data = self.made(**STAYING, **{"tls.certificate": "server.pem", "tls.key": "server.key"})
        self.uses(data, *certificate)
        server = self.serve(data)
        self.assertEqual(server.endpoint, f"https://{server.address}")
        return server

    def client(self, server, certificate):
        config = botocore.config.Config(retries={"total_max_attempts": 1}, signature_version="s3v4")
        return boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1", verify=certificate,
                            aws_access_key_id=server.access_key, aws_secret_access_key=server.secret_key, config=config)

    def connection(self, server, certificate):
        trusting = ssl.create_default_context(cafile=certificate)
        connection = http.client.HTTPSConnection(server.address, timeout=30, context=trusting)
        connection.connect()
        return connection

    def answers(self, connection):
        """Asks for something without keys on an open connection, which stays open; gives its certificate."""
        connection.request("GET", "/")
        response = connection.getresponse()
        self.assertIn(b"AccessDenied", response.read())
        return connection.sock.getpeercert(True)

    def reloaded(self, server, holds):
        server.process.send_signal(signal.SIGHUP)
        return server.until("the files were looked at", lambda status: holds(status["tls"]))

    def test_stock_clients_speak_https_and_nobody_speaks_http(self):
        certificate, key = self.certificate("first")
        server = self.secured((certificate, key))
        client = self.client(server, certificate)
        body = noise(9_000_000, 1)
        client.create_bucket(Bucket="pantry")
        client.put_object(Bucket="pantry", Key="by-boto3", Body=body)
        self.assertEqual(client.get_object(Bucket="pantry", Key="by-boto3")["Body"].read(), body)
        with self.assertRaises(botocore.exceptions.SSLError):
            self.client(server, True).list_buckets()
        signed = client.generate_presigned_url("get_object", Params={"Bucket": "pantry", "Key": "by-boto3"})
        self.assertTrue(signed.startswith("https://"), signed)
        for version in ["--tlsv1.2 --tls-max 1.2", "--tlsv1.3"]:
            command = ["curl", "-sS", "--cacert", certificate, *version.split(), "-w", "%{ssl_verify_result}",
                       "-o", os.path.join(self.root, "got"), signed]
            output = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual((output.returncode, output.stdout), (0, "0"), output.stderr)
            with open(os.path.join(self.root, "got"), "rb") as got:
                self.assertEqual(got.read(), body)
        source = os.path.join(self.root, "source")
        with open(source, "wb") as file:
            file.write(body)
        environment = {"AWS_CA_BUNDLE": certificate}
        copied = aws(server, self.root, "s3", "cp", source, "s3://pantry/by-aws", environment=environment)
        self.assertEqual(copied.returncode, 0, copied.stderr)
        self.assertEqual(client.get_object(Bucket="pantry", Key="by-aws")["Body"].read(), body)
        plain = http.client.HTTPConnection(server.address, timeout=30)
        self.addCleanup(plain.close)
        plain.request("PUT", "/pantry/plain", body=b"x" * 100_000)
        answer = plain.getresponse()
        self.assertEqual((answer.status, answer.read()), (400, b"this is HTTPS; write https:// in the endpoint\n"))
        self.assertEqual(server.stop(), 0)

    def test_a_certificate_is_replaced_while_connections_are_open(self):
        first, second = self.certificate("first"), self.certificate("second", ("rsa:2048",))
        server = self.secured(first)
        client = self.client(server, first[0])
        client.create_bucket(Bucket="pantry")
        body = noise(20_000_000, 2)
        client.put_object(Bucket="pantry", Key="key", Body=body)
        reading = client.get_object(Bucket="pantry", Key="key")["Body"]
        begun = reading.read(1_000_000)
        open_before = self.connection(server, first[0])
        self.addCleanup(open_before.close)
        old = self.answers(open_before)
        self.uses(server.data, *second)
        status = self.reloaded(server, lambda tls: tls["reloads"] == 1)
        self.assertIsNone(status["tls"]["problem"])
        self.assertNotIn("certificate", str(status["warnings"]))
        self.assertEqual(self.answers(open_before), old, "a connection goes on as it began")
        self.assertEqual(begun + reading.read(), body, "and so does an answer")
        open_after = self.connection(server, second[0])
        self.addCleanup(open_after.close)
        self.assertNotEqual(self.answers(open_after), old)
        with self.assertRaises(ssl.SSLError):
            self.connection(server, first[0])
        self.assertEqual(self.client(server, second[0]).get_object(Bucket="pantry", Key="key")["Body"].read(), body)

    def test_what_cannot_be_used_is_not_taken_and_said(self):
        first, second = self.certificate("first"), self.certificate("second")
        server = self.secured(first)
        broken = os.path.join(self.root, "broken")
        with open(broken, "w", encoding="ascii") as file:
            file.write("-----BEGIN CERTIFICATE-----\nnothing\n")
        for files, said in [((broken, first[1]), "the certificate cannot be read"),
                            ((first[0], broken), "the key cannot be read"),
                            ((second[0], first[1]), "the key must be that of the first certificate")]:
            self.uses(server.data, *files)
            status = self.reloaded(server, lambda tls, said=said: said in (tls["problem"] or ""))
            self.assertEqual([said in warning for warning in status["warnings"]], [True], status["warnings"])
            self.assertIn(said, server.log())
            self.answers(self.connection(server, first[0]))
        os.remove(os.path.join(server.data, "server.key"))
        self.reloaded(server, lambda tls: "server.key cannot be read" in tls["problem"])
        self.uses(server.data, *second)
        status = self.reloaded(server, lambda tls: tls["problem"] is None)
        self.assertEqual((status["tls"]["reloads"], status["warnings"]), (1, []))
        self.answers(self.connection(server, second[0]))

    def test_a_start_without_a_usable_certificate_is_refused(self):
        data = self.made(**STAYING, **{"tls.certificate": "server.pem", "tls.key": "server.key"})
        self.assertIn("server.pem cannot be read", refusal(larder("serve", "--data", data, "--port", "0")))
        first, second = self.certificate("first"), self.certificate("second")
        self.uses(data, first[0], second[1])
        self.assertIn("take [tls] out of larder.toml", refusal(larder("serve", "--data", data, "--port", "0")))
        self.uses(data, *first)
        os.chmod(os.path.join(data, "server.key"), 0o644)
        self.assertIn("can be read by every user", refusal(larder("serve", "--data", data, "--port", "0")))
        self.configure(data, {**STAYING, "tls.certificate": "server.pem"})
        self.assertIn("needs both `certificate` and `key`", refusal(larder("serve", "--data", data, "--port", "0")))


if __name__ == "__main__":
    unittest.main()
