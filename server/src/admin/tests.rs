//! Both ends of the admin API over a real socket, with a fake server.
#![allow(clippy::unwrap_used)]

use super::answer::STOPPING;
use super::*;
use crate::backup::BackupReport;
use crate::data_dir::{Credentials, DataDir, InitOptions};
use crate::report::{
    CapacityStatus, DriveCounts, ExposureReport, FrontStatus, GroupCounts, IntakeStatus, LostReport, MoveEstimate,
    ObjectTotal, PlaceReport, PowerStatus, RuleName, RuleTotal, ScrubStatus, SwitchStatus, TlsStatus, Totals,
    WorkshopStatus,
};
use crate::verify::{Finding, FindingKind, RackCounts, Report, SkippedGroup, VerifyPhase};
use catalog::{Catalog, MemoryStore};
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

struct Fake;

fn status() -> Status {
    Status {
        read_ahead: crate::report::ReadAheadStatus { objects: 4, hits: 3, ..crate::report::ReadAheadStatus::default() },
        rack: "mini".into(),
        modelled_s: 12.5,
        wall_ms: 1,
        time_scale: 5,
        uptime_s: 2.5,
        workshop: WorkshopStatus {
            staged_bytes: 1,
            staged_count: 2,
            hot_moved_bytes: 9,
            uploads: 1,
            upload_bytes: 7,
            capacity_bytes: 3,
            spool_bytes: 4,
            spool_capacity_bytes: 5,
            migrations_under_way: 6,
        },
        journal: Some(crate::report::JournalReport {
            snapshot_bytes: 9,
            batch_bytes: 2,
            leads_on: true,
            on_drives: true,
        }),
        checks: crate::report::ChecksStatus {
            state: "running".into(),
            saved_reads: 8,
            completed_s_ago: Some(1.5),
            ..crate::report::ChecksStatus::default()
        },
        intake: Some(IntakeStatus { copies: 2, alternation: Some("ideal".into()), ..IntakeStatus::default() }),
        front: FrontStatus { connections: 3, refused_requests: 4, ..FrontStatus::default() },
        tls: Some(TlsStatus {
            certificate: "/etc/larder/server.pem".into(),
            loaded_ms: 1_700_000_000_000,
            reloads: 2,
            problem: Some("it is broken".into()),
        }),
        power: PowerStatus {
            watts: 1.5,
            standby_watts: 1.0,
            active_drives: 8,
            active_drives_max: 16,
            fuse_trips: 0,
            unstopped_drives: 0,
        },
        drives: DriveCounts { standby: 88, ready: 8, ..DriveCounts::default() },
        groups: GroupCounts { total: 4, initialised: 3 },
        rebuilds: vec![],
        scrub: ScrubStatus::default(),
        exposed: ExposureReport::default(),
        classes: vec![],
        switch: SwitchStatus { wake_s: 13.25, wake_busy_s: 21.5, rest_s: 1.25 },
        totals: Totals::default(),
        capacity: CapacityStatus::default(),
        warnings: vec!["a \"quoted\" warning".into()],
        conditions: vec![crate::condition::Condition::DriveAway],
        notes: Vec::new(),
    }
}

fn explanation(bucket: &str, key: &str) -> Explanation {
    Explanation {
        bucket: bucket.into(),
        key: key.into(),
        bytes: 3,
        etag: "e".into(),
        modified_ms: 4,
        place: PlaceReport::Workshop { slots: vec![1], age_s: 2.0, migrating: false },
        quarantined: None,
        temperature: None,
    }
}

fn failed(drive: u32) -> FailedReport {
    FailedReport { lacks_drives: 1, drive: failed_drive(drive) }
}

fn failed_drive(drive: u32) -> DriveReport {
    DriveReport {
        missed_deadlines: 0,
        drive,
        slot: [0, 0, 0],
        group: Some(1),
        state: "failed".into(),
        starts_today: 0,
        starts_per_day: 10,
        free_bytes: 5,
        capacity_bytes: 9,
        reason: None,
        starts_total: 0,
        rated_starts: 0,
        health: None,
        habits: None,
    }
}

impl Admin for Fake {
    async fn status(&self) -> Result<Status, AdminError> {
        Ok(status())
    }

    async fn explain(&self, bucket: &str, key: &str) -> Result<Option<Explanation>, AdminError> {
        match key {
            "nothing" => Ok(None),
            "broken" => Err(AdminError::Because("the catalog does not answer".into())),
            key => Ok(Some(explanation(bucket, key))),
        }
    }

