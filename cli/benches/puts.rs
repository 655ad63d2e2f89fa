//! PUTs and GETs of 16 KiB by 64 clients over HTTP on the loopback, each with a persistent connection:
//! `cargo bench -p larder --bench puts`. Measured are the binary with the intake on and off, MinIO and `versitygw` if
//! they are in `PATH`, and with `-- ANOTHER-BINARY` that one, in turns within one run, each with its own data
//! directory. With `-- alone`, only the binary with the intake on.
//!
//! The clients share the processor with the server, so the processor time of each request is printed beside the rate:
//! the server's, and the clients', which no server can reduce. Payloads are not signed; requests are. A client gets the
//! objects that it has put, in its own order, and compares every byte.
#![allow(clippy::unwrap_used)]

#[path = "client/signing.rs"]
mod signing;

use sha2::{Digest, Sha256};
use signing::{amz_date, hex, hmac};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 64;
const OBJECT_BYTES: usize = 16 << 10;
const TURNS: usize = 3;
/// Time for which the clients of a turn put.
const PUTTING: Duration = Duration::from_secs(6);
/// Time for which they get.
const GETTING: Duration = Duration::from_secs(4);
/// Maximum time until a server listens.
const PATIENCE: Duration = Duration::from_mins(1);
const KEYS: (&str, &str) = ("comparison", "comparisons-secret");

/// A server to be measured.
struct Contender {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// A binary of Larder; `None` leaves the setting out, for a binary that does not know it.
    Larder(PathBuf, Option<&'static str>),
    MinIo,
    VersityGw,
}

/// A running server, until it is dropped.
struct Server {
    process: Child,
    address: String,
    keys: (String, String),
}

impl Server {
    fn start(contender: &Contender, data: &Path) -> Self {
        let server = match &contender.kind {
            Kind::Larder(binary, below) => Self::larder(binary, *below, data),
            Kind::MinIo => Self::other("minio", |command, address| {
                command.args(["server", "--quiet", "--address", address]).arg(data);
                command.env("MINIO_ROOT_USER", KEYS.0).env("MINIO_ROOT_PASSWORD", KEYS.1);
            }),
            Kind::VersityGw => Self::other("versitygw", |command, address| {
                std::fs::create_dir_all(data).unwrap();
                let keys = ["--access", KEYS.0, "--secret", KEYS.1];
                command.args(["--quiet", "--keep-alive", "--port", address]).args(keys).arg("posix").arg(data);
            }),
        };
        Client::of(&server).put("/shelf", b"");
        server
    }

