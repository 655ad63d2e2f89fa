//! The servers that are compared, and a client with a persistent connection to any of them.

use crate::bare;
use crate::client::{Call, Signed};
use crate::service::Server;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time that any step may take; longer is an error.
const PATIENCE: Duration = Duration::from_mins(2);

/// A server that runs until it is dropped.
pub struct Peer {
    pub name: &'static str,
    /// Its work before it answers a PUT, in words.
    pub durability: &'static str,
    address: SocketAddr,
    user: (&'static str, &'static str),
    process: Option<Child>,
}

impl Peer {
    /// A file server and nothing else, below `root`.
    pub fn bare(root: &Path) -> Self {
        let durability = "file synced, renamed, directory synced; no signature, no digest, no catalog";
        Self { name: "bare HTTP", durability, address: bare::serve(root), user: ("", ""), process: None }
    }

    /// Larder, as it runs in `server`.
    pub fn larder(server: &Server<'_>) -> Self {
        let durability = "file and directory synced, catalog committed; GET past the page cache, checked";
        Self { name: "larder", durability, address: server.address(), user: server.user(), process: None }
    }

    /// The Versity gateway over a directory, if there is one in `PATH`.
    pub fn versitygw(root: &Path) -> Option<Self> {
        let durability = "nothing synced";
        Self::other("versitygw", durability, root, |command, address, (key, secret)| {
            command
                .args(["--quiet", "--keep-alive", "--port", address, "--access", key, "--secret", secret, "posix"])
                .arg(root);
        })
    }

    /// MinIO over a directory, if it is in `PATH`.
    pub fn minio(root: &Path) -> Option<Self> {
        Self::other("minio", "as MinIO does by default", root, |command, address, (key, secret)| {
            command.args(["server", "--quiet", "--address", address]).arg(root);
            command.env("MINIO_ROOT_USER", key).env("MINIO_ROOT_PASSWORD", secret);
        })
    }

    fn other(
        name: &'static str,
        durability: &'static str,
        root: &Path,
        arrange: impl FnOnce(&mut Command, &str, (&str, &str)),
    ) -> Option<Self> {
        let user = ("comparison", "comparisons-secret");
        // The port was free a moment ago; nothing better is possible for a program that must be given its port.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        std::fs::create_dir(root).unwrap();
        let mut command = Command::new(name);
        arrange(&mut command, &address.to_string(), user);
        let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let peer = Self { name, durability, address, user, process: Some(started.ok()?) };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < PATIENCE, "{name} does not listen");
            thread::sleep(Duration::from_millis(100));
        }
        // The program listens before it serves.
        thread::sleep(Duration::from_secs(3));
        Some(peer)
    }

    /// Opens a new connection.
    pub fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Connection { name: self.name, address: self.address, user: self.user, stream, buffer: vec![0; 1 << 20] }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

/// A client's connection.
pub struct Connection {
    name: &'static str,
    address: SocketAddr,
    user: (&'static str, &'static str),
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Stores an object.
    pub fn put(&mut self, path: &str, body: &[u8]) {
        self.begin("PUT", path, body.len());
        self.stream.write_all(body).unwrap();
        self.answer(&[]);
    }

    /// Reads an object, which must be `expected`.
    pub fn get(&mut self, path: &str, expected: &[u8]) {
        self.begin("GET", path, 0);
        self.answer(expected);
    }

    /// Removes an object.
    pub fn delete(&mut self, path: &str) {
        self.begin("DELETE", path, 0);
        self.answer(&[]);
    }

    fn begin(&mut self, method: &'static str, path: &str, body_bytes: usize) {
        let call = Call::new(method, path).user(self.user.0, self.user.1).signed(Signed::Unsigned);
        let (head, _) = call.late_header("content-length", &body_bytes.to_string()).wire(self.address);
        let head = String::from_utf8(head).unwrap().replace("connection: close\r\n", "");
        self.stream.write_all(head.as_bytes()).unwrap();
    }

    /// Reads an answer, whose body must be `expected`.
    fn answer(&mut self, expected: &[u8]) {
        let mut filled = 0;
        let head_bytes = loop {
            let more = self.stream.read(&mut self.buffer[filled..]).unwrap();
            assert!(more > 0, "{} hung up", self.name);
            filled += more;
            if let Some(at) = self.buffer[..filled].windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_bytes]);
        assert!(head.starts_with("HTTP/1.1 20"), "{} refused: {head}", self.name);
        let mut rest = expected;
        let mut start = head_bytes;
        loop {
            let (now, later) = rest.split_at((filled - start).min(rest.len()));
            assert!(self.buffer[start..filled] == *now, "{} gave other bytes", self.name);
            rest = later;
            if rest.is_empty() {
                return;
            }
            filled = self.stream.read(&mut self.buffer).unwrap();
            start = 0;
            assert!(filled > 0, "{} ended early", self.name);
        }
    }
}
