//! `larder user`: the users who may sign requests. The server makes each change, effective at once.

use crate::args::{List, UserName};
use crate::human;
use crate::output::{ask, show};
use server::report::{NewKeys, UserReport};

/// `larder user add`.
pub fn add(options: &UserName) -> anyhow::Result<()> {
    let made = ask(&options.data, async |client| client.add_user(&options.name).await)?;
    keys(options, &made, "they are stored only in the catalog")
}

/// `larder user rotate`.
pub fn rotate(options: &UserName) -> anyhow::Result<()> {
    let made = ask(&options.data, async |client| client.rotate_user(&options.name).await)?;
    let written = match &made.file {
        Some(file) => format!("{file} now has them, and the old keys are no longer valid"),
        None => "they replace the old keys in the catalog, which are no longer valid; no file was changed".to_owned(),
    };
    keys(options, &made, &written)
}

/// `larder user remove`.
pub fn remove(options: &UserName) -> anyhow::Result<()> {
    ask(&options.data, async |client| client.remove_user(&options.name).await)?;
    let removed = serde_json::json!({ "removed": options.name });
    show(options.json, &removed, |_| format!("removed the user {}\n", options.name))
}

/// `larder user list`.
pub fn list(options: &List) -> anyhow::Result<()> {
    let users = ask(&options.data, async |client| client.users().await)?;
    show(options.json, &users, |users| table(users))
}

fn keys(options: &UserName, keys: &NewKeys, written: &str) -> anyhow::Result<()> {
    show(options.json, keys, |NewKeys { name, access_key, secret_key, .. }| {
        format!(
            "# the keys of the user {name}; the secret is not shown again\n\
             # {written}\n\
             export AWS_ACCESS_KEY_ID={access_key}\n\
             export AWS_SECRET_ACCESS_KEY={secret_key}\n"
        )
    })
}

/// A row for each of `users`.
fn table(users: &[UserReport]) -> String {
    let row = |user: &UserReport| vec![user.name.clone(), user.access_key.clone(), human::count(user.buckets)];
    human::table(&["user", "access key", "buckets"], &["buckets"], users.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_row() {
        let user = UserReport { name: "ann".into(), access_key: "LRDRX".into(), rotated_ms: Some(1), buckets: 3 };
        let text = table(&[user]);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["ann", "LRDRX", "3"]);
    }
}