    fn larder(binary: &Path, below: Option<&str>, data: &Path) -> Self {
        if !data.exists() {
            let made = Command::new(binary).args(["init", "--rack", "nas8", "--data"]).arg(data).output();
            assert!(made.unwrap().status.success());
        }
        let intake = below.map(|below| format!("[intake]\nbelow = \"{below}\"\n")).unwrap_or_default();
        let migrate = "[migrate]\nolder_than = \"1 d\"\n";
        std::fs::write(data.join("larder.toml"), format!("time_scale = 100\n{migrate}{intake}")).unwrap();
        let mut command = Command::new(binary);
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
        Self { process, address, keys: (of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY")) }
    }

    /// Another server, called `name`, from `PATH`.
    fn other(name: &str, arrange: impl FnOnce(&mut Command, &str)) -> Self {
        // It was free a moment ago, which is the best that a program with a given port can have.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().to_string();
        let mut command = Command::new(name);
        arrange(&mut command, &address);
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        while TcpStream::connect(&address).is_err() {
            assert!(began.elapsed() < PATIENCE, "{name} does not listen");
            thread::sleep(Duration::from_millis(100));
        }
        // It listens before it serves.
        thread::sleep(Duration::from_secs(3));
        Self { process, address, keys: (KEYS.0.into(), KEYS.1.into()) }
    }

    /// Processor time so far, of the server and of the clients, in seconds.
    fn processor_s(&self) -> [f64; 2] {
        [self.process.id(), std::process::id()].map(|process| {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            // User and system time in ticks; Linux reports 100 a second on every platform.
            (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A client with its own connection.
struct Client {
    stream: TcpStream,
    host: String,
    access_key: String,
    date: String,
    scope: String,
    signing_key: Vec<u8>,
    answer: Vec<u8>,
    /// Bytes of `answer` that were received.
    filled: usize,
}

impl Client {
    fn of(server: &Server) -> Self {
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let date = amz_date();
        let scope = format!("{}/us-east-1/s3/aws4_request", &date[..8]);
        let secret = format!("AWS4{}", server.keys.1);
        let signing_key = scope.split('/').fold(secret.into_bytes(), |key, part| hmac(&key, part));
        let (host, access_key) = (server.address.clone(), server.keys.0.clone());
        let (answer, filled) = (vec![0; OBJECT_BYTES + 4096], 0);
        Self { stream, host, access_key, date, scope, signing_key, answer, filled }
    }

    /// A PUT, which must succeed, except for a bucket that exists already.
    fn put(&mut self, path: &str, body: &[u8]) {
        self.send("PUT", path, body);
        let (head, _) = self.head();
        let is_bucket = path.matches('/').count() == 1 && head.starts_with("HTTP/1.1 409");
        assert!(head.starts_with("HTTP/1.1 200") || is_bucket, "{head}");
    }

    /// A GET, whose body must be `expected`.
    fn get(&mut self, path: &str, expected: &[u8]) {
        self.send("GET", path, b"");
        let (head, body_at) = self.head();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        while self.filled < body_at + expected.len() {
            self.receive();
        }
        assert!(self.answer[body_at..self.filled] == *expected, "{path} has other bytes");
    }

    /// Receives the head of an answer. Returns the head and the offset of the body.
    fn head(&mut self) -> (String, usize) {
        self.filled = 0;
        loop {
            self.receive();
            let end = self.answer[..self.filled].windows(4).position(|window| window == b"\r\n\r\n");
            if let Some(end) = end {
                return (String::from_utf8_lossy(&self.answer[..end]).into_owned(), end + 4);
            }
        }
    }

    fn receive(&mut self) {
        let more = self.stream.read(&mut self.answer[self.filled..]).unwrap();
        assert!(more > 0, "the server hung up");
        self.filled += more;
    }

    fn send(&mut self, method: &str, path: &str, body: &[u8]) {
        let Self { host, date, scope, access_key, .. } = self;
        let headers = format!("host:{host}\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:{date}\n");
        let names = "host;x-amz-content-sha256;x-amz-date";
        let canonical = format!("{method}\n{path}\n\n{headers}\n{names}\nUNSIGNED-PAYLOAD");
        let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let signature = hex(&hmac(&self.signing_key, &to_sign));
        let mut request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\n\
             x-amz-date: {date}\r\ncontent-length: {}\r\nauthorization: AWS4-HMAC-SHA256 \
             Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).unwrap();
    }
}

/// Requests a second, and the processor time of each in microseconds: the server's, and the clients'.
type Pace = [f64; 3];

/// Runs 64 clients for `time`: `requests` sends the requests of one until then, and returns their number.
fn paced(server: &Server, time: Duration, requests: impl Fn(usize, &mut Client, Instant) -> u64 + Sync) -> Pace {
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::of(server)).collect();
    let (before_s, began) = (server.processor_s(), Instant::now());
    let count = thread::scope(|scope| {
        let requests = &requests;
        let working: Vec<_> = clients
            .iter_mut()
            .enumerate()
            .map(|(number, client)| scope.spawn(move || requests(number, client, began + time)))
            .collect();
        working.into_iter().map(|client| client.join().unwrap()).sum::<u64>()
    });
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let after_s = server.processor_s();
    let of = |whose: usize| (after_s[whose] - before_s[whose]) * 1e6 / count as f64;
    [rate, of(0), of(1)]
}

/// A turn of PUTs, then of GETs.
fn turn(contender: &Contender, data: &Path, number: usize) -> [Pace; 2] {
    let server = Server::start(contender, data);
    let body: Vec<u8> = (0..OBJECT_BYTES).map(|at| (at * 31 + at / 251) as u8).collect();
    let there: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let path = |client: usize, object: u64| format!("/shelf/{client:02}/{number}/{object:08}");
    let puts = paced(&server, PUTTING, |number, client, end| {
        let mut puts = 0;
        while Instant::now() < end {
            client.put(&path(number, puts), &body);
            puts += 1;
        }
        there[number].store(puts, Ordering::Relaxed);
        puts
    });
    let gets = paced(&server, GETTING, |number, client, end| {
        let (mut gets, there) = (0, there[number].load(Ordering::Relaxed));
        while Instant::now() < end {
            client.get(&path(number, gets * 7_919 % there), &body);
            gets += 1;
        }
        gets
    });
    [puts, gets]
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn contenders() -> Vec<Contender> {
    let ours = PathBuf::from(env!("CARGO_BIN_EXE_larder"));
    let on = Contender { name: "on", kind: Kind::Larder(ours.clone(), Some("1 MiB")) };
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    if words.iter().any(|word| word == "alone") {
        return vec![on];
    }
    let other = words.first().map(|path| Contender { name: "other", kind: Kind::Larder(path.into(), None) });
    let off = Contender { name: "off", kind: Kind::Larder(ours, Some("0 B")) };
    let mut contenders: Vec<_> = other.into_iter().chain([off, on]).collect();
    for (name, kind) in [("minio", Kind::MinIo), ("versitygw", Kind::VersityGw)] {
        match Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(_) => contenders.push(Contender { name, kind }),
            Err(_) => println!("{name} is not in PATH"),
        }
    }
    contenders
}

fn main() {
    // `cargo test --benches` only checks that it starts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let contenders = contenders();
    let mut rounds = Vec::new();
    for number in 0..TURNS {
        let one = |contender: &Contender| turn(contender, &dir.path().join(contender.name), number);
        rounds.push(contenders.iter().map(one).collect::<Vec<_>>());
    }
    println!("16 KiB, {CLIENTS} clients, {TURNS} turns, medians");
    for (deed, verb) in ["PUT", "GET"].into_iter().enumerate() {
        for (at, contender) in contenders.iter().enumerate() {
            let [rate, server_us, clients_us] =
                [0, 1, 2].map(|what| median(rounds.iter().map(|round| round[at][deed][what])));
            let ratio = median(rounds.iter().map(|round| round[at][deed][0] / round[0][deed][0]));
            println!(
                "{verb} {:>9}: {rate:>7.0} /s   {server_us:>5.0} us of processor each, {clients_us:>4.0} of the \
                 clients   {ratio:.2} of the first",
                contender.name,
            );
        }
    }
}
