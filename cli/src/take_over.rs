//! `larder take-over`: the operator's consent to use drives that another server has marked.

use crate::args::TakeOver;
use crate::output::{self, wait_for};
use server::offline::Offline;

const DONE: &str = "\
taken over  this data directory now owns all drives that another server has marked
next        if this directory was put back from a backup, `larder recover --replace --base drives` makes the newest
            catalog again from its copies on drives; if its catalog is the newest, set accept_older_catalog = true in
            larder.toml; then start the server. It removes nothing from the rack before that
";

/// `larder take-over`.
pub fn take_over(options: &TakeOver) -> anyhow::Result<()> {
    wait_for(async {
        Offline::take_over(&options.data.data).await?;
        if options.json {
            return output::print_json(&serde_json::json!({ "taken_over": true }));
        }
        Ok(output::print(DONE)?)
    })
}
