//! A server of the binary for benchmarks, and clients of it that cost little: requests are signed, payloads are not,
//! and each client keeps its connection.

mod signing;

use sha2::{Digest, Sha256};
use signing::{amz_date, hex, hmac};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_larder");

/// A running server, until it is dropped.
pub struct Server {
    process: Child,
    data: PathBuf,
    address: String,
    keys: (String, String),
}

impl Server {
    /// Serves `data`, which is created if it does not exist, with `settings` as its larder.toml.
    pub fn start(data: &Path, settings: &str) -> Self {
        if !data.exists() {
            let made = Command::new(BINARY).args(["init", "--rack", "nas8", "--data"]).arg(data).output();
            assert!(made.unwrap().status.success());
        }
        std::fs::write(data.join("larder.toml"), settings).unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--port", "0", "--data"]).arg(data).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let said: Vec<String> = lines.take_while(|line| line != "ready").collect();
        let mut words = said.iter().flat_map(|line| line.split(['=', ' ']));
        let address = words.find_map(|word| word.strip_prefix("http://")).unwrap().to_owned();
        let credentials = std::fs::read_to_string(data.join("credentials")).unwrap();
        let of = |name: &str| {
            let line = credentials.lines().find_map(|line| line.strip_prefix(&format!("export {name}=")));
            line.unwrap().trim().to_owned()
        };
        let keys = (of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY"));
        Self { process, data: data.into(), address, keys }
    }

    /// Peak memory of the process, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    /// The number after `"name": ` in the server's status.
    pub fn status(&self, name: &str) -> u64 {
        let output = Command::new(BINARY).args(["status", "--json", "--data"]).arg(&self.data).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let behind = text.split(&format!("\"{name}\":")).nth(1).unwrap_or_else(|| panic!("no {name} in {text}"));
        let digits: String = behind.trim_start().chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    }

    /// Stops it in order.
    pub fn stop(mut self) {
        let sent = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(sent.success() && self.process.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.try_wait().unwrap().is_none() {
            self.process.kill().unwrap();
            self.process.wait().unwrap();
        }
    }
}

/// A client with its own connection.
pub struct Client {
    stream: TcpStream,
    host: String,
    access_key: String,
    date: String,
    scope: String,
    signing_key: Vec<u8>,
    answer: Vec<u8>,
}

impl Client {
    pub fn of(server: &Server) -> Self {
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let date = amz_date();
        let scope = format!("{}/us-east-1/s3/aws4_request", &date[..8]);
        let secret = format!("AWS4{}", server.keys.1);
        let signing_key = scope.split('/').fold(secret.into_bytes(), |key, part| hmac(&key, part));
        let (host, access_key) = (server.address.clone(), server.keys.0.clone());
        Self { stream, host, access_key, date, scope, signing_key, answer: Vec::new() }
    }

    /// Sends a request. Returns the body of its answer, which must have this `status`. A query in `target` is in
    /// canonical form.
    pub fn ask(&mut self, method: &str, target: &str, body: &[u8], status: u16) -> &[u8] {
        // A signature is valid for a quarter of an hour.
        self.date = amz_date();
        self.send(method, target, body);
        let (answered, body_at) = self.receive();
        assert_eq!(answered, status, "{method} {target}: {}", String::from_utf8_lossy(&self.answer));
        &self.answer[body_at..]
    }

    fn send(&mut self, method: &str, target: &str, body: &[u8]) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let Self { host, date, scope, access_key, .. } = self;
        let headers = format!("host:{host}\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:{date}\n");
        let names = "host;x-amz-content-sha256;x-amz-date";
        let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{names}\nUNSIGNED-PAYLOAD");
        let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let signature = hex(&hmac(&self.signing_key, &to_sign));
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nhost: {host}\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n\
             x-amz-date: {date}\r\ncontent-length: {}\r\nauthorization: AWS4-HMAC-SHA256 \
             Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).unwrap();
    }

    /// Receives an answer. Returns its status and the offset of its body, which extends to the end of the received
    /// bytes.
    fn receive(&mut self) -> (u16, usize) {
        self.answer.clear();
        let body_at = loop {
            self.more();
            if let Some(end) = self.answer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = String::from_utf8_lossy(&self.answer[..body_at]).to_lowercase();
        let status = head[9..12].parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        assert!(!head.contains("transfer-encoding"), "{head}");
        while self.answer.len() < body_at + length {
            self.more();
        }
        (status, body_at)
    }

    fn more(&mut self) {
        let filled = self.answer.len();
        self.answer.resize(filled + (64 << 10), 0);
        let more = self.stream.read(&mut self.answer[filled..]).unwrap();
        assert!(more > 0, "the server hung up");
        self.answer.truncate(filled + more);
    }
}
