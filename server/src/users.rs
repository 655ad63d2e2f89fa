//! The users who sign requests: the root user, whose keys are in the data directory's `credentials`, and those in
//! the catalog.
//!
//! A user's name owns buckets and never changes; its keys do, with [`Users::rotate`]. A change is durable before it is
//! answered, and every request that is verified later sees it: old keys are invalid from then on. The users are held in
//! memory, so no request waits for the catalog to learn who sent it.
//!
//! Changes are made one after the other.

use crate::data_dir::{CREDENTIALS, Credentials, DataDirError, replace_credentials};
use crate::report::{NewKeys, UserReport};
use catalog::{Catalog, CatalogError, User};
use parking_lot::RwLock;
use s3::AccessKeys;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The name of the user that every data directory has.
pub const ROOT: &str = "root";
/// The longest name of a user, in characters.
const NAME_CHARS: usize = 64;
/// The most users, besides root.
const USERS_MAX: usize = 10_000;

/// All users who may sign requests.
pub struct Users {
    catalog: Catalog,
    dir: PathBuf,
    wall: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// By access key. The catalog has no record of root.
    known: RwLock<BTreeMap<String, User>>,
    changes: Mutex<()>,
}

/// The reason that a change of users failed.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// No user can have this name.
    #[error("`{0}` is not a user name; write 1 to {NAME_CHARS} letters, digits, dots, hyphens or underscores")]
    BadName(String),
    /// A user has this name already.
    #[error("there is a user {0} already; `larder user rotate {0}` creates new keys")]
    Exists(String),
    /// No user has this name.
    #[error("there is no user {0}; `larder user list` lists them")]
    Unknown(String),
    /// Root cannot be removed.
    #[error("the user root cannot be removed; `larder user rotate root` creates new keys")]
    Root,
    /// It still owns buckets.
    #[error("{name} owns {buckets}; remove those first, or take the keys away with `larder user rotate {name}`")]
    OwnsBuckets {
        /// The user.
        name: String,
        /// Their number, and some of their names.
        buckets: String,
    },
    /// There is no room for more.
    #[error("there are {USERS_MAX} users already; remove some")]
    TooMany,
    /// The catalog failed.
    #[error("catalog: {0}")]
    Catalog(#[from] CatalogError),
    /// The file with root's keys could not be written, or no keys could be drawn.
    #[error(transparent)]
    Credentials(#[from] DataDirError),
}

impl Users {
    /// The users of a catalog, and root with these keys, whose file is in `dir`.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn open(
        catalog: Catalog,
        dir: PathBuf,
        root: &Credentials,
        wall: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> Result<Self, CatalogError> {
        let users = catalog.users().await?.into_iter().chain([root_with(root.clone())]);
        let known = users.map(|user| (user.access_key.clone(), user)).collect();
        catalog.set_access_key(ROOT, &root.access_key).await?;
        Ok(Self { catalog, dir, wall, known: RwLock::new(known), changes: Mutex::default() })
    }

    /// All users, root first and then by name, without secrets.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn list(&self) -> Result<Vec<UserReport>, UserError> {
        let mut owned: BTreeMap<String, u64> = BTreeMap::new();
        for bucket in self.catalog.buckets().await? {
            *owned.entry(bucket.owner).or_default() += 1;
        }
        let known = self.known.read();
        let mut users: Vec<UserReport> = known
            .values()
            .map(|user| UserReport {
                name: user.name.clone(),
                access_key: user.access_key.clone(),
                rotated_ms: (user.name != ROOT).then_some(user.rotated_ms),
                buckets: owned.get(&user.name).copied().unwrap_or(0),
            })
            .collect();
        users.sort_by(|a, b| (a.name != ROOT, &a.name).cmp(&(b.name != ROOT, &b.name)));
        Ok(users)
    }

    /// Creates a user.
    ///
    /// # Errors
    /// [`UserError`].
    pub async fn add(&self, name: &str) -> Result<NewKeys, UserError> {
        let _alone = self.changes.lock().await;
        check_name(name)?;
        if name == ROOT {
            return Err(UserError::Exists(name.to_owned()));
        }
        if self.known.read().len() > USERS_MAX {
            return Err(UserError::TooMany);
        }
        let user = self.with_fresh_keys(name, None)?;
        self.catalog.add_user(&user).await.map_err(|error| refusal(name, error))?;
        Ok(self.learn(user))
    }

    /// Gives a user other keys; the old ones are no longer valid.
    ///
    /// # Errors
    /// [`UserError`].
    pub async fn rotate(&self, name: &str) -> Result<NewKeys, UserError> {
        let _alone = self.changes.lock().await;
        if name == ROOT {
            let dir = self.dir.clone();
            let user = root_with(replace_credentials(&dir)?);
            self.catalog.set_access_key(ROOT, &user.access_key).await?;
            let file = Some(dir.join(CREDENTIALS).display().to_string());
            return Ok(NewKeys { file, ..self.learn(user) });
        }
        let user = self.with_fresh_keys(name, Some(self.named(name)?.created_ms))?;
        self.catalog.replace_user(&user).await.map_err(|error| refusal(name, error))?;
        Ok(self.learn(user))
    }

    /// Removes a user who owns no bucket.
    ///
    /// # Errors
    /// [`UserError`].
    pub async fn remove(&self, name: &str) -> Result<(), UserError> {
        let _alone = self.changes.lock().await;
        if name == ROOT {
            return Err(UserError::Root);
        }
        self.owns_nothing(name).await?;
        let user = self.named(name)?;
        self.catalog.remove_user(name).await.map_err(|error| refusal(name, error))?;
        // From here on no bucket is created for the user; the check covers one that was created meanwhile, which must
        // have an owner.
        if let Err(error) = self.owns_nothing(name).await {
            self.catalog.add_user(&user).await.map_err(|error| refusal(name, error))?;
            return Err(error);
        }
        self.known.write().retain(|_, known| known.name != name);
        Ok(())
    }

    async fn owns_nothing(&self, name: &str) -> Result<(), UserError> {
        let buckets = self.catalog.buckets().await?;
        let owned: Vec<String> =
            buckets.into_iter().filter(|bucket| bucket.owner == name).map(|bucket| bucket.name).collect();
        if owned.is_empty() {
            return Ok(());
        }
        let some = owned.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if owned.len() > 3 { ", ..." } else { "" };
        let plural = if owned.len() == 1 { "bucket" } else { "buckets" };
        let buckets = format!("{} {plural} ({some}{more})", owned.len());
        Err(UserError::OwnsBuckets { name: name.to_owned(), buckets })
    }

    fn with_fresh_keys(&self, name: &str, created_ms: Option<u64>) -> Result<User, UserError> {
        let now_ms = (self.wall)();
        let Credentials { access_key, secret_key } = Credentials::random()?;
        Ok(User {
            name: name.to_owned(),
            access_key,
            secret: secret_key,
            created_ms: created_ms.unwrap_or(now_ms),
            rotated_ms: now_ms,
        })
    }

    /// From here on `user` signs with these keys only.
    fn learn(&self, user: User) -> NewKeys {
        let mut known = self.known.write();
        known.retain(|_, known| known.name != user.name);
        let other = known.insert(user.access_key.clone(), user.clone());
        assert!(other.is_none(), "an access key is one user's");
        NewKeys { name: user.name, access_key: user.access_key, secret_key: user.secret, file: None }
    }

    fn named(&self, name: &str) -> Result<User, UserError> {
        let known = self.known.read();
        let found = known.values().find(|user| user.name == name);
        found.cloned().ok_or_else(|| UserError::Unknown(name.to_owned()))
    }
}

