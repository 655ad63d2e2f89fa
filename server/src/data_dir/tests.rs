//! A directory is made whole or not at all, opened by one process, and refused with what to do about it.
#![allow(clippy::unwrap_used)]

use super::*;
use disk::label::DriveLabel;
use tempfile::TempDir;

fn options() -> InitOptions {
    InitOptions { rack: "pelican-mini".into(), settings: vec![("time_scale", "50".into())], wipe: vec![] }
}

fn made() -> (TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    drop(DataDir::init(&path, &options()).unwrap());
    (root, path)
}

fn refusal(path: &Path) -> String {
    DataDir::open(path).unwrap_err().to_string()
}

#[test]
fn what_init_makes_open_opens() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/b");
    let dir = DataDir::init(&path, &options()).unwrap();
    let (uuid, keys) = (dir.rack_uuid(), dir.credentials().clone());
    drop(dir);
    assert!(DataDir::exists(&path));
    let dir = DataDir::open(&path).unwrap();
    assert_eq!((dir.rack_uuid(), dir.credentials()), (uuid, &keys));
    assert_eq!(dir.config().unwrap().time_scale, 50);
    assert_eq!(dir.rack().drives.len(), 96);
    assert!(dir.workshop().is_dir() && dir.drive(DriveId(95)).ends_with("drives/0095"));
    assert!(!path.join(UNFINISHED).exists());
    for (place, label) in dir.labels() {
        let block = fs::read(place.join(label::file_name().as_str())).unwrap();
        assert_eq!(DriveLabel::decode(&block).unwrap().label, label);
    }
}

#[test]
fn keys_are_fresh_long_and_for_the_owner_alone() {
    let (_root, path) = made();
    let mode = |name: &str| path.join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(CREDENTIALS), 0o600);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let (a, b) = (Credentials::random().unwrap(), Credentials::random().unwrap());
    assert_ne!(a, b);
    assert_eq!((a.access_key.len(), a.secret_key.len()), (20, 40));
    assert!(!format!("{a:?}").contains(&a.secret_key));
}

#[test]
fn an_empty_directory_that_was_open_to_all_is_closed() {
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
    drop(DataDir::init(root.path(), &options()).unwrap());
    assert_eq!(root.path().metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_foreign_directory_is_refused_and_left_as_it_was() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("thesis.tex"), "x").unwrap();
    let message = DataDir::init(root.path(), &options()).unwrap_err().to_string();
    assert!(
        message.contains("not a Larder data directory (it holds thesis.tex)") && message.contains("choose"),
        "{message}"
    );
    assert!(refusal(root.path()).contains("it holds thesis.tex"));
    assert_eq!(names_in(root.path()).unwrap(), ["thesis.tex"]);
    let file = root.path().join("thesis.tex");
    assert!(DataDir::init(&file, &options()).unwrap_err().to_string().contains("is not a directory"));
    assert!(refusal(&root.path().join("nowhere")).contains("create one with `larder init --data"));
}

#[test]
fn init_never_runs_over_a_directory_that_is_made() {
    let (_root, path) = made();
    let before = fs::read(path.join(CREDENTIALS)).unwrap();
    let message = DataDir::init(&path, &options()).unwrap_err().to_string();
    assert!(message.contains("is a Larder data directory already; start it with `larder serve --data"), "{message}");
    assert_eq!(fs::read(path.join(CREDENTIALS)).unwrap(), before);
}

#[test]
fn wrong_racks_and_settings_leave_nothing_behind() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    let message = DataDir::init(&path, &InitOptions { rack: "pelikan".into(), settings: vec![], wipe: vec![] })
        .unwrap_err()
        .to_string();
    assert!(message.contains("there is no rack `pelikan`") && message.contains("pelican-mini"), "{message}");
    let wrong = InitOptions { rack: "nas8".into(), settings: vec![("time_scale", "0".into())], wipe: vec![] };
    assert!(matches!(DataDir::init(&path, &wrong), Err(DataDirError::Config(_))));
    assert!(!path.exists());
}

#[test]
fn an_init_that_was_killed_anywhere_is_recognised_and_completed() {
    let (_root, whole) = made();
    // A killed `init` leaves any prefix of these files, in this order, with the marker.
    let steps = [RACK, CONFIG, CREDENTIALS, WORKSHOP, "drives/0000", "drives/0095", "identity.new"];
    for cut in 0..=steps.len() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(LOCK), "123\n").unwrap();
        let uuid = identity::random_uuid().unwrap();
        fs::write(root.path().join(UNFINISHED), format!("{uuid}\n")).unwrap();
        for step in &steps[..cut] {
            let (from, to) = (whole.join(step), root.path().join(step));
            if from.is_dir() { fs::create_dir_all(&to).unwrap() } else { fs::write(&to, "torn").unwrap() }
        }
        let message = refusal(root.path());
        assert!(message.contains("is an unfinished data directory") && message.contains("larder init"), "{message}");
        drop(DataDir::init(root.path(), &options()).unwrap());
        DataDir::open(root.path()).unwrap();
    }
    let bare = tempfile::tempdir().unwrap();
    fs::write(bare.path().join(LOCK), "").unwrap();
    assert!(matches!(DataDir::open(bare.path()), Err(DataDirError::Missing(_))));
    DataDir::init(bare.path(), &options()).unwrap();
}