    async fn dry_run(
        &self,
        bucket: &str,
        prefix: &str,
        rule: Option<Rule>,
    ) -> Result<Option<DryRunReport>, AdminError> {
        let total = ObjectTotal::default();
        let rules = rule.iter().map(|rule| RuleTotal {
            rule: RuleName { number: 1, name: rule.name.clone() },
            is: "cold".into(),
            total,
        });
        Ok((bucket != "none").then(|| DryRunReport {
            bucket: bucket.into(),
            prefix: prefix.into(),
            staged: total,
            rules: rules.collect(),
            default: "hot".into(),
            by_default: total,
            due: MoveEstimate::default(),
            too_small: total,
            later: total,
            last_ms: None,
        }))
    }

    async fn drives(&self) -> Result<Vec<DriveReport>, AdminError> {
        Ok(vec![])
    }

    async fn fail_drive(&self, drive: u32, force: bool) -> Result<Option<FailedReport>, AdminError> {
        match drive {
            7 if !force => Err(AdminError::Because("blobs may be lost".into())),
            0..8 => Ok(Some(failed(drive))),
            8 => Err(AdminError::Because("the catalog does not answer".into())),
            _ => Ok(None),
        }
    }

    async fn retire_drive(&self, drive: u32) -> Result<Option<DriveReport>, AdminError> {
        Ok(self.replace_drive(drive, DiskChoice::default()).await?.map(|report| report.drive))
    }

    async fn lost_objects(&self) -> Result<LostReport, AdminError> {
        Ok(LostReport::default())
    }

    async fn until_replaceable(&self, drive: u32, wait: Duration) -> Result<(), AdminError> {
        match drive {
            6 => Err(AdminError::Because(format!("waited {} s", wait.as_secs()))),
            _ => Ok(()),
        }
    }

    async fn replace_drive(&self, drive: u32, choice: DiskChoice) -> Result<Option<ReplacedReport>, AdminError> {
        match drive {
            5 => Err(AdminError::Because(format!("{:?} and {:?}", choice.path, choice.wipe))),
            3 => Ok(Some(ReplacedReport {
                taken: "another".into(),
                drive: DriveReport { state: "standby".into(), ..failed_drive(3) },
            })),
            0..8 => Err(AdminError::Because("it has not failed".into())),
            _ => Ok(None),
        }
    }

    async fn scrub(&self) -> Result<ScrubReport, AdminError> {
        Ok(ScrubReport::default())
    }

    async fn lost(&self) -> Result<Vec<LostObject>, AdminError> {
        Ok(vec![LostObject { bucket: "b".into(), key: "k".into(), bytes: 3, blob: "b7".into() }])
    }

    async fn change_scrub(&self, change: ScrubChange) -> Result<Option<ScrubReport>, AdminError> {
        let status = ScrubStatus { paused: change == ScrubChange::Pause, ..ScrubStatus::default() };
        let known = !matches!(change, ScrubChange::Start(Some(4..)));
        Ok(known.then(|| ScrubReport { status, ..ScrubReport::default() }))
    }

    async fn verification(&self, request: VerifyRequest) -> Result<Option<VerifyProgress>, AdminError> {
        let options = Options { drives: true, deep: true };
        Ok(match request {
            VerifyRequest::Begin { .. } => {
                assert_eq!(request, VerifyRequest::Begin { options, wakes: true });
                Some(VerifyProgress { number: 3, ..VerifyProgress::default() })
            }
            VerifyRequest::Look(3) => Some(verified()),
            VerifyRequest::Look(_) | VerifyRequest::End(_) => None,
        })
    }

    async fn recall_set(&self, request: SetRequest) -> Result<SetReport, SetError> {
        match request.keys {
            None => Err(SetError::Refused("it does not fit".into())),
            Some(keys) => Ok(SetReport { job: 3, objects: keys.len() as u64, ..SetReport::default() }),
        }
    }

    async fn backup(&self, path: PathBuf) -> Result<BackupReport, BackupError> {
        Ok(BackupReport { path: path.display().to_string(), bytes: 7, records: 1, sequence: 2 })
    }

    fn set_recalls(&self) -> Vec<SetReport> {
        vec![SetReport { job: 3, ..SetReport::default() }]
    }
}

