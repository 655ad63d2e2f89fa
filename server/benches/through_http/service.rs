//! The subject of the measurements: a server in this process on its own data directory, blocking clients, and plain
//! files on the same disk.
//!
//! Invariant: a GET is only counted if every byte of it is right.

use super::client::{Call, Signed};
use engine::IdleTimeout;
use model::Rng;
use server::admin::Client;
use server::app;
use server::config::Config;
use server::data_dir::{DataDir, InitOptions};
use server::report::{PlaceReport, RackPlace, Status};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

pub const OBJECT_BYTES: usize = 64 << 20;
/// The number of objects: a multiple of every number of clients.
pub const OBJECTS: usize = 8;
/// Modelled seconds per second.
pub const TIME_SCALE: u32 = 1000;
/// The idle time after which groups sleep, in modelled time: short, so that there is something to wake.
const IDLE: Duration = Duration::from_mins(1);
/// The longest time that any step here may take; longer is an error.
const PATIENCE: Duration = Duration::from_mins(1);
/// Room for every recalled object, in one piece.
const SPOOL_BYTES: u64 = 1 << 30;
/// So large that nothing moves because the workshop fills up.
const CAPACITY_BYTES: u64 = 64 << 30;

/// The key of an object.
pub fn name_of(object: usize) -> String {
    format!("object-{object}")
}

/// Everything that is on the disk.
pub struct ObjectService {
    root: TempDir,
    source: Vec<u8>,
}

/// A server that runs until it is dropped.
pub struct Server<'a> {
    service: &'a ObjectService,
    address: SocketAddr,
    user: (&'static str, &'static str),
    /// Asks the server for its status.
    admin: Client,
    asking: Runtime,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
}

impl ObjectService {
    /// Builds an empty rack and the bytes that will be put into it.
    pub fn build() -> Self {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut rng = Rng::new(1);
        let source: Vec<u8> = (0..OBJECT_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        let service = Self { root, source };
        std::fs::write(service.source_file(), &service.source).unwrap();
        drop(
            DataDir::init(&service.data(), &InitOptions { rack: "pelican".into(), settings: vec![], wipe: vec![] })
                .unwrap(),
        );
        service.serve(None).ask("PUT", "/shelf");
        service
    }

    fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    /// The bytes of every object.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// The file that holds them.
    pub fn source_file(&self) -> PathBuf {
        self.root.path().join("source")
    }

    /// The path of an object's plain copy.
    pub fn plain_file(&self, object: usize) -> PathBuf {
        self.root.path().join(name_of(object))
    }

    /// Starts a server that migrates objects older than `older_than`; `None` migrates nothing.
    pub fn serve(&self, older_than: Option<Duration>) -> Server<'_> {
        let dir = DataDir::open(&self.data()).unwrap();
        let keys = dir.credentials().clone();
        let config = configured(dir.config().unwrap(), older_than);
        let (stop, stopped) = oneshot::channel::<()>();
        let (ready, address) = mpsc::channel();
        let serving = thread::spawn(move || {
            let announce = Box::new(move |address| ready.send(address).unwrap());
            let stopped = Box::pin(async {
                let _ = stopped.await;
            });
            Runtime::new().unwrap().block_on(app::run(dir, config, announce, stopped)).unwrap();
        });
        Server {
            service: self,
            address: address.recv_timeout(PATIENCE).unwrap(),
            user: (keys.access_key.leak(), keys.secret_key.leak()),
            admin: Client::of(&self.data()).unwrap(),
            asking: Builder::new_current_thread().enable_all().build().unwrap(),
            stop: Some(stop),
            serving: Some(serving),
        }
    }
}

fn configured(mut config: Config, older_than: Option<Duration>) -> Config {
    config.listen = (Ipv4Addr::LOCALHOST, 0).into();
    config.time_scale = TIME_SCALE;
    config.idle_timeout = IdleTimeout::After(IDLE);
    config.workshop.spool = Some(SPOOL_BYTES);
    config.workshop.capacity = Some(CAPACITY_BYTES);
    config.migrate.older_than = older_than;
    config.migrate.linger = Duration::ZERO;
    // Each object becomes one blob: in a shared blob, reading an object recalls its neighbours' first bytes as well.
    config.migrate.pack_bytes = Some(OBJECT_BYTES as u64);
    config.migrate.scan_interval = Duration::from_millis(100);
    config
}