#[test]
fn labels_that_a_killed_init_left_on_drives_elsewhere_are_taken_back() {
    let root = tempfile::tempdir().unwrap();
    let away = root.path().join("mnt/a");
    let (_, nas8) = SHIPPED.iter().find(|(name, _)| *name == "nas8").unwrap();
    let own = format!("slot = [0, 0, 0]\npath = {:?}", away.to_str().unwrap());
    let description = root.path().join("rack.toml");
    fs::write(&description, nas8.replacen("slot = [0, 0, 0]", &own, 1)).unwrap();
    let options = InitOptions { rack: description.to_str().unwrap().into(), settings: vec![], wipe: vec![] };
    let (path, other) = (root.path().join("data"), root.path().join("other"));
    let uuid = DataDir::init(&path, &options).unwrap().rack_uuid();

    let message = DataDir::init(&other, &options).unwrap_err().to_string();
    assert!(message.contains("cannot label the drives") && message.contains("no other rack"), "{message}");
    // As if the first `init` had been killed before it wrote its identity.
    fs::remove_file(path.join(IDENTITY)).unwrap();
    fs::write(path.join(UNFINISHED), uuid.to_string()).unwrap();
    let again = DataDir::init(&path, &options).unwrap();
    assert_ne!(again.rack_uuid(), uuid);
    assert_eq!(again.drive(DriveId(0)), away);
}

#[test]
fn two_servers_on_one_directory_are_refused_by_process_id() {
    let (_root, path) = made();
    let first = DataDir::open(&path).unwrap();
    let message = refusal(&path);
    assert!(message.contains(&format!("is in use by process {}; stop that server", std::process::id())), "{message}");
    drop(first);
    DataDir::open(&path).unwrap();
}

#[test]
fn a_damaged_identity_is_refused() {
    let (_root, path) = made();
    let sound = fs::read_to_string(path.join(IDENTITY)).unwrap();
    for (wrong, expected) in [
        (sound.replace("drives = 96", "drives = 97"), "checksum does not match"),
        (sound.replace("version = 2", "version = 3"), "use the Larder that made it"),
        (sound.replace("rack = ", "rack = x"), "bad line `rack`"),
        (sound.replace("code = ", "kode = "), "no line `code`"),
        (sound[..sound.len() - 2].to_owned(), "checksum does not match"),
        (format!("{sound}more\n"), "checksum does not match"),
        (String::new(), "is not the identity"),
        ("key = 1\n".to_owned(), "is not the identity"),
    ] {
        fs::write(path.join(IDENTITY), &wrong).unwrap();
        assert!(refusal(&path).contains(expected), "{}", refusal(&path));
    }
    fs::write(path.join(IDENTITY), [0xff, 0xfe]).unwrap();
    assert!(refusal(&path).contains("is not text"));
    fs::write(path.join(IDENTITY), sound).unwrap();
    DataDir::open(&path).unwrap();
}

#[test]
fn the_version_of_an_earlier_larder_is_read_and_raised_once() {
    let (_root, path) = made();
    let now = fs::read_to_string(path.join(IDENTITY)).unwrap();
    let (body, _) = now.rsplit_once("checksum").unwrap();
    let body = body.replace("version = 2", "version = 1");
    let earlier = format!("{body}checksum = {:08x}\n", identity::crc32c(body.as_bytes()));
    fs::write(path.join(IDENTITY), &earlier).unwrap();
    fs::write(path.join("identity.new"), "what a killed one left").unwrap();
    let dir = DataDir::open(&path).unwrap();
    assert_eq!(fs::read_to_string(path.join(IDENTITY)).unwrap(), earlier, "to open it raises nothing");
    assert_eq!(dir.raise_version().unwrap(), Some((1, 2)));
    assert_eq!(fs::read_to_string(path.join(IDENTITY)).unwrap(), now);
    assert!(!path.join("identity.new").exists());
    drop(dir);
    assert_eq!(DataDir::open(&path).unwrap().raise_version().unwrap(), None);
}

