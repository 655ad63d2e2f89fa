//! The binary as a shell sees it: exit codes, output streams, signals.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn larder(words: &[&str], data: Option<&Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(words).env_remove("RUST_LOG");
    if let Some(data) = data {
        command.arg("--data").arg(data);
    }
    command
}

fn run(words: &[&str], data: Option<&Path>) -> Output {
    larder(words, data).stdin(Stdio::null()).output().unwrap()
}

/// Checks a failure with `code`, nothing on standard output, and one line on standard error that contains the remedy.
fn refused(output: &Output, code: i32, fix: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(output.stdout.is_empty() && message.contains(fix), "{message}");
    assert!(code == 2 || message.lines().count() == 1, "one sentence: {message}");
}

/// A quickstart server that has reported `ready`.
struct Server {
    child: Child,
    said: Vec<String>,
}

impl Server {
    fn start(data: &Path) -> Self {
        let words = ["quickstart", "--port", "0", "--time-scale", "100", "--rack", "nas8", "--log", "warn"];
        let child = larder(&words, Some(data)).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut server = Self { child, said: Vec::new() };
        for line in BufReader::new(server.child.stdout.take().unwrap()).lines().map(Result::unwrap) {
            if line == "ready" {
                return server;
            }
            server.said.push(line);
        }
        panic!("it ended before it was ready: {:?}", server.said);
    }

    fn said(&self, name: &str) -> &str {
        let prefix = format!("export {name}=");
        self.said.iter().find_map(|line| line.strip_prefix(&prefix)).unwrap()
    }

    fn stop(mut self, signal: &str) -> Option<i32> {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
        let since = Instant::now();
        while since.elapsed() < Duration::from_mins(1) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not stop at {signal}");
    }
}

impl Drop for Server {
    /// No server outlives its test, regardless of how that ends.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(data: &Path) -> serde_json::Value {
    serde_json::from_slice(&run(&["status", "--json"], Some(data)).stdout).unwrap()
}

#[test]
fn a_quickstart_is_made_served_told_of_stopped_and_used_again() {
    let root = TempDir::new().unwrap();
    let data = root.path().join("d");
    let server = Server::start(&data);
    let keys = [server.said("AWS_ACCESS_KEY_ID").to_owned(), server.said("AWS_SECRET_ACCESS_KEY").to_owned()];
    assert_eq!((keys[0].len(), keys[1].len()), (20, 40));
    assert_eq!(server.said("AWS_DEFAULT_REGION"), "us-east-1");
    let endpoint = server.said("AWS_ENDPOINT_URL").strip_prefix("http://127.0.0.1:").unwrap().to_owned();
    assert_ne!(endpoint.parse::<u16>().unwrap(), 0);
    std::net::TcpStream::connect(format!("127.0.0.1:{endpoint}")).unwrap();

    assert_eq!(status(&data)["time_scale"], 100);
    // The first start initialises both groups, one after the other.
    let end = Instant::now() + Duration::from_mins(1);
    while status(&data)["groups"]["initialised"] != 2 {
        assert!(Instant::now() < end, "the rack is initialised: {}", status(&data));
        std::thread::sleep(Duration::from_millis(50));
    }
    let drives = run(&["drive", "list", "--json"], Some(&data));
    let drives: serde_json::Value = serde_json::from_slice(&drives.stdout).unwrap();
    assert_eq!(drives.as_array().unwrap().len(), 8);
    refused(&run(&["explain", "s3://b/k"], Some(&data)), 1, "there is no object s3://b/k; list the objects");
    refused(&run(&["serve", "--port", "0"], Some(&data)), 1, &format!("in use by process {}", server.child.id()));

    assert_eq!(server.stop("-TERM"), Some(0));
    refused(&run(&["status"], Some(&data)), 1, "start it with `larder serve --data");
    let again = Server::start(&data);
    let asleep = status(&data);
    assert_eq!((&asleep["groups"]["initialised"], &asleep["drives"]["standby"]), (&2.into(), &8.into()));
    assert_eq!(
        [again.said("AWS_ACCESS_KEY_ID"), again.said("AWS_SECRET_ACCESS_KEY")],
        keys.each_ref().map(String::as_str)
    );
    assert_eq!(again.stop("-KILL"), None);
    let after_a_crash = Server::start(&data);
    assert_eq!(after_a_crash.stop("-INT"), Some(0));
}

#[test]
fn status_is_watched_until_the_server_is_gone() {
    let root = TempDir::new().unwrap();
    let data = root.path().join("d");
    let server = Server::start(&data);
    let mut watching = larder(&["status", "--watch", "--json"], Some(&data))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    for _ in 0..2 {
        let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(line["rack"], "nas8");
    }
    // It ends silently when its reader stops reading.
    drop(lines);
    let mut message = String::new();
    watching.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!((watching.wait().unwrap().code(), message.as_str()), (Some(0), ""));

    let watching =
        larder(&["status", "--watch"], Some(&data)).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(server.stop("-TERM"), Some(0));
    let output = watching.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no server runs on"));
}