impl Server<'_> {
    /// The address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The access key and secret that it accepts.
    pub fn user(&self) -> (&'static str, &'static str) {
        self.user
    }

    /// Sends a request's head; the body that is sent after it must be `body_bytes` long.
    fn begin(&self, method: &'static str, path: &str, body_bytes: usize) -> TcpStream {
        let call = Call::new(method, path).user(self.user.0, self.user.1).signed(Signed::Unsigned);
        let (head, _) = call.late_header("content-length", &body_bytes.to_string()).wire(self.address);
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&head).unwrap();
        stream
    }

    fn ask(&self, method: &'static str, path: &str) {
        end(&mut self.begin(method, path, 0));
    }

    /// Stores an object.
    pub fn put(&self, key: &str) {
        let mut stream = self.begin("PUT", &format!("/shelf/{key}"), OBJECT_BYTES);
        stream.write_all(&self.service.source).unwrap();
        end(&mut stream);
    }

    /// Reads an object; returns the time until its first bytes arrived.
    pub fn get(&self, key: &str) -> Duration {
        let began = Instant::now();
        let mut stream = self.begin("GET", &format!("/shelf/{key}"), 0);
        let mut buffer = vec![0; 1 << 20];
        let (head_bytes, mut filled) = read_head(&mut stream, &mut buffer);
        buffer.copy_within(head_bytes..filled, 0);
        filled -= head_bytes;
        let waited = began.elapsed();
        let mut rest = &self.service.source[..];
        loop {
            let (expected, later) = rest.split_at(filled.min(rest.len()));
            assert!(buffer[..filled] == *expected, "{key} came back with other bytes");
            rest = later;
            if rest.is_empty() {
                return waited;
            }
            filled = stream.read(&mut buffer).unwrap();
            assert!(filled > 0, "{key} ended early");
        }
    }

    fn status(&self) -> Status {
        self.asking.block_on(self.admin.status()).unwrap()
    }

    fn wait_until(&self, what: &str, holds: impl Fn(&Status) -> bool) {
        let began = Instant::now();
        while !holds(&self.status()) {
            assert!(began.elapsed() < PATIENCE, "never {what}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until no drive spins.
    pub fn wait_until_asleep(&self) {
        self.wait_until("asleep", |status| status.power.active_drives == 0);
    }

    /// Waits until nothing is staged any more.
    pub fn wait_until_migrated(&self) {
        self.wait_until("migrated", |status| {
            status.workshop.staged_count == 0 && status.workshop.migrations_under_way == 0
        });
    }

    /// The least and the most seconds until the first byte of a cold object would come.
    pub fn forecast(&self, key: &str) -> (f64, f64) {
        let explanation = self.asking.block_on(self.admin.explain("shelf", key)).unwrap();
        match explanation.unwrap().place {
            PlaceReport::Rack(RackPlace { wait_min_s: Some(min), wait_max_s: Some(max), .. }) => (min, max),
            PlaceReport::Rack(_) => panic!("{key} cannot be read"),
            PlaceReport::Workshop { .. } => panic!("{key} has not migrated"),
        }
    }
}

/// Reads an answer's head and at least one byte after it; returns the head's length and the number of bytes in the
/// buffer.
fn read_head(stream: &mut TcpStream, buffer: &mut [u8]) -> (usize, usize) {
    let mut filled = 0;
    loop {
        let more = stream.read(&mut buffer[filled..]).unwrap();
        filled += more;
        if let Some(at) = buffer[..filled].windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..filled]);
            assert!(head.starts_with("HTTP/1.1 200 "), "refused: {head}");
            if filled > at + 4 {
                return (at + 4, filled);
            }
            let more = stream.read(&mut buffer[filled..]).unwrap();
            return (at + 4, filled + more);
        }
        assert!(more > 0 && filled < 16 << 10, "this is no answer");
    }
}

/// Reads an answer without a body, to its end.
fn end(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200 "), "refused: {answer}");
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.serving.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}