fn verified() -> VerifyProgress {
    let finding = Finding {
        kind: FindingKind::StackBad,
        what: "stack s-0 is missing".into(),
        mend: "read it".into(),
        object: None,
        blob: Some("b7".into()),
        drive: Some(3),
        file: None,
    };
    let skipped = vec![SkippedGroup { group: 4, why: "asleep".into() }];
    let rack = RackCounts { drives_read: true, stacks: 7, skipped, ..RackCounts::default() };
    let report = Report { finding_count: 1, findings: vec![finding.clone()], rack, ..Report::default() };
    let phase = VerifyPhase::Scrub { done: 1, blobs: 2, groups: 1, permille: 500 };
    VerifyProgress { number: 3, phase, findings: vec![finding], report: Some(report), error: None }
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    dir: PathBuf,
}

impl Running {
    fn start(dir: &Path) -> Self {
        let listener = Listener::bind(dir).unwrap();
        let (stop, stopped) = oneshot::channel();
        let path = dir.to_owned();
        let task = tokio::spawn(async move {
            let catalog = Catalog::open(Arc::new(MemoryStore::new())).await.unwrap();
            let root = Credentials { access_key: "ROOTKEY".into(), secret_key: "roots secret".into() };
            let users = Users::open(catalog, path, &root, Arc::new(|| 1)).await.unwrap();
            serve(listener, Arc::new(Fake), Arc::new(users), None, async move { stopped.await.unwrap() }).await;
        });
        Self { stop, task, dir: dir.to_owned() }
    }