impl AccessKeys for Users {
    fn secret(&self, access_key: &str) -> Option<String> {
        self.known.read().get(access_key).map(|user| user.secret.clone())
    }

    fn user(&self, access_key: &str) -> Option<String> {
        self.known.read().get(access_key).map(|user| user.name.clone())
    }
}

fn root_with(Credentials { access_key, secret_key }: Credentials) -> User {
    User { name: ROOT.to_owned(), access_key, secret: secret_key, created_ms: 0, rotated_ms: 0 }
}

fn check_name(name: &str) -> Result<(), UserError> {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    let is_name = (1..=NAME_CHARS).contains(&name.len()) && name.bytes().all(sound) && !name.starts_with(['.', '-']);
    if is_name { Ok(()) } else { Err(UserError::BadName(name.to_owned())) }
}

fn refusal(name: &str, error: CatalogError) -> UserError {
    match error {
        CatalogError::UserExists => UserError::Exists(name.to_owned()),
        CatalogError::NoSuchUser => UserError::Unknown(name.to_owned()),
        error => UserError::Catalog(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use catalog::{Bucket, MemoryStore};
    use tempfile::TempDir;

    async fn users(store: &MemoryStore) -> (Users, TempDir) {
        let catalog = Catalog::open(Arc::new(store.clone())).await.unwrap();
        let dir = TempDir::new().unwrap();
        let root = Credentials { access_key: "ROOTKEY".into(), secret_key: "roots secret".into() };
        let users = Users::open(catalog, dir.path().to_owned(), &root, Arc::new(|| 7)).await.unwrap();
        (users, dir)
    }

    #[tokio::test]
    async fn keys_are_good_from_the_answer_on_and_until_they_are_rotated_or_removed() {
        let store = MemoryStore::new();
        let (users, _dir) = users(&store).await;
        assert_eq!(users.user("ROOTKEY").as_deref(), Some(ROOT));
        let first = users.add("ann").await.unwrap();
        assert_eq!(users.user(&first.access_key).as_deref(), Some("ann"));
        assert_eq!(users.secret(&first.access_key), Some(first.secret_key.clone()));
        assert!(matches!(users.add("ann").await, Err(UserError::Exists(_))));
        let second = users.rotate("ann").await.unwrap();
        assert_ne!((&first.access_key, &first.secret_key), (&second.access_key, &second.secret_key));
        assert_eq!((users.secret(&first.access_key), users.user(&first.access_key)), (None, None));
        assert_eq!(users.secret(&second.access_key), Some(second.secret_key));
        users.remove("ann").await.unwrap();
        assert_eq!(users.user(&second.access_key), None);
        assert!(matches!(users.rotate("ann").await, Err(UserError::Unknown(_))));
        assert!(matches!(users.remove("ann").await, Err(UserError::Unknown(_))));
    }

    #[tokio::test]
    async fn users_are_there_after_a_crash() {
        let store = MemoryStore::new();
        let (before, _dir) = users(&store).await;
        let keys = before.add("ann").await.unwrap();
        let (after, _dir) = users(&store.crash()).await;
        assert_eq!(after.secret(&keys.access_key), Some(keys.secret_key));
        let listed: Vec<_> = after.list().await.unwrap().into_iter().map(|user| (user.name, user.rotated_ms)).collect();
        assert_eq!(listed, [(ROOT.to_owned(), None), ("ann".to_owned(), Some(7))]);
    }

    #[tokio::test]
    async fn root_stays_and_its_new_keys_are_in_its_file() {
        let (users, dir) = users(&MemoryStore::new()).await;
        assert!(matches!(users.remove(ROOT).await, Err(UserError::Root)));
        assert!(matches!(users.add(ROOT).await, Err(UserError::Exists(_))));
        let keys = users.rotate(ROOT).await.unwrap();
        assert_eq!((users.user("ROOTKEY"), users.user(&keys.access_key).as_deref()), (None, Some(ROOT)));
        let text = std::fs::read_to_string(dir.path().join("credentials")).unwrap();
        assert!(text.contains(&keys.access_key) && text.contains(&keys.secret_key));
        assert!(keys.file.unwrap().ends_with("/credentials"), "who rotates learns where the keys are");
    }

    #[tokio::test]
    async fn who_owns_a_bucket_is_not_removed() {
        let store = MemoryStore::new();
        let (users, _dir) = users(&store).await;
        users.add("ann").await.unwrap();
        users.catalog.create_bucket(&Bucket::new("attic", 1, "ann")).await.unwrap();
        let refused = users.remove("ann").await.unwrap_err().to_string();
        assert!(refused.contains("1 bucket (attic)"), "{refused}");
        assert_eq!(users.list().await.unwrap()[1].buckets, 1);
        users.catalog.delete_bucket("attic").await.unwrap();
        users.remove("ann").await.unwrap();
    }

    #[tokio::test]
    async fn names_are_plain() {
        let (users, _dir) = users(&MemoryStore::new()).await;
        for name in ["", "a b", "ä", "a/b", "-a", ".a", &"a".repeat(65)] {
            assert!(matches!(users.add(name).await, Err(UserError::BadName(_))), "{name}");
        }
        users.add("A.b-c_1").await.unwrap();
    }
}