#[test]
fn refusals_are_one_sentence_with_the_fix() {
    let root = TempDir::new().unwrap();
    std::fs::write(root.path().join("letter.txt"), "dear").unwrap();
    refused(&run(&["quickstart"], Some(root.path())), 1, "(it holds letter.txt); choose a new or empty directory");
    refused(&run(&["serve"], Some(&root.path().join("x"))), 1, "create one with `larder init --data");
    refused(&run(&["plan", "nosuch"], None), 1, "or one of pelican, pelican-mini, nas8");
    refused(&run(&["plan"], None), 2, "larder plan");
    refused(&run(&["stat"], None), 2, "status");
    refused(&run(&["plan", "nas8", "--log", "a=b=c"], None), 2, "write a level such as `debug`");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let words = ["quickstart", "--rack", "nas8", "--log", "error", "--port", &port];
    refused(&run(&words, Some(&root.path().join("d"))), 1, "choose another with --port");
}

#[test]
fn a_new_catalog_in_the_place_of_a_lost_one_is_refused_and_nothing_removed() {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    assert!(run(&["init", "--rack", "nas8"], Some(&data)).status.success());
    let staged = data.join("workshop/staged");
    std::fs::DirBuilder::new().mode(0o700).create(&staged).unwrap();
    std::fs::write(staged.join("s-0000000000000001"), "the only copy").unwrap();
    for _ in 0..2 {
        refused(&run(&["serve", "--port", "0"], Some(&data)), 1, "put the newest catalog back");
    }
    assert!(staged.join("s-0000000000000001").exists());
}

#[test]
fn a_configuration_that_is_wrong_is_refused_at_its_place() {
    let root = TempDir::new().unwrap();
    let data = root.path().join("d");
    let made = run(&["init", "--rack", "nas8"], Some(&data));
    assert!(made.status.success() && String::from_utf8_lossy(&made.stdout).contains("larder serve --data"));
    let toml = data.join("larder.toml");
    let text = std::fs::read_to_string(&toml).unwrap();
    std::fs::write(&toml, format!("max_wat = \"1 s\"\n{text}")).unwrap();
    refused(&run(&["serve"], Some(&data)), 1, "larder.toml:1:1: there is no key `max_wat` here; write `max_wait`");
}

/// Sixty bays on a supply of this number of watts.
fn bays(watts: u32, starts: &str) -> String {
    format!(
        "name = \"bays\"\ngroup_drives = 15\npack = \"1 GB\"\n[code]\nk = 12\nr = 2\nfragment = \"128 KiB\"\n\
         [geometry]\nwidth = 60\ndepth = 1\nheight = 1\n[resources.power]\nsame = []\nwatts = {watts}\nhard = true\n\
         {starts}[drive]\ncapacity = \"4 TB\"\nbytes_per_s = \"180 MB/s\"\nseek = \"8 ms\"\nspin_up = \"10 s\"\n\
         mount = \"1 s\"\nmount_busy = \"1 s\"\nunmount = \"1 s\"\nspin_down = \"1 s\"\n\
         watts = {{ standby = 0.8, spin_up = 24, active = 6.4 }}\nrated_starts = 50000\nlife_years = 5\n"
    )
}

#[test]
fn a_plan_charges_as_many_starts_as_may_be_at_once() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("bays.toml");
    let path = path.to_str().unwrap();
    let starts = "[resources.inrush]\nsame = []\nstarting_drives = 4\nhard = true\n";
    std::fs::write(path, bays(260, starts)).unwrap();
    let output = run(&["plan", path], None);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("202 W all classes waking (4 drives starting at once)"), "{text}");
    let json: serde_json::Value = serde_json::from_slice(&run(&["plan", path, "--json"], None).stdout).unwrap();
    let waking = json["watts"]["waking"].as_f64().unwrap();
    assert_eq!(((waking * 1000.0).round(), &json["watts"]["starting_drives_max"]), (202_400.0, &4.into()));
    std::fs::write(path, bays(260, "")).unwrap();
    refused(&run(&["plan", path], None), 1, "starting_drives = 7 or less");
}

#[test]
fn plans_are_for_people_and_programs() {
    let output = run(&["plan", "pelican"], None);
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(String::from_utf8_lossy(&output.stdout).contains("48 of 24 drives in 4 classes"));
    let json = run(&["plan", "pelican", "--json"], None).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["groups"].as_array().unwrap().len(), 48);
}