    fn client(&self) -> Client {
        Client::of(&self.dir).unwrap()
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

fn data_dir(name: &str) -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(name);
    drop(DataDir::init(&path, &InitOptions { rack: "nas8".into(), settings: vec![], wipe: vec![] }).unwrap());
    (root, path)
}

#[tokio::test]
async fn what_the_server_says_arrives_whatever_the_key_is_called() {
    let (_root, dir) = data_dir("d");
    let server = Running::start(&dir);
    let client = server.client();
    assert_eq!(client.status().await.unwrap(), status());
    assert_eq!(client.drives().await.unwrap(), []);
    for key in ["a", "a b&c=d?#/%41+", "ä/\u{1f980}", ""] {
        assert_eq!(client.explain("b", key).await.unwrap(), Some(explanation("b", key)));
    }
    assert_eq!(client.explain("b", "nothing").await.unwrap(), None);
    let message = client.explain("b", "broken").await.unwrap_err().to_string();
    assert_eq!(message, "the catalog does not answer");
    server.stop().await;
}

#[tokio::test]
async fn a_verification_arrives_with_its_findings() {
    let (_root, dir) = data_dir("d");
    let server = Running::start(&dir);
    let client = server.client();
    let begin = VerifyRequest::Begin { options: Options { drives: true, deep: true }, wakes: true };
    assert_eq!(client.verification(begin).await.unwrap().unwrap().number, 3);
    assert_eq!(client.verification(VerifyRequest::Look(3)).await.unwrap(), Some(verified()));
    for none in [VerifyRequest::Look(2), VerifyRequest::End(3)] {
        assert_eq!(client.verification(none).await.unwrap(), None);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_dry_run_takes_a_rule_as_the_configuration_has_it() {
    let (_root, dir) = data_dir("d");
    let server = Running::start(&dir);
    let client = server.client();
    let report = client.dry_run("b", "a&b/", Some("name = \"x y\", older_than = \"2 min\"")).await.unwrap().unwrap();
    assert_eq!((report.bucket.as_str(), report.prefix.as_str()), ("b", "a&b/"));
    assert_eq!(report.rules[0].rule.name, "x y");
    assert_eq!(client.dry_run("b", "", None).await.unwrap().unwrap().rules, []);
    assert_eq!(client.dry_run("none", "", None).await.unwrap(), None);
    let refused = client.dry_run("b", "", Some("older_then = 2")).await.unwrap_err().to_string();
    assert!(refused.contains("write `older_than`"), "{refused}");
    server.stop().await;
}

#[tokio::test]
async fn users_are_made_listed_rotated_and_removed() {
    let (_root, dir) = data_dir("d");
    let server = Running::start(&dir);
    let client = server.client();
    let first = client.add_user("ann").await.unwrap();
    assert_eq!((first.name.as_str(), first.access_key.len(), first.secret_key.len()), ("ann", 20, 40));
    let second = client.rotate_user("ann").await.unwrap();
    assert_ne!(first.secret_key, second.secret_key);
    let users = client.users().await.unwrap();
    let listed: Vec<_> = users.iter().map(|user| (user.name.as_str(), user.access_key.as_str())).collect();
    assert_eq!(listed, [("root", "ROOTKEY"), ("ann", second.access_key.as_str())]);
    client.remove_user("ann").await.unwrap();
    assert_eq!(client.users().await.unwrap().len(), 1);
    for (refused, says) in [
        (client.remove_user("ann").await.map(drop), "there is no user ann"),
        (client.rotate_user("bob").await.map(drop), "there is no user bob"),
        (client.remove_user("root").await, "root cannot be removed"),
        (client.add_user("a b&c").await.map(drop), "`a b&c` is not a user name"),
    ] {
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(says), "{message}");
    }
    server.stop().await;
}

#[tokio::test]
async fn without_a_server_the_client_says_how_to_start_one() {
    let (root, dir) = data_dir("d");
    let message = Client::of(&root.path().join("none")).unwrap_err().to_string();
    assert!(message.contains("there is no Larder data directory at"), "{message}");
    let no_server = format!("no server runs on {0}; start it with `larder serve --data {0}`", dir.display());
    assert_eq!(Client::of(&dir).unwrap().status().await.unwrap_err().to_string(), no_server);

    // A killed server leaves a socket without a listener; the next server replaces it.
    drop(Listener::bind(&dir).unwrap());
    assert!(dir.join("admin.sock").exists());
    assert_eq!(Client::of(&dir).unwrap().status().await.unwrap_err().to_string(), no_server);
    let server = Running::start(&dir);
    server.client().status().await.unwrap();
    server.stop().await;
    assert!(!dir.join("admin.sock").exists(), "a stopped server leaves no socket");
}

/// The way in which a server goes during a request.
#[derive(Clone, Copy, Debug)]
enum Going {
    /// Its socket is removed and closed while a client waits to be accepted.
    Unaccepted,
    /// It closes the connection without having read.
    Unread,
    /// It reads the request and closes the connection.
    Unanswered,
    /// It closes the connection in the middle of the head.
    InTheHead,
    /// It closes the connection in the middle of the body.
    InTheBody,
    /// It reports that it is stopping.
    Stopping,
    /// It is killed while it has the request: the socket stays and refuses.
    Killed,
    /// It answers no more, and is then gone.
    Mute,
}

/// A server that goes in the way `how` as soon as a client connects.
async fn goes(dir: PathBuf, how: Going) {
    let socket = dir.join("admin.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    if matches!(how, Going::Unaccepted) {
        tokio::time::sleep(Duration::from_millis(50)).await; // the client connects, and is never accepted
        std::fs::remove_file(&socket).unwrap();
        return;
    }
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = [0; 1024];
    if !matches!(how, Going::Unread) {
        assert_ne!(stream.read(&mut request).await.unwrap(), 0);
    }
    let body = format!("{{\"error\": \"{STOPPING}\"}}");
    let head = format!("HTTP/1.1 503 Service Unavailable\r\ncontent-length: {}\r\n\r\n", body.len());
    let answer = match how {
        Going::InTheHead => head[..20].to_owned(),
        Going::InTheBody => format!("{head}{{\"err"),
        Going::Stopping => head + &body,
        _ => String::new(),
    };
    stream.write_all(answer.as_bytes()).await.unwrap();
    if matches!(how, Going::Mute) {
        tokio::time::sleep(ANSWER_PATIENCE / 2).await;
        std::fs::remove_file(&socket).unwrap();
        tokio::time::sleep(ANSWER_PATIENCE).await;
        return;
    }
    drop(stream);
    tokio::time::sleep(GOES_AFTER).await; // a server that closes connections may still listen for a moment
    if !matches!(how, Going::Killed) {
        std::fs::remove_file(&socket).unwrap();
    }
}

/// The time for which a client waits for an answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// The time for which a server that goes still listens after it has closed a connection.
const GOES_AFTER: Duration = Duration::from_millis(200);

#[tokio::test(start_paused = true)]
async fn however_a_server_goes_while_it_is_asked_the_client_says_that_it_is_gone() {
    use Going::{InTheBody, InTheHead, Killed, Mute, Stopping, Unaccepted, Unanswered, Unread};
    for how in [Unaccepted, Unread, Unanswered, InTheHead, InTheBody, Stopping, Killed, Mute] {
        for changes in [false, true] {
            let (_root, dir) = data_dir("d");
            let client = Client::of(&dir).unwrap();
            let server = tokio::spawn(goes(dir.clone(), how));
            tokio::task::yield_now().await;
            let message =
                if changes { client.add_user("ann").await.unwrap_err() } else { client.status().await.unwrap_err() };
            let fits = if changes {
                matches!(message, ClientError::Unfinished(_))
            } else {
                matches!(message, ClientError::NoServer(_))
            };
            let text = message.to_string();
            assert!(fits && text.contains("no server runs on") && text.contains("start it with"), "{how:?}: {text}");
            server.abort();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_comes_in_the_place_of_one_that_goes_is_asked_again_but_for_nothing_twice() {
    let (_root, dir) = data_dir("d");
    let client = Client::of(&dir).unwrap();
    let old = tokio::spawn(goes(dir.clone(), Going::Unanswered));
    tokio::task::yield_now().await;
    let next = async {
        old.await.unwrap();
        Running::start(&dir)
    };
    let (message, server) = tokio::join!(client.status(), next);
    assert_eq!(message.unwrap(), status());
    assert_eq!(client.users().await.unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_breaks_every_connection_and_stays_is_not_said_to_be_gone() {
    let (_root, dir) = data_dir("d");
    let listener = UnixListener::bind(dir.join("admin.sock")).unwrap();
    let server = tokio::spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
        }
    });
    let client = Client::of(&dir).unwrap();
    for message in [client.status().await.map(drop).unwrap_err(), client.remove_user("ann").await.unwrap_err()] {
        let text = message.to_string();
        assert!(text.contains("does not answer (it closed the connection"), "{text}");
    }
    server.abort();
}

/// A server that is slow to answer some requests, and answers others meanwhile or not.
async fn ponders(listener: UnixListener, answers_others: bool) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        drop(tokio::spawn(async move {
            let mut request = [0; 1024];
            assert_ne!(stream.read(&mut request).await.unwrap(), 0);
            let slow = [
                (
                    &b"POST /repartition"[..],
                    serde_json::to_string(&crate::repartition::JobReport { job: 7, ..Default::default() }),
                ),
                (b"POST /catalog/backup", serde_json::to_string(&BackupReport { records: 7, ..Default::default() })),
                (b"GET /lost", serde_json::to_string(&LostReport { count: 7, ..Default::default() })),
            ];
            let asked = slow.into_iter().find(|(asked, _)| request.starts_with(asked));
            let body = if let Some((_, body)) = asked {
                tokio::time::sleep(PONDERS_FOR).await;
                body.unwrap()
            } else if answers_others {
                serde_json::to_string(&status()).unwrap()
            } else {
                return std::future::pending().await;
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).await.unwrap();
        }));
    }
}

const PONDERS_FOR: Duration = Duration::from_mins(10);

#[tokio::test(start_paused = true)]
async fn slow_answers_are_waited_for_as_long_as_the_server_answers_others() {
    for answers_others in [true, false] {
        let (_root, dir) = data_dir("d");
        let listener = UnixListener::bind(dir.join("admin.sock")).unwrap();
        let server = tokio::spawn(ponders(listener, answers_others));
        let begun = tokio::time::Instant::now();
        let message = Client::of(&dir).unwrap().repartition(&crate::repartition::Request::default()).await;
        if answers_others {
            assert_eq!((message.unwrap().job, begun.elapsed() >= PONDERS_FOR), (7, true));
            let client = Client::of(&dir).unwrap();
            assert_eq!(client.backup(Path::new("/elsewhere")).await.unwrap().records, 7);
            assert_eq!(client.lost_objects().await.unwrap().count, 7);
        } else {
            let message = message.unwrap_err().to_string();
            assert!(message.contains("it took too long") && begun.elapsed() < PONDERS_FOR, "{message}");
        }
        server.abort();
    }
}

#[tokio::test]
async fn a_path_longer_than_a_sockets_address_works() {
    let (_root, dir) = data_dir(&format!("{}/{}", "long".repeat(30), "path".repeat(30)));
    let server = Running::start(&dir);
    assert_eq!(server.client().status().await.unwrap(), status());
    server.stop().await;
    assert!(!dir.join("admin.sock").exists());
}

#[tokio::test]
async fn only_the_owner_can_connect() {
    use std::os::unix::fs::PermissionsExt;
    let (_root, dir) = data_dir("d");
    let _listener = Listener::bind(&dir).unwrap();
    assert_eq!(dir.join("admin.sock").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!dir.join("admin.new").exists());
}

async fn raw(dir: &Path, request: &str) -> String {
    let mut stream = UnixStream::connect(dir.join("admin.sock")).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn wrong_requests_are_told_what_there_is() {
    let (_root, dir) = data_dir("d");
    let server = Running::start(&dir);
    for (request, status, body) in [
        ("GET / HTTP/1.1", "404", "there is /status"),
        ("POST /status HTTP/1.1", "405", "only GET"),
        ("GET /explain?bucket=b HTTP/1.1", "400", "bucket=B&key=K"),
        ("GET /explain?bucket=b&key=nothing HTTP/1.1", "404", "there is no object s3://b/nothing"),
        ("POST /users HTTP/1.1", "400", "?name=N"),
        ("PUT /users?name=a HTTP/1.1", "405", "POST or DELETE"),
        ("GET /drives/fail?drive=3 HTTP/1.1", "405", "only POST"),
        ("POST /drives/fail?drive=x HTTP/1.1", "400", "drive=N"),
        ("POST /drives/fail?drive=9 HTTP/1.1", "404", "there is no drive 9"),
        ("POST /drives/fail?drive=8 HTTP/1.1", "503", "the catalog does not answer"),
        ("GET /status HTTP/1.1", "200", "{\"rack\":\"mini\""),
    ] {
        let answer = raw(&dir, &format!("{request}\r\nhost: larder\r\n\r\n")).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(body), "{request}: {answer}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_drive_is_given_up_by_a_word() {
    let (_root, dir) = data_dir("d");
    let server = Running::start(&dir);
    assert_eq!(server.client().fail_drive(3, false).await.unwrap(), Some(failed(3)));
    assert!(server.client().fail_drive(7, false).await.is_err());
    assert_eq!(server.client().fail_drive(7, true).await.unwrap(), Some(failed(7)));
    assert_eq!(server.client().fail_drive(9, false).await.unwrap(), None);
    let refused = server.client().fail_drive(8, true).await;
    assert!(matches!(refused, Err(ClientError::Refused(message)) if message.contains("catalog")));
    server.stop().await;
}

#[tokio::test]
async fn a_drive_is_replaced_by_a_word() {
    let (_root, dir) = data_dir("d");
    let server = Running::start(&dir);
    let (none, now) = (DiskChoice::default(), Duration::ZERO);
    let waited = server.client().replace_drive(6, &none, Duration::from_secs(90)).await.unwrap_err().to_string();
    assert_eq!(waited, "waited 90 s");
    assert_eq!(server.client().replace_drive(3, &none, now).await.unwrap().unwrap().drive.state, "standby");
    assert_eq!(server.client().replace_drive(9, &none, now).await.unwrap(), None);
    let refused = server.client().replace_drive(4, &none, now).await;
    assert!(matches!(refused, Err(ClientError::Refused(message)) if message.contains("not failed")));
    let choice = DiskChoice { path: Some("/dev/disk/by-id/a b&c".into()), wipe: Some("d=".into()) };
    let refused = server.client().replace_drive(5, &choice, now).await.unwrap_err().to_string();
    assert_eq!(refused, format!("{:?} and {:?}", choice.path, choice.wipe), "both arrive");
    server.stop().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_does_not_keep_the_server_from_answering_others() {
    let (_root, dir) = data_dir("d");
    let server = Running::start(&dir);
    let mut mute = Vec::new();
    for _ in 0..10 {
        mute.push(UnixStream::connect(dir.join("admin.sock")).await.unwrap());
    }
    server.client().status().await.unwrap();
    let stopping = std::time::Instant::now();
    server.stop().await;
    assert!(stopping.elapsed() < CONNECTION_LIMIT / 2, "nor from stopping");
    drop(mute);
}

#[tokio::test]
async fn sets_are_recalled_by_lists_of_any_length_and_refused_with_the_reason() {
    let (_root, dir) = data_dir("sets");
    let running = Running::start(&dir);
    let client = running.client();
    let keys: Vec<String> = (0..200_000).map(|nth| format!("a/key/that/is/long/{nth}")).collect();
    let wanted = SetRequest { bucket: "b".into(), keys: Some(keys), ..SetRequest::default() };
    let report = client.recall_set(&wanted).await.unwrap();
    assert_eq!((report.job, report.objects), (3, 200_000));
    assert_eq!(client.set_recall(3).await.unwrap().unwrap().job, 3);
    assert!(client.set_recall(4).await.unwrap().is_none());
    assert_eq!(client.set_recalls().await.unwrap().len(), 1);
    let refused = client.recall_set(&SetRequest { keys: None, ..wanted }).await.unwrap_err();
    assert_eq!(refused.to_string(), "it does not fit");
}
