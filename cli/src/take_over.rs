//! `larder take-over`: the operator's consent to use drives that another server has marked.

use crate::args::TakeOver;
use crate::output::{self, wait_for};
use server::offline::Offline;

const DONE: &str = "\
taken over  this data directory now owns all drives that another server has marked
next        start the server. It removes nothing from the rack until the newest catalog is back: restore it, or run
            `larder recover --replace`, or set accept_older_catalog = true in larder.toml if this one is the newest
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