#[test]
fn missing_parts_are_named() {
    let (_root, path) = made();
    for (part, fix) in [
        (RACK, "restore it from a backup"),
        (CREDENTIALS, "restore it from a backup"),
        (CONFIG, "restore it from a backup"),
        (WORKSHOP, "restore it, or, if it is lost, run `larder recover"),
        (CATALOG, "restore it, or, if it is lost, run `larder recover"),
    ] {
        fs::rename(path.join(part), path.join("aside")).unwrap();
        let message = refusal(&path);
        assert!(message.contains(&format!("/{part} is missing; {fix}")), "{message}");
        fs::rename(path.join("aside"), path.join(part)).unwrap();
    }
    fs::write(path.join(CREDENTIALS), "export AWS_ACCESS_KEY_ID=\n").unwrap();
    assert!(refusal(&path).contains("has no line `export AWS_ACCESS_KEY_ID=...` with a key"));
}

#[test]
fn a_description_may_change_but_for_what_decides_where_data_lies() {
    let (_root, path) = made();
    let sound = fs::read_to_string(path.join(RACK)).unwrap();
    for harmless in
        [("mount = ", "mount = \"1 s\" #"), ("pack = ", "pack = \"8 MiB\" #"), ("rated_starts = ", "rated_starts = 1#")]
    {
        fs::write(path.join(RACK), sound.replacen(harmless.0, harmless.1, 1)).unwrap();
        DataDir::open(&path).unwrap();
    }
    for (from, to, what) in [
        ("k = 4", "k = 3", "the code is 3+2 fragments of 65536 bytes, and the drives were laid out for 4+2"),
        ("group_drives = 8", "group_drives = 6", "`group_drives` is 6, and the drives were laid out for 8"),
        ("height = 6", "height = 5", "the number of drives is 80"),
        ("active_drives = 1", "active_drives = 2", "slots, domains and limits"),
    ] {
        fs::write(path.join(RACK), sound.replacen(from, to, 1)).unwrap();
        let message = refusal(&path);
        assert!(message.contains(what) && message.contains("restore the earlier description"), "{message}");
    }
    fs::write(path.join(RACK), sound.replacen("[code]", "[kode]", 1)).unwrap();
    assert!(refusal(&path).contains("rack.toml:"), "a wrong description is refused at its place");
}

#[test]
fn uuids_are_read_as_they_are_written() {
    let uuid = identity::random_uuid().unwrap();
    assert_eq!(identity::uuid_from(&uuid.to_string()), Some(uuid));
    for wrong in ["", "x", "00112233445566778899aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF"] {
        assert_eq!(identity::uuid_from(wrong), None);
    }
}

#[test]
fn a_device_that_is_no_disk_is_refused_before_anything_is_made() {
    let root = tempfile::tempdir().unwrap();
    let (_, nas8) = SHIPPED.iter().find(|(name, _)| *name == "nas8").unwrap();
    for path in ["/dev/sdx0", "/dev/null"] {
        let rack = root.path().join("rack.toml");
        fs::write(&rack, nas8.replacen("[[drives]]", &format!("[[drives]]\npath = \"{path}\""), 1)).unwrap();
        let wanted = InitOptions { rack: rack.to_str().unwrap().into(), ..options() };
        let message = DataDir::init(&root.path().join("data"), &wanted).unwrap_err().to_string();
        assert!(
            message.contains(&format!("there is no disk {path}")) && message.contains("drive 1 has no path"),
            "{message}"
        );
        assert!(!root.path().join("data").exists() && !Path::new("/dev/sdx0").exists());
    }
}

#[test]
fn root_makes_a_directory_for_its_owner_and_others_for_themselves() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("data");
    fs::create_dir(&path).unwrap();
    let is_root = fs::metadata(&path).unwrap().uid() == 0;
    let owner =
        if is_root { (990, 991) } else { (fs::metadata(&path).unwrap().uid(), fs::metadata(&path).unwrap().gid()) };
    if is_root {
        std::os::unix::fs::chown(&path, Some(owner.0), Some(owner.1)).unwrap();
    }
    drop(DataDir::init(&path, &options()).unwrap());
    for name in ["", IDENTITY, CATALOG, CREDENTIALS, LOCK, WORKSHOP, "drives/0003/larder.label"] {
        let found = fs::metadata(path.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), owner, "{name}");
    }
    let dir = DataDir::open(&path).unwrap();
    // As after `larder drive replace`, whose directory and label root has made.
    let (drive, place) = (path.join("drives/0003"), root.path().join("mounted"));
    fs::remove_dir_all(&drive).unwrap();
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::symlink(&place, &drive).unwrap();
    fs::write(drive.join("larder.label"), "").unwrap();
    dir.give_drive(&drive).unwrap();
    for path in [place.join("larder.label"), place.clone()] {
        let found = fs::metadata(path).unwrap();
        assert_eq!((found.uid(), found.gid()), owner);
    }
    if is_root {
        std::os::unix::fs::chown(&place, Some(1234), Some(1234)).unwrap();
        dir.give_drive(&drive).unwrap();
        assert_eq!(fs::metadata(&place).unwrap().uid(), 1234, "it is another user's");
    }
}
