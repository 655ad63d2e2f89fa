//! PUTs of 16 KiB by 64 clients, to the binary, over HTTP on the loopback, each with a connection that it keeps:
//! `cargo bench -p larder --bench puts`. The intake is on and off in turns within one run, each on a data directory of
//! its own; with `-- ANOTHER-BINARY` that one takes turns as well.
//!
//! The clients share the processor with the server, so the server's own processor time for each request is printed
//! beside the rate. Payloads are not signed; requests are.
#![allow(clippy::unwrap_used)]

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const CLIENTS: usize = 64;
const OBJECT_BYTES: usize = 16 << 10;
const TURNS: usize = 3;
/// How long the clients of a turn work.
const TURN: Duration = Duration::from_secs(6);

/// A server to be measured.
struct Contender {
    name: String,
    binary: PathBuf,
    /// `None` leaves the setting out, for a binary that does not know it.
    below: Option<&'static str>,
}

/// A server that runs, until it is dropped.
struct Server {
    process: Child,
    address: String,
    keys: (String, String),
}

impl Server {
    fn start(contender: &Contender, data: &Path) -> Self {
        if !data.exists() {
            let made = Command::new(&contender.binary).args(["init", "--rack", "nas8", "--data"]).arg(data).output();
            assert!(made.unwrap().status.success());
        }
        let intake = contender.below.map(|below| format!("[intake]\nbelow = \"{below}\"\n")).unwrap_or_default();
        let migrate = "[migrate]\nolder_than = \"1 d\"\n";
        std::fs::write(data.join("larder.toml"), format!("time_scale = 100\n{migrate}{intake}")).unwrap();
        let mut command = Command::new(&contender.binary);
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
        let server = Self { process, address, keys: (of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY")) };
        Client::of(&server).put("/shelf", b"");
        server
    }

    /// Processor time so far, in seconds.
    fn processor_s(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        // User and system time in ticks, of which Linux shows 100 a second on every platform.
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// A client with a connection of its own.
struct Client {
    stream: TcpStream,
    host: String,
    access_key: String,
    date: String,
    scope: String,
    signing_key: Vec<u8>,
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// `20261121T083000Z`, from the date in HTTP's form.
fn amz_date() -> String {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let parts: Vec<&str> = date.split(' ').collect();
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == parts[2]).unwrap() + 1;
    format!("{}{month:02}{}T{}Z", parts[3], parts[1], parts[4].replace(':', ""))
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
        Self { stream, host, access_key, date, scope, signing_key }
    }

    /// A PUT, which must succeed, but for a bucket that is there already.
    fn put(&mut self, path: &str, body: &[u8]) {
        let Self { host, date, scope, access_key, .. } = self;
        let headers = format!("host:{host}\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:{date}\n");
        let names = "host;x-amz-content-sha256;x-amz-date";
        let canonical = format!("PUT\n{path}\n\n{headers}\n{names}\nUNSIGNED-PAYLOAD");
        let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
        let signature = hex(&hmac(&self.signing_key, &to_sign));
        let mut request = format!(
            "PUT {path} HTTP/1.1\r\nhost: {host}\r\nx-amz-content-sha256: UNSIGNED-PAYLOAD\r\nx-amz-date: {date}\r\n\
             content-length: {}\r\nauthorization: AWS4-HMAC-SHA256 Credential={access_key}/{scope}, \
             SignedHeaders={names}, Signature={signature}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.stream.write_all(&request).unwrap();
        let mut answer = [0; 4096];
        let mut filled = 0;
        while !answer[..filled].windows(4).any(|window| window == b"\r\n\r\n") {
            let more = self.stream.read(&mut answer[filled..]).unwrap();
            assert!(more > 0, "the server hung up");
            filled += more;
        }
        let head = String::from_utf8_lossy(&answer[..filled]);
        let is_bucket = path.matches('/').count() == 1 && head.starts_with("HTTP/1.1 409");
        assert!(head.starts_with("HTTP/1.1 200") || is_bucket, "{head}");
    }
}

/// A turn: PUTs a second, and the server's processor time for each in microseconds.
fn turn(contender: &Contender, data: &Path, number: usize) -> (f64, f64) {
    let server = Server::start(contender, data);
    let body: Arc<Vec<u8>> = Arc::new((0..OBJECT_BYTES).map(|at| (at * 31 + at / 251) as u8).collect());
    let (processor_s, began) = (server.processor_s(), Instant::now());
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (mut connection, body) = (Client::of(&server), Arc::clone(&body));
            thread::spawn(move || {
                let mut puts = 0_u64;
                while began.elapsed() < TURN {
                    connection.put(&format!("/shelf/{client:02}/{number}/{puts:08}"), &body);
                    puts += 1;
                }
                puts
            })
        })
        .collect();
    let puts: u64 = clients.into_iter().map(|client| client.join().unwrap()).sum();
    let rate = puts as f64 / began.elapsed().as_secs_f64();
    (rate, (server.processor_s() - processor_s) * 1e6 / puts as f64)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ours = PathBuf::from(env!("CARGO_BIN_EXE_larder"));
    let with = |name: &str, binary: &Path, below| Contender { name: name.into(), binary: binary.to_owned(), below };
    let mut contenders = vec![with("off", &ours, Some("0 B")), with("on", &ours, Some("1 MiB"))];
    if let Some(other) = std::env::args().skip(1).find(|word| !word.starts_with("--")) {
        contenders.insert(0, with("other", Path::new(&other), None));
    }
    let mut rounds = Vec::new();
    for number in 0..TURNS {
        let one = |(at, contender)| turn(contender, &dir.path().join(format!("{at}")), number);
        rounds.push(contenders.iter().enumerate().map(one).collect::<Vec<_>>());
    }
    println!("PUTs of 16 KiB by {CLIENTS} clients, {TURNS} turns of {} s, median:", TURN.as_secs());
    for (at, contender) in contenders.iter().enumerate() {
        println!(
            "{:>6}: {:>7.0} /s   {:>5.0} us of processor each   {:.2} of the first",
            contender.name,
            median(rounds.iter().map(|round| round[at].0)),
            median(rounds.iter().map(|round| round[at].1)),
            median(rounds.iter().map(|round| round[at].0 / round[0].0)),
        );
    }
}
